"""What the simulated kubelet writes, object by object."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudgraft.engine.groups.templates import TemplateDeclaration, build_template
from cloudgraft.kube.objects import ContainerRef, Pod
from cloudgraft.sdk.driver import MachineState
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Taint
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.kubelets.objects import (
    allocatable,
    lease_manifest,
    lost_status,
    node_address,
    node_labels,
    node_manifest,
    running_status,
)
from cloudgraft.simcloud.options import MachineSettings, ShapeOptions, SimulatedOptions
from cloudgraft.simcloud.records import Order, SimMachine
from cloudgraft.simcloud.shapes import DEFAULT_SHAPES

NOW = 1_767_323_045.0


def machine(name: str = "m1", **settings: object) -> SimMachine:
    shapes = {"arm": ShapeOptions(cpu=1, memory="1Gi", labels={"kubernetes.io/arch": "arm64"})}
    cloud = SimulatedCloud(SimulatedOptions(boot_time=timedelta(0), shapes=shapes), clock=lambda: NOW, ident="cloud")
    made, _ = cloud.create(Order(name=name, settings=MachineSettings(**{"shape": "small", **settings})))  # type: ignore[arg-type]  # as each test needs them
    cloud.close()
    assert made.state is MachineState.RUNNING
    return made


def test_a_node_carries_the_providerid_of_its_machine_byte_for_byte() -> None:
    """R30."""
    made = machine()
    assert node_manifest(made, NOW)["spec"] == {"providerID": made.provider_id, "taints": []}


def test_a_node_has_the_labels_of_its_shape_its_zone_and_its_group_under_new_and_old_names() -> None:
    """R69: exactly what the template of the group promises, and what it is called beside."""
    assert node_labels(machine(zone="z1", labels={"pool": "a", "topology.kubernetes.io/region": "r"})) == {
        "kubernetes.io/hostname": "m1",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "small",
        "topology.kubernetes.io/zone": "z1",
        "topology.kubernetes.io/region": "r",
        "pool": "a",
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/instance-type": "small",
        "failure-domain.beta.kubernetes.io/zone": "z1",
        "failure-domain.beta.kubernetes.io/region": "r",
    }


def test_a_shape_may_be_of_another_architecture() -> None:
    made = machine(shape="arm")
    labels = node_labels(made)
    assert (labels["kubernetes.io/arch"], labels["beta.kubernetes.io/arch"]) == ("arm64", "arm64")
    status = node_manifest(made, NOW)["status"]
    assert isinstance(status, dict)
    assert status["nodeInfo"]["architecture"] == "arm64"


def test_nobody_can_give_a_node_the_host_name_of_another() -> None:
    assert node_labels(machine(labels={"kubernetes.io/hostname": "other"}))["kubernetes.io/hostname"] == "m1"


def test_a_node_has_the_taints_and_annotations_of_its_group() -> None:
    """R70."""
    taints = (Taint(key="a", value="b", effect="NoExecute"), Taint(key="c"))
    manifest = node_manifest(machine(taints=taints, annotations={"note": "x"}), NOW)
    assert manifest["spec"] == {
        "providerID": "simulated://cloud-000001",
        "taints": [{"key": "a", "value": "b", "effect": "NoExecute"}, {"key": "c", "effect": "NoSchedule"}],
    }
    metadata = manifest["metadata"]
    assert isinstance(metadata, dict)
    assert metadata["annotations"] == {"note": "x"}


def test_a_node_is_ready_from_its_first_moment_with_all_that_pods_ask_for() -> None:
    """R68."""
    status = node_manifest(machine(shape="gpu"), NOW)["status"]
    assert isinstance(status, dict)
    assert status["capacity"] == {
        "cpu": "8",
        "memory": "32Gi",
        "pods": "110",
        "ephemeral-storage": "160Gi",
        "nvidia.com/gpu": "1",
    }
    assert status["allocatable"] == status["capacity"] | {"memory": "32668Mi", "ephemeral-storage": "144Gi"}
    states = {condition["type"]: condition["status"] for condition in status["conditions"]}
    assert states == {"MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False", "Ready": "True"}
    assert {condition["lastTransitionTime"] for condition in status["conditions"]} == {"2026-01-02T03:04:05Z"}


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [
        ({"cpu": "2", "memory": "4Gi"}, {"cpu": "2", "memory": "3996Mi"}),
        ({"memory": "50Mi"}, {"memory": "0"}),
        ({"memory": "1G"}, {"memory": "895142400"}),
        ({"ephemeral-storage": "100Gi"}, {"ephemeral-storage": "90Gi"}),
        ({"ephemeral-storage": "999"}, {"ephemeral-storage": "900"}),
        ({"memory": "4Gi", "hugepages-2Mi": "1Gi"}, {"memory": "2972Mi", "hugepages-2Mi": "1Gi"}),
        ({}, {}),
    ],
)
def test_what_is_left_for_pods_is_what_a_kubelet_leaves(capacity: dict[str, str], expected: dict[str, str]) -> None:
    found = allocatable({name: Quantity(amount) for name, amount in capacity.items()})
    assert found == {name: Quantity(amount) for name, amount in expected.items()}


@pytest.mark.parametrize("shape", DEFAULT_SHAPES)
def test_a_node_is_what_the_template_of_its_group_promised(shape: str) -> None:
    """R68, R69, R72: what the engine tells the autoscaler before there is a node is what the node turns out to be."""
    made = machine(shape=shape, zone="z1")
    promised = build_template(TemplateDeclaration(), made.shape, zone="z1")
    assert made.shape.capacity == promised.capacity
    assert allocatable(made.shape.capacity) == promised.allocatable
    assert promised.labels.items() <= node_labels(made).items()


def test_a_silent_node_is_unknown_in_every_respect() -> None:
    conditions = lost_status(NOW)["conditions"]
    assert isinstance(conditions, list)
    assert {(condition["status"], condition["reason"]) for condition in conditions} == {
        ("Unknown", "NodeStatusUnknown")
    }
    assert "Ready" in {condition["type"] for condition in conditions}


def test_a_lease_belongs_to_its_node_and_its_time_always_has_six_decimals() -> None:
    """The API refuses a time of another form, and one in a million has no fraction at all."""
    lease = lease_manifest("m1", "uid-1", NOW)
    assert lease["spec"] == {
        "holderIdentity": "m1",
        "leaseDurationSeconds": 40,
        "renewTime": "2026-01-02T03:04:05.000000Z",
    }
    assert lease["metadata"] == {
        "name": "m1",
        "namespace": "kube-node-lease",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "m1", "uid": "uid-1"}],
    }


def test_a_running_pod_is_ready_with_all_its_containers() -> None:
    pod = Pod(
        name="p",
        namespace="ns",
        uid="u",
        containers=(ContainerRef(name="c", image="i"), ContainerRef(name="d", image="j")),
        init_containers=(ContainerRef(name="init"), ContainerRef(name="side", is_sidecar=True)),
    )
    status = running_status(pod, "198.18.0.1", NOW)
    assert (status["phase"], status["hostIP"], status["startTime"]) == ("Running", "198.18.0.1", "2026-01-02T03:04:05Z")
    conditions, containers, inits = status["conditions"], status["containerStatuses"], status["initContainerStatuses"]
    assert isinstance(conditions, list)
    assert isinstance(containers, list)
    assert isinstance(inits, list)
    assert {(c["type"], c["status"]) for c in conditions} >= {("Ready", "True"), ("ContainersReady", "True")}
    assert [(c["name"], c["image"], c["ready"], list(c["state"])) for c in containers] == [
        ("c", "i", True, ["running"]),
        ("d", "j", True, ["running"]),
    ]
    assert [(c["name"], list(c["state"])) for c in inits] == [("init", ["terminated"]), ("side", ["running"])]


def test_a_pod_has_an_address_of_its_own_unless_it_is_on_the_network_of_its_node() -> None:
    addresses = [running_status(Pod(name="p", uid=uid), "198.18.0.1", NOW)["podIP"] for uid in ("a", "b", "a")]
    assert addresses[0] == addresses[2] != addresses[1]
    assert running_status(Pod(name="p", uid="a", host_network=True), "198.18.0.1", NOW)["podIP"] == "198.18.0.1"


def test_a_machine_keeps_its_address() -> None:
    assert node_address("m-1") == node_address("m-1") != node_address("m-2")
    assert node_address("m-1").startswith(("198.18.", "198.19."))
