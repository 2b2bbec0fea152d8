"""Lists that miss a few more machines each time are doubted, however often the server restarts in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cloudgraft.engine.groups.desired import DesiredState
from cloudgraft.engine.groups.specs import MASS_ABSENCE
from cloudgraft.engine.operations.accept_loss import accept_loss
from cloudgraft.sdk.driver import Machine
from cloudgraft.store.records import Scope, State
from tests.engine.clusters import MemoryCluster
from tests.engine.engine_rig import HandClock
from tests.engine.scripted_cloud import Case, Cloud, desired_state, group, stepped

HOLD = MASS_ABSENCE.hold or 0.0


class Hiding(Cloud):
    """Lists without some of its machines."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden: set[str] = set()

    async def list(self) -> Sequence[Machine]:
        return [machine for machine in await super().list() if machine.machine_id not in self.hidden]


class Server:
    """One that restarts, on the same journal, clock and cloud."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cloud = Hiding()
        self.clock = HandClock()
        self.cluster: MemoryCluster | None = None

    def desired_state(self) -> DesiredState:
        return desired_state({"a": self.cloud}, group())

    @asynccontextmanager
    async def life(self) -> AsyncIterator[Case]:
        async with stepped(self.directory, self.desired_state(), clock=self.clock, cluster=self.cluster) as case:
            yield case

    async def grow(self) -> Iterator[str]:
        """Six machines; gives their ids one by one."""
        async with self.life() as case:
            await case.grow(6)
        return iter(list(self.cloud.machines))


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


async def test_losses_of_two_at_a_time_add_up_over_restarts(server: Server) -> None:
    ids = await server.grow()
    for _ in range(3):
        server.cloud.hidden |= {next(ids), next(ids)}
        async with server.life() as case:
            await case.turns(3)
            assert case.records(State.GONE) == 2
    server.cloud.hidden.clear()
    async with server.life() as case:
        await case.turns(3)
        assert (case.records(State.GONE), case.records(State.RUNNING)) == (0, 6)
        first, second = await case.events("breaker")
    assert "misses 4 of 6 machines at once" in first
    assert "misses 6 of 6 machines at once" in second


async def test_a_crash_loop_believes_no_more_than_a_server_that_runs_through(server: Server) -> None:
    """Restarted after every list, while one more machine is missing after every third."""
    ids = await server.grow()
    for _ in range(6):
        server.cloud.hidden.add(next(ids))
        for _ in range(3):
            async with server.life() as case:
                await case.turns(2)
                assert case.records(State.GONE) <= 2
                assert case.records(State.RUNNING) >= 4


async def test_a_loss_is_forgotten_in_its_time_also_over_a_restart(server: Server) -> None:
    ids = await server.grow()
    server.cloud.hidden |= {next(ids), next(ids)}
    async with server.life() as case:
        await case.turns(3)
        assert case.records(State.GONE) == 2
    server.clock.advance(HOLD)
    server.cloud.hidden |= {next(ids), next(ids)}
    async with server.life() as case:
        await case.turns(3)
        assert (case.records(State.GONE), await case.events("breaker")) == (4, [])


async def test_what_an_operator_accepted_does_not_count_after_a_restart(server: Server) -> None:
    ids = await server.grow()
    server.cloud.hidden |= {next(ids), next(ids), next(ids), next(ids)}
    async with server.life() as case:
        await case.turns(2)
        assert await accept_loss(case.engine, Scope.CLOUD, "a") == 4
        await case.turns(3)
        assert (case.records(State.GONE), await case.events("loss")) == (4, [])
    async with server.life() as case:
        await case.turns(2)
        assert len(await case.events("breaker")) == 1


async def test_losses_that_nodes_bear_out_do_not_count(server: Server) -> None:
    server.cluster = MemoryCluster()
    async with server.life() as case:
        names = await case.grow(6)
        server.cluster.join(*names)
        await case.turns(1)
        ill = case.machines(State.RUNNING)[:2]
        server.cluster.fall_ill(case.clock.now(), *(record.name for record in ill))
        server.cloud.hidden |= {record.machine_id for record in ill}
        await case.turns(3)
        assert (case.records(State.GONE), await case.events("loss")) == (2, [])


async def test_a_new_driver_of_the_same_cloud_is_doubted_too(server: Server) -> None:
    """A changed option gives the cloud a new worker in the same process."""
    ids = await server.grow()
    async with server.life() as case:
        server.cloud.hidden |= {next(ids), next(ids)}
        await case.turns(3)
        assert case.records(State.GONE) == 2
        changed = {name: replace(one, fingerprint="other") for name, one in server.desired_state().clouds.items()}
        case.engine.reconfigure(replace(server.desired_state(), clouds=changed))
        await case.engine.refresh()
        server.cloud.hidden |= {next(ids), next(ids)}
        await case.turns(3)
        assert case.records(State.GONE) == 2


async def test_a_restart_does_not_shorten_the_time_that_a_list_must_last(server: Server) -> None:
    await server.grow()
    server.cloud.is_blind = True
    async with server.life() as case:
        await case.turns(int(HOLD // 10) - 1)
        assert case.records(State.RUNNING) == 6
    async with server.life() as case:
        await case.turns(int(HOLD // 10) - 1)
        assert case.records(State.RUNNING) == 6
        await case.turns(5)
        assert case.records(State.GONE) == 6
