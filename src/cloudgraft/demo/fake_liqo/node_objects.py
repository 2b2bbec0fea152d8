"""The node that stands for a slice of a remote cluster, exactly as Liqo makes it: with no providerID."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cloudgraft.demo.fake_liqo.words import REMOTE, now_text, spec_of
from cloudgraft.kube.objects import CustomObject

__all__ = ["node_manifest", "node_status", "without_taint_of_unready"]

_TAINT: Final = {"key": "virtual-node.liqo.io/not-allowed", "value": "true", "effect": "NoExecute"}
_UNREADY: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
_PRESSURES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")


def node_manifest(virtual: CustomObject) -> Mapping[str, object]:
    """A new node; that it is ready is told later."""
    spec = spec_of(virtual)
    labels = {
        "liqo.io/type": "virtual-node",
        REMOTE: spec["clusterID"],
        "kubernetes.io/hostname": virtual.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/role": "agent",
        "node.kubernetes.io/exclude-from-external-load-balancers": "true",
        "alpha.service-controller.kubernetes.io/exclude-balancer": "true",
        "storage.liqo.io/available": "false",
        **(spec.get("labels") or {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": virtual.name, "labels": labels, "annotations": dict(spec.get("annotations") or {})},
        "spec": {"taints": [dict(_TAINT), *(spec.get("taints") or ())]},
        "status": node_status(virtual, "Unknown", "VirtualKubeletStarting"),
    }


def node_status(virtual: CustomObject, ready: str, reason: str, old: CustomObject | None = None) -> dict[str, Any]:
    """What it reports: all that was granted can be used."""
    amounts = {key: str(value) for key, value in spec_of(virtual)["resourceQuota"]["hard"].items()}
    was: Any = (old.content.get("status") or {}) if old else {}
    had: Any = next((each for each in was.get("conditions") or () if each["type"] == "Ready"), {})
    since = had.get("lastTransitionTime", now_text()) if had.get("status") == ready else now_text()
    conditions = [{"type": "Ready", "status": ready, "reason": reason, "lastTransitionTime": since}]
    conditions += [{"type": kind, "status": "False", "reason": "Fine"} for kind in _PRESSURES]
    return {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": conditions,
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "nodeInfo": _INFO,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
    }


_INFO: Final = {
    "kubeletVersion": "v1.34.1",
    "operatingSystem": "linux",
    "architecture": "amd64",
    **dict.fromkeys(
        (
            "machineID",
            "systemUUID",
            "bootID",
            "kernelVersion",
            "osImage",
            "containerRuntimeVersion",
            "kubeProxyVersion",
        ),
        "",
    ),
}


def without_taint_of_unready(node: CustomObject) -> list[dict[str, object]] | None:
    """A patch that takes one taint of an unready node off, as the cluster does when it is ready; None: it has none."""
    for place, taint in enumerate(spec_of(node).get("taints") or ()):
        if taint["key"] in _UNREADY:
            path = f"/spec/taints/{place}"
            return [{"op": "test", "path": f"{path}/key", "value": taint["key"]}, {"op": "remove", "path": path}]
    return None
