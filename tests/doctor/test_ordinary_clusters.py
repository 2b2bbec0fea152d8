"""Clusters as they are out there, of which nothing bad can be said: what is only unusual is no finding."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cloudgraft.client.cloud_config import CloudConfig
from cloudgraft.doctor.checks import examine
from cloudgraft.doctor.inputs import Autoscaler, CloudConfigSeen, Inputs, Machine, NodeCare, Role
from cloudgraft.doctor.releases import Flags
from cloudgraft.kube.objects import Node
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import NodeTemplate, Taint
from tests.doctor.worlds import (
    FLAGS,
    NODE,
    NOW,
    TEMPLATE,
    Plant,
    autoscaler,
    both,
    certificate,
    certificates,
    clean,
    cluster,
    flags,
    group,
    server,
    settings,
)

CONTROL_PLANE = {"node-role.kubernetes.io/control-plane": ""}
SECONDS = NOW.timestamp()


def found(inputs: Inputs) -> set[str]:
    return {finding.entry.id for finding in examine(inputs)}


def nodes(*more: Node) -> Plant:
    return cluster(nodes=(NODE, *more))


def machines(**changes: Any) -> Plant:
    """A second machine beside the first, whose node is not there."""

    def plant(inputs: Inputs) -> Inputs:
        assert inputs.server is not None
        other = Machine(name="prod-abc-lab-small-2", group="lab-small", provider_id="lab://one/vm-22", state_age=3600)
        return server(machines=(*inputs.server.machines, replace(other, **changes)))(inputs)

    return plant


# -- nodes that are not ours -------------------------------------------------------------------------------------------

ORDINARY = {
    "kubeadm": (
        Node(
            name="cp-1", labels=CONTROL_PLANE, taints=(Taint(key="node-role.kubernetes.io/control-plane"),), ready=True
        ),
        Node(name="worker-by-hand", ready=True),
        Node(name="worker-by-hand-2"),
    ),
    "k3s": (
        Node(name="server", provider_id="k3s://server", labels=CONTROL_PLANE, ready=True),
        Node(name="agent", provider_id="k3s://agent"),
    ),
    "rke2": (
        Node(name="server", provider_id="rke2://server", labels={"node-role.kubernetes.io/etcd": "true"}, ready=True),
        Node(name="agent", provider_id="rke2://agent", taints=(Taint(key="node.cilium.io/agent-not-ready"),)),
    ),
    "managed": (
        Node(name="ip-10-0-0-1", provider_id="aws:///eu-1a/i-0123456789abcdef0", ready=True),
        Node(
            name="ip-10-0-0-2",
            provider_id="aws:///eu-1a/i-0123456789abcdef1",
            taints=(Taint(key="node.cloudprovider.kubernetes.io/uninitialized", value="true"),),
            created_at=SECONDS - 20,
        ),
    ),
    "of the same cloud, made by hand": (
        Node(name="cp-1", provider_id="lab://one/cp-1", labels=CONTROL_PLANE, ready=True),
        Node(name="by-hand-1", provider_id="lab://one/by-hand-1", ready=True),
        Node(name="by-hand-2", provider_id="lab://one/by-hand-2"),
    ),
    "a control plane of the same cloud that is down": (
        Node(name="cp-1", provider_id="lab://one/cp-1", labels=CONTROL_PLANE),
    ),
}


@pytest.mark.parametrize("others", ORDINARY.values(), ids=ORDINARY)
def test_nodes_of_others_are_no_finding(others: tuple[Node, ...]) -> None:
    assert found(nodes(*others)(clean())) == set()


def test_a_machine_that_does_not_join_says_nothing_of_nodes_made_by_hand() -> None:
    """matchBy is not to be changed for a control plane, nor for nodes that were there before the machine."""
    others = (
        Node(name="cp-1", labels=CONTROL_PLANE, ready=True),
        Node(name="by-hand", ready=True, created_at=SECONDS - 86400 * 30),
    )
    assert found(both(machines(), nodes(*others))(clean())) == {"node-missing"}


def test_a_machine_has_as_long_as_the_engine_gives_it() -> None:
    patient = settings(join_deadline=timedelta(hours=2), has_own_deadlines=False)
    assert found(both(patient, machines())(clean())) == set()


def test_a_node_that_registered_a_moment_ago_has_no_provider_id_yet() -> None:
    young = Node(name="prod-abc-lab-small-2", created_at=SECONDS - 5)
    assert found(both(machines(), nodes(young))(clean())) == set()
    assert found(both(machines(), nodes(replace(young, created_at=SECONDS - 120)))(clean())) == {"provider-id-empty"}


def test_a_node_that_comes_before_its_machine_is_known_by_its_id_is_not_left_behind() -> None:
    """A kubelet may tell the providerID before the cloud's list does."""
    ours = server(prefix="prod-abc-")
    early = Node(name="prod-abc-lab-small-2", provider_id="lab://one/vm-22")
    booting = machines(provider_id="", state="booting", state_age=30)
    assert found(both(ours, booting, nodes(early))(clean())) == set()
    just_now = replace(early, name="prod-abc-lab-small-3", created_at=SECONDS - 20)
    assert found(both(ours, nodes(just_now))(clean())) == set()
    old = replace(just_now, created_at=SECONDS - 3600)
    assert found(both(ours, nodes(old))(clean())) == {"node-left-behind"}


def test_a_number_is_no_likeness() -> None:
    """Machines are counted from 1000 on in more than one cloud."""
    inputs = both(machines(provider_id="lab://one/1001", state_age=60), nodes(_ready("x", "pve://other/1001")))(clean())
    assert found(inputs) == set()


def _ready(name: str, provider_id: str) -> Node:
    return Node(name=name, provider_id=provider_id, ready=True)


def test_a_node_that_k3s_named_is_reported_with_what_mends_it() -> None:
    inputs = both(machines(), nodes(_ready("prod-abc-lab-small-2", "k3s://prod-abc-lab-small-2")))(clean())
    (finding,) = examine(inputs)
    assert finding.entry.id == "provider-id-other"
    assert "--disable-cloud-controller" in finding.fix


def test_a_node_that_waits_for_long_is_reported_also_where_there_is_a_controller() -> None:
    taint = Taint(key="node.cloudprovider.kubernetes.io/uninitialized", value="true")
    waiting = Node(name="new", taints=(taint,), created_at=SECONDS - 3600)
    care = settings(node_care=None)
    inputs = both(care, nodes(waiting), cluster_with_controller)(clean())
    assert found(inputs) == {"node-waits-for-cloud-controller"}


def cluster_with_controller(inputs: Inputs) -> Inputs:
    return cluster(cloud_controllers=("DaemonSet kube-system/cloud-controller-manager",))(inputs)


def test_a_cloud_controller_manager_is_welcome_where_the_drivers_leave_provider_ids_to_it() -> None:
    care = settings(node_care=NodeCare(sets_provider_id=True, leaves_provider_ids=True))
    assert found(both(care, cluster_with_controller)(clean())) == set()


# -- nodes and templates -----------------------------------------------------------------------------------------------


def test_what_firmware_and_kernel_keep_of_the_memory_is_no_finding() -> None:
    """A machine of 4Gi shows 3.82Gi."""
    declared = NodeTemplate(labels={}, capacity={"cpu": Quantity("2"), "memory": Quantity("4Gi")})
    real = {"cpu": Quantity("2"), "memory": Quantity("4005432Ki")}
    inputs = both(group(declared=declared), cluster(nodes=(replace(NODE, capacity=real, taints=()),)))(clean())
    assert found(replace(inputs, templates={})) == set()


def test_capacity_is_compared_only_where_allocatable_says_nothing() -> None:
    """Pods are placed by what is allocatable."""
    real = {**TEMPLATE.capacity, "memory": Quantity("7600Mi")}
    assert found(cluster(nodes=(replace(NODE, capacity=real),))(clean())) == set()


def test_a_taint_on_one_of_several_nodes_is_somebodys_doing() -> None:
    other = replace(NODE, name="lab-small-2", provider_id="lab://one/vm-22")
    under_repair = replace(NODE, taints=(*NODE.taints, Taint(key="repair", effect="NoExecute")))
    inputs = both(machines(), cluster(nodes=(under_repair, other)))(clean())
    assert found(inputs) == set()


@pytest.mark.parametrize(
    "taint", [Taint(key="node.cilium.io/agent-not-ready"), Taint(key="slow", effect="PreferNoSchedule")]
)
def test_taints_that_pass_or_only_advise_are_no_drift(taint: Taint) -> None:
    node = replace(NODE, taints=(*NODE.taints, taint))
    inputs = both(flags("--startup-taint=node.cilium.io/agent-not-ready"), cluster(nodes=(node,)))(clean())
    assert found(inputs) == set()


def test_a_young_node_has_not_all_labels_and_devices_yet() -> None:
    young = replace(NODE, created_at=SECONDS - 60, labels={}, allocatable={})
    assert found(cluster(nodes=(young,))(clean())) == set()


def test_a_taint_that_the_engine_has_learned_is_no_drift_from_the_file() -> None:
    """The file does not tell it; the template that is served does."""
    node = replace(NODE, taints=(*NODE.taints, Taint(key="gpu", effect="NoExecute")))
    inputs = replace(cluster(nodes=(node,))(clean()), templates={})
    assert found(inputs) == set()


# -- other autoscalers -------------------------------------------------------------------------------------------------


def _other(text: str | None, *more: str) -> Autoscaler:
    config = CloudConfig.parse(text) if text is not None else None
    return Autoscaler(
        namespace="elsewhere",
        name="cluster-autoscaler",
        image="registry.k8s.io/autoscaling/cluster-autoscaler:v1.34.3",
        flags=Flags.parse([*FLAGS, *more]),
        mounts=clean().autoscalers[0].mounts,
        cloud_config=CloudConfigSeen(where="ConfigMap elsewhere/x", config=config) if config else None,
    )


def test_an_autoscaler_that_calls_another_server_is_not_ours_to_judge() -> None:
    other = _other("address: hetzner-provider.elsewhere.svc:8086", "--scale-down-enabled=false", "--expander=price")
    assert found(cluster(autoscalers=(clean().autoscalers[0], other))(clean())) == set()


def test_two_autoscalers_of_which_one_cannot_be_read_are_not_said_to_share_a_server() -> None:
    inputs = cluster(autoscalers=(clean().autoscalers[0], _other(None)))(clean())
    assert found(inputs) == set()
    unread = replace(clean().autoscalers[0], cloud_config=None)
    assert found(cluster(autoscalers=(unread, _other(None)))(clean())) == set()


def test_an_autoscaler_outside_the_cluster_is_known_by_its_cloud_config() -> None:
    seen = clean().autoscalers[0].cloud_config
    inputs = replace(cluster(autoscalers=())(clean()), cloud_config=seen)
    assert found(inputs) == set()


# -- certificates, replicas, priorities --------------------------------------------------------------------------------


@pytest.mark.parametrize(("age", "days"), [(0.2, 0.8), (3, 4), (40, 31)])
def test_certificates_that_live_shortly_do_not_end_soon(age: float, days: float) -> None:
    short = certificate(Role.SERVER, "server", "cloudgraft.kube-system.svc", age=age, days=days)
    assert found(certificates(short)(clean())) == set()
    old = certificate(Role.SERVER, "server", "cloudgraft.kube-system.svc", age=age * 10, days=days / 10)
    assert found(certificates(old)(clean())) == {"tls-expires-soon"}


def test_a_replica_that_stands_by_is_worth_a_note_only() -> None:
    inputs = server(leader_trouble="not the leader: cloudgraft-6c5f leads", groups=(), machines=(), clouds=())(clean())
    (finding,) = examine(inputs)
    assert (finding.entry.id, finding.entry.severity) == ("standby", "note")


@pytest.mark.parametrize("pattern", ["^[[:alpha:]-]+$", r"\pL+", ".*"])
def test_patterns_of_go_are_not_called_wrong(pattern: str) -> None:
    plant = both(flags("--expander=priority"), autoscaler(priorities=f"10: ['{pattern}']"))
    assert found(plant(clean())) == set()
