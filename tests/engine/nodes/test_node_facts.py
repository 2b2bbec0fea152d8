"""What nodes that joined teach: what they have in common, without flapping, and without what is only one's own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudgraft.engine.groups.templates import TemplateDeclaration, build_template
from cloudgraft.engine.nodes.node_facts import Facts, Specimen, facts_from_json, facts_to_json, learn
from cloudgraft.sdk.driver import Shape
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Taint
from cloudgraft.store.records import LearnedRecord
from tests.engine.clusters import ALLOCATABLE, CAPACITY, a_node
from tests.engine.engine_rig import EPOCH

SHAPE = Shape(
    name="small",
    capacity={"cpu": Quantity("4"), "memory": Quantity("8Gi"), "example.com/gpu": Quantity("1")},
    labels={"disk": "ssd"},
)


def specimen(name: str = "n", *, is_young: bool = False, **changes: Any) -> Specimen:
    created = {"created_at": EPOCH - 30} if is_young else {}
    return Specimen(node=a_node(name, **{**created, **changes}), names=(name, f"id-{name}"))


def lesson(*specimens: Specimen, old: Facts | None = None) -> Facts:
    found = learn(old, specimens, EPOCH)
    assert found is not None
    return found


def with_memory(amount: str, name: str = "n", *, is_young: bool = False) -> Specimen:
    memory = {"memory": Quantity(amount)}
    return specimen(name, is_young=is_young, capacity=CAPACITY | memory, allocatable=ALLOCATABLE | memory)


def test_a_node_teaches_capacity_allocatable_labels_and_taints() -> None:
    taint = Taint(key="dedicated", value="batch")
    facts = lesson(specimen(labels={"pool": "lab", "kubernetes.io/hostname": "n"}, taints=(taint,)))
    assert facts == Facts(
        labels={"pool": "lab"}, taints=(taint,), capacity=CAPACITY, allocatable=ALLOCATABLE, is_settled=True
    )


@pytest.mark.parametrize(
    "key",
    [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unschedulable",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
        "startup-taint.cluster-autoscaler.kubernetes.io/cni",
    ],
)
def test_taints_that_come_and_go_are_not_learned(key: str) -> None:
    """R70."""
    assert lesson(specimen(taints=(Taint(key=key),))).taints == ()


def test_labels_that_say_which_node_it_is_are_not_learned() -> None:
    own = {"kubernetes.io/hostname": "n", "beta.kubernetes.io/os": "linux", "who": "n", "serial": "id-n"}
    assert lesson(specimen(labels={**own, "pool": "lab"})).labels == {"pool": "lab"}


def test_what_differs_between_two_nodes_is_never_learned_again() -> None:
    """Not when one of them goes, and not after that: what is told must not come and go with a node."""
    one, two = specimen("a", labels={"pool": "x", "rack": "1"}), specimen("b", labels={"pool": "x", "rack": "2"})
    facts = lesson(one, two)
    assert facts.labels == {"pool": "x"}
    assert lesson(one, old=facts) is facts


def test_a_label_that_a_node_of_some_age_lacks_is_not_learned_again_either() -> None:
    one, two = specimen("a", labels={"pool": "x", "note": "1"}), specimen("b", labels={"pool": "x"})
    assert lesson(one, old=lesson(one, two)).labels == {"pool": "x"}


def test_a_young_node_teaches_only_while_there_is_no_older_one() -> None:
    """Some labels and devices come late: a node that has just come must not take them from the template."""
    gpu = {"nvidia.com/gpu": Quantity("1")}
    old = specimen("a", labels={"pool": "x", "gpu": "t4"}, capacity=CAPACITY | gpu, allocatable=ALLOCATABLE | gpu)
    young = specimen("b", is_young=True, labels={"pool": "x"})
    first = lesson(young)
    assert (first.labels, first.is_settled) == ({"pool": "x"}, False)
    facts = lesson(old, young, old=first)
    assert (facts.labels, "nvidia.com/gpu" in facts.capacity) == ({"pool": "x", "gpu": "t4"}, True)
    assert lesson(young, old=facts) is facts


def test_a_taint_that_comes_later_is_somebodys_doing() -> None:
    kept, extra = Taint(key="dedicated"), Taint(key="maintenance")
    facts = lesson(specimen(taints=(kept,)))
    assert lesson(specimen(taints=(kept, extra)), old=facts) is facts
    assert lesson(specimen(taints=(extra,)), old=facts).taints == ()


def test_taints_are_learned_only_from_nodes_that_have_been_there_for_a_while() -> None:
    """A young one may still have those that whoever prepares it takes away."""
    young = lesson(specimen(is_young=True, taints=(Taint(key="cni"),)))
    assert young.taints == ()
    assert lesson(specimen(taints=(Taint(key="dedicated"),)), old=young).taints == (Taint(key="dedicated"),)


def test_the_smallest_node_counts_and_a_few_bytes_change_nothing() -> None:
    facts = lesson(with_memory("8000000Ki", "a"), with_memory("7999996Ki", "b"))
    assert facts.allocatable["memory"] == Quantity("7999996Ki")
    assert lesson(with_memory("8000000Ki", "a"), old=facts) is facts
    assert lesson(with_memory("9000000Ki"), old=facts).allocatable["memory"] == Quantity("9000000Ki")
    assert lesson(with_memory("7999992Ki"), old=facts).allocatable["memory"] == Quantity("7999992Ki")


@given(st.lists(st.integers(7_900_000, 8_000_000), min_size=1, max_size=20))
def test_nodes_that_differ_by_little_settle_after_few_changes(amounts: list[int]) -> None:
    facts: Facts | None = None
    seen = []
    for amount in amounts * 2:
        facts = learn(facts, [with_memory(f"{amount}Ki")], EPOCH)
        assert facts is not None
        seen.append(facts.allocatable["memory"])
        assert facts.allocatable["memory"] <= facts.capacity["memory"]
    assert seen == sorted(seen, reverse=True), "it only falls"


def with_gpus(amount: str | None, name: str = "n", *, left: str | None = None) -> Specimen:
    gpu = {} if amount is None else {"nvidia.com/gpu": Quantity(amount)}
    free = gpu if left is None else {"nvidia.com/gpu": Quantity(left)}
    return specimen(name, capacity=CAPACITY | gpu, allocatable=ALLOCATABLE | free)


@pytest.mark.parametrize("broken", [with_gpus(None, "b"), with_gpus("0", "b"), with_gpus("4", "b", left="0")])
def test_a_node_whose_devices_are_late_or_broken_does_not_take_them_from_the_template(broken: Specimen) -> None:
    """Else a group that then shrinks to nothing would never grow again for the pods that want them."""
    facts = lesson(with_gpus("4", "a"), broken)
    assert (facts.capacity["nvidia.com/gpu"], facts.allocatable["nvidia.com/gpu"]) == (Quantity(4), Quantity(4))
    assert lesson(broken, old=facts) is facts, "and when it is the last one neither"
    assert "nvidia.com/gpu" not in lesson(broken).allocatable


def test_fewer_devices_are_fewer() -> None:
    facts = lesson(with_gpus("4", "a"), with_gpus("2", "b"))
    assert facts.allocatable["nvidia.com/gpu"] == Quantity(2)
    assert lesson(with_gpus("4", "a"), old=facts).allocatable["nvidia.com/gpu"] == Quantity(4)


def test_what_is_left_for_pods_is_never_more_than_there_is() -> None:
    """Each is kept or taken by itself: here one more core is hardly more capacity, but more is left of it."""
    before = lesson(
        specimen(capacity=CAPACITY | {"cpu": Quantity("100")}, allocatable=ALLOCATABLE | {"cpu": Quantity("98")})
    )
    more = {"cpu": Quantity("101")}
    facts = lesson(specimen(capacity=CAPACITY | more, allocatable=ALLOCATABLE | more), old=before)
    assert (facts.capacity["cpu"], facts.allocatable["cpu"]) == (Quantity("100"), Quantity("100"))


def test_without_nodes_nothing_is_learned_and_nothing_forgotten() -> None:
    facts = lesson(specimen())
    assert learn(None, [], EPOCH) is None
    assert learn(facts, [], EPOCH) is facts


def test_facts_come_back_from_the_journal_as_they_were() -> None:
    facts = lesson(
        specimen("a", labels={"x": "1", "y": "2"}, taints=(Taint(key="t"),)), specimen("b", labels={"x": "2"})
    )
    written = json.loads(json.dumps(facts_to_json(facts)))
    assert facts_from_json(LearnedRecord(group="g", settings={}, since=0.0, facts=written)) == facts
    assert facts_from_json(LearnedRecord(group="g", settings={}, since=0.0, facts={})) is None
    with pytest.raises(InvalidArgumentError, match=r"learned of the group 'g' cannot be read: labels is missing"):
        facts_from_json(LearnedRecord(group="g", settings={}, since=0.0, facts={"settled": True}))


# -- and the template --------------------------------------------------------------------------------------------------


def test_real_nodes_win_over_the_shape_and_over_what_is_computed() -> None:
    real = Facts(
        labels={"kubernetes.io/arch": "arm64", "disk": "nvme"},
        taints=(Taint(key="real"),),
        capacity=CAPACITY,
        allocatable=ALLOCATABLE,
    )
    template = build_template(TemplateDeclaration(), SHAPE, facts=real)
    assert (template.capacity["memory"], template.allocatable["memory"]) == (CAPACITY["memory"], ALLOCATABLE["memory"])
    assert (template.labels["kubernetes.io/arch"], template.labels["disk"]) == ("arm64", "nvme")
    assert template.taints == (Taint(key="real"),)
    assert template.capacity["example.com/gpu"] == Quantity("1"), "it may come late"


def test_what_nodes_of_some_age_do_not_have_is_not_promised() -> None:
    real = Facts(labels={"pool": "x"}, capacity=CAPACITY, allocatable=ALLOCATABLE, is_settled=True)
    template = build_template(TemplateDeclaration(), SHAPE, facts=real)
    assert "example.com/gpu" not in template.capacity
    assert template.labels == {"pool": "x"}


def test_what_is_declared_wins_over_real_nodes() -> None:
    declared = TemplateDeclaration(
        labels={"pool": "mine"},
        taints=(Taint(key="real", value="no"),),
        capacity={"memory": Quantity("4Gi")},
        allocatable={"pods": Quantity("50")},
        reserved={"cpu": Quantity("1")},
        eviction_memory="0",
    )
    real = Facts(
        labels={"pool": "theirs"},
        taints=(Taint(key="real", value="yes"), Taint(key="other")),
        capacity=CAPACITY,
        allocatable=ALLOCATABLE,
        is_settled=True,
    )
    template = build_template(declared, SHAPE, zone="z", facts=real)
    assert template.labels == {"pool": "mine", "topology.kubernetes.io/zone": "z"}
    assert template.taints == (Taint(key="real", value="no"), Taint(key="other"))
    assert {name: str(amount) for name, amount in template.allocatable.items()} == {
        "cpu": "3",
        "memory": "4Gi",
        "pods": "50",
    }


def test_without_shape_and_declaration_real_nodes_are_enough() -> None:
    with pytest.raises(InvalidArgumentError, match="no memory"):
        build_template(TemplateDeclaration())
    real = Facts(capacity=CAPACITY, allocatable=ALLOCATABLE)
    assert build_template(TemplateDeclaration(), facts=real).allocatable == ALLOCATABLE
