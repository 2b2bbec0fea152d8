"""The virtual nodes of our slices: each gets its providerID as soon as it appears, before it is ready.

Liqo sets none, and the autoscaler knows a machine by nothing else (R30). It cannot be changed once it is set. A node
also gets its shape's name as a label, through its VirtualNode, which keeps what we put there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from cloudgraft.kube.attempts import Attempts
from cloudgraft.kube.objects import Node, PatchStyle
from cloudgraft.liqo.objects.kinds import VIRTUAL_NODE_OBJECTS, VIRTUAL_NODES
from cloudgraft.liqo.slices import PROVIDER_ID, Slice
from cloudgraft.sdk.errors import CloudgraftError

if TYPE_CHECKING:  # an extra, and slow to import
    from cloudgraft.kube.client import KubeClient

__all__ = ["NodeTender", "untended"]

log = logging.getLogger("cloudgraft.liqo")
_LABEL_TRIES: Final = 2  # the autoscaler waits for the providerID (R30), and for nothing else
_INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"


def untended(nodes: Iterable[Node], slices: Mapping[str, Slice]) -> list[Node]:
    """Nodes of our slices without a providerID."""
    return [
        node
        for node in nodes
        if not node.provider_id and not node.deleting and node.name in slices and slices[node.name].is_ours
    ]


class NodeTender:
    """Gives nodes what they lack."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._attempts = Attempts()

    async def tend(self, nodes: Iterable[Node], slices: Mapping[str, Slice]) -> bool:
        """One round; says whether something is left to do."""
        clock = asyncio.get_running_loop()
        work = untended(nodes, slices)
        self._attempts.keep_only([node.uid for node in work])
        for node in work:
            if not self._attempts.is_due(node.uid, clock.time()):
                continue
            try:
                await self._label(slices[node.name], node)
                await self._set(node)
            except CloudgraftError as error:
                failures = self._attempts.failed(node.uid, clock.time())
                level = logging.WARNING if failures == 3 else logging.DEBUG
                log.log(level, "node %s has no providerID yet: %s", node.name, error.message)
            else:
                self._attempts.succeeded(node.uid, clock.time())
        return bool(work)

    async def _set(self, node: Node) -> None:
        wanted = PROVIDER_ID.format(name=node.name)
        patch = {"metadata": {"uid": node.uid}, "spec": {"providerID": wanted}}
        await self._client.patch(VIRTUAL_NODES, node.name, patch, style=PatchStyle.MERGE)
        log.info("node %s has its providerID", node.name)

    async def _label(self, one: Slice, node: Node) -> None:
        """Before the providerID, after which nobody looks at the node again; but one that fails twice is left out."""
        if "@" in one.shape or not one.shape:  # no label can hold that, and so no template has it
            return
        patch = {"spec": {"labels": {_INSTANCE_TYPE: one.shape}}}
        try:
            await self._client.patch(VIRTUAL_NODE_OBJECTS, one.name, patch, namespace=one.space, style=PatchStyle.MERGE)
        except CloudgraftError as error:
            if self._attempts.failures(node.uid) < _LABEL_TRIES:
                raise
            log.warning("node %s gets no label of its shape: %s", node.name, error.message)
