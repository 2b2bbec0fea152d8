"""A group's template: declaration over shape, and allocatable as a kubelet would report it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudgraft.engine.groups.templates import TemplateDeclaration, build_template
from cloudgraft.engine.nodes.node_facts import Facts
from cloudgraft.sdk import InvalidArgumentError, NodeTemplate, Quantity, Shape, Taint

NOTHING_SAID = TemplateDeclaration()


def _amounts(**amounts: str) -> dict[str, Quantity]:
    return {name.replace("_", "-"): Quantity(amount) for name, amount in amounts.items()}


def _shape(**capacity: str) -> Shape:
    return Shape(name="4c8g", capacity={**_amounts(cpu="4", memory="8Gi"), **_amounts(**capacity)})


def test_a_shape_is_enough_for_a_complete_template() -> None:
    """R68, R69, R70."""
    assert build_template(NOTHING_SAID, _shape(ephemeral_storage="100Gi")) == NodeTemplate(
        labels={
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "4c8g",
        },
        capacity=_amounts(cpu="4", memory="8Gi", pods="110", ephemeral_storage="100Gi"),
        allocatable=_amounts(cpu="4", memory="8092Mi", pods="110", ephemeral_storage="90Gi"),
        taints=(),
    )


def test_a_declaration_is_enough_without_any_shape() -> None:
    template = build_template(TemplateDeclaration(capacity=_amounts(cpu="500m", memory="1G", pods="5")))
    assert template.labels == {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
    assert template.capacity == _amounts(cpu="0.5", memory="1G", pods="5")
    assert template.allocatable == _amounts(cpu="500m", memory="895142400", pods="5")


def test_what_is_declared_stands_above_what_the_shape_says_and_what_is_computed() -> None:
    declaration = TemplateDeclaration(
        capacity=_amounts(memory="7Gi", pods="30"), allocatable=_amounts(memory="6Gi", cpu="3")
    )
    template = build_template(declaration, _shape(pods="250"))
    assert template.capacity == _amounts(cpu="4", memory="7Gi", pods="30")
    assert template.allocatable == _amounts(cpu="3", memory="6Gi", pods="30")


def test_reserved_resources_and_eviction_thresholds_are_not_for_pods() -> None:
    declaration = TemplateDeclaration(
        reserved=_amounts(cpu="80m", memory="1Gi", ephemeral_storage="10Gi"),
        eviction_memory="5%",
        eviction_nodefs="1Gi",
    )
    template = build_template(declaration, _shape(ephemeral_storage="40Gi"))
    memory = Quantity("7Gi") - Quantity(8 * 2**30 * 5 // 100)
    assert template.allocatable == {**_amounts(cpu="3920m", pods="110", ephemeral_storage="29Gi"), "memory": memory}


def test_huge_pages_are_taken_from_memory() -> None:
    template = build_template(NOTHING_SAID, _shape(**{"hugepages-2Mi": "1Gi", "hugepages-1Gi": "2Gi"}))
    assert template.allocatable["memory"] == Quantity("5Gi") - Quantity("100Mi")
    assert template.allocatable["hugepages-2Mi"] == Quantity("1Gi")


def test_what_is_reserved_beyond_the_capacity_leaves_nothing_and_not_less() -> None:
    declaration = TemplateDeclaration(reserved=_amounts(ephemeral_storage="1Ti"))
    template = build_template(declaration, _shape(ephemeral_storage="10Gi"))
    assert template.allocatable["ephemeral-storage"] == Quantity(0)


def test_extended_resources_pass_through() -> None:
    """R68: pods that ask for a GPU only fit where the template has one."""
    template = build_template(NOTHING_SAID, _shape(**{"nvidia.com/gpu": "2"}))
    assert template.capacity["nvidia.com/gpu"] == template.allocatable["nvidia.com/gpu"] == Quantity(2)


def test_labels_come_from_node_shape_place_and_group_and_the_later_wins() -> None:
    shape = replace(_shape(), labels={"kubernetes.io/arch": "arm64", "disk": "ssd", "topology.kubernetes.io/zone": "x"})
    declaration = TemplateDeclaration(labels={"disk": "nvme", "pool": "lab"})
    assert build_template(declaration, shape, zone="eu-1a", region="eu-1").labels == {
        "kubernetes.io/arch": "arm64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "4c8g",
        "topology.kubernetes.io/zone": "eu-1a",
        "topology.kubernetes.io/region": "eu-1",
        "disk": "nvme",
        "pool": "lab",
    }


def test_groups_that_differ_in_nothing_but_their_zone_have_equal_templates_but_for_that_label() -> None:
    """R72: balancing needs them to be alike."""
    one, two = (build_template(NOTHING_SAID, _shape(), zone=zone) for zone in ("a", "b"))
    assert {key for key in one.labels if one.labels[key] != two.labels[key]} == {"topology.kubernetes.io/zone"}
    assert replace(one, labels={}) == replace(two, labels={})


def test_a_shape_name_that_no_label_can_hold_is_no_label() -> None:
    shape = replace(_shape(), name="4 cores / 8 GiB")
    assert "node.kubernetes.io/instance-type" not in build_template(NOTHING_SAID, shape).labels


def test_a_shapes_own_taints_are_in_the_template_until_real_nodes_tell() -> None:
    ours, theirs = Taint(key="virtual", value="true", effect="NoExecute"), Taint(key="dedicated", value="batch")
    shape = replace(_shape(), taints=(ours,))
    declared = TemplateDeclaration(taints=[theirs, replace(ours, value="false")])
    assert build_template(TemplateDeclaration(), shape).taints == (ours,)
    assert build_template(declared, shape).taints == (theirs, replace(ours, value="false"))
    real = Facts(capacity=_amounts(cpu="4", memory="8Gi", pods="110"), is_settled=True)
    assert build_template(TemplateDeclaration(), shape, facts=real).taints == ()


def test_taints_and_annotations_are_the_groups() -> None:
    taint = Taint(key="dedicated", value="batch")
    template = build_template(TemplateDeclaration(taints=[taint], annotations={"a": "b"}), _shape())
    assert (template.taints, template.annotations) == ((taint,), {"a": "b"})
    assert (template.name, template.provider_id, template.unschedulable) == ("", "", False)


@pytest.mark.parametrize(
    ("declaration", "shape", "complaint"),
    [
        (NOTHING_SAID, None, "it has no cpu: set template.capacity.cpu, or machine.shape"),
        (NOTHING_SAID, None, "it has no memory: set template.capacity.memory"),
        (TemplateDeclaration(capacity=_amounts(pods="0")), _shape(), "it has no pods: set template.capacity.pods"),
        (
            TemplateDeclaration(reserved=_amounts(cpu="4")),
            _shape(),
            r"nothing of its cpu \(4\) is left for pods: lower template.reserved.cpu",
        ),
        (
            TemplateDeclaration(eviction_memory="100%"),
            _shape(),
            r"nothing of its memory \(8Gi\) is left for pods: lower template.reserved.memory or template.evictionHard",
        ),
        (
            TemplateDeclaration(allocatable=_amounts(cpu="5")),
            _shape(),
            "template.allocatable.cpu is 5, more than the capacity of 4",
        ),
        (TemplateDeclaration(eviction_memory="some"), _shape(), "neither a quantity nor a percentage"),
    ],
)
def test_a_template_on_which_nothing_fits_is_refused_with_the_key_to_set(
    declaration: TemplateDeclaration, shape: Shape | None, complaint: str
) -> None:
    """R68."""
    with pytest.raises(InvalidArgumentError, match=complaint):
        build_template(declaration, shape)


mebibytes = st.integers(min_value=201, max_value=2**20)
percent = st.integers(min_value=0, max_value=99)


@given(memory=mebibytes, reserved=mebibytes, storage=st.integers(0, 2**50), share=percent)
def test_allocatable_is_never_negative_and_never_more_than_capacity(
    memory: int, reserved: int, storage: int, share: int
) -> None:
    declaration = TemplateDeclaration(
        capacity={"cpu": Quantity(1), "memory": Quantity(f"{memory}Mi"), "ephemeral-storage": Quantity(storage)},
        reserved={"memory": Quantity(f"{min(reserved, memory - 101)}Mi"), "ephemeral-storage": Quantity("1Gi")},
        eviction_nodefs=f"{share}%",
    )
    template = build_template(declaration)
    for name, amount in template.capacity.items():
        assert Quantity(0) <= template.allocatable[name] <= amount
