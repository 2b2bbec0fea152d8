"""Copies slices to the provider clusters, and their answers back, with the credentials that were given for it.

The kubeconfig in the identity Secret is really used: one that is garbage, or leads elsewhere, fails as it would.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from base64 import b64decode
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from cloudgraft.demo.fake_liqo.cluster import Cluster, Script
from cloudgraft.demo.fake_liqo.slices import local_slices
from cloudgraft.demo.fake_liqo.words import (
    DESTINATION,
    FINALIZER,
    FOREIGN_CLUSTERS,
    IDENTITY_FINALIZER,
    IDENTITY_SECRETS,
    NAMESPACE_MAPS,
    REMOTE,
    REMOTE_NAMESPACE,
    REPLICATED,
    REPLICATION,
    SLICES,
    UNREACHABLE,
    finalizers_of,
    spec_of,
    status_of,
)
from cloudgraft.kube.client import KubeClient
from cloudgraft.kube.connect import connect_foreign
from cloudgraft.kube.networks import AllowedNetworks
from cloudgraft.kube.objects import Change, CustomObject, Kind, Listing, PatchStyle, V
from cloudgraft.kube.watched import Watched
from cloudgraft.sdk.errors import CloudgraftError, ConflictError, NotFoundError, PermissionDeniedError

_LOG = logging.getLogger("cloudgraft.fakeliqo")
_TIMEOUT: Final = 3.0
_LOOPBACK = AllowedNetworks.of(["127.0.0.0/8"])  # where all clusters of tests are
_BETWEEN_LOOKS: Final = 0.5
_CARRIED: Final = {
    SLICES: ("authentication.liqo.io/v1beta1", "ResourceSlice"),
    NAMESPACE_MAPS: ("offloading.liqo.io/v1beta1", "NamespaceMap"),
}


class _InNamespace:
    """A client for one namespace only: its credentials allow no more."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def list(self, kind: Kind[V]) -> Listing[V]:
        return await self._client.list(kind, namespace=self._namespace)

    def watch(self, kind: Kind[V], *, version: str) -> AsyncGenerator[Change[V], None]:
        return self._client.watch(kind, version=version, namespace=self._namespace)


class Reflector:
    """The connection to one remote cluster."""

    def __init__(self, cluster: Cluster, peer: str, client: KubeClient, namespace: str) -> None:
        """``cluster`` is the local one; ``namespace`` is where its slices go at the peer."""
        self.peer = peer
        self.namespace = namespace
        self._cluster = cluster
        self._client = client
        there = _InNamespace(client, namespace)
        self._remote = {kind: Watched(there, kind, on_change=cluster.wake) for kind in _CARRIED}
        self._failing_since: float | None = None
        self._tasks = [asyncio.create_task(watched.run()) for watched in self._remote.values()]
        self._tasks.append(asyncio.create_task(self._look()))

    def silent_for(self) -> float:
        """Seconds for which the peer's API has not answered; 0 when it did when it was last asked."""
        return 0.0 if self._failing_since is None else time.monotonic() - self._failing_since

    async def _look(self) -> None:
        while True:
            try:
                await self._client.release()
                self._failing_since = None
            except CloudgraftError:
                self._failing_since = self._failing_since or time.monotonic()
            self._cluster.wake()
            await asyncio.sleep(_BETWEEN_LOOKS)

    async def close(self) -> None:
        """Ends everything towards this peer."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()

    async def carry(self, kind: Kind[CustomObject], found: CustomObject) -> None:
        """Updates the remote copy of an object, and copies its status back."""
        there = self._remote[kind]
        remote = there.objects.get(f"{self.namespace}/{found.name}")
        if found.deleting:
            if there.is_synced and remote is None:
                await self._cluster.hold(kind, found, FINALIZER, wanted=False)
            elif remote is not None and not remote.deleting:
                with suppress(NotFoundError, ConflictError):
                    await self._client.delete(kind, found.name, namespace=self.namespace, uid=remote.uid)
            return
        await self._cluster.hold(kind, found, FINALIZER, wanted=True)
        if not there.is_synced:
            return
        if remote is None:
            await self._client.create(kind, self._copy(kind, found), namespace=self.namespace)
            return
        if spec_of(remote) != spec_of(found):
            patch = {"spec": spec_of(found)}
            await self._client.patch(kind, found.name, patch, namespace=self.namespace, style=PatchStyle.MERGE)
        if status_of(remote):
            await self._cluster.report(kind, found, status_of(remote))

    def _copy(self, kind: Kind[CustomObject], found: CustomObject) -> Mapping[str, object]:
        here = self._cluster.id
        changed = {REPLICATION: "false", REPLICATED: "true", "liqo.io/originID": here, REMOTE: here}
        version, name = _CARRIED[kind]
        return {
            "apiVersion": version,
            "kind": name,
            "metadata": {
                "name": found.name,
                "labels": {**found.labels, **changed},
                "annotations": dict(found.annotations),
            },
            "spec": spec_of(found),
        }


class Replicator:
    """Plays the replicator of one cluster: a connection to each peer with an identity Secret."""

    def __init__(
        self,
        cluster: Cluster,
        script: Script,
        *,
        dead_after: float,
        open_way: Callable[[str, str], Awaitable[KubeClient]] = lambda text, name: connect_foreign(
            text, name=name, networks=_LOOPBACK, timeout=_TIMEOUT
        ),
    ) -> None:
        """A peer that is silent for ``dead_after`` seconds counts as dead."""
        self._cluster = cluster
        self._script = script
        self._dead_after = dead_after
        self._open_way = open_way
        self._ways: dict[str, Reflector | None] = {}  # None: what is in the Secret cannot be used
        self._marks: dict[str, str] = {}

    def is_reachable(self, peer: str) -> bool:
        """Whether the peer's API answered the last call."""
        way = self._ways.get(peer)
        return not self._script.rules(peer).dead and (way is None or way.silent_for() < self._dead_after)

    async def turn(self) -> None:
        """Opens and closes connections, and copies objects."""
        secrets = {each.labels[REMOTE]: each for each in self._cluster.all(IDENTITY_SECRETS)}
        for peer in self._ways.keys() - secrets.keys():
            await self._close(peer)
        for peer, secret in secrets.items():
            await self._keep(peer, secret)
        for peer, way in list(self._ways.items()):
            if way is not None:
                await self._carry(peer, way)

    async def close(self) -> None:
        """Closes all ways."""
        for peer in list(self._ways):
            await self._close(peer)

    async def _keep(self, peer: str, secret: CustomObject) -> None:
        if secret.deleting:
            if not self._held(peer, secret.namespace):
                await self._close(peer)
                await self._cluster.hold(IDENTITY_SECRETS, secret, IDENTITY_FINALIZER, wanted=False)
            return
        if REMOTE_NAMESPACE not in secret.annotations:
            return
        await self._cluster.hold(IDENTITY_SECRETS, secret, IDENTITY_FINALIZER, wanted=True)
        data: Any = secret.content.get("data") or {}
        text, namespace = data.get("kubeconfig", ""), secret.annotations[REMOTE_NAMESPACE]
        mark = hashlib.sha256(f"{namespace}\n{text}".encode()).hexdigest()
        if self._marks.get(peer) != mark:
            await self._close(peer)
            self._marks[peer] = mark
            self._ways[peer] = await self._way(peer, text, namespace)

    async def _way(self, peer: str, encoded: str, namespace: str) -> Reflector | None:
        try:
            text = b64decode(encoded).decode()
            client = await self._open_way(text, f"the kubeconfig for {peer}")
        except (CloudgraftError, ValueError) as error:
            _LOG.warning("no slices go to %s: %s", peer, error)
            return None
        return Reflector(self._cluster, peer, client, namespace)

    def _held(self, peer: str, namespace: str) -> bool:
        return any(each.namespace == namespace and FINALIZER in finalizers_of(each) for _, each in self._carried(peer))

    def _carried(self, peer: str) -> list[tuple[Kind[CustomObject], CustomObject]]:
        """The objects for that peer."""
        maps = [each for each in self._cluster.all(NAMESPACE_MAPS) if each.labels.get(REPLICATION) == "true"]
        found = [(SLICES, each) for each in local_slices(self._cluster)] + [(NAMESPACE_MAPS, each) for each in maps]
        return [(kind, each) for kind, each in found if each.labels.get(DESTINATION) == peer]

    async def _close(self, peer: str) -> None:
        self._marks.pop(peer, None)
        way = self._ways.pop(peer, None)
        if way is not None:
            await way.close()

    async def _carry(self, peer: str, way: Reflector) -> None:
        """Retries an unreachable peer forever, unless a person has marked it as permanently unreachable."""
        known = self._cluster.find(FOREIGN_CLUSTERS, peer)
        is_written_off = known is not None and known.annotations.get(UNREACHABLE) == "true"
        for kind, found in self._carried(peer):
            try:
                if self.is_reachable(peer):
                    await way.carry(kind, found)
                elif not found.deleting or is_written_off:
                    await self._cluster.hold(kind, found, FINALIZER, wanted=not found.deleting)
            except PermissionDeniedError as error:  # the provider revoked the permission: Liqo does not retry
                _LOG.debug("%s does not let us: %s", peer, error)
            except CloudgraftError as error:
                _LOG.debug("cannot carry %s to %s: %s", found.name, peer, error)
