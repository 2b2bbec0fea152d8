"""Which node is which machine's: certain, or not at all (R30, R31)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgraft.joining.claims import Claim, Stage
from cloudgraft.joining.match import Matches, ProblemKind, Way, matched
from cloudgraft.joining.node_changes import ClusterSettings, RemoveNode, UpdateNode, node_changes
from cloudgraft.kube.objects import Node

ALL = frozenset(Way)
NAME = frozenset({Way.NAME})


def claim(name: str, stage: Stage = Stage.WANTED, **more: object) -> Claim:
    return Claim(name=name, cloud="lab", group="small", stage=stage, **more)  # type: ignore[arg-type]  # as it says


def node(name: str, **more: object) -> Node:
    return Node(name=name, uid=f"uid-{name}", **more)  # type: ignore[arg-type]  # as it says


def kinds(matches: Matches) -> list[tuple[ProblemKind, str, str]]:
    return [(problem.kind, problem.node, problem.machine) for problem in matches.problems]


# -- what is certain ---------------------------------------------------------------------------------------------------


def test_a_node_with_a_provider_id_belongs_to_the_machine_with_exactly_that_one() -> None:
    """R30, byte for byte: not a name, a case or a slash more."""
    claims = [claim("m1", provider_id="lab://1"), claim("m2", provider_id="lab://2")]
    nodes = [
        node("anything", provider_id="lab://1"),
        node("m2", provider_id="LAB://2"),
        node("x", provider_id="lab:/2"),
    ]
    assert matched(claims, nodes, ALL).nodes == {"m1": "/anything"}


@pytest.mark.parametrize(
    ("way", "own", "theirs"),
    [
        (Way.NAME, {}, {"name": "m1"}),
        (Way.NAME, {}, {"labels": {"kubernetes.io/hostname": "m1"}}),
        (Way.ADDRESS, {"addresses": ("10.0.0.5",)}, {"addresses": ("x", "10.0.0.5")}),
        (Way.ADDRESS, {"addresses": ("fe80::1",)}, {"addresses": ("FE80:0::0001",)}),
        (Way.ADDRESS, {"addresses": ("Host.Lab.",)}, {"addresses": ("host.lab",)}),
        (Way.MACHINE_ID, {"machine_id": "i-0ABC"}, {"system_uuid": "I-0abc"}),
        (
            Way.MACHINE_ID,
            {"machine_id": "01234567-89AB-CDEF-0123-456789ABCDEF"},
            {"machine_id": "0123456789abcdef0123456789abcdef"},
        ),
    ],
)
def test_a_node_without_one_is_known_in_the_ways_that_are_allowed(
    way: Way, own: dict[str, object], theirs: dict[str, object]
) -> None:
    claims, nodes = [claim("m1", **own)], [Node(**{"name": "n1", **theirs})]  # type: ignore[arg-type]  # as it says
    assert list(matched(claims, nodes, {way}).nodes) == ["m1"]
    assert matched(claims, nodes, ALL - {way}).nodes == {}


def test_what_is_empty_is_no_likeness() -> None:
    claims = [claim("m1", addresses=("",)), claim("m2")]
    assert matched(claims, [node("n1", addresses=("",)), node("n2")], ALL).nodes == {}


# -- what is not -------------------------------------------------------------------------------------------------------


def test_two_nodes_for_one_machine_are_left_alone() -> None:
    claims = [claim("m1", addresses=("10.0.0.5",))]
    found = matched(claims, [node("m1"), node("n2", addresses=("10.0.0.5",))], ALL)
    assert found.nodes == {}
    assert kinds(found) == [(ProblemKind.TWO_NODES, "m1", "m1"), (ProblemKind.TWO_NODES, "n2", "m1")]
    assert found.disputed == {"m1"}
    assert "delete the other Node object" in str(found.problems[0])


def test_a_machine_that_has_its_node_gets_no_second_one() -> None:
    claims = [claim("m1", provider_id="lab://1")]
    found = matched(claims, [node("n1", provider_id="lab://1"), node("m1")], NAME)
    assert found.nodes == {"m1": "/n1"}
    assert kinds(found) == [(ProblemKind.TWO_NODES, "m1", "m1")]
    assert "n1, m1" in str(found.problems[0])


def test_two_nodes_with_one_provider_id_are_left_alone() -> None:
    claims = [claim("m1", provider_id="lab://1")]
    found = matched(claims, [node("n1", provider_id="lab://1"), node("n2", provider_id="lab://1")], NAME)
    assert found.nodes == {}
    assert {kind for kind, _, _ in kinds(found)} == {ProblemKind.TWO_NODES}


def test_two_machines_for_one_node_are_left_alone() -> None:
    claims = [claim("m1"), claim("m2", addresses=("10.0.0.5",))]
    found = matched(claims, [node("m1", addresses=("10.0.0.5",))], ALL)
    assert found.nodes == {}
    assert kinds(found) == [(ProblemKind.TWO_MACHINES, "m1", "")]
    assert "m1 and m2" in str(found.problems[0])
    same = [claim("m1", provider_id="lab://1"), claim("m2", provider_id="lab://1")]
    assert kinds(matched(same, [node("n", provider_id="lab://1")], ALL)) == [(ProblemKind.TWO_MACHINES, "n", "")]


def test_a_node_with_another_provider_id_is_reported() -> None:
    claims = [claim("m1", provider_id="lab://1")]
    found = matched(claims, [node("m1", provider_id="k3s://m1")], NAME)
    assert found.nodes == {}
    assert kinds(found) == [(ProblemKind.OTHER_PROVIDER_ID, "m1", "m1")]
    assert "k3s://m1 instead of lab://1" in str(found.problems[0])


def test_a_node_may_have_its_provider_id_before_the_cloud_reports_it() -> None:
    assert matched([claim("m1")], [node("m1", provider_id="lab://1")], NAME) == Matches()


def test_a_node_with_an_unexpected_name_is_reported() -> None:
    waiting = {"m1": 1000.0}
    found = matched([claim("m1")], [node("ip-10-0-0-5", created_at=1100.0)], NAME, since=waiting)
    assert kinds(found) == [(ProblemKind.STRANGER, "ip-10-0-0-5", "")]
    assert "m1 is waited for" in str(found.problems[0])
    old, other = node("old", created_at=900.0), node("other", created_at=1100.0, provider_id="aws://x")
    assert matched([claim("m1")], [old, other], NAME, since=waiting) == Matches()
    assert matched([claim("m1", Stage.GOING)], [node("x", created_at=1100.0)], NAME, since=waiting) == Matches()
    joined = matched([claim("m1")], [node("m1"), node("x", created_at=1100.0)], NAME, since=waiting)
    assert joined.problems == ()


def test_a_match_by_a_way_that_is_not_configured_is_reported() -> None:
    claims = [claim("m1", addresses=("10.0.0.5",))]
    found = matched(claims, [node("ip-10-0-0-5", addresses=("10.0.0.5",))], NAME)
    assert found.nodes == {}
    assert kinds(found) == [(ProblemKind.NAMED_OTHERWISE, "ip-10-0-0-5", "m1")]
    assert "Add address there" in str(found.problems[0])


# -- machines that are gone --------------------------------------------------------------------------------------------


def test_a_machine_that_is_there_goes_before_one_that_is_gone() -> None:
    """A static machine that is switched on again has the providerID that it had before."""
    claims = [claim("old", Stage.GONE, provider_id="lab://1"), claim("new", provider_id="lab://1")]
    assert matched(claims, [node("n", provider_id="lab://1")], NAME).nodes == {"new": "/n"}
    both = [claim("a", Stage.GONE, provider_id="lab://1"), claim("b", Stage.GONE, provider_id="lab://1")]
    assert matched(both, [node("n", provider_id="lab://1")], NAME).nodes == {"a": "/n"}


def test_the_address_of_a_machine_that_is_gone_may_be_reused() -> None:
    """Law 4: the node behind it must not be removed."""
    gone = claim("m1", Stage.GONE, addresses=("10.0.0.5",))
    assert matched([gone], [node("foreign", addresses=("10.0.0.5",))], ALL) == Matches()


@pytest.mark.parametrize("provider_id", ["", "lab://1"])
def test_a_node_that_registered_after_a_machine_was_gone_is_another_ones(provider_id: str) -> None:
    """Law 4: people and clouds give names and ids away again, and that node must not be removed."""
    gone = claim("m1", Stage.GONE, provider_id="lab://1", gone_at=10_000.0)
    assert matched([gone], [node("m1", provider_id=provider_id, created_at=9_000.0)], ALL).nodes == {"m1": "/m1"}
    assert matched([gone], [node("m1", provider_id=provider_id, created_at=10_030.0)], ALL).nodes, "a clock may be off"
    assert matched([gone], [node("m1", provider_id=provider_id, created_at=10_100.0)], ALL) == Matches()


@pytest.mark.parametrize("provider_id", ["", "lab://1"])
def test_a_node_that_was_dead_before_a_machine_was_ordered_is_not_that_machine_yet(provider_id: str) -> None:
    """Of an earlier life of the same host, or of somebody who had the address before. Its kubelet may take it over."""
    new = claim("m1", provider_id="lab://1", addresses=("10.0.0.5",), ordered_at=10_000.0)
    old = node("n", provider_id=provider_id, addresses=("10.0.0.5",), created_at=1_000.0, ready_since=5_000.0)
    found = matched([new], [old], ALL)
    assert (found.nodes, found.problems) == ({}, ())
    assert found.disputed == ({"m1"} if provider_id else set()), "clocks may be off: it may have joined all the same"
    assert matched([new], [replace(old, ready=True)], ALL).nodes == {"m1": "/n"}
    assert matched([new], [replace(old, ready_since=10_100.0)], ALL).nodes == {"m1": "/n"}
    assert matched([new], [replace(old, created_at=9_990.0, ready_since=0.0)], ALL).nodes == {"m1": "/n"}


def test_a_dead_node_under_the_name_of_a_machine_may_be_that_machine_whatever_the_clocks_say() -> None:
    """A server whose clock is ahead orders a machine, as it seems, after the machine's node has come and gone ill."""
    new = claim("m1", ordered_at=10_000.0)
    old = node("m1", created_at=9_000.0, ready_since=9_100.0)
    assert matched([new], [old], {Way.NAME}) == Matches(disputed=frozenset({"m1"}))
    assert matched([new], [old], {Way.ADDRESS}) == Matches()
    gone = claim("m0", Stage.GONE, provider_id="lab://1", gone_at=9_500.0)
    reused = matched([gone, replace(new, provider_id="lab://1")], [replace(old, provider_id="lab://1")], ALL)
    assert (reused.nodes, reused.disputed) == ({"m0": "/m1"}, frozenset()), "it is that of the machine before"


# -- always ------------------------------------------------------------------------------------------------------------

_FEW = st.sampled_from(["", "a", "b", "c"])
_CLAIMS = st.lists(
    st.builds(
        Claim,
        name=st.sampled_from(["a", "b", "c", "d"]),
        cloud=st.just("lab"),
        group=st.just("small"),
        stage=st.sampled_from(Stage),
        provider_id=_FEW,
        machine_id=_FEW,
        addresses=st.lists(_FEW, max_size=2).map(tuple),
        labels=st.dictionaries(_FEW, _FEW, max_size=2),
        sets_provider_id=st.booleans(),
    ),
    max_size=4,
    unique_by=lambda claim: claim.name,
)
_NODES = st.lists(
    st.builds(
        Node,
        name=st.sampled_from(["a", "b", "c", "d", "e"]),
        uid=_FEW,
        provider_id=_FEW,
        machine_id=_FEW,
        addresses=st.lists(_FEW, max_size=2).map(tuple),
        labels=st.dictionaries(_FEW, _FEW, max_size=2),
        ready=st.booleans(),
        deleting=st.booleans(),
        created_at=st.sampled_from([0.0, 100.0, 1000.0]),
    ),
    max_size=5,
    unique_by=lambda node: node.name,
)


@settings(max_examples=50, deadline=None)
@given(_CLAIMS, _NODES, st.frozensets(st.sampled_from(Way)))
def test_never_two_machines_with_one_node_and_never_a_change_of_a_provider_id(
    claims: list[Claim], nodes: list[Node], ways: frozenset[Way]
) -> None:
    _hold_to_it(claims, nodes, ways)


@pytest.mark.thorough
@settings(max_examples=300, deadline=None)
@given(_CLAIMS, _NODES, st.frozensets(st.sampled_from(Way)))
def test_really_never(claims: list[Claim], nodes: list[Node], ways: frozenset[Way]) -> None:
    _hold_to_it(claims, nodes, ways)


def _hold_to_it(claims: list[Claim], nodes: list[Node], ways: frozenset[Way]) -> None:
    found = matched(claims, nodes, ways, since={each.name: 500.0 for each in claims})
    assert _doubles(found.nodes.values()) == []
    by_key, by_name = {each.key: each for each in nodes}, {each.name: each for each in claims}
    own = {machine: by_key[key] for machine, key in found.nodes.items()}
    for machine, its in own.items():
        assert its.provider_id in ("", by_name[machine].provider_id)
    todo, _ = node_changes(claims, own, ClusterSettings(match_by=ways), gone_since={}, now=0.0)
    alive = {each.provider_id for each in claims if each.stage is not Stage.GONE} - {""}
    for change in todo:
        if isinstance(change, UpdateNode):
            assert not (change.provider_id and change.node.provider_id)
            assert not change.labels.keys() & change.node.labels.keys()
        else:
            assert isinstance(change, RemoveNode)
            assert by_name[change.machine].stage is Stage.GONE
            assert change.node.provider_id not in alive


def _doubles(values: Iterable[str]) -> list[str]:
    return [value for value, times in Counter(values).items() if times > 1]


# -- what follows from it ----------------------------------------------------------------------------------------------


def _todo(own: Claim, its: Node, *, gone_for: float = 0.0, **switched: bool) -> list[str]:
    chosen = replace(ClusterSettings(), **switched)  # type: ignore[arg-type]  # as it says
    found, _ = node_changes([own], {own.name: its}, chosen, gone_since={own.name: 1000.0}, now=1000.0 + gone_for)
    return [f"{each.provider_id} {dict(each.labels)}" if isinstance(each, UpdateNode) else "remove" for each in found]


def test_a_node_gets_what_it_lacks_and_keeps_what_it_has() -> None:
    own = claim("m1", provider_id="lab://1", sets_provider_id=True, labels={"pool": "x", "tier": "a"})
    assert _todo(own, node("m1", labels={"tier": "b"})) == ["lab://1 {'pool': 'x'}"]
    assert _todo(own, node("m1", labels={"tier": "b"}), set_provider_id=False) == [" {'pool': 'x'}"]
    assert _todo(own, node("m1"), label_nodes=False) == ["lab://1 {}"]
    assert _todo(own, node("m1", provider_id="lab://1", labels={"pool": "x", "tier": "a"})) == []
    assert _todo(own, node("m1", deleting=True)) == []
    others = claim("m1", provider_id="lab://1", sets_provider_id=False)
    assert _todo(others, node("m1")) == []


def test_a_label_with_another_value_is_reported_and_not_overwritten() -> None:
    own = claim("m1", labels={"pool": "x"})
    found, problems = node_changes(
        [own], {"m1": node("m1", labels={"pool": "y"})}, ClusterSettings(), gone_since={}, now=0.0
    )
    assert found == []
    assert [problem.kind for problem in problems] == [ProblemKind.OTHER_LABEL]
    assert "pool=y, but group small promises pool=x" in str(problems[0])
    off = ClusterSettings(label_nodes=False)
    assert node_changes([own], {"m1": node("m1", labels={"pool": "y"})}, off, gone_since={}, now=0.0) == ([], [])


@pytest.mark.parametrize(
    ("stage", "ready", "gone_for", "removed"),
    [
        (Stage.GONE, False, 0, True),
        (Stage.GONE, True, 59, False),
        (Stage.GONE, True, 60, True),
        (Stage.GOING, False, 1000, False),
        (Stage.WANTED, False, 1000, False),
    ],
)
def test_a_node_is_removed_when_its_machine_is_gone_and_it_is_not_just_late(
    stage: Stage, ready: bool, gone_for: float, removed: bool
) -> None:
    """R57."""
    its = node("n", provider_id="lab://1", ready=ready)
    own = claim("m1", stage, provider_id="lab://1")
    assert (_todo(own, its, gone_for=gone_for) == ["remove"]) is removed
    assert _todo(own, its, gone_for=gone_for, remove_nodes=False) == []
