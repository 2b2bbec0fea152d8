"""What the simulated kubelet decides to do: a pure function, tested by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudgraft.kube.objects import Node, Pod
from cloudgraft.sdk.driver import MachineState, Shape
from cloudgraft.sdk.types import Taint
from cloudgraft.simcloud.kubelets.objects import node_address
from cloudgraft.simcloud.kubelets.plan import (
    Action,
    CreateNode,
    FinishPod,
    KeepLease,
    LiftTaint,
    Memory,
    RemoveNode,
    ReportLost,
    ReportReady,
    RunPod,
    desired,
    key_of,
)
from cloudgraft.simcloud.options import MachineSettings
from cloudgraft.simcloud.records import SimMachine

NOW = 1000.0
NOT_READY = Taint(key="node.kubernetes.io/not-ready")
DOWN = [MachineState.PENDING, MachineState.STOPPED, MachineState.FAILED, MachineState.DELETING]


def machine(name: str, machine_id: str = "1", state: MachineState = MachineState.RUNNING) -> SimMachine:
    return SimMachine(
        seq=1,
        machine_id=machine_id,
        provider_id=f"ours://{machine_id}",
        name=name,
        state=state,
        reason="",
        shape=Shape(name="small", capacity={}),
        settings=MachineSettings(shape="small"),
        tags={},
        created_at=0.0,
        running_since=0.0,
    )


A = machine("a")
NODE_A = Node(name="a", uid="ua", provider_id="ours://1", ready=True)
POD = Pod(name="p", namespace="ns", uid="up", node="a")


def plan(
    machines: Sequence[SimMachine] = (),
    nodes: Sequence[Node] = (),
    pods: Sequence[Pod] = (),
    leases: Mapping[str, float] | None = None,
    removed: Sequence[str] = (),
) -> list[Action]:
    """Everything but the leases that are not asked about."""
    memory = Memory(
        made={f"ours://{number}" for number in (*range(5), *"abc")},
        leases=dict.fromkeys((node.name for node in nodes), NOW) if leases is None else dict(leases),
        removed=set(removed),
    )
    return desired(machines, {node.name: node for node in nodes}, pods, memory, NOW)


# -- nodes -------------------------------------------------------------------------------------------------------------


def test_a_machine_that_has_booted_becomes_a_node() -> None:
    assert plan([A]) == [CreateNode(machine=A)]
    assert plan([A], [NODE_A]) == []


@pytest.mark.parametrize("state", DOWN)
def test_a_machine_that_does_not_run_becomes_no_node(state: MachineState) -> None:
    assert plan([replace(A, state=state)]) == []


def test_the_node_of_a_machine_that_is_gone_goes() -> None:
    """R57."""
    assert plan([], [NODE_A]) == [RemoveNode(node=NODE_A)]


def test_a_node_that_waits_for_a_finalizer_is_left_to_its_holder() -> None:
    assert plan([], [replace(NODE_A, deleting=True)]) == []


@pytest.mark.parametrize("provider_id", ["", "other://1", "ours://99"])
@pytest.mark.parametrize("machines", [[], [machine("b")]])
def test_a_node_of_somebody_else_is_never_touched(provider_id: str, machines: list[SimMachine]) -> None:
    foreign = Node(name="x", provider_id=provider_id, ready=False, taints=(NOT_READY,))
    pods = [Pod(name="p", node="x"), Pod(name="q", node="x", deleting=True), Pod(name="r", node="none", deleting=True)]
    assert plan(machines, [foreign], pods) == [CreateNode(machine=machine) for machine in machines]


def test_a_node_of_the_same_name_from_an_earlier_machine_goes_first() -> None:
    earlier = replace(NODE_A, provider_id="ours://0")
    assert plan([A], [earlier]) == [RemoveNode(node=earlier)]


def test_of_two_machines_of_one_name_the_first_has_the_node_as_long_as_it_is_there() -> None:
    """A cloud that is not idempotent can make two of the same name; there is only one node."""
    first, second = machine("a", "1"), machine("a", "2")
    assert plan([first, second]) == [CreateNode(machine=first)]
    assert plan([first, second], [NODE_A]) == []
    assert plan([second], [NODE_A]) == [RemoveNode(node=NODE_A)]
    assert plan([second]) == [CreateNode(machine=second)]


def test_a_node_that_lost_its_readiness_gets_it_back() -> None:
    lost = replace(NODE_A, ready=False)
    assert plan([A], [lost]) == [ReportReady(node=lost, machine=A)]


def test_the_taint_that_every_new_node_gets_is_lifted_and_no_other() -> None:
    """Otherwise nothing is ever scheduled in a cluster without the controller that does it."""
    mine, cordon = Taint(key="mine"), Taint(key="node.kubernetes.io/unschedulable")
    tainted = replace(NODE_A, taints=(mine, NOT_READY, cordon))
    assert plan([A], [tainted]) == [LiftTaint(node=tainted, position=1, key=NOT_READY.key)]
    assert plan([A], [replace(NODE_A, taints=(mine, cordon))]) == []


def test_two_such_taints_are_lifted_one_after_the_other() -> None:
    """The second has another position once the first is gone."""
    tainted = replace(NODE_A, taints=(NOT_READY, Taint(key="node.kubernetes.io/unreachable", effect="NoExecute")))
    assert plan([A], [tainted]) == [LiftTaint(node=tainted, position=0, key=NOT_READY.key)]


# -- leases ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age", "expected"), [(9.9, []), (10.0, [KeepLease(node=NODE_A)]), (99.0, [KeepLease(node=NODE_A)])]
)
def test_a_lease_is_renewed_after_ten_seconds(age: float, expected: list[Action]) -> None:
    assert plan([A], [NODE_A], leases={"a": NOW - age}) == expected


def test_a_node_without_a_lease_gets_one() -> None:
    assert plan([A], [NODE_A], leases={}) == [KeepLease(node=NODE_A)]


def test_the_oldest_leases_come_first() -> None:
    machines = [machine(name, name) for name in "abc"]
    nodes = [Node(name=name, provider_id=f"ours://{name}", ready=True) for name in "abc"]
    actions = plan(machines, nodes, leases={"a": NOW - 12, "b": NOW - 30, "c": NOW - 20})
    assert actions == [KeepLease(node=nodes[index]) for index in (1, 2, 0)]


@pytest.mark.parametrize("state", [MachineState.STOPPED, MachineState.FAILED, MachineState.DELETING])
def test_a_machine_that_stopped_falls_silent_and_its_node_is_lost_when_the_lease_has_run_out(
    state: MachineState,
) -> None:
    dead = replace(A, state=state)
    assert plan([dead], [NODE_A], leases={"a": NOW - 39}) == []
    assert plan([dead], [NODE_A], leases={"a": NOW - 40}) == [ReportLost(node=NODE_A)]
    assert plan([dead], [replace(NODE_A, ready=False)], leases={"a": NOW - 41}) == []


# -- pods --------------------------------------------------------------------------------------------------------------


def test_a_pod_that_is_bound_to_a_running_machine_runs() -> None:
    assert plan([A], [NODE_A], [POD]) == [RunPod(pod=POD, host_address=node_address("1"))]


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed"])
def test_a_pod_that_runs_or_has_ended_stays_as_it_is(phase: str) -> None:
    assert plan([A], [NODE_A], [replace(POD, phase=phase)]) == []


@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded"])
@pytest.mark.parametrize("state", [MachineState.RUNNING, MachineState.DELETING])
def test_a_pod_whose_deletion_was_asked_for_is_ended(phase: str, state: MachineState) -> None:
    """Without it the pod would hang, and no node would ever become empty."""
    pod = replace(POD, phase=phase, deleting=True)
    assert plan([replace(A, state=state)], [NODE_A], [pod]) == [FinishPod(pod=pod)]


@pytest.mark.parametrize("state", [MachineState.STOPPED, MachineState.FAILED])
def test_a_dead_machine_neither_starts_nor_ends_pods(state: MachineState) -> None:
    assert plan([replace(A, state=state)], [NODE_A], [POD, replace(POD, deleting=True)]) == []


def test_the_pods_of_a_machine_that_is_gone_go_after_their_node() -> None:
    """After it, for as long as the node is there a DaemonSet puts new ones on it."""
    running = replace(POD, phase="Running")
    assert plan([], [NODE_A], [running]) == [RemoveNode(node=NODE_A), FinishPod(pod=running)]


def test_a_pod_that_was_bound_to_a_node_in_its_last_moment_goes_too() -> None:
    assert plan([], [], [POD], removed=["a"]) == [FinishPod(pod=POD)]
    assert plan([], [], [POD], removed=["b"]) == []


def test_a_pod_on_a_new_node_of_an_old_name_is_not_taken_for_a_leftover() -> None:
    assert plan([], [replace(NODE_A, provider_id="other://1")], [POD], removed=["a"]) == []
    assert plan([A], [NODE_A], [POD], removed=["a"]) == [RunPod(pod=POD, host_address=node_address("1"))]


# -- in general --------------------------------------------------------------------------------------------------------


def test_pods_come_before_new_nodes_and_leases_last() -> None:
    """Whatever waits for a pod waits for the autoscaler, too; a lease has time."""
    machines = [A, machine("b", "2")]
    actions = plan(machines, [NODE_A], [POD], leases={})
    assert [type(action) for action in actions] == [RunPod, CreateNode, KeepLease]


def test_the_same_thing_to_do_has_the_same_key_and_a_new_object_of_the_same_name_another() -> None:
    finish = FinishPod(pod=POD)
    assert key_of(finish) == key_of(FinishPod(pod=replace(POD, phase="Running")))
    assert key_of(finish) != key_of(FinishPod(pod=replace(POD, uid="another")))
    assert key_of(finish) != key_of(RunPod(pod=POD, host_address=""))
    assert key_of(RemoveNode(node=NODE_A)) != key_of(RemoveNode(node=replace(NODE_A, uid="another")))
    assert key_of(CreateNode(machine=A)) != key_of(CreateNode(machine=machine("a", "2")))


_names = st.sampled_from("abc")
_ids = st.sampled_from(["1", "2", "3", "4"])
_machines = st.lists(
    st.builds(machine, name=_names, machine_id=_ids, state=st.sampled_from(MachineState)),
    max_size=4,
    unique_by=lambda machine: machine.machine_id,
)
_nodes = st.lists(
    st.builds(
        Node,
        name=_names,
        provider_id=st.one_of(_ids.map("ours://{}".format), st.sampled_from(["", "other://1"])),
        ready=st.booleans(),
        deleting=st.booleans(),
        taints=st.sampled_from([(), (NOT_READY,)]),
    ),
    max_size=3,
    unique_by=lambda node: node.name,
)
_pods = st.lists(
    st.builds(Pod, name=_names, node=_names, phase=st.sampled_from(["Pending", "Running"]), deleting=st.booleans()),
    max_size=4,
)
_leases = st.dictionaries(_names, st.sampled_from([NOW - 100, NOW - 15, NOW]))


@given(machines=_machines, nodes=_nodes, pods=_pods, leases=_leases)
def test_only_what_is_ours_is_touched_and_every_action_is_decided_once(
    machines: list[SimMachine], nodes: list[Node], pods: list[Pod], leases: dict[str, float]
) -> None:
    actions = plan(machines, nodes, pods, leases)
    ours = {node.name for node in nodes if node.provider_id.startswith("ours://")}
    running = {machine.provider_id for machine in machines if machine.state is MachineState.RUNNING}
    for action in actions:
        match action:
            case CreateNode(machine=machine):
                assert machine.provider_id in running
                assert machine.name not in ours
            case FinishPod(pod=pod) | RunPod(pod=pod):
                assert pod.node in ours
            case RemoveNode(node=node):
                assert node.name in ours
                assert node.provider_id not in {machine.provider_id for machine in machines}
            case KeepLease(node=node) | ReportReady(node=node) | LiftTaint(node=node):
                assert node.provider_id in running
            case ReportLost(node=node):
                assert node.provider_id not in running
    assert len({key_of(action) for action in actions if not isinstance(action, FinishPod | RunPod)}) == sum(
        not isinstance(action, FinishPod | RunPod) for action in actions
    )
