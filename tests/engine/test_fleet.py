"""Memory agrees with the journal, and with law 5, after any sequence of changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cloudgraft.engine.fleet import Fleet
from cloudgraft.engine.groups.resolution import as_group
from cloudgraft.engine.machines.decide import failure
from cloudgraft.engine.machines.states import BEGINNINGS, COUNTED, SHOWN, TRANSITIONS, move
from cloudgraft.sdk.types import InstanceState, NodeRef
from cloudgraft.store.records import (
    Change,
    CloudRecord,
    Contents,
    MachineRecord,
    PauseRecord,
    Presence,
    Scope,
    State,
)
from tests.engine.makers import NOW, a_record, a_spec

GROUPS = ("a", "b")


def a_fleet(records: Sequence[MachineRecord] = ()) -> Fleet:
    fleet = Fleet()
    fleet.load(Contents(cluster_id="abc", machines=records), [as_group(a_spec(id_)) for id_ in GROUPS])
    return fleet


def node(id_: str, name: str = "some-node") -> NodeRef:
    return NodeRef(name=name, provider_id=id_)


# -- any sequence of changes -------------------------------------------------------------------------------------------


@st.composite
def lives(draw: st.DrawFn, *, reuses_ids: bool) -> list[MachineRecord]:
    """Records in the order in which they are written, each a legal step after the last of its name."""
    latest: dict[str, MachineRecord] = {}
    written: list[MachineRecord] = []
    for step in range(draw(st.integers(1, 30))):
        now = NOW + step
        if not latest or draw(st.integers(0, 3)) == 0:
            record = a_record(
                f"m-{len(latest):02}",
                state=draw(st.sampled_from(sorted(BEGINNINGS, key=str))),
                group=draw(st.sampled_from(GROUPS)),
                requested_at=now,
                version=1,
            )
        else:
            old = latest[draw(st.sampled_from(sorted(latest)))]
            steps = [target for source, target in TRANSITIONS if source is old.state and target is not State.BOOTING]
            target = draw(st.sampled_from([None, *steps]))
            record = old if target is None else move(old, target, now)
            if record.state is State.FAILED and record.error is None:
                record = replace(record, error=failure("deadline", "late"))
            if not record.provider_id and draw(st.booleans()):
                record = replace(record, provider_id=_new_id(draw, latest, reuses_ids), machine_id=f"i-{step}")
        latest[record.name] = record
        written.append(record)
    return written


def _new_id(draw: st.DrawFn, latest: dict[str, MachineRecord], reuses_ids: bool) -> str:
    """A cloud gives an id away again at the earliest when the machine that had it is being deleted."""
    taken = {r.provider_id for r in latest.values() if r.state not in (State.DELETING, State.GONE)}
    pool = [f"sim://{number}" for number in range(4 if reuses_ids else 100)]
    free = [id_ for id_ in pool if id_ not in taken] or [f"sim://x-{len(latest)}"]
    if reuses_ids:
        return draw(st.sampled_from(free))
    used = {r.provider_id for r in latest.values()}
    return next(id_ for id_ in free if id_ not in used)


def _check(fleet: Fleet, latest: dict[str, MachineRecord]) -> None:
    listed: list[str] = []
    for id_, group in fleet.groups.items():
        mine = [r for r in latest.values() if r.group == id_]
        assert group.target == sum(r.state in COUNTED for r in mine)
        instances = group.instances()
        assert len(instances) == sum(r.state is not State.GONE for r in mine)
        assert sum(i.state is not InstanceState.DELETING for i in instances) == group.target  # T10
        assert group.instances() is instances, "the very same until something changes"
        for instance in instances:
            found = fleet.find(node(instance.id))
            assert found is not None, "R19: every listed id maps back"
            assert found.group == id_
            assert instance.state is SHOWN[found.state]
            assert (instance.error is not None) == (found.state is State.FAILED)  # R34
        listed += [i.id for i in instances]
    assert len(listed) == len(set(listed)), "R31: ids are unique over all groups"
    for record in latest.values():
        assert fleet.find(node(record.placeholder)) == record, "law 5: an alias for life"
        assert fleet.find(NodeRef(name=record.name)) == record
    assert dict(fleet.in_cloud("sim")) == {n: r for n, r in latest.items() if r.state is not State.GONE}


def _pictures(fleet: Fleet) -> list[object]:
    return [(id_, group.target, group.instances(), set(group.machines)) for id_, group in fleet.groups.items()]


@given(written=lives(reuses_ids=False))
def test_the_list_and_the_target_agree_after_every_change_and_loading_is_the_same_as_living(
    written: list[MachineRecord],
) -> None:
    fleet, latest = a_fleet(), dict[str, MachineRecord]()
    for record in written:
        fleet.apply(Change(machines=(record,)))
        latest[record.name] = record
        _check(fleet, latest)
    loaded = a_fleet(list(latest.values())[::-1])
    _check(loaded, latest)
    assert _pictures(loaded) == _pictures(fleet)
    assert loaded.machines == fleet.machines
    for record in latest.values():
        if record.provider_id:
            assert fleet.find(node(record.provider_id)) == loaded.find(node(record.provider_id)) == record
            found = fleet.by_machine_id("sim", record.machine_id)
            assert found == loaded.by_machine_id("sim", record.machine_id) == record


@given(written=lives(reuses_ids=True))
def test_a_cloud_that_gives_ids_away_again_makes_no_two_instances_of_one_id(written: list[MachineRecord]) -> None:
    fleet, latest = a_fleet(), dict[str, MachineRecord]()
    for record in written:
        fleet.apply(Change(machines=(record,)))
        latest[record.name] = record
        _check(fleet, latest)
    _check(a_fleet(list(latest.values())), latest)


@given(written=lives(reuses_ids=False))
def test_what_is_forgotten_is_forgotten_by_every_id_and_nothing_else_is(written: list[MachineRecord]) -> None:
    latest = {record.name: record for record in written}
    fleet = a_fleet(list(latest.values()))
    fleet.forget(NOW + 15)
    for record in latest.values():
        is_old = record.gone_at is not None and record.gone_at < NOW + 15
        for ref in (
            node(record.placeholder),
            NodeRef(name=record.name),
            node(record.provider_id or record.placeholder),
        ):
            assert fleet.find(ref) == (None if is_old else record)
        if record.machine_id:
            assert fleet.by_machine_id("sim", record.machine_id) == (None if is_old else record)


# -- finding -----------------------------------------------------------------------------------------------------------


def test_a_node_is_found_by_its_id_and_by_its_name_only_while_its_id_is_not_known() -> None:
    """R16, R22."""
    fresh = a_record("m-1", group="a", state=State.CREATING)
    known = a_record("m-2", group="a", state=State.RUNNING, provider_id="sim://2")
    fleet = a_fleet([fresh, known])
    assert fleet.find(NodeRef(name="m-1")) == fresh
    assert fleet.find(NodeRef(name="m-1", provider_id="sim://7")) == fresh, "the cloud has not told its id yet"
    assert fleet.find(NodeRef(name="anything", provider_id="sim://2")) == known
    assert fleet.find(NodeRef(name="m-2")) == known
    assert fleet.find(NodeRef(name="m-2", provider_id="sim://other")) is None, "another machine of the same name"
    assert fleet.find(NodeRef(name=fresh.placeholder)) == fresh
    assert fleet.find(NodeRef(name="control-plane", provider_id="sim://cp")) is None
    assert fleet.find(NodeRef()) is None


def test_an_id_belongs_to_the_machine_that_is_there_not_to_one_that_was() -> None:
    gone = a_record("m-2", group="a", state=State.GONE, provider_id="sim://1", machine_id="1")
    going = a_record("m-3", group="a", state=State.DELETING, provider_id="sim://1", machine_id="1")
    there = a_record("m-1", group="b", state=State.RUNNING, provider_id="sim://1", machine_id="1")
    loaded = a_fleet([there, gone, going])
    lived = a_fleet()
    for record in (gone, replace(going, state=State.RUNNING), there, going, replace(going, state=State.GONE)):
        lived.apply(Change(machines=(record,)))
    for fleet in (loaded, lived):
        assert fleet.find(node("sim://1")) == there
        assert fleet.by_machine_id("sim", "1") == there
        assert [i.id for i in fleet.groups["b"].instances()] == ["sim://1"]
    assert [i.id for i in loaded.groups["a"].instances()] == [going.placeholder]


# -- the rest ----------------------------------------------------------------------------------------------------------


def test_a_group_that_comes_back_finds_its_machines_again() -> None:
    fleet = a_fleet([a_record("m-1", group="c"), a_record("m-2", group="c", state=State.GONE)])
    fleet.take_group(a_spec("c"))
    assert fleet.groups["c"].target == 1
    assert [i.id for i in fleet.groups["c"].instances()] == ["cloudgraft://sim/m-1"]
    fleet.apply(Change(removed_groups=("c",)))
    assert "c" not in fleet.groups


def test_a_changed_group_keeps_its_machines_and_is_shown_as_before_until_the_next_refresh() -> None:
    """R4: min and max change at Refresh only."""
    fleet = a_fleet([a_record("m-1", group="a")])
    shown = fleet.groups["a"].shown
    fleet.take_group(a_spec("a", max_size=99))
    assert fleet.groups["a"].shown == shown
    assert (fleet.groups["a"].spec.max_size, fleet.groups["a"].target) == (99, 1)


def test_pauses_and_clouds_are_taken_in_and_let_go() -> None:
    fleet = a_fleet()
    pause = PauseRecord(scope=Scope.CLOUD, name="sim", since=NOW)
    own = PauseRecord(scope=Scope.GROUP, name="a", since=NOW)
    fleet.apply(Change(pauses=(pause, own), clouds=(CloudRecord(name="sim", adopted_at=NOW),)))
    assert fleet.adopted_clouds == {"sim"}
    assert (fleet.pause_of("a", "sim"), fleet.pause_of("b", "sim"), fleet.pause_of("b", "lab")) == (own, pause, None)
    fleet.apply(Change(resumed=((Scope.GROUP, "a"),)))
    assert fleet.pause_of("a", "sim") == pause


def test_who_listens_to_a_cloud_hears_of_its_records_once_they_are_all_in() -> None:
    fleet, heard = a_fleet(), list[tuple[str, int]]()
    fleet.listen("sim", lambda record: heard.append((record.name, len(fleet.machines))))
    other = a_record("m-3", group="b", cloud="lab")
    fleet.apply(Change(machines=(a_record("m-1", group="a"), a_record("m-2", group="b"), other)))
    assert heard == [("m-1", 3), ("m-2", 3)]
    fleet.unlisten("sim")
    fleet.apply(Change(machines=(a_record("m-4", group="a"),)))
    assert len(heard) == 2


def test_what_was_released_is_remembered_for_as_long_as_its_cloud_has_it() -> None:
    released = a_record("m-1", group="a", state=State.GONE, presence=Presence.PRESENT)
    fleet = a_fleet([released])
    fleet.forget(NOW + 1)
    assert fleet.released == {"m-1": released}
    fleet.apply(Change(machines=(replace(released, presence=Presence.NONE),)))
    fleet.forget(NOW + 1)
    assert (fleet.released, fleet.machines) == ({}, {})
