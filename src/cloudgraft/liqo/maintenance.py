"""Maintains what the calls leave behind: providerIDs, reservations of deleted machines, unused peerings."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from cloudgraft.kube.attempts import Attempts
from cloudgraft.kube.objects import CustomObject, Node, PatchStyle
from cloudgraft.kube.watched import Watched
from cloudgraft.liqo.manifests import OUR_SLICES, SLICES, VIRTUAL_NODE_OBJECTS, VIRTUAL_NODES
from cloudgraft.liqo.options import LiqoOptions
from cloudgraft.liqo.peering.peering import Peering
from cloudgraft.liqo.placement import ClusterError
from cloudgraft.liqo.reservations import MachineReservations
from cloudgraft.liqo.slices import PROVIDER_ID, Slice, Slices, slice_of
from cloudgraft.sdk.errors import CloudgraftError

if TYPE_CHECKING:
    from cloudgraft.kube.client import KubeClient

# -- Virtual nodes -----------------------------------------------------------------------------------------------------
# Each gets its providerID as soon as it appears, before it is ready. Liqo sets none, and the autoscaler identifies a
# machine by nothing else (R30). It cannot be changed once it is set. A node also gets its shape's name as a label,
# through its VirtualNode, which keeps our labels.


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


class ProviderIdWriter:
    """Sets the missing providerIDs and labels of nodes."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._attempts = Attempts()

    async def tend(self, nodes: Iterable[Node], slices: Mapping[str, Slice]) -> bool:
        """Runs one round; True when something is left to do."""
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
        """Before the providerID, because nodes with one are never checked again. Gives up after two failures."""
        if "@" in one.shape or not one.shape:  # not a valid label value, and so not in any template
            return
        patch = {"spec": {"labels": {_INSTANCE_TYPE: one.shape}}}
        try:
            await self._client.patch(VIRTUAL_NODE_OBJECTS, one.name, patch, namespace=one.space, style=PatchStyle.MERGE)
        except CloudgraftError as error:
            if self._attempts.failures(node.uid) < _LABEL_TRIES:
                raise
            log.warning("node %s gets no label of its shape: %s", node.name, error.message)


# -- Loop --------------------------------------------------------------------------------------------------------------


T = TypeVar("T")
_SETTLING = 0.05  # seconds in which changes are collected
_AGAIN = 1.0  # minimum seconds between two rounds
_AT_ONCE = 4  # concurrent unpeerings: each may wait for a cluster that is slow, or away


class Maintenance:
    """The background work of one consumer."""

    def __init__(
        self,
        client: KubeClient,
        peering: Peering,
        reservations: MachineReservations,
        options: LiqoOptions,
        *,
        in_use: Callable[[], set[str]],
    ) -> None:
        """``in_use`` returns the clusters that a create uses at this moment."""
        self._client = client
        self._peering = peering
        self._reservations = reservations
        self._options = options
        self._in_use = in_use
        self._changed = asyncio.Event()  # nodes have changed
        self._news = asyncio.Event()  # slices were created or removed
        self._slices: Watched[CustomObject] = Watched(client, OUR_SLICES, on_change=self._on_slices)
        self._nodes: Watched[Node] = Watched(client, VIRTUAL_NODES, on_change=self._changed.set)
        self._provider_ids = ProviderIdWriter(client)
        self._idle_since: dict[str, float] = {}
        self._attempts = Attempts()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the background tasks."""
        self._task = asyncio.create_task(self._kept_up(), name="liqo maintenance")

    async def stop(self) -> None:
        """Stops the background tasks, and waits for their end."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def is_ready(self, name: str) -> bool:
        """Whether a machine's node was ready when it was last seen."""
        node = self._nodes.objects.get(f"/{name}")
        return node is not None and node.ready

    async def _kept_up(self) -> None:
        """Runs until cancelled. Logs a bug and restarts, so that nodes lack providerIDs only for a moment."""
        while True:
            try:
                await self._run()
            except Exception:
                log.exception("maintenance of remote clusters failed because of a bug, and restarts")
            await asyncio.sleep(_AGAIN)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._slices.run())
            group.create_task(self._nodes.run())
            group.create_task(self._keep_tending())
            group.create_task(self._keep_looking())

    async def _keep_tending(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if await self._guarded(self._tend):
                asyncio.get_running_loop().call_later(_AGAIN, self._changed.set)
            await asyncio.sleep(_SETTLING)

    async def _tend(self) -> bool:
        slices = {found.name: slice_of(found) for found in self._slices.objects.values()}
        return await self._provider_ids.tend(list(self._nodes.objects.values()), slices)

    async def _keep_looking(self) -> None:
        every = self._options.look_every.total_seconds()
        while True:
            self._news.clear()
            await self._guarded(self.look)
            await asyncio.sleep(min(_AGAIN, every))
            with suppress(TimeoutError):
                async with asyncio.timeout(every):
                    await self._news.wait()  # a deleted slice frees its reservation

    def _on_slices(self) -> None:
        self._changed.set()
        self._news.set()

    async def _guarded(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """Logs errors for the next round to retry; a bug must not end the other work."""
        try:
            return await work()
        except CloudgraftError as error:
            log.info("maintenance of remote clusters is held up: %s", error.message)
        except Exception:
            log.exception("maintenance of remote clusters failed")
        return None

    async def look(self) -> None:
        """Runs one round over reservations and peerings. Checks peerings even when discovery is away."""
        try:
            reserved = await self._reservations.everything()
            await self._reservations.tidy(reserved, await Slices(self._client).all())
        finally:
            await self._end_idle_peerings()

    async def _end_idle_peerings(self) -> None:
        now = asyncio.get_running_loop().time()
        used = {slice_of(found).cluster for found in (await self._client.list(SLICES)).items} | self._in_use()
        idle = await self._peering.peered() - used
        self._idle_since = {cluster: self._idle_since.get(cluster, now) for cluster in idle}
        self._attempts.keep_only(idle)
        grace = self._options.unpeer_after.total_seconds()
        due = [
            cluster
            for cluster, since in self._idle_since.items()
            if now - since >= grace and self._attempts.is_due(cluster, now)
        ]
        room = asyncio.Semaphore(_AT_ONCE)
        await asyncio.gather(*(self._try_unpeer(cluster, room) for cluster in due))

    async def _try_unpeer(self, cluster: str, room: asyncio.Semaphore) -> None:
        """Ends one peering; its failure must not affect the others."""
        clock = asyncio.get_running_loop()
        async with room:
            try:
                await self._unpeer(cluster)
            except (ClusterError, CloudgraftError) as error:
                if self._attempts.failed(cluster, clock.time()) == 1:
                    log.warning("the peering with %s cannot be ended yet: %s", cluster, error)
            except Exception:
                self._attempts.failed(cluster, clock.time())
                log.exception("the peering with %s cannot be ended", cluster)
            else:
                self._attempts.succeeded(cluster, clock.time())

    async def _unpeer(self, cluster: str) -> None:
        """Not while another process has a reservation there: it may be about to request a slice."""
        reserved = await self._reservations.everything()
        if all(one.cluster != cluster for one in reserved) and cluster not in self._in_use():
            await self._peering.undo(cluster, lambda: cluster in self._in_use())
