"""Carries out what was decided for nodes, pods and leases, one call or two each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, assert_never

from cloudgraft.kube.objects import BOUND_PODS, LEASES, NODES, Kind, Node, PatchStyle, Pod
from cloudgraft.sdk.errors import NotFoundError
from cloudgraft.simcloud.kubelets.objects import (
    LEASE_NAMESPACE,
    lease_manifest,
    lease_renewal,
    lost_status,
    node_manifest,
    node_status,
    running_status,
)
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
)

if TYPE_CHECKING:
    from cloudgraft.kube.client import KubeClient

__all__ = ["NodeWriter"]


class NodeWriter:
    """Writes to one cluster, and remembers what later decisions need."""

    def __init__(self, client: KubeClient, memory: Memory, clock: Callable[[], float]) -> None:
        self._client = client
        self._memory = memory
        self._clock = clock

    async def write(self, action: Action) -> None:
        """Does it. Raises an error of :mod:`cloudgraft.sdk.errors`, after which it may be done or not."""
        match action:
            case FinishPod(pod=pod):
                await self._client.delete(BOUND_PODS, pod.name, namespace=pod.namespace, uid=pod.uid, grace_seconds=0)
            case RunPod(pod=pod):
                await self._set_status(BOUND_PODS, pod, running_status(pod, action.host_address, self._clock()))
            case RemoveNode(node=node):
                await self._remove(node)
            case CreateNode(machine=machine):
                node = await self._client.create(NODES, node_manifest(machine, self._clock()))
                await self._make_lease(node)
            case ReportReady(node=node, machine=machine):
                await self._set_status(NODES, node, node_status(machine, self._clock()))
            case ReportLost(node=node):
                await self._set_status(NODES, node, lost_status(self._clock()))
            case LiftTaint():
                await self._lift(action)
            case KeepLease(node=node):
                await self._renew(node)
            case _:
                assert_never(action)

    async def _set_status(self, kind: Kind[Node] | Kind[Pod], target: Node | Pod, status: dict[str, object]) -> None:
        """Only for the very object that was meant: the API refuses a patch that would change a uid."""
        patch = {"metadata": {"uid": target.uid}, "status": status}
        await self._client.patch(kind, target.name, patch, namespace=target.namespace, subresource="status")

    async def _remove(self, node: Node) -> None:
        # The lease first: if we are stopped in between, the node is still there to remind us.
        with suppress(NotFoundError):
            await self._client.delete(LEASES, node.name, namespace=LEASE_NAMESPACE)
        await self._client.delete(NODES, node.name, uid=node.uid)
        self._memory.removed.add(node.name)

    async def _lift(self, lift: LiftTaint) -> None:
        """Takes away this one taint, if it is still where it was; others may be changing the list."""
        path = f"/spec/taints/{lift.position}"
        patch = [{"op": "test", "path": f"{path}/key", "value": lift.key}, {"op": "remove", "path": path}]
        await self._client.patch(NODES, lift.node.name, patch, style=PatchStyle.JSON)

    async def _renew(self, node: Node) -> None:
        now = self._clock()
        renewal = lease_renewal(node.name, now)
        try:
            await self._client.patch(LEASES, node.name, renewal, namespace=LEASE_NAMESPACE, style=PatchStyle.MERGE)
        except NotFoundError:
            await self._make_lease(node)
        else:
            self._memory.leases[node.name] = now

    async def _make_lease(self, node: Node) -> None:
        now = self._clock()
        await self._client.create(LEASES, lease_manifest(node.name, node.uid, now), namespace=LEASE_NAMESPACE)
        self._memory.leases[node.name] = now
