"""Several providers behind one service: unique groups, local trouble (law 6)."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

import pytest

from cloudgraft.sdk import (
    AutoscalingOptions,
    NodeRef,
    NotFoundError,
    Pod,
    UnavailableError,
    UnsupportedError,
)
from cloudgraft.service.merge import MergedProvider
from cloudgraft.testing import MemoryGroup, MemoryOptions, MemoryProvider
from tests.conditions import until

START, END = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 1, tzinfo=UTC)


def memory(*groups: str, price: float | None = None) -> MemoryProvider:
    return MemoryProvider(MemoryOptions(groups=[MemoryGroup(id=group, hourly_price=price) for group in groups]))


async def ids(provider: MergedProvider) -> list[str]:
    return [group.id for group in await provider.node_groups()]


async def test_the_groups_of_all_are_listed_in_order_and_each_call_finds_its_provider() -> None:
    left, right = memory("a", "b"), memory("c")
    merged = MergedProvider({"left": left, "right": right})
    assert await ids(merged) == ["a", "b", "c"]
    await merged.increase_size("c", 2)
    assert await merged.target_size("c") == 2
    assert left.log.count("increase_size") == 0
    node = NodeRef(name="n", provider_id="memory://c/c-1")
    group = await merged.node_group_for_node(node)
    assert group is not None
    assert group.id == "c"
    await merged.delete_nodes("c", [node])
    await merged.decrease_target_size("c", -1)
    assert await merged.target_size("c") == 1
    assert len(await merged.instances("c")) == 1
    assert (await merged.template("a")).allocatable


async def test_a_group_may_be_asked_for_before_the_first_list() -> None:
    """R3."""
    merged = MergedProvider({"left": memory("a"), "right": memory("b")})
    assert await merged.target_size("b") == 0
    with pytest.raises(NotFoundError):
        await merged.target_size("nothing")


async def test_of_two_groups_with_one_id_the_first_is_used_and_it_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """R10."""
    left, right = memory("a", "same"), memory("same", "b")
    merged = MergedProvider({"left": left, "right": right})
    with caplog.at_level(logging.ERROR, "cloudgraft"):
        assert await ids(merged) == ["a", "same", "b"]
        assert await ids(merged) == ["a", "same", "b"]
    assert [record.__dict__["left_out"] for record in caplog.records] == ["right"]
    await merged.increase_size("same", 1)
    assert right.log.count("increase_size") == 0
    await right.increase_size("same", 1)
    # Both made a machine of the same id; only the one whose group is served may claim it.
    assert await merged.node_group_for_node(NodeRef(provider_id="memory://same/same-1")) is not None
    left.log.answer_next("node_group_for_node", None)
    assert await merged.node_group_for_node(NodeRef(provider_id="memory://same/same-1")) is None


@pytest.mark.parametrize("failure", [UnavailableError("down"), RuntimeError("bug")])
async def test_a_provider_that_fails_keeps_its_groups_and_the_others_go_on(failure: Exception) -> None:
    """R12: never partial."""
    left, right = memory("a"), memory("b")
    merged = MergedProvider({"left": left, "right": right})
    await merged.node_groups()
    left.log.fail_next("node_groups", failure)
    assert await ids(merged) == ["a", "b"]
    left.log.fail_next("refresh", failure)
    await merged.refresh()
    left.log.fail_next("target_size", failure)
    assert await merged.target_size("b") == 0
    left.log.fail_next("cleanup", failure)
    await merged.cleanup()


async def test_nonsense_from_one_does_not_reach_the_others() -> None:
    left, right = memory("a"), memory("b")
    left.log.answer_next("node_groups", None)
    merged = MergedProvider({"left": left, "right": right})
    assert await ids(merged) == ["b"]
    assert await ids(merged) == ["a", "b"]


async def test_a_provider_that_hangs_delays_the_others_only_for_its_time() -> None:
    left, right = memory("a"), memory("b")
    merged = MergedProvider({"left": left, "right": right}, member_timeout=0.05)
    hold = left.log.hold_next("node_groups")
    assert await ids(merged) == ["b"]
    hold.set()


async def test_a_refresh_may_take_longer_than_a_read(caplog: pytest.LogCaptureFixture) -> None:
    """R1."""
    left, right = memory("a"), memory("b")
    merged = MergedProvider({"left": left, "right": right}, member_timeout=0.02, refresh_timeout=30)
    hold = left.log.hold_next("refresh")
    waiting = asyncio.create_task(merged.refresh())
    await until(lambda: left.log.count("refresh") == 1)
    left_groups = left.log.hold_next("node_groups")
    assert await ids(merged) == ["b"]  # this one was too slow for a read
    left_groups.set()
    hold.set()
    await waiting
    assert sum("fails" in record.getMessage() for record in caplog.records) == 1


async def test_trouble_is_told_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    left, right = memory("a"), memory("b")
    merged = MergedProvider({"left": left, "right": right})
    with caplog.at_level(logging.INFO, "cloudgraft"):
        for _ in range(3):
            left.log.fail_next("refresh", UnavailableError("down"))
            await merged.refresh()
            await merged.node_groups()
        await merged.refresh()
    assert [record.getMessage() for record in caplog.records] == [
        "a provider fails; the others continue",
        "a provider answers again",
    ]


async def test_who_claimed_a_node_is_asked_first_the_next_time() -> None:
    left, right = memory("a"), memory("b")
    merged = MergedProvider({"left": left, "right": right})
    await merged.node_groups()
    await right.increase_size("b", 1)
    for _ in range(5):
        assert await merged.node_group_for_node(NodeRef(provider_id="memory://b/b-1")) is not None
    assert left.log.count("node_group_for_node") == 1


async def test_refresh_fails_only_when_all_fail() -> None:
    left, right = memory("a"), memory("b")
    merged = MergedProvider({"left": left, "right": right})
    left.log.fail_next("refresh", UnavailableError("left"))
    right.log.fail_next("refresh", UnavailableError("right"))
    with pytest.raises(UnavailableError, match="left"):
        await merged.refresh()


async def test_a_node_is_not_called_unmanaged_while_its_possible_owner_fails() -> None:
    """R20, R24: "not managed" for a node that is would make the autoscaler shrink the group."""
    left, right = memory("a"), memory("b")
    merged = MergedProvider({"left": left, "right": right})
    await merged.node_groups()
    left.log.fail_next("node_group_for_node", UnavailableError("down"))
    with pytest.raises(UnavailableError):
        await merged.node_group_for_node(NodeRef(name="who"))
    await right.increase_size("b", 1)
    left.log.fail_next("node_group_for_node", UnavailableError("down"))
    assert await merged.node_group_for_node(NodeRef(provider_id="memory://b/b-1")) is not None


async def test_a_provider_that_never_listed_a_group_does_not_make_nodes_fail() -> None:
    """R21: one failing node aborts a whole scale-up."""
    left, right = memory("a"), memory("b")
    merged = MergedProvider({"left": left, "right": right})
    left.log.fail_next("node_groups", UnavailableError("down"))
    await merged.node_groups()
    left.log.fail_next("node_group_for_node", UnavailableError("down"))
    assert await merged.node_group_for_node(NodeRef(name="control-plane")) is None


async def test_prices_come_from_the_provider_of_the_group() -> None:
    """R81: the longest id that fits the template's name."""
    left, right = memory("pool", price=1.0), memory("pool-big", price=8.0)
    merged = MergedProvider({"left": left, "right": right})
    await merged.node_groups()
    assert await merged.node_price(NodeRef(name="template-node-for-pool-big-77"), START, END) == 8.0
    assert await merged.node_price(NodeRef(name="template-node-for-pool-77"), START, END) == 1.0
    await right.increase_size("pool-big", 1)
    assert await merged.node_price(NodeRef(provider_id="memory://pool-big/pool-big-1"), START, END) == 8.0
    with pytest.raises(NotFoundError):
        await merged.node_price(NodeRef(name="stranger"), START, END)
    assert await merged.pod_price(Pod(), START, END) == 0.0


async def test_pod_prices_need_one_provider_that_knows_them() -> None:
    merged = MergedProvider({"left": memory("a"), "right": memory("b")})
    with pytest.raises(UnsupportedError):
        await merged.pod_price(Pod(), START, END)


async def test_gpu_answers_are_joined_and_options_of_one_that_has_none_are_the_defaults() -> None:
    left, right = memory("a"), memory("b")
    merged = MergedProvider({"left": left, "right": right})
    right.log.answer_next("gpu_label", "gpu-type")
    assert await merged.gpu_label() == "gpu-type"
    left.log.answer_next("gpu_types", ["x"])
    right.log.answer_next("gpu_types", ["y"])
    assert await merged.gpu_types() == {"x", "y"}
    left.log.fail_next("options", UnsupportedError("none"))
    assert await merged.options("a", AutoscalingOptions()) is None


class _Broken(MemoryProvider):
    async def start(self) -> None:
        raise UnavailableError("cannot start")


async def test_a_provider_that_cannot_start_is_left_out_unless_none_can() -> None:
    broken = _Broken(MemoryOptions(groups=[MemoryGroup(id="x")]))
    merged = MergedProvider({"broken": broken, "good": memory("a")})
    await merged.start()
    assert await ids(merged) == ["a"]
    await merged.close()
    with pytest.raises(UnavailableError, match="cannot start"):
        await MergedProvider({"broken": broken}).start()
