"""SIGSTOP: a frozen driver is noticed within the promised time, nothing is guessed meanwhile, and nothing is doubled.

Its connection stays open: the kernel goes on taking bytes for it. v1 notices by heartbeats, v0 by the pings of HTTP/2.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import pytest

from cloudgraft.dock.hub.hub import HubSettings
from cloudgraft.dock.hub.settings import NOTICED_WITHIN
from cloudgraft.dock.runner import Speech
from cloudgraft.sdk.driver import Idempotency
from cloudgraft.sdk.errors import DeadlineError, UnavailableError
from tests.conditions import until
from tests.dock.hub.hub_rig import QUICK
from tests.dock.runner.driver_program import DriverProcess
from tests.dock.runner.drivers import GatedDriver, running
from tests.dock.runner.hanging_cloud import HangingCloud
from tests.dock.runner.real_hub import KEY, Dock, HubProcess, dock

T = TypeVar("T")
BOTH: Final = [Speech.V0, Speech.V1]
ALLOWANCE: Final = 10.0  # seconds, for a machine that does many things at a time


async def frozen_in_mid_create(own: Dock, sky: HangingCloud, driver: DriverProcess) -> asyncio.Task[object]:
    """A create that has reached the cloud, and a driver that will not receive of its end."""
    await own.connected()
    sky.hangs(yes=True)
    making: asyncio.Task[object] = asyncio.create_task(own.make("m-1", seconds=300.0))
    await until(lambda: sky.cloud.asked == 1, what="the cloud is asked")
    driver.send(signal.SIGSTOP)
    return making


async def answered(ask: Callable[[], Awaitable[T]]) -> T:
    """Asks again while the driver is between two connections: on a busy machine it may lose more than the first."""
    while True:
        try:
            return await ask()
        except (UnavailableError, DeadlineError):
            await asyncio.sleep(0.05)


@pytest.mark.timeout(150)  # a process is started, and patience is what is tested
@pytest.mark.parametrize("speech", BOTH)
async def test_a_frozen_driver_is_noticed_and_after_it_thaws_there_is_one_machine(speech: Speech) -> None:
    """Laws 1 to 3: the outcome is unknown; the cloud makes the machine, would make two, and is asked for one."""
    with HangingCloud(Idempotency.NONE) as sky:
        async with dock(QUICK[speech.value]) as own:
            with DriverProcess(own.address, sky.url, speech) as driver:
                making = await frozen_in_mid_create(own, sky, driver)
                with pytest.raises(DeadlineError, match="unknown"):
                    await making
                await until(lambda: own.hub.info(KEY) is None, what="it is known to be away")
                with pytest.raises(UnavailableError):
                    await own.make("m-1")
                sky.hangs(yes=False)
                await until(lambda: sky.names() == ["m-1"])
                driver.send(signal.SIGCONT)
                await own.connected()
                if speech is Speech.V1:  # v0 has no word for it: there a list tells
                    await until(lambda: own.hub.counts().get("late") == 1, what="the machine is told of")
                assert await answered(own.names) == ["m-1"]
                again = await answered(lambda: own.make("m-1"))
                assert (again.name, sky.names(), sky.cloud.asked) == ("m-1", ["m-1"], 1)
                assert own.hub.counts().get("late", 0) <= 1, "a result is told once"
                assert await asyncio.to_thread(driver.end, signal.SIGTERM) == 0


@pytest.mark.thorough
@pytest.mark.timeout(150)
@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
@pytest.mark.parametrize("speech", BOTH)
async def test_as_it_is_delivered_a_frozen_driver_is_noticed_within_the_promised_time(
    speech: Speech, is_busy: bool
) -> None:
    """Also when more is asked of it all the time: what is written to it is no sign of its life."""
    with HangingCloud() as sky:
        async with dock(HubSettings()) as own:
            with DriverProcess(own.address, sky.url, speech) as driver:
                making = await frozen_in_mid_create(own, sky, driver)
                began = time.monotonic()
                asking = asyncio.create_task(ask_on(own)) if is_busy else None
                with pytest.raises(DeadlineError, match="unknown"):
                    await making
                noticed = time.monotonic() - began
                assert own.hub.info(KEY) is None
                assert noticed < NOTICED_WITHIN + ALLOWANCE
                if asking is not None:
                    asking.cancel()
                    await asyncio.gather(asking, return_exceptions=True)
                driver.send(signal.SIGCONT)


async def ask_on(own: Dock) -> None:
    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(unanswered(own))
            await asyncio.sleep(0.5)


async def unanswered(own: Dock) -> None:
    with pytest.raises((DeadlineError, UnavailableError)):
        await own.names()


def test_the_promised_time_is_what_the_settings_make_of_it() -> None:
    assert HubSettings() == HubSettings.beating(NOTICED_WITHIN / 3)
    for settings, noticed in ((HubSettings(), NOTICED_WITHIN), (HubSettings.beating(2.0), 6.0)):
        assert settings.silence == pytest.approx(noticed)
        assert settings.keepalive + settings.keepalive_timeout == pytest.approx(noticed)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "speech", [pytest.param(Speech.V0, marks=pytest.mark.thorough), Speech.V1], ids=lambda speech: speech.value
)
async def test_a_frozen_hub_is_noticed_by_its_driver_which_finishes_and_comes_back(speech: Speech) -> None:
    """The create goes on, and its result is told once the hub is there again."""
    driver = GatedDriver()
    gate = driver.hold("m-1")
    with HubProcess(heartbeat=1.0) as hub:
        async with running(driver, f"127.0.0.1:{hub.port}", speech=speech, keepalive=2.0, handshake=5.0) as runner:
            await hub.until("counts")
            hub.order("create m-1")  # its outcome is open, whatever the hub says of it
            await until(lambda: driver.begun == ["m-1"])
            hub.send(signal.SIGSTOP)
            await until(lambda: not runner.is_connected, what="the driver has noticed", seconds=60.0)
            gate.set()
            await until(lambda: len(driver.machines) == 1)
            hub.send(signal.SIGCONT)
            await until(lambda: runner.is_connected, seconds=60.0)
            assert await hub.told("list") == ["m-1"]
            assert await hub.told("create m-1") == ("id-1" if speech is Speech.V1 else "lab://1")
            await until(lambda: runner.unacknowledged == 0)
            assert driver.begun == ["m-1"]
