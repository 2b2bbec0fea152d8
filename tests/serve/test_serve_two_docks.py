"""Two replicas with a dock each: the leader is killed, or stopped and woken, while its driver makes a machine."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.dock.runner import DockRunner, RunnerOptions, RunnerSettings
from cloudgraft.sdk.driver import DriverTraits, Idempotency
from tests.conditions import until
from tests.dock.driver.connected_driver import CLASS, KEY, Slow
from tests.dock.hub.black_hole import BlackHole
from tests.postgres import PostgresServer
from tests.serve.servers import Server, running, targets
from tests.serve.settings import FAST, configuration, postgresql, small

SAID = {"kind": KEY.kind, "apiVersion": KEY.api_version}


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.borrowed() as database:
        yield database


def replica(directory: Path, name: str, url: str) -> Server:
    """One of two servers; each opens the port of its dock when it leads."""
    template = {"instanceType": "small", "capacity": {"cpu": 2, "memory": "4Gi"}}
    dock: dict[str, Any] = {"listen": "127.0.0.1:0", "classes": {CLASS: {**SAID, "nodeTemplate": template}}}
    text = configuration(
        {"acme": {"driver": "dock", **SAID, "machineClass": CLASS, "engine": FAST}},
        [small(cloud="acme")],
        store=postgresql(url),
        admin={"listen": f"unix:{directory}/{name}.sock"},
        dock=dock,
    )
    return Server(directory / f"{name}.yaml", text)


def port_of(server: Server) -> int:
    """Of its dock; waits until it leads."""
    return int(str(server.says("serving drivers that dial in")["address"]).rpartition(":")[2])


async def drivers_at(server: Server) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await server.admin("DockDrivers"))["drivers"]
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_a_driver_that_moves_to_the_next_leader_in_mid_create_has_made_one_machine(
    tmp_path: Path, url: str, how: str
) -> None:
    """Case 35. The driver's create is not idempotent: whoever creates again without a look makes a second machine."""
    behind = Slow(DriverTraits(idempotency=Idempotency.NONE))
    async with contextlib.AsyncExitStack() as stack:
        old = stack.enter_context(replica(tmp_path, "old", url))
        assert port_of(old)  # it leads; the autoscaler is answered once the driver was listed
        new = stack.enter_context(replica(tmp_path, "new", url))
        way = await stack.enter_async_context(BlackHole(port_of(old)).listening())
        settings = RunnerSettings(first_wait=0.05, longest_wait=0.2)
        options = RunnerOptions(address=way.address, kind=KEY.kind, api_version=KEY.api_version, settings=settings)
        runner = DockRunner(behind, options)
        stack.push_async_callback(runner.stop, 0)
        await runner.start()
        autoscaler = await stack.enter_async_context(old.connected())

        await until(old.is_ready, what="the driver was listed", seconds=30)
        await autoscaler.increase_size("small", 1)
        await until(lambda: bool(behind.machines), what="the cloud has made it", seconds=30)
        old.send(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
        way.turn_to(0)
        await until(new.is_ready, what="the other leads", seconds=30)
        way.turn_to(port_of(new))
        await runner.wait_connected()
        async with new.connected() as provider:
            assert await targets(provider) == {"small": 1}
            await running(provider, "small", 1)
            behind.may_answer.set()
            await until(lambda: not runner.unacknowledged and not runner.in_flight, what="it was told")
            if how == "stopped":
                old.send(signal.SIGCONT)
                old.says("disconnecting all drivers")
                assert await drivers_at(old) == []
            await provider.increase_size("small", 1)
            await running(provider, "small", 2)
            assert await targets(provider) == {"small": 2}
            assert [driver["state"] for driver in await drivers_at(new)] == ["ready"]
        names = [spec.name for spec in behind.specs]
        assert (len(names), len(behind.machines)) == (2, 2), names
