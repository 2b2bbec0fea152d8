"""A provider behind a snapshot: answered from memory, own writes visible, bounded staleness (laws 1, 6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from cloudgraft.sdk import (
    AutoscalingOptions,
    Instance,
    InstanceState,
    NodeGroup,
    NodeRef,
    NodeTemplate,
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


class Fragile(MemoryProvider):
    """Some methods fail for some groups, for as long as it is told."""

    def __init__(self) -> None:
        super().__init__(MemoryOptions(groups=[MemoryGroup(id="a", max_size=10), MemoryGroup(id="b", max_size=10)]))
        self.broken: dict[tuple[str, str], Exception] = {}

    async def target_size(self, group: str) -> int:
        self._check("target_size", group)
        return await super().target_size(group)

    async def instances(self, group: str) -> Sequence[Instance]:
        self._check("instances", group)
        return await super().instances(group)

    async def template(self, group: str) -> NodeTemplate:
        self._check("template", group)
        return await super().template(group)

    def _check(self, method: str, group: str) -> None:
        if (method, group) in self.broken:
            raise self.broken[method, group]


def memory() -> Fragile:
    return Fragile()


def down(inner: MemoryProvider, *methods: str, times: int = 1000) -> None:
    for method in methods:
        for _ in range(times):
            inner.log.fail_next(method, UnavailableError("down"))


@asynccontextmanager
async def snapshot(
    inner: MemoryProvider, clock: Clock | None = None, *, every: float = 3600.0, patience: float = 30.0
) -> AsyncIterator[SnapshotProvider]:
    """A started snapshot that reads by itself only once an hour, so that a test decides when it reads.

    No time limit counts unless a test wants it to: ``patience`` is the one for a first answer.
    """
    settings = SnapshotSettings(
        refresh_every=every,
        max_staleness=4 * every,
        call_timeout=30.0,
        read_back_timeout=30.0,
        first_answer_timeout=patience,
    )
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
        states = {instance.id: instance.state for instance in await provider.instances("a")}
        assert states.get(ids[0], InstanceState.DELETING) is InstanceState.DELETING


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


@pytest.mark.parametrize("method", ["target_size", "instances", "template"])
async def test_one_group_that_cannot_be_read_keeps_its_old_state_and_the_others_are_fresh(method: str) -> None:
    """Law 6."""
    inner = memory()
    async with snapshot(inner) as provider:
        await inner.increase_size("b", 1)
        inner.broken[method, "a"] = RuntimeError("group a is broken")
        await provider.refresh()
        await until(lambda: _has(provider, "b", 1))
        assert await provider.target_size("a") == 0
        assert [group.id for group in await provider.node_groups()] == ["a", "b"]
        assert provider.trouble == "group a: failed with RuntimeError"
        inner.broken.clear()
        await provider.refresh()
        await until(lambda: not provider.trouble)


async def test_sizes_are_fresh_although_the_template_cannot_be_read() -> None:
    inner = memory()
    async with snapshot(inner) as provider:
        inner.broken["template", "a"] = UnavailableError("no templates today")
        await inner.increase_size("a", 3)
        await provider.refresh()
        await until(lambda: _has(provider, "a", 3))
        assert (await provider.template("a")).allocatable


async def test_a_group_that_cannot_be_read_for_too_long_is_left_out_at_the_next_refresh() -> None:
    """R13: what is listed must answer, and staleness has a limit."""
    inner, clock = memory(), Clock()
    async with snapshot(inner, clock, every=5.0) as provider:
        inner.broken["instances", "a"] = UnavailableError("broken")
        clock.now += 21
        await provider._read_all()
        assert [group.id for group in await provider.node_groups()] == ["a", "b"]  # not before a refresh (R4)
        await provider.refresh()
        assert [group.id for group in await provider.node_groups()] == ["b"]
        inner.broken.clear()
        await provider._read_all()
        assert {group.id for group in await provider.node_groups()} == {"a", "b"}


async def test_a_group_that_is_gone_answers_until_the_next_refresh() -> None:
    """R4, R13: not in the middle of a loop."""
    inner = memory()
    async with snapshot(inner) as provider:
        inner.log.answer_next("node_groups", (await inner.node_groups())[:1])
        await provider._read_all()
        assert await provider.target_size("b") == 0
        inner.log.answer_next("node_groups", (await inner.node_groups())[:1])
        await provider.refresh()
        with pytest.raises(NotFoundError):
            await provider.target_size("b")


async def test_a_group_that_could_never_be_read_is_left_out() -> None:
    """R13."""
    inner = memory()
    inner.broken["target_size", "a"] = RuntimeError("broken")
    async with snapshot(inner) as provider:
        assert [group.id for group in await provider.node_groups()] == ["b"]
        with pytest.raises(NotFoundError):
            await provider.target_size("a")


async def test_no_list_of_groups_keeps_the_old_one() -> None:
    inner = memory()
    async with snapshot(inner) as provider:
        inner.log.answer_next("node_groups", None)
        await provider._read_all()
        assert "instead of a sequence" in provider.trouble
        assert len(await provider.node_groups()) == 2


async def test_one_group_that_makes_no_sense_does_not_make_the_others_stale() -> None:
    """Law 6."""
    inner = memory()
    async with snapshot(inner) as provider:
        good = list(await inner.node_groups())
        bad = NodeGroup(id="c", min_size=3, max_size=1)
        await inner.increase_size("b", 1)
        inner.log.answer_next("node_groups", [*good, bad, good[0]])
        await provider._read_all()
        assert await provider.target_size("b") == 1
        assert [group.id for group in await provider.node_groups()] == ["a", "b"]
        assert "min 3 and max 1" in provider.trouble
        assert "two groups" in provider.trouble


async def test_gpu_types_that_cannot_be_read_make_nothing_else_stale() -> None:
    """R80: only metrics depend on them."""
    inner = memory()
    async with snapshot(inner) as provider:
        await inner.increase_size("b", 1)
        inner.log.fail_next("gpu_types", RuntimeError("bug"))
        await provider._read_all()
        assert await provider.target_size("b") == 1


@pytest.mark.parametrize("bomb", [SystemExit(1), asyncio.CancelledError(), KeyboardInterrupt(), GeneratorExit()])
async def test_whatever_a_provider_raises_the_reader_goes_on(bomb: BaseException) -> None:
    inner = memory()
    async with snapshot(inner) as provider:
        inner.log.fail_next("node_groups", bomb)  # type: ignore[arg-type]  # that is the point
        await provider._read_all()
        assert provider.trouble
        await inner.increase_size("a", 1)
        await provider._read_all()
        assert await provider.target_size("a") == 1


async def test_a_node_still_belongs_to_its_group_after_its_machine_has_left_the_list() -> None:
    """R24: also while the provider is away."""
    inner = memory()
    async with snapshot(inner) as provider:
        await provider.increase_size("a", 1)
        machine = (await provider.instances("a"))[0].id
        await provider.delete_nodes("a", [NodeRef(provider_id=machine)])
        await provider._read_all()
        assert list(await provider.instances("a")) == []
        down(inner, "node_group_for_node", "refresh")
        group = await provider.node_group_for_node(NodeRef(name="n", provider_id=machine))
        assert group is not None
        assert group.id == "a"


async def test_strange_nodes_do_not_wait_for_a_provider_that_is_away() -> None:
    """R21: an error for one node would abort a whole scale-up."""
    inner = memory()
    async with snapshot(inner) as provider:
        down(inner, "refresh")
        await provider._read_all()
        asked = inner.log.count("node_group_for_node")
        for number in range(100):
            assert await provider.node_group_for_node(NodeRef(name=f"n{number}", provider_id=f"x://{number}")) is None
        assert await provider.options("a", DEFAULTS) is None  # R73: the autoscaler's own
        assert inner.log.count("node_group_for_node") == asked


async def test_simulated_nodes_are_never_asked_about() -> None:
    """R16c: each has a new name."""
    inner = memory()
    async with snapshot(inner) as provider:
        for number in range(10):
            node = NodeRef(name=f"template-node-for-a-{number}-upcoming-0", labels={"x": "y"})
            assert await provider.node_group_for_node(node) is None
        assert inner.log.count("node_group_for_node") == 0


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
        clock.now += 61
        inner.log.answer_next("node_group_for_node", (await inner.node_groups())[0])
        assert await provider.node_group_for_node(stranger) is None
        await until(lambda: inner.log.count("node_group_for_node") == 2)
        group = await provider.node_group_for_node(stranger)
        assert group is not None
        assert group.id == "a"


async def test_a_question_about_a_node_that_is_not_answered_is_asked_again() -> None:
    inner = memory()
    async with snapshot(inner, patience=0.05) as provider:
        hold = inner.log.hold_next("node_group_for_node")
        assert await provider.node_group_for_node(NodeRef(name="x")) is None
        hold.set()
        await provider._read_all()
        inner.log.answer_next("node_group_for_node", (await inner.node_groups())[1])

        async def known() -> bool:
            group = await provider.node_group_for_node(NodeRef(name="y"))
            return group is not None and group.id == "b"

        await until(known)


async def test_a_node_that_the_provider_answers_with_an_error_is_left_alone() -> None:
    """R21: many servers fail for nodes they do not know."""
    inner = memory()
    async with snapshot(inner) as provider:
        inner.log.fail_next("node_group_for_node", NotFoundError("who is that?"))
        assert await provider.node_group_for_node(NodeRef(name="x")) is None
        assert provider.trouble == ""


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
    inner.broken["template", "a"] = UnsupportedError("none")
    async with snapshot(inner) as provider:
        assert await provider.target_size("a") == 0
        with pytest.raises(UnsupportedError):
            await provider.template("a")


async def test_ten_deletions_do_not_read_the_group_ten_times() -> None:
    """R49: they come at once, and each has to be answered within the same five seconds."""
    inner = memory()
    async with snapshot(inner) as provider:
        await provider.increase_size("a", 10)
        ids = [instance.id for instance in await provider.instances("a")]
        reads = inner.log.count("instances")
        inner.log.hold_next("refresh")  # the background may begin, but not get on
        for id_ in ids:
            await provider.delete_nodes("a", [NodeRef(provider_id=id_)])
        assert inner.log.count("instances") == reads
        assert await provider.target_size("a") == 0


async def test_a_change_whose_outcome_is_unknown_is_looked_up_soon() -> None:
    inner = memory()
    async with snapshot(inner) as provider:
        reads = inner.log.count("node_groups")
        inner.log.fail_next("increase_size", UnavailableError("lost"))
        with pytest.raises(UnavailableError):
            await provider.increase_size("a", 1)
        await until(lambda: inner.log.count("node_groups") > reads)
        assert await provider.target_size("a") == 0
