"""One run: which group it takes, what it refuses, what it leaves alone, and what it cleans away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from cloudgraft.client import Address, CloudConfig, Connection, RemoteProvider
from cloudgraft.conformance import KitConfig, Report, Result, Session, Status, run
from cloudgraft.conformance.rules import Level
from cloudgraft.sdk import (
    CloudgraftError,
    InstanceState,
    InternalError,
    InvalidArgumentError,
    NodeRef,
    NodeTemplate,
    PreconditionError,
    UnavailableError,
)
from cloudgraft.testing import MemoryGroup, MemoryOptions, MemoryProvider, serving
from tests.conditions import until

SHORT = {"boot": "2s", "delete": "2s", "restart": "500ms", "cleanup": "2s"}


def provider(*groups: MemoryGroup, kind: type[MemoryProvider] = MemoryProvider) -> MemoryProvider:
    return kind(MemoryOptions(groups=groups or (MemoryGroup(id="small"), MemoryGroup(id="other"))))


def kit(address: str, **more: object) -> KitConfig:
    return KitConfig.model_validate({"address": address, "patience": SHORT, **more})


def found(report: Report, status: Status) -> list[str]:
    return [result.check for result in report.results if result.status is status]


async def live(inner: MemoryProvider, group: str) -> list[str]:
    return [each.id for each in await inner.instances(group) if each.state is not InstanceState.DELETING]


# -- the group under test --------------------------------------------------------------------------------------------


async def test_the_first_empty_group_with_room_is_taken() -> None:
    inner = provider(MemoryGroup(id="tight", max_size=2), MemoryGroup(id="used"), MemoryGroup(id="free"))
    await inner.increase_size("used", 1)
    used = await live(inner, "used")
    async with serving(inner) as served:
        report = await run(kit(served.address), only=["T1", "T6"])
    assert report.is_passed
    assert {call.args[0] for call in inner.log.calls if call.method == "increase_size"} == {"used", "free"}
    assert await live(inner, "used") == used


async def test_a_group_with_machines_is_refused_unless_allowed() -> None:
    inner = provider(MemoryGroup(id="used"))
    await inner.increase_size("used", 2)
    before = await live(inner, "used")
    async with serving(inner) as served:
        for named in ("", "used"):
            with pytest.raises(PreconditionError, match=r"it has 2 machines .* allowExisting: true"):
                await run(kit(served.address, group=named))
        assert inner.log.count("delete_nodes") == 0
        report = await run(kit(served.address, allowExisting=True))
    assert report.is_passed, [(r.check, r.message) for r in report.results if r.status not in ("passed", "skipped")]
    assert await live(inner, "used") == before
    assert not report.left_behind
    assert await inner.target_size("used") == 2


async def test_what_cannot_be_tested_is_reported_with_the_reason() -> None:
    async with serving(provider(MemoryGroup(id="tight", max_size=2))) as served:
        with pytest.raises(PreconditionError, match="needs room for 3 more"):
            await run(kit(served.address))
        with pytest.raises(InvalidArgumentError, match="has no group 'absent'; it has 'tight'"):
            await run(kit(served.address, group="absent"))
    async with serving(provider()) as served:
        with pytest.raises(InvalidArgumentError, match="floorGroup"):
            await run(kit(served.address, floorGroup="absent"))
    async with serving(MemoryProvider(MemoryOptions())) as served:
        with pytest.raises(PreconditionError, match="has no node groups"):
            await run(kit(served.address))
    with pytest.raises(UnavailableError, match="cannot reach the server"):
        await run(kit(served.address))


# -- findings --------------------------------------------------------------------------------------------------------


class NoTemplates(MemoryProvider):
    async def template(self, group: str) -> NodeTemplate:
        raise InternalError("the template is lost")


class ForgetsToCount(MemoryProvider):
    async def target_size(self, group: str) -> int:
        return len([each for each in await self.instances(group) if each.state is InstanceState.RUNNING])


class KeepsMachines(MemoryProvider):
    async def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        raise InternalError("nothing is ever deleted here")


async def test_a_failure_says_what_was_sent_and_what_came_back_and_blocks_what_follows_from_it() -> None:
    async with serving(provider(kind=NoTemplates)) as served:
        report = await run(kit(served.address), only=["R65", "R66", "R68"])
    assert not report.is_passed
    [failure] = report.failures
    assert (failure.check, failure.rules) == ("templates_do_not_fail", ("R13", "R66"))
    assert "the template is lost" in failure.message
    assert any(each.is_failed and 'id: "small"' in each.sent for each in failure.exchanges)
    blocked = {result.check: result.message for result in report.results if result.status is Status.BLOCKED}
    assert blocked["templates_have_resources"] == "follows from templates_are_nodes"
    assert len(blocked) == len(report.results) - 1


async def test_the_mistake_comes_first_and_not_its_consequences() -> None:
    """R25: the target does not count machines in creation."""
    async with serving(provider(MemoryGroup(id="slow", boot_seconds=600), kind=ForgetsToCount)) as served:
        report = await run(kit(served.address))
    assert report.failures[0].check == "target_grows_at_once"
    assert "two_increases_are_two" in found(report, Status.BLOCKED)


async def test_each_result_is_reported_when_it_is_there_and_release_and_rules_are_chosen() -> None:
    told: list[Result] = []
    async with serving(provider()) as served:
        report = await run(kit(served.address), only=["R12", "R61"], release="1.29", progress=told.append)
        with pytest.raises(InvalidArgumentError, match="is not known"):
            await run(kit(served.address), release="1.99")
    assert tuple(told) == report.results
    assert "groups_are_listed" in [result.check for result in told]
    assert report.release == "1.29"
    assert "DecreaseTargetSize" not in {
        each.rpc for result in told if result.check == "trace_slow_start" for each in result.exchanges
    }


# -- cleaning up -----------------------------------------------------------------------------------------------------


async def test_what_cannot_be_deleted_is_reported_as_left_behind() -> None:
    inner = provider(kind=KeepsMachines)
    async with serving(inner) as served:
        report = await run(kit(served.address), only=["T1"])
    assert set(report.left_behind) == set(await live(inner, "small"))
    assert report.left_behind
    assert not report.is_passed


async def test_a_cancelled_run_deletes_what_it_made_and_keeps_what_it_found() -> None:
    inner = provider(MemoryGroup(id="small", boot_seconds=600))
    async with serving(inner) as served:
        waiting = inner.log.hold_next("cleanup")
        session = Session(kit(served.address, patience={**SHORT, "boot": "1ms"}))
        task = asyncio.create_task(session.run())
        await until(lambda: inner.log.count("cleanup") > 0, what="the kit is in the middle of its work")
        assert await live(inner, "small")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        waiting.set()
        assert not await live(inner, "small")
        assert await inner.target_size("small") == 0
    assert session.report.results
    assert session.report.left_behind == ()


async def test_a_server_that_goes_away_fails_where_it_went_and_nothing_more_is_asked() -> None:
    stop = asyncio.Event()
    inner = provider()

    async def serve(ready: asyncio.Future[str]) -> None:
        async with serving(inner) as served:
            ready.set_result(served.address)
            await stop.wait()

    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    server = asyncio.create_task(serve(ready))
    address = await ready

    def end_it(result: Result) -> None:
        if result.check == "groups_are_listed":
            stop.set()

    async def judge() -> Report:
        return await Session(kit(address), only=["R12", "R11", "R10", "R28"], progress=end_it).run()

    report = await judge()
    await server
    # While it stops it may answer some calls and not others, so that there may be more than one.
    assert report.failures
    unexplained = [
        f.message for f in report.failures if "the server broke the connection in answer to" not in f.message
    ]
    assert not unexplained
    assert all(failure.level is Level.MUST for failure in report.failures)
    assert found(report, Status.BLOCKED)
    assert not found(report, Status.ERROR)
    assert all(not result.exchanges for result in report.results if result.status is Status.BLOCKED)


@pytest.mark.thorough
async def test_the_server_is_as_it_was_when_a_run_has_ended() -> None:
    inner = provider(MemoryGroup(id="small"), MemoryGroup(id="floor", min_size=1))
    async with serving(inner) as served:
        config = CloudConfig(address=Address.parse(served.address))
        async with Connection(config) as connection:
            remote = RemoteProvider(connection)
            before = list(await remote.node_groups())
            report = await run(kit(served.address))
            assert report.is_passed, [
                (r.check, r.message) for r in report.results if r.status not in ("passed", "skipped")
            ]
            assert list(await remote.node_groups()) == before
            for group in before:
                assert await remote.target_size(group.id) == 0
                assert not await live(inner, group.id)


def test_errors_of_the_kit_are_errors_of_the_sdk() -> None:
    with pytest.raises(CloudgraftError, match="say where the server is"):
        Session(KitConfig())
