"""The simulated kubelet at work: a real simulated cloud, and a small API server over real HTTP."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.sdk.errors import InvalidArgumentError, PreconditionError
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.kubelets.kubelet import Kubelet
from cloudgraft.simcloud.options import MachineSettings, SimulatedOptions
from cloudgraft.simcloud.records import Order, SimMachine
from tests.conditions import until
from tests.kube_api import KubeApi, Request


class World:
    """A cloud, a cluster, and one clock for both, which only the test moves."""

    def __init__(self, directory: Path) -> None:
        self.now = 1_767_323_045.0
        self.directory = directory
        self.api = KubeApi()
        self.api.start()
        options = SimulatedOptions(
            boot_time=timedelta(seconds=30), delete_time=timedelta(seconds=5), state_file=directory / "cloud.db"
        )
        self.cloud = SimulatedCloud(options, clock=lambda: self.now)
        self.kubelet = self.new_kubelet()

    def new_kubelet(self) -> Kubelet:
        return Kubelet(self.cloud, self.api.kubeconfig(self.directory), clock=lambda: self.now)

    def close(self) -> None:
        self.kubelet.stop()
        self.api.stop()
        self.cloud.close()

    def order(self, name: str) -> SimMachine:
        machine, _ = self.cloud.create(Order(name=name, settings=MachineSettings(shape="small")))
        return machine

    async def booted(self, name: str) -> SimMachine:
        """A machine that is a node."""
        machine = self.order(name)
        self.now += 30
        await until(lambda: self.is_ready(name), what="the node is ready")
        await until(lambda: self.lease(name) is not None, what="the node has a lease")
        return machine

    def node(self, name: str) -> dict[str, Any] | None:
        return self.api.store.find("nodes", name)

    def lease(self, name: str) -> dict[str, Any] | None:
        return self.api.store.find("leases", name, "kube-node-lease")

    def pod(self, name: str) -> dict[str, Any] | None:
        return self.api.store.find("pods", name, "default")

    def bind(self, name: str, node: str) -> dict[str, Any]:
        spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
        return self.api.store.create("pods", "default", {"metadata": {"name": name}, "spec": spec})

    def delete_pod(self, name: str) -> None:
        self.api.store.delete(("pods", "default", name), {})

    def is_ready(self, name: str) -> bool:
        node = self.node(name)
        return node is not None and _condition(node, "Ready") == "True" and not node["spec"]["taints"]

    def phase(self, name: str) -> str:
        pod = self.pod(name)
        return "" if pod is None else str(pod["status"]["phase"])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.kubelet.start()
    yield made
    made.close()


def _condition(thing: dict[str, Any], kind: str) -> str:
    return next((str(c["status"]) for c in thing["status"].get("conditions", ()) if c["type"] == kind), "")


async def test_a_machine_becomes_a_ready_node_when_it_has_booted_and_not_before(world: World) -> None:
    await world.booted("other")
    machine = world.order("m1")
    world.now += 29
    world.bind("p", "other")
    await until(lambda: world.phase("p") == "Running")  # a whole round has passed
    assert world.node("m1") is None
    world.now += 1
    await until(lambda: world.is_ready("m1"))
    node = world.node("m1")
    assert node is not None
    assert node["spec"]["providerID"] == machine.provider_id  # R30


async def test_bound_pods_run_and_terminating_pods_go(world: World) -> None:
    await world.booted("m1")
    world.bind("p", "m1")
    await until(lambda: world.phase("p") == "Running")
    pod = world.pod("p")
    assert pod is not None
    assert (_condition(pod, "Ready"), pod["status"]["containerStatuses"][0]["ready"]) == ("True", True)
    world.delete_pod("p")
    assert world.phase("p") == "Running"  # it was given time, and waits for its kubelet
    await until(lambda: world.pod("p") is None)


async def test_a_new_pod_of_the_same_name_is_not_taken_for_the_old_one(world: World) -> None:
    """As in a StatefulSet: the deletion names the uid it means."""
    await world.booted("m1")
    world.bind("p", "m1")
    await until(lambda: world.phase("p") == "Running")
    world.delete_pod("p")
    await until(lambda: world.pod("p") is None)
    world.bind("p", "m1")
    await until(lambda: world.phase("p") == "Running")
    world.bind("q", "m1")
    await until(lambda: world.phase("q") == "Running")  # a round later it is still there
    assert world.phase("p") == "Running"


async def test_leases_are_renewed_as_time_goes_by(world: World) -> None:
    await world.booted("m1")
    lease = world.lease("m1")
    node = world.node("m1")
    assert lease is not None
    assert node is not None
    assert lease["spec"]["renewTime"] == "2026-01-02T03:04:35.000000Z"
    assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
    world.now += 10
    await until(lambda: _renewed(world, "m1") == "2026-01-02T03:04:45.000000Z")
    world.api.store.delete(("leases", "kube-node-lease", "m1"), {})  # somebody takes it away
    world.now += 10
    await until(lambda: _renewed(world, "m1") == "2026-01-02T03:04:55.000000Z")


async def test_the_node_of_a_deleted_machine_goes_with_its_lease_and_its_pods(world: World) -> None:
    """R57, and no node of another is touched."""
    foreign = {"metadata": {"name": "foreign"}, "spec": {"providerID": "simulated://another-000001"}}
    world.api.store.create("nodes", "", foreign)
    world.bind("of-foreign", "foreign")
    machine = await world.booted("m1")
    await world.booted("m2")
    world.bind("p", "m1")
    await until(lambda: world.phase("p") == "Running")
    world.cloud.delete(machine.machine_id)
    world.bind("q", "m2")
    await until(lambda: world.phase("q") == "Running")
    assert world.node("m1") is not None  # the machine is still going
    world.now += 5
    await until(lambda: world.node("m1") is None)
    assert world.lease("m1") is None
    await until(lambda: world.pod("p") is None)
    assert world.is_ready("m2")
    assert world.node("foreign") is not None
    assert world.phase("of-foreign") == "Pending"


async def test_the_node_of_a_machine_that_died_falls_silent_and_is_lost(world: World) -> None:
    machine = await world.booted("m1")
    renewed = _renewed(world, "m1")
    world.cloud.kill(machine.machine_id)
    world.now += 39
    world.bind("p", "m1")
    await world.booted("m2")  # moves the clock on by 30 s, well past the end of the lease
    await until(lambda: _condition(world.node("m1") or {"status": {}}, "Ready") == "Unknown")
    assert _renewed(world, "m1") == renewed
    assert world.phase("p") == "Pending"


async def test_what_others_break_is_mended(world: World) -> None:
    await world.booted("m1")
    world.api.store.delete(("nodes", "", "m1"), {})
    await until(lambda: world.is_ready("m1"))
    node = world.node("m1")
    assert node is not None
    lost = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    world.api.store.patch(("nodes", "", "m1"), lambda old: {**old, **lost}, status_only=True)
    await until(lambda: world.is_ready("m1"))


async def test_after_a_restart_it_takes_up_where_it_was(world: World) -> None:
    """Also what became of the machines meanwhile, for the ledger tells of those that are gone."""
    machine = await world.booted("m1")
    await world.booted("m2")
    world.bind("p", "m1")
    world.kubelet.stop()
    world.cloud.delete(machine.machine_id)
    world.order("m3")
    world.cloud.close()
    world.now += 30
    world.cloud = SimulatedCloud(world.cloud.options, clock=lambda: world.now)
    world.kubelet = world.new_kubelet()
    world.kubelet.start()
    await until(lambda: world.node("m1") is None and world.is_ready("m3"))
    await until(lambda: _renewed(world, "m2") == _renewed(world, "m3"))
    assert world.is_ready("m2")


async def test_it_works_on_when_the_cluster_was_away(world: World) -> None:
    machine = await world.booted("m1")
    world.api.stop()
    world.cloud.delete(machine.machine_id)
    world.order("m2")
    world.now += 30
    assert [there.name for there in world.cloud.machines()] == ["m2"]
    world.api.start()
    await until(lambda: world.node("m1") is None and world.is_ready("m2"))


async def test_it_may_be_started_before_its_cluster(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.api.stop()
    world.kubelet.start()
    world.order("m1")
    world.now += 30
    world.api.start()
    await until(lambda: world.is_ready("m1"))
    world.close()


@pytest.mark.thorough
async def test_many_machines_become_nodes_with_a_few_calls_at_a_time(world: World) -> None:
    for number in range(100):
        world.order(f"m{number}")
    world.now += 30
    await until(lambda: len(world.api.store.items("leases")) == 100, seconds=50)
    await until(lambda: all(world.is_ready(f"m{number}") for number in range(100)), seconds=50)
    assert world.api.most_at_once <= 16


async def test_a_refusal_is_reported_once_and_the_others_go_on(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="cloudgraft.simcloud.kubelets.kubelet")
    world.api.store.create("nodes", "", {"metadata": {"name": "taken"}, "spec": {"providerID": "another://1"}})
    world.order("taken")
    await world.booted("m1")
    await until(lambda: len(_creates(world)) >= 4, what="one that worked and three that did not")
    (record,) = [record for record in caplog.records if record.name.startswith("cloudgraft.simcloud")]
    assert 'answered 409: nodes "taken" already exists' in record.message


async def test_a_bug_of_ours_does_not_end_it(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    right = world.cloud.machines

    def wrong() -> list[SimMachine]:
        monkeypatch.setattr(world.cloud, "machines", right)
        raise ZeroDivisionError

    monkeypatch.setattr(world.cloud, "machines", wrong)
    await world.booted("m1")
    assert "the simulated kubelet failed; it restarts" in caplog.messages


def test_stopping_leaves_nothing_behind_and_may_be_done_twice_or_too_early(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.kubelet.stop()
    world.kubelet.start()
    with pytest.raises(PreconditionError, match="started already"):
        world.kubelet.start()
    world.kubelet.stop()
    world.kubelet.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "simulated-kubelet"]
    world.close()


def test_a_kubeconfig_that_cannot_be_used_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="not found"):
        Kubelet(SimulatedCloud(), tmp_path / "none").start()


def test_without_a_kubeconfig_it_is_the_cluster_of_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(PreconditionError, match="pod"):
        Kubelet(SimulatedCloud(), None).start()


def _renewed(world: World, name: str) -> str:
    lease = world.lease(name)
    return "" if lease is None else str(lease["spec"]["renewTime"])


def _creates(world: World) -> list[Request]:
    return [request for request in world.api.requests if (request.method, request.plural) == ("POST", "nodes")]
