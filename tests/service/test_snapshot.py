"""A provider behind a snapshot: answered from memory, own writes visible, bounded staleness (laws 1, 6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cloudgraft.sdk import (
    AutoscalingOptions,
    InstanceState,
    NodeGroup,
    NodeRef,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from cloudgraft.service.snapshot import SnapshotProvider, SnapshotSettings
from cloudgraft.testing import MemoryGroup, MemoryOptions, MemoryProvider
from tests.conditions import until

DEFAULTS = AutoscalingOptions(scale_down_utilization_threshold=0.5)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def memory() -> MemoryProvider:
    return MemoryProvider(MemoryOptions(groups=[MemoryGroup(id="a", max_size=10), MemoryGroup(id="b", max_size=10)]))


def down(inner: MemoryProvider, *methods: str, times: int = 1000) -> None:
    for method in methods:
        for _ in range(times):
            inner.log.fail_next(method, UnavailableError("down"))


@asynccontextmanager
async def snapshot(
    inner: MemoryProvider, clock: Clock | None = None, *, every: float = 3600.0
) -> AsyncIterator[SnapshotProvider]:
    """A started snapshot that reads by itself only once an hour, so that a test decides when it reads."""
    settings = SnapshotSettings(refresh_every=every, max_staleness=4 * every, call_timeout=0.2, read_back_timeout=0.2)
    provider = SnapshotProvider(inner, name="test", settings=settings, **({"clock": clock} if clock else {}))
    await provider.start()
    try:
        yield provider
    finally:
        await provider.close()


async def test_reads_do_not_reach_the_provider() -> None:
    """Law 1."""
    inner = memory()
    async with snapshot(inner) as provider:
        await inner.increase_size("a", 2)
        await provider.refresh()
        await until(lambda: inner.log.count("node_groups") == 2)
        await until(lambda: _has(provider, "a", 2))
        before = len(inner.log.calls)
        for _ in range(100):
            assert await provider.target_size("a") == 2
            assert len(await provider.instances("a")) == 2
            assert [group.id for group in await provider.node_groups()] == ["a", "b"]
            group = await provider.node_group_for_node(NodeRef(name="n", provider_id="memory://a/a-1"))
            assert group == NodeGroup(id="a", min_size=0, max_size=10, debug="a (0..10, in memory)")
            await provider.template("b")
            assert await provider.gpu_label() == ""
        assert len(inner.log.calls) == before


async def _has(provider: SnapshotProvider, group: str, target: int) -> bool:
    return await provider.target_size(group) == target


async def test_a_caller_sees_its_own_writes_at_once() -> None:
    """R27."""
    inner = memory()
    async with snapshot(inner) as provider:
        await provider.increase_size("a", 3)
        assert await provider.target_size("a") == 3
        ids = [instance.id for instance in await provider.instances("a")]
        assert len(ids) == 3
        await provider.delete_nodes("a", [NodeRef(name=ids[0], provider_id=ids[0])])
        assert await provider.target_size("a") == 2
        assert ids[0] not in [instance.id for instance in await provider.instances("a")]


async def test_own_writes_are_visible_although_the_provider_cannot_be_read_after_them() -> None:
    """R27, R53."""
    inner = memory()
    async with snapshot(inner) as provider:
        await provider.increase_size("a", 2)
        ids = [instance.id for instance in await provider.instances("a")]
        down(inner, "target_size")
        await provider.increase_size("a", 3)
        assert await provider.target_size("a") == 5
        await provider.delete_nodes("a", [NodeRef(provider_id=ids[0])])
        await provider.delete_nodes("a", [NodeRef(provider_id=ids[0])])
        assert await provider.target_size("a") == 4
        states = {instance.id: instance.state for instance in await provider.instances("a")}
        assert states[ids[0]] is InstanceState.DELETING
        await provider.decrease_target_size("a", -10)
        assert await provider.target_size("a") == 1  # the one instance that is known to live


async def test_a_read_that_began_before_a_change_does_not_undo_it() -> None:
    inner = memory()
    async with snapshot(inner) as provider:
        hold = inner.log.hold_next("template")  # the read stands still after it has seen the old target
        await provider.refresh()
        await until(lambda: inner.log.count("template") >= 3)
        down(inner, "target_size", times=1)  # and the change cannot be read back
        await provider.increase_size("a", 2)
        hold.set()
        await until(lambda: inner.log.count("node_groups") >= 2)
        await until(lambda: inner.log.count("target_size") >= 6)
        assert await provider.target_size("a") == 2


async def test_a_provider_that_goes_away_keeps_its_groups_until_they_are_too_old() -> None:
    """Law 6, R2."""
    inner, clock = memory(), Clock()
    async with snapshot(inner, clock, every=5.0) as provider:
        down(inner, "refresh")
        for _ in range(4):
            await provider.refresh()
            clock.now += 5
            assert len(await provider.node_groups()) == 2
        clock.now += 1
        await until(lambda: bool(provider.trouble))
        with pytest.raises(UnavailableError, match="has not been read for 21 s"):
            await provider.refresh()
        assert len(await provider.node_groups()) == 2  # still listed: an empty list would wipe the autoscaler's memory
        assert await provider.target_size("a") == 0


async def test_a_provider_that_was_never_read_says_so_and_is_read_as_soon_as_it_answers() -> None:
    inner = memory()
    inner.log.fail_next("node_groups", UnavailableError("still starting"))
    async with snapshot(inner) as provider:
        for call in (provider.node_groups(), provider.target_size("a"), provider.refresh()):
            with pytest.raises(UnavailableError, match="test answers unavailable: still starting"):
                await call
        await until(lambda: provider.age < 10)
        assert len(await provider.node_groups()) == 2


async def test_one_group_that_cannot_be_read_keeps_its_old_state_and_the_others_are_fresh() -> None:
    """Law 6."""
    inner = memory()
    async with snapshot(inner) as provider:
        await inner.increase_size("a", 1)
        await inner.increase_size("b", 1)
        inner.log.fail_next("target_size", RuntimeError("group a is broken"))
        await provider.refresh()
        await until(lambda: _has(provider, "b", 1))
        assert await provider.target_size("a") == 0
        assert [group.id for group in await provider.node_groups()] == ["a", "b"]


async def test_a_group_that_could_never_be_read_is_left_out() -> None:
    """R13."""
    inner = memory()
    inner.log.answer_next("target_size", -5)
    async with snapshot(inner) as provider:
        assert [group.id for group in await provider.node_groups()] == ["b"]
        with pytest.raises(NotFoundError):
            await provider.target_size("a")


async def test_nonsense_in_the_list_of_groups_keeps_the_old_list() -> None:
    inner = memory()
    async with snapshot(inner) as provider:
        inner.log.answer_next("node_groups", None)
        await provider.refresh()
        await until(lambda: bool(provider.trouble))
        assert len(await provider.node_groups()) == 2


async def test_a_node_that_is_no_instance_is_asked_about_once_and_then_remembered() -> None:
    """B7: the autoscaler asks three to seven times per loop for each unmanaged node."""
    inner = memory()
    async with snapshot(inner) as provider:
        stranger = NodeRef(name="control-plane", provider_id="other://1")
        answers = await asyncio.gather(*(provider.node_group_for_node(stranger) for _ in range(20)))
        assert answers == [None] * 20
        assert inner.log.count("node_group_for_node") == 1


async def test_an_old_answer_about_a_node_is_given_at_once_and_renewed_behind_it() -> None:
    inner, clock = memory(), Clock()
    async with snapshot(inner, clock, every=5.0) as provider:
        stranger = NodeRef(name="late", provider_id="")
        assert await provider.node_group_for_node(stranger) is None
        clock.now += 6
        inner.log.answer_next("node_group_for_node", (await inner.node_groups())[0])
        assert await provider.node_group_for_node(stranger) is None
        await until(lambda: inner.log.count("node_group_for_node") == 2)
        group = await provider.node_group_for_node(stranger)
        assert group is not None
        assert group.id == "a"


async def test_a_question_about_a_node_that_times_out_fails_and_is_asked_again() -> None:
    inner = memory()
    async with snapshot(inner) as provider:
        inner.log.hold_next("node_group_for_node")
        with pytest.raises(TimeoutError):
            await provider.node_group_for_node(NodeRef(name="x"))
        assert await provider.node_group_for_node(NodeRef(name="x")) is None


async def test_options_are_remembered_per_group_and_defaults() -> None:
    inner = memory()
    async with snapshot(inner) as provider:
        for _ in range(50):
            assert await provider.options("a", DEFAULTS) is None
        assert inner.log.count("options") == 1
        inner.log.fail_next("options", UnsupportedError("none here"))
        for _ in range(50):
            with pytest.raises(UnsupportedError):
                await provider.options("b", DEFAULTS)
        assert inner.log.count("options") == 2


async def test_a_provider_without_templates_is_remembered_as_such() -> None:
    inner = memory()
    for _ in range(2):
        inner.log.fail_next("template", UnsupportedError("none"))
    async with snapshot(inner) as provider:
        with pytest.raises(UnsupportedError):
            await provider.template("a")


async def test_a_change_whose_outcome_is_unknown_is_looked_up_soon() -> None:
    inner = memory()
    async with snapshot(inner) as provider:
        reads = inner.log.count("node_groups")
        inner.log.fail_next("increase_size", UnavailableError("lost"))
        with pytest.raises(UnavailableError):
            await provider.increase_size("a", 1)
        await until(lambda: inner.log.count("node_groups") > reads)
        assert await provider.target_size("a") == 0
