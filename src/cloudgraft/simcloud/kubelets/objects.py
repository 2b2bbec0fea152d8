"""Builds what a kubelet writes: nodes, leases and pod states, as manifests. Pure functions of machine and time."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from cloudgraft.kube.objects import ContainerRef, Manifest, Pod
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Taint
from cloudgraft.simcloud.records import SimMachine

LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_SECONDS: Final = 40

_KUBELET_VERSION: Final = "v1.34.0+simulated"
_DEFAULT_LABELS: Final = {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
# The old names of labels, which the kubelet and cloud controllers still write beside the new ones.
_OLD_LABELS: Final = {
    "kubernetes.io/arch": "beta.kubernetes.io/arch",
    "kubernetes.io/os": "beta.kubernetes.io/os",
    "node.kubernetes.io/instance-type": "beta.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone": "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/region": "failure-domain.beta.kubernetes.io/region",
}
_EVICTION_MEMORY: Final = Quantity("100Mi")  # the kubelet's default for memory.available
_EVICTION_DISK_PERCENT: Final = 10  # and for nodefs.available
_HEALTHY: Final = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


# -- nodes -------------------------------------------------------------------------------------------------------------


def allocatable(capacity: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """The allocatable resources, as a kubelet with its default settings computes them.

    Nothing is reserved for the system, but 100Mi of memory and a tenth of the disk are kept, because below that the
    kubelet would evict; and memory that was set aside for huge pages is no other memory.
    """
    huge = [amount for name, amount in capacity.items() if name.startswith("hugepages-")]
    kept = {"memory": sum(huge, start=_EVICTION_MEMORY)}
    if disk := capacity.get("ephemeral-storage"):
        kept["ephemeral-storage"] = Quantity(int(disk.value) * _EVICTION_DISK_PERCENT // 100)
    nothing = Quantity(0)
    return {name: max(amount - kept.get(name, nothing), nothing) for name, amount in capacity.items()}


def node_labels(machine: SimMachine) -> dict[str, str]:
    """R69: the labels of a node, under their new and their old names."""
    labels = {
        **_DEFAULT_LABELS,
        "node.kubernetes.io/instance-type": machine.shape.name,
        **machine.labels,
        "kubernetes.io/hostname": machine.name,
    }
    old = {name: labels[new] for new, name in _OLD_LABELS.items() if new in labels}
    return {**old, **labels}


def node_manifest(machine: SimMachine, now: float) -> Manifest:
    """The whole node, Ready from the start; with the cloud's providerID, byte for byte (R30)."""
    taints = [_taint(taint) for taint in machine.settings.taints]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": machine.name,
            "labels": node_labels(machine),
            "annotations": dict(machine.settings.annotations),
        },
        "spec": {"providerID": machine.provider_id, "taints": taints},
        "status": node_status(machine, now),
    }


def node_status(machine: SimMachine, now: float) -> dict[str, object]:
    """The status of a healthy node."""
    labels = node_labels(machine)
    return {
        "capacity": _amounts(machine.shape.capacity),
        "allocatable": _amounts(allocatable(machine.shape.capacity)),
        "conditions": [
            *(_condition(kind, "False", reason, message, now) for kind, reason, message in _HEALTHY),
            _condition("Ready", "True", "KubeletReady", "kubelet is posting ready status", now),
        ],
        "addresses": [
            {"type": "InternalIP", "address": node_address(machine.machine_id)},
            {"type": "Hostname", "address": machine.name},
        ],
        "nodeInfo": _node_info(machine.machine_id, os=labels["kubernetes.io/os"], arch=labels["kubernetes.io/arch"]),
    }


def lost_status(now: float) -> dict[str, object]:
    """The status of a node whose kubelet fell silent, as the cluster itself writes it."""
    message = "Kubelet stopped posting node status."
    kinds = [kind for kind, _, _ in _HEALTHY] + ["Ready"]
    return {"conditions": [_condition(kind, "Unknown", "NodeStatusUnknown", message, now) for kind in kinds]}


def node_address(machine_id: str) -> str:
    """An address that is not routed (RFC 2544), always the same for a machine."""
    first, second, third = _digest(machine_id)[:3]
    return f"198.{18 + first % 2}.{second}.{third}"


def _taint(taint: Taint) -> dict[str, str]:
    return {"key": taint.key, "effect": taint.effect} | ({"value": taint.value} if taint.value else {})


def _amounts(resources: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in resources.items()}


def _condition(kind: str, status: str, reason: str, message: str, now: float) -> dict[str, str]:
    moment = _time(now)
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": moment,
        "lastTransitionTime": moment,
    }


def _node_info(machine_id: str, *, os: str, arch: str) -> dict[str, str]:
    ident = _digest(machine_id).hex()[:32]
    return {
        "machineID": ident,
        "systemUUID": ident,
        "bootID": ident,
        "kernelVersion": "6.1.0",
        "osImage": "Simulated",
        "containerRuntimeVersion": "simulated://1.0",
        "kubeletVersion": _KUBELET_VERSION,
        "kubeProxyVersion": "",
        "operatingSystem": os,
        "architecture": arch,
    }


# -- leases ------------------------------------------------------------------------------------------------------------


def lease_manifest(node: str, uid: str, now: float) -> Manifest:
    """The lease of a node; the node owns it, so that it is deleted with the node."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        **lease_renewal(node, now),
    }


def lease_renewal(node: str, now: float) -> dict[str, object]:
    """The patch that renews a lease."""
    return {"spec": {"holderIdentity": node, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": _micro_time(now)}}


# -- pods --------------------------------------------------------------------------------------------------------------


def running_status(pod: Pod, host_address: str, now: float) -> dict[str, object]:
    """The status of a pod whose containers have all started and are ready."""
    moment = _time(now)
    address = host_address if pod.host_network else _pod_address(pod.uid)
    conditions = ("PodScheduled", "PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    return {
        "phase": "Running",
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": moment} for kind in conditions],
        "hostIP": host_address,
        "hostIPs": [{"ip": host_address}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": moment,
        "containerStatuses": [_started(container, pod, moment) for container in pod.containers],
        "initContainerStatuses": [
            _started(container, pod, moment) if container.is_sidecar else _completed(container, pod, moment)
            for container in pod.init_containers
        ],
    }


def _started(container: ContainerRef, pod: Pod, moment: str) -> dict[str, object]:
    return _container(container, pod) | {"started": True, "state": {"running": {"startedAt": moment}}}


def _completed(container: ContainerRef, pod: Pod, moment: str) -> dict[str, object]:
    ended = {
        "exitCode": 0,
        "reason": "Completed",
        "startedAt": moment,
        "finishedAt": moment,
        "containerID": _container_id(container, pod),
    }
    return _container(container, pod) | {"started": False, "state": {"terminated": ended}}


def _container(container: ContainerRef, pod: Pod) -> dict[str, object]:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": container.image,
        "containerID": _container_id(container, pod),
        "ready": True,
        "restartCount": 0,
    }


def _container_id(container: ContainerRef, pod: Pod) -> str:
    return f"simulated://{_digest(f'{pod.uid}/{container.name}').hex()}"


def _pod_address(uid: str) -> str:
    first, second, third = _digest(uid)[:3]
    return f"10.{first}.{second}.{third}"


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _time(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _micro_time(now: float) -> str:
    # The API takes exactly six decimals here; isoformat() leaves them out when they are all zero.
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
