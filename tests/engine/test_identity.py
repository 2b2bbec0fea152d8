"""Names that every cloud takes, and proof that no other cluster can have."""

from __future__ import annotations

import re

from hypothesis import assume, given
from hypothesis import strategies as st

from cloudgraft.engine.identity import Identity, placeholder
from cloudgraft.sdk.driver import Machine, Ownership
from cloudgraft.store.identity import check_cluster_id, new_cluster_id
from tests.engine.makers import IDENTITY, a_machine, a_record

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


def test_an_operators_word_is_proof_for_that_very_machine() -> None:
    taken = a_record("web-1", machine_id="m-1", is_adopted=True)
    for ownership in Ownership:
        assert IDENTITY.is_proven(a_machine("m-1", name="web-1", tags={}), ownership, taken)
    assert not IDENTITY.is_proven(a_machine("m-2", name="web-1", tags={}), Ownership.TAGS, taken)


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
