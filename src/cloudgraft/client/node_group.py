"""Implements Go's ``NodeGroup`` of the autoscaler, method by method, with its caches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from cloudgraft.client.errors import NotImplementedByProtocolError
from cloudgraft.client.remote import RemoteProvider
from cloudgraft.sdk import types
from cloudgraft.sdk.types import AutoscalingOptions, Instance, InstanceState, NodeRef, NodeTemplate

_log = logging.getLogger("cloudgraft.client")


class NodeGroup:
    """One node group of a :class:`~cloudgraft.client.cloud_provider.CloudProvider`.

    ``id``, ``min_size``, ``max_size`` and ``debug`` are what the server said when this object was made, and never
    change; a new object comes after the next refresh. The template is asked for once per object. Everything else is
    a call each time.
    """

    def __init__(self, remote: RemoteProvider, group: types.NodeGroup) -> None:
        self._remote = remote
        self._group = group
        self._lock = asyncio.Lock()
        # a tuple, because "no template" is a cached answer too
        self._template: tuple[NodeTemplate | None] | None = None

    def __repr__(self) -> str:
        """The group's id and limits."""
        return f"NodeGroup({self.id!r}, {self.min_size}..{self.max_size})"

    @property
    def id(self) -> str:
        """Go's ``Id``. For the life of this object."""
        return self._group.id

    @property
    def min_size(self) -> int:
        """Go's ``MinSize``. For the life of this object."""
        return self._group.min_size

    @property
    def max_size(self) -> int:
        """Go's ``MaxSize``. For the life of this object."""
        return self._group.max_size

    @property
    def debug(self) -> str:
        """Go's ``Debug``. For the life of this object."""
        return self._group.debug

    @property
    def exist(self) -> bool:
        """Go's ``Exist``: every group that a server lists exists (R14)."""
        return True

    @property
    def autoprovisioned(self) -> bool:
        """Go's ``Autoprovisioned``: the autoscaler creates no groups (R14)."""
        return False

    async def target_size(self) -> int:
        """Go's ``TargetSize``. Never cached."""
        return await self._remote.target_size(self.id)

    async def increase_size(self, delta: int) -> None:
        """Go's ``IncreaseSize``."""
        await self._remote.increase_size(self.id, delta)

    async def atomic_increase_size(self, delta: int) -> None:
        """Go's ``AtomicIncreaseSize``: not on the wire (R48)."""
        raise NotImplementedByProtocolError(f"no call increases group {self.id!r} by {delta} atomically")

    async def delete_nodes(self, nodes: Sequence[NodeRef]) -> None:
        """Go's ``DeleteNodes``."""
        await self._remote.delete_nodes(self.id, nodes)

    async def force_delete_nodes(self, nodes: Sequence[NodeRef]) -> None:
        """Go's ``ForceDeleteNodes``: not on the wire (B11). The autoscaler then uses :meth:`delete_nodes`."""
        raise NotImplementedByProtocolError(f"no call deletes {len(nodes)} nodes of group {self.id!r} by force")

    async def decrease_target_size(self, delta: int) -> None:
        """Go's ``DecreaseTargetSize``; ``delta`` is negative."""
        await self._remote.decrease_target_size(self.id, delta)

    async def nodes(self) -> list[Instance]:
        """Go's ``Nodes``. Never cached. An error on an instance without a state is dropped, as in Go (R34)."""
        return [
            replace(instance, error=None) if instance.state is InstanceState.UNSPECIFIED else instance
            for instance in await self._remote.instances(self.id)
        ]

    async def template_node_info(self) -> NodeTemplate | None:
        """Go's ``TemplateNodeInfo``. Cached at the first answer for the life of this object; errors are not.

        None is the answer of a server that sent no node. A server without templates raises UnsupportedError.
        """
        async with self._lock:
            if self._template is not None:
                rpc = "NodeGroupTemplateNodeInfo"
                _log.debug("returning cached %s", rpc, extra={"rpc": rpc, "node_group": self.id})
            else:
                self._template = (await self._remote.find_template(self.id),)
            return self._template[0]

    async def create(self) -> NoReturn:
        """Go's ``Create``: not on the wire (R14)."""
        raise NotImplementedByProtocolError(f"no call creates a group such as {self.id!r}")

    async def delete(self) -> None:
        """Go's ``Delete``: not on the wire (R14)."""
        raise NotImplementedByProtocolError(f"no call deletes a group such as {self.id!r}")

    async def get_options(self, defaults: AutoscalingOptions) -> AutoscalingOptions | None:
        """Go's ``GetOptions``. Never cached. None or UnsupportedError: the defaults apply (R73)."""
        return await self._remote.options(self.id, defaults)
