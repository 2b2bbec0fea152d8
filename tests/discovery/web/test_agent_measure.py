"""What a cluster has to share, added up by hand."""

from __future__ import annotations

from fractions import Fraction

from cloudgraft.discovery.agent.measure import Margin, Rules, measure
from cloudgraft.discovery.model import Resources
from cloudgraft.kube.objects import Node, PodLoad
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Taint


def amounts(**texts: str) -> dict[str, Quantity]:
    return {name.replace("gpu", "nvidia.com/gpu"): Quantity(text) for name, text in texts.items()}


def node(
    name: str,
    *,
    ready: bool = True,
    unschedulable: bool = False,
    labels: dict[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    allocatable: Resources | None = None,
) -> Node:
    return Node(
        name=name,
        ready=ready,
        unschedulable=unschedulable,
        labels=labels or {},
        taints=taints,
        allocatable=allocatable or amounts(cpu="4", memory="8Gi", pods="110"),
    )


def pod(
    on: str, *, phase: str = "Running", labels: dict[str, str] | None = None, requests: Resources | None = None
) -> PodLoad:
    return PodLoad(name="p", node=on, phase=phase, labels=labels or {}, requests=requests or amounts(cpu="500m"))


def test_what_pods_ask_for_is_not_free_and_each_takes_a_place() -> None:
    found = measure([node("a"), node("b")], [pod("a"), pod("b", requests=amounts(cpu="1", memory="2Gi"))])
    assert found.allocatable == amounts(cpu="8", memory="16Gi", pods="220")
    assert found.free == amounts(cpu="6500m", memory="14Gi", pods="218")
    assert found.offloaded == {}


def test_pods_that_have_ended_take_nothing() -> None:
    found = measure([node("a")], [pod("a", phase="Succeeded"), pod("a", phase="Failed"), pod("a", phase="Pending")])
    assert found.free["cpu"] == Quantity("3500m")
    assert found.free["pods"] == Quantity("109")


def test_nodes_that_take_no_pods_and_virtual_ones_are_not_counted() -> None:
    """A virtual node is another cluster's: to share it again would be to sell what one does not have."""
    nodes = [
        node("good"),
        node("not-ready", ready=False),
        node("cordoned", unschedulable=True),
        node("liqo", labels={"liqo.io/type": "virtual-node"}),
        node("kubelet", labels={"type": "virtual-kubelet"}),
        node("tainted-virtual", taints=(Taint(key="virtual-node.liqo.io/not-allowed", effect="NoExecute"),)),
        node("control-plane", taints=(Taint(key="node-role.kubernetes.io/control-plane"),)),
        node("soft", taints=(Taint(key="x", effect="PreferNoSchedule"),)),
    ]
    found = measure(nodes, [pod("cordoned"), pod("liqo"), pod("nowhere")])
    assert found.free["cpu"] == Quantity(8)


def test_a_tolerated_taint_keeps_nobody_away() -> None:
    gpu = node("g", taints=(Taint(key="nvidia.com/gpu"),), allocatable=amounts(cpu="8", gpu="4"))
    assert measure([gpu], []).allocatable == {}
    found = measure([gpu], [pod("g", requests=amounts(gpu="1"))], Rules(tolerated=frozenset({"nvidia.com/gpu"})))
    assert found.free["nvidia.com/gpu"] == Quantity(3)


def test_pods_of_other_clusters_are_told_apart() -> None:
    """They are not free, but they are what reservations are for: counted twice, half of a cluster would be lost."""
    shadow = pod("a", labels={"liqo.io/managed-by": "shadowpod"}, requests=amounts(cpu="1", memory="1Gi"))
    reflected = pod("a", labels={"offloading.liqo.io/origin": "consumer"}, requests=amounts(cpu="1"))
    found = measure([node("a")], [shadow, reflected, pod("a")])
    assert found.offloaded == amounts(cpu="2", memory="1Gi", pods="2")
    assert found.free["cpu"] == Quantity("1500m")


def test_a_margin_is_kept_back_of_what_there_is_and_of_what_is_free() -> None:
    rules = Rules(margins={"cpu": Margin(share=Fraction(1, 10)), "memory": Margin(amount=Quantity("1Gi"))})
    found = measure([node("a")], [pod("a")], rules)
    assert found.allocatable == amounts(cpu="3600m", memory="7Gi", pods="110")
    assert found.free == amounts(cpu="3100m", memory="7Gi", pods="109")


def test_a_margin_of_devices_is_rounded_up_and_nothing_is_ever_negative() -> None:
    rules = Rules(margins={"nvidia.com/gpu": Margin(share=Fraction(1, 10)), "cpu": Margin(amount=Quantity(100))})
    found = measure([node("a", allocatable=amounts(cpu="4", gpu="4"))], [pod("a")], rules)
    assert found.free == amounts(cpu="0", gpu="3")


def test_a_node_that_is_overcommitted_takes_nothing_from_another() -> None:
    found = measure([node("a"), node("b")], [pod("a", requests=amounts(cpu="9"))])
    assert found.free["cpu"] == Quantity(4)


def test_only_resources_that_pods_of_others_can_ask_for_are_shared() -> None:
    all_ = {**amounts(cpu="4", gpu="1"), "hugepages-2Mi": Quantity(0), "attachable-volumes-x": Quantity(9)}
    assert measure([node("a", allocatable=all_)], []).free == amounts(cpu="4", gpu="1")
    assert measure([node("a", allocatable=all_)], [], Rules(only=frozenset({"cpu"}))).free == amounts(cpu="4")


def test_an_empty_cluster_shares_nothing() -> None:
    found = measure([], [])
    assert (found.allocatable, found.free) == ({}, {})
