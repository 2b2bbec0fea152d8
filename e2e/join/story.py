"""Machines join because pods wait, one of them in its second try; then they go, and nothing is left of them."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lightkube.models.core_v1 import Node, Pod

from e2e.build import Tell
from e2e.config import document, taint
from e2e.join.cluster import bootstrap_secrets, prepare
from e2e.join.host import HOST, Host
from e2e.join.machine_files import ARCHIVE, WORKLOAD
from e2e.join.reports import check_cloud_init
from e2e.kubectl import kubectl
from e2e.kubernetes import GROUP_LABEL, Workload
from e2e.processes import Program, free_ports
from e2e.stage import Stage

__all__ = ["AT_ONCE", "SECOND_TRY", "tell_story"]

AT_ONCE: Final = "at-once"
SECOND_TRY: Final = "second-try"  # its machines do not find the API server before their first try has failed
_PATIENCE: Final = 60 * 60.0  # seconds to a pod that runs; kubeadm alone looks for an API server for five minutes
_TOKEN_TTL: Final = "60m"  # a machine in software takes its time
_TAINT: Final = "e2e.example/dedicated"
_FAILED_TRY: Final = "try 1 failed"
_GAVE_UP: Final = "cloudgraft: gave up"
_ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(slots=True, kw_only=True)
class Life:
    """One machine, and after how many seconds it was seen in which state."""

    group: str
    name: str = ""
    seen: dict[str, float] = field(default_factory=dict)


def tell_story(stage: Stage, host: Host, kubeadm: Path, *, version: str, groups: Sequence[str], tell: Tell) -> None:
    """With one machine of each group. Raises AssertionError when something is not as it must be."""
    _, _, port = stage.plane.server.rpartition(":")
    (late_port,) = free_ports(1)
    server = f"https://{HOST}:{port}"
    prepare(stage.plane, stage.cluster, kubeadm, stage.directory, version=version, server=server)
    stage.start_server(_document(stage, host, server, f"https://{HOST}:{late_port}"))
    stage.start_autoscaler(max_node_provision_time="60m", scale_down_unneeded_time="10s")
    forwarder = Program(
        "forwarder",
        [sys.executable, "-m", "e2e.join.forwarder", str(late_port), port],
        stage.directory / "forwarder.log",
        environment={"PYTHONPATH": str(_ROOT)},
    )
    lives = [Life(group=group) for group in groups]
    stage.cluster.run(*(_workload(life.group) for life in lives))
    begin = time.monotonic()
    secrets = _come(stage, host, lives, forwarder, begin, tell)
    _check_nodes(stage, host, lives)
    _check_consoles(host, lives, secrets)
    _check_reports(stage, host, lives)
    tell("kubectl get nodes -o wide\n" + kubectl(stage.plane, "get", "nodes", "-o", "wide"))
    tell(
        "kubectl get pods -o wide\n" + kubectl(stage.plane, "-n", stage.cluster.namespace, "get", "pods", "-o", "wide")
    )
    stage.until(lambda: not bootstrap_secrets(stage.cluster), "machines that have joined have no token", seconds=60.0)
    _go(stage, host, lives, tell)


def _document(stage: Stage, host: Host, server: str, late_server: str) -> dict[str, Any]:
    joins: Mapping[str, dict[str, Any]] = {AT_ONCE: {}, SECOND_TRY: {"server": late_server}}
    groups = [
        {
            "id": id_,
            "cloud": "real",
            "minSize": 0,
            "maxSize": 2,
            "machine": host.machine(),
            "template": {"labels": {GROUP_LABEL: id_}, "taints": [taint(_TAINT)]},
            **({"join": join} if join else {}),
        }
        for id_, join in joins.items()
    ]
    return document(
        clouds={"real": host.section()},
        groups=groups,
        kubernetes={"kubeconfig": str(stage.plane.kubeconfig)},
        join={
            "template": "kubeadm",
            "server": server,
            "token": {"ttl": _TOKEN_TTL},
            "values": {"commands": [f"ctr --namespace k8s.io images import /{ARCHIVE}"]},
        },
    )


def _workload(group: str) -> Workload:
    return Workload(
        name=group,
        replicas=1,
        cpu="500m",
        memory="64Mi",
        selector={GROUP_LABEL: group},
        tolerates=[_TAINT],
        image=WORKLOAD,
    )


def _come(stage: Stage, host: Host, lives: list[Life], forwarder: Program, begin: float, tell: Tell) -> set[str]:
    """Waits until a pod runs on each machine, and gives the secrets of all tokens that were seen meanwhile."""
    secrets: set[str] = set()

    def look() -> bool:
        secrets.update(bootstrap_secrets(stage.cluster))
        for life in lives:
            assert _GAVE_UP not in host.console(life.name), f"{life.name} gave up: {host.console(life.name)[-800:]}"
            for state, is_reached in _states(stage, host, life).items():
                if state not in life.seen and is_reached():
                    _saw(life, state, begin, tell)
                    if state == _FAILED_TRY and life.group == SECOND_TRY:
                        stage.start_program(forwarder)
        return all("pod runs" in life.seen for life in lives)

    stage.until(look, "a pod runs on each machine", seconds=_PATIENCE)
    for life in lives:
        has_failed_first = life.seen.get(_FAILED_TRY, math.inf) < life.seen["Node registered"]
        assert has_failed_first or life.group != SECOND_TRY, f"{life.name} joined before its first failure"
    assert secrets, "no machine had a token of its own"
    return secrets


def _states(stage: Stage, host: Host, life: Life) -> Mapping[str, Callable[[], bool]]:
    return {
        "ordered": lambda: _is_ordered(stage, life),
        "domain runs": lambda: life.name in host.running(),
        _FAILED_TRY: lambda: _FAILED_TRY in host.console(life.name),
        "Node registered": lambda: bool(stage.cluster.nodes(life.group)),
        "Node Ready": lambda: any(_is_ready(node) for node in stage.cluster.nodes(life.group)),
        "pod runs": lambda: any(_runs(pod) for pod in stage.cluster.pods(life.group)),
    }


def _saw(life: Life, state: str, begin: float, tell: Tell) -> None:
    life.seen[state] = time.monotonic() - begin
    tell(f"{life.seen[state]:5.0f} s  {life.group}: {state}")


def _is_ordered(stage: Stage, life: Life) -> bool:
    machines = stage.server.groups().get(life.group, {}).get("machines", ())
    life.name = machines[0]["name"] if machines else ""
    return bool(machines)


def _is_ready(node: Node) -> bool:
    conditions = (node.status and node.status.conditions) or []
    return any(one.type == "Ready" and one.status == "True" for one in conditions)


def _runs(pod: Pod) -> bool:
    """By its container and not by its phase alone."""
    containers = (pod.status and pod.status.containerStatuses) or []
    return any(one.ready and (one.containerID or "").startswith("containerd://") for one in containers)


def _check_nodes(stage: Stage, host: Host, lives: list[Life]) -> None:
    for life in lives:
        (node,) = stage.cluster.nodes(life.group)
        assert node.metadata is not None
        assert node.spec is not None
        assert node.metadata.name == life.name, f"the node of {life.name} is called {node.metadata.name}"
        taints = {one.key for one in node.spec.taints or []}
        assert taints == {_TAINT}, f"{life.name} has the taints {taints}"
        wanted = f"libvirt:///{host.uuid(life.name)}"
        assert node.spec.providerID == wanted, f"{life.name} is {node.spec.providerID} and not {wanted}"
    names = {life.name for life in lives}
    assert stage.cluster.node_names() == names, f"nodes that nobody has asked for: {stage.cluster.node_names() - names}"


def _check_consoles(host: Host, lives: list[Life], secrets: set[str]) -> None:
    for life in lives:
        console = host.console(life.name)
        assert not any(secret in console for secret in secrets), f"the console of {life.name} shows a token"
        assert "cloudgraft: joined in try" in console, f"the console of {life.name} does not show that it has joined"


def _check_reports(stage: Stage, host: Host, lives: list[Life]) -> None:
    names = [life.name for life in lives]
    stage.until(lambda: all(map(host.reports.of, names)), "all machines report", seconds=_PATIENCE)
    for life in lives:
        report = host.reports.of(life.name)
        assert report is not None
        check_cloud_init(report)
        assert "/etc/kubernetes/cloudgraft-join.yaml" not in report, f"{life.name} keeps its token in a file"


def _go(stage: Stage, host: Host, lives: list[Life], tell: Tell) -> None:
    begin = time.monotonic()
    for life in lives:
        stage.cluster.scale(life.group, 0)
    waits: Mapping[str, Callable[[], object]] = {
        "domains and disks gone": lambda: not host.left(),
        "Nodes gone": lambda: not stage.cluster.nodes(),
        "machines gone from cloudgraft": lambda: not stage.server.states(),
    }
    for what, is_so in waits.items():
        stage.until(is_so, what, seconds=_PATIENCE)
        tell(f"{time.monotonic() - begin:5.0f} s  after the pods went: {what}")
    left = bootstrap_secrets(stage.cluster)
    assert not left, f"{len(left)} tokens are left"
    machines = {row["name"]: row["state"] for row in stage.server.journal().machines}
    assert machines == {life.name: "gone" for life in lives}, f"the journal has {machines}"
