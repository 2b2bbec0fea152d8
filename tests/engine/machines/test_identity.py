"""Names that every cloud takes, and proof that no other cluster can have."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cloudgraft.engine.machines.identity import TAG_CLUSTER_ID, Identity, placeholder
from cloudgraft.sdk.driver import Machine, Ownership
from cloudgraft.store.identity import check_cluster_id, new_cluster_id
from cloudgraft.store.records import Presence, State
from tests.engine.makers import IDENTITY, NOW, a_machine, a_record

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
TEXTS = st.text(st.characters(codec="utf-8"), max_size=80)
CLUSTER_IDS = st.one_of(
    st.from_regex(r"[a-z2-7]{10}", fullmatch=True),  # generated
    st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True),  # given by `clusterId:`
    st.sampled_from(["prod-east-1", "prod-east-2", "prod-e", "a", "a-b"]),
)
GROUPS = st.one_of(TEXTS, st.sampled_from(["g", "G", "g-", "pool a", "pool-a", "pool.a", "x" * 40, "x" * 41]))


def made_by(identity: Identity, group: str = "g", *, tagged: bool = True) -> Machine:
    name = identity.new_name(group)
    return a_machine(name=name, tags=identity.tags(name, group) if tagged else {})


@given(cluster=TEXTS, cluster_id=CLUSTER_IDS, group=GROUPS)
def test_a_name_is_a_host_name_whatever_cluster_and_group_are_called(cluster: str, cluster_id: str, group: str) -> None:
    name = Identity(cluster, cluster_id).new_name(group)
    assert LABEL.fullmatch(name)
    assert len(name) <= 63
    assert "--" not in name


@given(one=GROUPS, other=GROUPS)
def test_machines_of_two_groups_never_share_a_name_but_for_its_random_part(one: str, other: str) -> None:
    assume(one != other)
    first, second = (IDENTITY.new_name(group).rpartition("-")[0] for group in (one, other))
    assert first != second


@given(groups=st.lists(GROUPS, min_size=1, max_size=8, unique=True), tagged=st.booleans())
def test_a_machines_group_is_told_by_its_tag_else_by_its_name(groups: list[str], tagged: bool) -> None:
    for group in groups:
        assert IDENTITY.group_of(made_by(IDENTITY, group, tagged=tagged), groups) == group
    assert IDENTITY.group_of(a_machine(name="web-1", tags={}), groups) is None


@given(
    cluster=st.sampled_from(["test", "test-a", "", "x" * 30]),
    mine=CLUSTER_IDS,
    theirs=CLUSTER_IDS,
    ownership=st.sampled_from(Ownership),
)
def test_what_another_cluster_made_never_proves_to_be_ours(
    cluster: str, mine: str, theirs: str, ownership: Ownership
) -> None:
    """Law 4: two clusters may share a name, and a part of an id that somebody chose."""
    assume(mine != theirs)
    ours, other = Identity(cluster, mine), Identity(cluster, theirs)
    machine = made_by(other)
    assert other.is_proven(machine, ownership, None)
    assert not ours.is_proven(machine, ownership, None)
    assert not ours.looks_ours(machine)
    # Nor by a record of the same name, as long as no operator took the machine over.
    assert not ours.is_proven(machine, ownership, a_record(machine.name, machine_id=machine.machine_id))


def test_without_tags_a_machine_looks_ours_and_proves_it_only_where_names_are_the_proof() -> None:
    bare = made_by(IDENTITY, tagged=False)
    assert IDENTITY.looks_ours(bare)
    assert not IDENTITY.is_proven(bare, Ownership.TAGS, None)
    assert IDENTITY.is_proven(bare, Ownership.NAME, None)
    renamed = a_machine(name="web-1")
    assert IDENTITY.looks_ours(renamed)
    assert IDENTITY.is_proven(renamed, Ownership.TAGS, None)
    assert not IDENTITY.is_proven(renamed, Ownership.NAME, None)


ADOPTED = a_record("web-1", state=State.RUNNING, machine_id="m-1", is_adopted=True, created_at=NOW - 60)


@pytest.mark.parametrize("ownership", list(Ownership))
def test_an_adopted_machine_is_proven_by_its_id_with_its_creation_time(ownership: Ownership) -> None:
    """Ids are reused: somebody's machine may have the id, and even the name, of one that was adopted."""
    same = web_1()
    later, rounded = web_1(created_at=moment(NOW - 58)), web_1(created_at=moment(NOW - 59.1))
    for state in (State.RUNNING, State.GONE):
        record = replace(ADOPTED, state=state)
        assert IDENTITY.is_proven(same, ownership, record)
        assert IDENTITY.is_proven(rounded, ownership, record)
        for always in (False, True):
            other = [later, web_1(created_at=None), web_1("m-2")]
            assert not any(IDENTITY.is_proven(m, ownership, record, was_always_there=always) for m in other)


@pytest.mark.parametrize("ownership", list(Ownership))
def test_without_a_creation_time_an_id_proves_only_what_was_always_there(ownership: Ownership) -> None:
    record = replace(ADOPTED, created_at=None)
    assert IDENTITY.is_proven(web_1(), ownership, record, was_always_there=True)
    assert not IDENTITY.is_proven(web_1(), ownership, record)
    assert not IDENTITY.is_proven(web_1("m-2"), ownership, record, was_always_there=True)
    marked = replace(record, is_marked=True)
    assert not IDENTITY.is_proven(web_1(), ownership, marked, was_always_there=True), "its marks are gone with it"


def test_the_mark_that_adoption_set_is_proof() -> None:
    marked = web_1(tags=IDENTITY.tags("web-1", "g"), created_at=None)
    for ownership in (Ownership.TAGS, Ownership.INVENTORY):
        assert IDENTITY.is_proven(marked, ownership, replace(ADOPTED, state=State.GONE))
    assert not IDENTITY.is_proven(marked, Ownership.NAME, ADOPTED), "where names are the proof, a tag must not make one"


@pytest.mark.parametrize("ownership", list(Ownership))
def test_the_mark_of_another_cluster_outweighs_every_proof(ownership: Ownership) -> None:
    theirs = {TAG_CLUSTER_ID: "zzzzzzzzzz"}
    assert not IDENTITY.is_proven(web_1(tags=theirs), ownership, ADOPTED, was_always_there=True)
    ours_by_name = replace(made_by(IDENTITY), tags=theirs)
    assert not IDENTITY.is_proven(ours_by_name, ownership, None)
    assert IDENTITY.is_for_another(web_1(tags=theirs), ADOPTED)


def test_where_names_are_the_proof_what_is_older_than_our_order_is_not_ours() -> None:
    """Only somebody who gave one of our names to a machine can have made it. Clocks may differ by an hour."""
    record = a_record(state=State.DELETING, presence=Presence.PRESENT)
    old, new = (a_machine("m-9", tags={}, created_at=moment(NOW - age)) for age in (3601, 3599))
    assert not IDENTITY.is_proven(old, Ownership.NAME, record)
    assert IDENTITY.is_proven(new, Ownership.NAME, record)
    known = replace(old, machine_id="m-1")
    assert IDENTITY.is_proven(known, Ownership.NAME, record), "its id is that of the machine which our create made"
    assert not IDENTITY.is_proven(known, Ownership.NAME, replace(record, state=State.GONE))
    assert IDENTITY.is_proven(replace(old, created_at=None), Ownership.NAME, record), "nothing better is told"


def web_1(machine_id: str = "m-1", **changes: Any) -> Machine:
    return a_machine(machine_id, name="web-1", **{"tags": {}, "created_at": moment(NOW - 60), **changes})


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def test_what_has_no_marks_in_an_inventory_is_the_drivers_to_touch() -> None:
    assert IDENTITY.is_proven(a_machine(name="rack-7", tags={}), Ownership.INVENTORY, None)
    assert IDENTITY.is_proven(a_machine(name="rack-7"), Ownership.INVENTORY, None)


def test_a_machine_for_another_intent_is_told_by_its_tag_else_by_its_name() -> None:
    record = a_record()
    assert not IDENTITY.is_for_another(a_machine(), record)
    assert not IDENTITY.is_for_another(a_machine(tags={}), record)
    assert not IDENTITY.is_for_another(a_machine(name="renamed", tags={}), record)
    assert not IDENTITY.is_for_another(a_machine(name="renamed", tags=a_machine().tags), record)
    assert IDENTITY.is_for_another(made_by(IDENTITY), record)
    assert IDENTITY.is_for_another(made_by(IDENTITY, tagged=False), record)


def test_another_cluster_of_our_name_is_recognised() -> None:
    other = Identity(IDENTITY.cluster, "zzzzzzzzzz")
    for tagged in (True, False):  # by its name alone where a cloud keeps no tags, or has lost them
        assert IDENTITY.stranger(made_by(other, tagged=tagged)) == "zzzzzzzzzz"
        assert IDENTITY.stranger(made_by(IDENTITY, tagged=tagged)) is None
        assert IDENTITY.stranger(made_by(Identity("else", "zzzzzzzzzz"), tagged=tagged)) is None
    assert IDENTITY.stranger(a_machine(tags={})) is None
    assert IDENTITY.stranger(a_machine(name=f"{IDENTITY.cluster}-database12-of-somebody-else", tags={})) is None


def test_a_generated_id_stands_in_the_name_as_it_is() -> None:
    for _ in range(20):
        cluster_id = new_cluster_id()
        assert f"-{cluster_id}-" in Identity("test", cluster_id).new_name("g")
        assert check_cluster_id(cluster_id)


def test_a_placeholder_tells_its_cloud_and_its_machine() -> None:
    assert placeholder("lab", "m-1") == "cloudgraft://lab/m-1"
