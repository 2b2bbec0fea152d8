"""The log says why a driver is gone."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable

import pytest

from cloudgraft.dock.hub.hub import HubSettings
from cloudgraft.wire.pb import dock_pb2 as v1
from cloudgraft.wire.pb import dock_v0_pb2 as v0
from tests.conditions import until
from tests.dock.hub.hub_rig import ACME, CALM, Rig, rigged
from tests.dock.hub.raw_drivers import RawV0, RawV1, registration

LOST = "its connection was lost, or it cancelled the stream"


async def closes(_rig: Rig, driver: RawV0 | RawV1) -> None:
    await driver.stream.done_writing()


async def cancels(_rig: Rig, driver: RawV0 | RawV1) -> None:
    driver.stream.cancel()


async def unregisters(_rig: Rig, driver: RawV0 | RawV1) -> None:
    assert isinstance(driver, RawV0)
    await driver.send(v0.DriverSide(operationType="unregister"))


async def says_goodbye(_rig: Rig, driver: RawV0 | RawV1) -> None:
    assert isinstance(driver, RawV1)
    await driver.send(v1.DriverMessage(bye=v1.Bye(reason="maintenance")))


async def talks_nonsense(_rig: Rig, driver: RawV0 | RawV1) -> None:
    assert isinstance(driver, RawV0)
    for _ in range(CALM.malformed):
        await driver.send(registration())


async def is_replaced(rig: Rig, _driver: RawV0 | RawV1) -> None:
    async with RawV1(rig) as newer:
        await newer.connect()
        await newer.send(v1.DriverMessage(bye=v1.Bye()))  # its own end is another line


async def is_removed(rig: Rig, _driver: RawV0 | RawV1) -> None:
    rig.access.remove("local")


async def outlives_the_hub(rig: Rig, _driver: RawV0 | RawV1) -> None:
    await rig.hub.close(0)


@pytest.mark.parametrize(
    ("kind", "act", "why"),
    [
        (RawV0, closes, "it closed the stream"),
        (RawV1, closes, "it closed the stream"),
        (RawV0, cancels, LOST),
        (RawV1, cancels, LOST),
        (RawV0, unregisters, "it unregistered"),
        (RawV1, says_goodbye, "the driver is leaving"),
        (RawV0, talks_nonsense, "the driver sent 10 malformed messages; the last: it registers a second time"),
        (RawV1, is_replaced, "a newer connection has this place"),
        (RawV1, is_removed, "this driver was taken out of the hub's configuration"),
        (RawV0, outlives_the_hub, "the hub is closing"),
    ],
)
async def test_the_log_says_why_a_driver_is_gone(
    kind: type[RawV0 | RawV1],
    act: Callable[[Rig, RawV0 | RawV1], Awaitable[None]],
    why: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "cloudgraft.dock")
    async with rigged() as rig, kind(rig) as driver:
        await (driver.register() if isinstance(driver, RawV0) else driver.connect())
        await until(lambda: rig.hub.info(ACME) is not None)
        await act(rig, driver)
        # The newer connection that replaced it may end first, and for another reason.
        await until(
            lambda: any(line.startswith(f"a driver is gone: {why}") for line in gone(caplog)),
            what=f"the log says: {why}",
        )


def gone(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in map(logging.LogRecord.getMessage, caplog.records) if line.startswith("a driver is gone")]


async def test_the_log_says_that_heartbeats_were_missed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cloudgraft.dock")
    async with rigged(HubSettings(heartbeat=0.2)) as rig, RawV1(rig) as driver:
        await driver.connect()
        await until(lambda: bool(gone(caplog)), what="its end is logged")
    assert gone(caplog)[0].startswith("a driver is gone: the driver sent no heartbeat for ")


@pytest.mark.parametrize("protocol", ["v0", "v1"])
async def test_the_log_says_that_a_killed_driver_lost_its_connection(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cloudgraft.dock")
    async with rigged() as rig:
        command = (sys.executable, "-m", "tests.dock.hub.silent_driver", rig.address, protocol)
        process = await asyncio.create_subprocess_exec(*command)
        try:
            await until(lambda: rig.hub.info(ACME) is not None)
        finally:
            process.kill()
            await process.wait()
        await until(lambda: bool(gone(caplog)), what="its end is logged")
    assert gone(caplog) == [f"a driver is gone: {LOST}"]


async def test_refused_drivers_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """A second instance of a driver tries again every few seconds, and so does one without a valid token."""
    caplog.set_level(logging.INFO, "cloudgraft.dock")
    async with rigged() as rig, RawV0(rig) as driver:
        await driver.register()
        await until(lambda: rig.hub.info(ACME) is not None)
        rig.access.strangers.add("nobody")
        for _ in range(5):
            async with RawV0(rig) as second, RawV0(rig, identity="nobody") as stranger:
                await second.register()
                await asyncio.gather(second.end(), stranger.end())
        assert rig.hub.counts()["refused"] == 10
    refused = [one.getMessage() for one in caplog.records if "was not taken" in one.getMessage()]
    assert len(refused) == 1
    assert "is already registered" in refused[0]
