"""The whole day over a real socket, and what happens when the world does not play along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

import pytest

from cloudgraft.demo.checks import StoryError
from cloudgraft.demo.cluster import Machine
from cloudgraft.demo.day import play
from cloudgraft.demo.engine_world import CLOUD, EngineWorld
from cloudgraft.demo.events import Kind
from cloudgraft.demo.timetable import Wave, seconds_at, waves_of_the_day
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.sdk import InstanceState, NodeGroup, NodeRef
from tests.demo.playing import Keeper, PlayedDay

pytestmark = pytest.mark.xdist_group("day")  # it is played once


def test_the_day_happens_as_planned(day: PlayedDay) -> None:
    told = [kind for kind, _ in groupby(frame.events[-1].kind for frame in day.news)]
    assert told[:6] == [Kind.START, Kind.WORK, Kind.SCALE_UP, Kind.REGISTERED, Kind.WORK, Kind.SCALE_UP]
    assert told[6:9] == [Kind.OUT_OF_STOCK, Kind.FALLBACK, Kind.REGISTERED]
    assert told[-2:] == [Kind.GONE, Kind.NIGHT]


def test_the_figures_of_the_day_are_those_of_the_story(day: PlayedDay) -> None:
    summary = day.summary
    assert (summary.machines_created, summary.machines_failed, summary.machines_deleted) == (6, 4, 6)
    assert (summary.most_machines, summary.most_milli_cpu, summary.pods_finished) == (6, 24000, 19)
    assert summary.cost == pytest.approx(summary.books.cost)
    assert (summary.books.machines, summary.books.lost, summary.books.doubled) == (6, 0, 0)
    # All calls but DecreaseTargetSize, which is for machines that were asked for and never came.
    assert len(summary.calls) == 14


def test_a_loop_makes_its_calls_in_the_order_of_the_autoscaler(day: PlayedDay) -> None:
    rpcs = [call.rpc for call in day.first(Kind.REGISTERED).calls]
    last_loop = rpcs[len(rpcs) - 1 - rpcs[::-1].index("Refresh") :]
    assert [rpc for rpc, _ in groupby(last_loop)] == [
        "Refresh",
        "NodeGroups",
        "NodeGroupForNode",
        "NodeGroupTemplateNodeInfo",
        "NodeGroupTargetSize",
        "NodeGroupNodes",
        "NodeGroupGetOptions",
    ]


def test_the_targets_are_read_back_right_after_a_scale_up(day: PlayedDay) -> None:
    """T1."""
    calls = [call.rpc for call in day.first(Kind.SCALE_UP).calls]
    assert calls[-4:] == ["NodeGroupIncreaseSize", *["NodeGroupTargetSize"] * 3]


def test_a_stock_out_is_seen_and_taken_back_in_one_loop(day: PlayedDay) -> None:
    """T3: listed as creating with an error, and after DeleteNodes neither listed nor counted."""
    short, fallback = day.first(Kind.OUT_OF_STOCK), day.first(Kind.FALLBACK)
    small = {group.id: group for group in short.groups}["small"]
    assert (small.target, len(small.failed)) == (8, 4)
    assert all(instance.state is InstanceState.CREATING for instance in small.failed)
    small = {group.id: group for group in fallback.groups}["small"]
    assert (small.target, small.failed, small.backed_off) == (4, (), True)
    assert fallback.time == short.time


def test_a_deleted_machine_is_deleting_at_once(day: PlayedDay) -> None:
    """T6."""
    removed = day.first(Kind.SCALE_DOWN)
    gpu = {group.id: group for group in removed.groups}["gpu"]
    assert gpu.target == 0
    assert [instance.state for instance in gpu.instances] == [InstanceState.DELETING]


def test_it_dies_ordering_the_most_expensive_machine_and_goes_on_with_that_machine(day: PlayedDay) -> None:
    """Laws 2 and 3: one order in the cloud's ledger, although its answer was never seen."""
    crash, restart, registered = [frame for frame in day.news if frame.time >= seconds_at("14:00")][2:5]
    assert [frame.events[-1].kind for frame in (crash, restart, registered)] == [
        Kind.CRASH,
        Kind.RESTART,
        Kind.REGISTERED,
    ]
    assert crash.events[-1].detail.endswith("on disk: 6 machines, 1 of unknown outcome")
    assert restart.events[-1].headline == "back from the journal: 6 machines, 0 lost, 0 doubled"
    assert restart.events[-1].detail.startswith("gpu-1 is in the cloud's list")
    assert (crash.is_up, restart.is_up, registered.is_up) == (False, True, True)
    assert registered.time == seconds_at("14:10")


def test_the_server_comes_back_at_the_same_address_and_no_call_fails(day: PlayedDay) -> None:
    assert len({frame.address for frame in day.frames}) == 1
    assert not any(figures.failed for figures in day.summary.calls)


@pytest.mark.thorough
def test_every_state_of_a_machine_is_shown_at_some_moment(day: PlayedDay) -> None:
    seen = {
        (instance.state, instance.error is not None)
        for frame in day.frames
        for group in frame.groups
        for instance in group.instances
    }
    creating, running, deleting = InstanceState.CREATING, InstanceState.RUNNING, InstanceState.DELETING
    assert seen == {(creating, False), (creating, True), (running, False), (deleting, False)}


# -- when the world does not play along --------------------------------------------------------------------------------


def late_waves() -> list[Wave]:
    """A day that begins so late that there is no time left to tidy up; short, as a test should be."""
    web, lunch, _ = waves_of_the_day()
    done = seconds_at("22:35")
    return [
        replace(web, arrives=seconds_at("22:00"), first_ends=done, ends_every=0.0),
        replace(lunch, arrives=seconds_at("22:15"), first_ends=done, ends_every=0.0),
    ]


async def test_a_day_without_a_stock_out_fails() -> None:
    plenty = partial(EngineWorld, begins=seconds_at("22:00"), options=replace(CLOUD, stock={}))
    with pytest.raises(StoryError, match="wrong at 23:00: the stock-out did not happen"):
        await play(Keeper(), plenty, late_waves())


async def test_a_day_without_a_crash_fails() -> None:
    with pytest.raises(StoryError, match="wrong at 23:00: cloudgraft did not die in the middle of a scale-up"):
        await play(Keeper(), partial(EngineWorld, begins=seconds_at("22:00")), late_waves())


class NobodyRegisters(EngineWorld):
    """Machines run, but no kubelet ever starts."""

    async def machines(self) -> Sequence[Machine]:
        return ()


async def test_machines_that_never_register_fail_the_day_with_the_time_at_which_it_was_noticed() -> None:
    """R47: 15 minutes after they were first listed, at 07:05."""
    with pytest.raises(StoryError, match=r"wrong at 07:25: vm-00000\d did not register within"):
        await play(Keeper(), NobodyRegisters)


class OneTooFew(EngineProvider):
    """Orders one machine less than it was asked to."""

    async def increase_size(self, group: str, delta: int) -> None:
        await super().increase_size(group, delta - 1)


class Forgetful(EngineProvider):
    """Says yes to every deletion and deletes nothing."""

    async def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        return


class Amnesiac(EngineProvider):
    """Lists its machines, and does not know whose they are."""

    async def node_group_for_node(self, node: NodeRef) -> NodeGroup | None:
        return None


class Broken(EngineProvider):
    """Has a bug."""

    async def refresh(self) -> None:
        raise RuntimeError("a secret that must not leave the server")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (OneTooFew, "wrong at 07:00: the target of small should be 2 now, but it is 1"),
        (Forgetful, "wrong at 12:05: the target of small should be 4 now, but it is 8"),
        (Amnesiac, r"wrong at 07:05: the server lists vm-00000\d in small, but then says otherwise"),
        (Broken, r"wrong at 06:00: internal error \(id "),
    ],
)
async def test_a_provider_that_breaks_the_contract_fails_the_day(kind: type[EngineProvider], reason: str) -> None:
    """R45, R53, R19, and a bug."""
    with pytest.raises(StoryError, match=reason):
        await play(Keeper(), partial(EngineWorld, provider=kind))
