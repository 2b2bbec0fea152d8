"""Plays virtual nodes: each gets its node, which becomes ready, and both go when the slice is gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from cloudgraft.demo.fake_liqo.cluster import Cluster, Controller, Pace, Script
from cloudgraft.demo.fake_liqo.slices import local_slices
from cloudgraft.demo.fake_liqo.words import (
    CONFIGURATIONS,
    CONNECTIONS,
    DESTINATION,
    FOREGROUND,
    IDENTITIES,
    NAMESPACE_MAPS,
    NODES,
    REMOTE,
    REPLICATION,
    SECRETS,
    SLICE_NAME,
    SLICES,
    VIRTUAL_NODE_FINALIZER,
    VIRTUAL_NODES,
    finalizers_of,
    now_text,
    spec_of,
    status_of,
)
from cloudgraft.kube.objects import CustomObject, PatchStyle
from cloudgraft.sdk.errors import InvalidArgumentError, NotFoundError

# -- nodes -------------------------------------------------------------------------------------------------------------
# Nodes for slices of remote clusters, exactly as Liqo makes them: with no providerID.


_TAINT: Final = {"key": "virtual-node.liqo.io/not-allowed", "value": "true", "effect": "NoExecute"}
_UNREADY: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
_PRESSURES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")


def node_manifest(virtual: CustomObject) -> Mapping[str, object]:
    """A new node, not ready yet."""
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
    """The status of the node: all granted resources are allocatable."""
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
    """A patch that removes one not-ready taint, as the cluster does when the node is ready; None: it has none."""
    for place, taint in enumerate(spec_of(node).get("taints") or ()):
        if taint["key"] in _UNREADY:
            path = f"/spec/taints/{place}"
            return [{"op": "test", "path": f"{path}/key", "value": taint["key"]}, {"op": "remove", "path": path}]
    return None


# -- virtual nodes -----------------------------------------------------------------------------------------------------


class VirtualNodes(Controller):
    """Plays the controller of virtual nodes, the virtual kubelets, and the garbage collector for what slices leave."""

    def __init__(self, cluster: Cluster, script: Script, pace: Pace, is_reachable: Callable[[str], bool]) -> None:
        super().__init__(cluster, script, pace)
        self._is_reachable = is_reachable

    async def turn(self) -> None:
        """Does what is due."""
        await self._collect()
        for virtual in self._cluster.all(VIRTUAL_NODES):
            if virtual.deleting:
                await self._end(virtual)
            else:
                await self._cluster.hold(VIRTUAL_NODES, virtual, VIRTUAL_NODE_FINALIZER, wanted=True)
                await self._map(virtual)
                await self._keep(virtual)
        await self._unmap_rest()

    async def _collect(self) -> None:
        """Deletes objects of slices that are gone, or that wait for this."""
        slices = local_slices(self._cluster)
        waiting = [each for each in slices if each.deleting and FOREGROUND in finalizers_of(each)]
        present = {each.uid for each in slices} - {each.uid for each in waiting}
        for found in waiting:
            owned = [each for kind in (IDENTITIES, VIRTUAL_NODES) for each in self._cluster.all(kind)]
            if not any(found.uid in _owners(each) for each in owned):
                await self._cluster.hold(SLICES, found, FOREGROUND, wanted=False)
        for kind in (IDENTITIES, VIRTUAL_NODES):
            for found in self._cluster.all(kind):
                if SLICE_NAME in found.labels and not _owners(found) & present:
                    await self._cluster.delete(kind, found)
                    if kind is IDENTITIES:
                        with suppress(NotFoundError):
                            await self._cluster.client.delete(
                                SECRETS, f"kubeconfig-{found.name}", namespace=found.namespace
                            )

    async def _map(self, virtual: CustomObject) -> None:
        """One map of namespaces for each peer with virtual nodes: it goes to the peer as slices do."""
        peer = spec_of(virtual).get("clusterID", "")
        if self._cluster.find(NAMESPACE_MAPS, peer, virtual.namespace) is None:
            manifest = {
                "apiVersion": "offloading.liqo.io/v1beta1",
                "kind": "NamespaceMap",
                "metadata": {"name": peer, "labels": {REMOTE: peer, DESTINATION: peer, REPLICATION: "true"}},
                "spec": {},
            }
            await self._cluster.create(NAMESPACE_MAPS, manifest, virtual.namespace)

    async def _unmap(self, virtual: CustomObject) -> None:
        """Deletes the map with the last virtual node of a peer, and does not wait until it is gone."""
        peer = spec_of(virtual).get("clusterID", "")
        found = self._cluster.find(NAMESPACE_MAPS, peer, virtual.namespace)
        if found is not None and len(self._cluster.all(VIRTUAL_NODES, remote=peer)) == 1:
            await self._cluster.delete(NAMESPACE_MAPS, found)

    async def _unmap_rest(self) -> None:
        """Deletes maps that virtual nodes left behind: one would keep the connection open forever."""
        for found in self._cluster.all(NAMESPACE_MAPS):
            is_ours = found.labels.get(REPLICATION) == "true"
            if is_ours and not self._cluster.all(VIRTUAL_NODES, remote=found.labels.get(DESTINATION, "")):
                await self._cluster.delete(NAMESPACE_MAPS, found)

    async def _keep(self, virtual: CustomObject) -> None:
        remote = spec_of(virtual).get("clusterID", "")
        rules = self._script.rules(remote, virtual.name)
        node = self._cluster.find(NODES, virtual.name)
        if node is None:
            await self._report(virtual, kubelet="Running", node="Running")  # Liqo says so once the kubelet is ordered
            if spec_of(virtual).get("createNode", True) and self._pace.due((virtual.uid, "node"), rules.delay("node")):
                await self._cluster.create(NODES, node_manifest(virtual))
            return
        if node.labels.get(REMOTE) != remote or node.deleting:
            return
        ready, reason = self._readiness(virtual, node)
        await self._cluster.report(NODES, node, node_status(virtual, ready, reason, node))
        if ready == "True":
            await self._lift_taint(node)

    def _readiness(self, virtual: CustomObject, node: CustomObject) -> tuple[str, str]:
        spec = spec_of(virtual)
        remote = spec["clusterID"]
        rules = self._script.rules(remote, virtual.name)
        was = next((each["status"] for each in status_of(node).get("conditions", ()) if each["type"] == "Ready"), "")
        if not self._is_reachable(remote):
            return "Unknown", "NodeStatusUnknown"  # its lease is not renewed any more
        if rules.never_ready or not (spec.get("disableNetworkCheck") or self._is_connected(remote)):
            return "Unknown", "VirtualKubeletStarting"
        if was == "True" or self._pace.due((virtual.uid, "ready"), rules.delay("ready")):
            return "True", "KubeletReady"
        return "Unknown", "VirtualKubeletStarting"

    def _is_connected(self, remote: str) -> bool:
        if not self._cluster.all(CONFIGURATIONS, remote=remote):
            return True  # no network between the two is asked for
        return any(
            status_of(each).get("value") == "Connected" for each in self._cluster.all(CONNECTIONS, remote=remote)
        )

    async def _lift_taint(self, node: CustomObject) -> None:
        patch = without_taint_of_unready(node)
        if patch is not None:
            with suppress(NotFoundError, InvalidArgumentError):  # the latter: another client was faster
                await self._cluster.client.patch(NODES, node.name, patch, style=PatchStyle.JSON)

    async def _end(self, virtual: CustomObject) -> None:
        """Deletes the node first; then the virtual node can go."""
        rules = self._script.rules(spec_of(virtual).get("clusterID", ""), virtual.name)
        await self._report(virtual, kubelet="Draining", node="Draining")
        if not self._pace.due((virtual.uid, "delete"), rules.delay("delete")):
            return
        node = self._cluster.find(NODES, virtual.name)
        if node is not None:
            await self._cluster.delete(NODES, node)
        else:
            await self._unmap(virtual)
            await self._cluster.hold(VIRTUAL_NODES, virtual, VIRTUAL_NODE_FINALIZER, wanted=False)

    async def _report(self, virtual: CustomObject, **said: str) -> None:
        names = {"kubelet": "VirtualKubelet", "node": "Node"}
        conditions = [{"type": names[key], "status": value} for key, value in said.items()]
        await self._cluster.report(VIRTUAL_NODES, virtual, {"conditions": conditions})


def _owners(found: CustomObject) -> set[str]:
    metadata: Any = found.content["metadata"]
    return {each["uid"] for each in metadata.get("ownerReferences") or ()}
