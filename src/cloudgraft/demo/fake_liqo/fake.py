"""Runs the whole fake: a consumer and its providers, each with Liqo's objects, controllers and webhooks."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

from cloudgraft.demo.fake_kubernetes import Json, KubeApi, RefusedError
from cloudgraft.demo.fake_kubernetes.resources import Resource
from cloudgraft.demo.fake_liqo.cluster import Cluster, Pace, Script
from cloudgraft.demo.fake_liqo.peers import ForeignClusters
from cloudgraft.demo.fake_liqo.replicator import Replicator
from cloudgraft.demo.fake_liqo.slices import PROVIDER_KINDS, Grants, SliceRequests
from cloudgraft.demo.fake_liqo.virtual_nodes import VirtualNodes
from cloudgraft.demo.fake_liqo.words import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    CONFIGURATIONS,
    CONNECTIONS,
    FOREIGN_CLUSTERS,
    IDENTITIES,
    IDENTITY_SECRETS,
    LIQO,
    NAMESPACE_MAPS,
    NAMESPACES,
    NETWORKS,
    NODES,
    REPLICATED,
    SLICES,
    VIRTUAL_NODES,
)
from cloudgraft.kube.client import KubeClient
from cloudgraft.kube.objects import CustomObject, Kind, PatchStyle
from cloudgraft.sdk.errors import AlreadyExistsError, CloudgraftError

_LOG = logging.getLogger("cloudgraft.fakeliqo")
_AFTER_TROUBLE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A cluster with Liqo: its id, and a client that may do everything there."""

    id: str
    client: KubeClient


class Part(Protocol):
    """One controller."""

    async def turn(self) -> None:
        """Does what is due."""


class FakeLiqo:
    """Plays Liqo in several clusters at a time. All its state is in their APIs: it can be stopped at any time.

    No packet flows, so networks are left out. A subclass may watch more kinds, and add parts and background work.
    """

    consumer_kinds: ClassVar[tuple[Kind[CustomObject], ...]] = (
        CONFIGURATIONS,
        CONNECTIONS,
        FOREIGN_CLUSTERS,
        IDENTITIES,
        IDENTITY_SECRETS,
        NAMESPACE_MAPS,
        NODES,
        SLICES,
        VIRTUAL_NODES,
    )
    provider_kinds: ClassVar[tuple[Kind[CustomObject], ...]] = PROVIDER_KINDS

    def __init__(
        self,
        consumer: Member,
        providers: Sequence[Member] = (),
        *,
        script: Script | None = None,
        dead_after: float = 2.0,
    ) -> None:
        """``dead_after``: seconds of silence after which a provider counts as dead."""
        self._script = script or Script()
        self.consumer = Cluster(consumer.id, consumer.client, self.consumer_kinds)
        self._providers = [Cluster(each.id, each.client, self.provider_kinds) for each in providers]
        self._replicator = Replicator(self.consumer, self._script, dead_after=dead_after)

    async def run(self) -> None:
        """Plays until cancelled."""
        wakes: list[asyncio.Event] = []

        def wake_all() -> None:
            for wake in wakes:
                wake.set()

        self._script.on_change = wake_all
        try:
            async with asyncio.TaskGroup() as tasks:
                for cluster in (self.consumer, *self._providers):
                    wake, pace = asyncio.Event(), Pace()
                    wakes.append(wake)
                    cluster.on_change = wake.set
                    parts = (
                        self.consumer_parts(pace) if cluster is self.consumer else self.provider_parts(cluster, pace)
                    )
                    tasks.create_task(cluster.watch())
                    tasks.create_task(_turns(cluster, parts, wake, pace))
                for work in self.background():
                    tasks.create_task(work)
        finally:
            await self._replicator.close()

    def consumer_parts(self, pace: Pace) -> Sequence[Part]:
        """The controllers of the cluster that gets nodes."""
        foreign = ForeignClusters(self.consumer, self._replicator.is_reachable)
        return (
            self._replicator,
            SliceRequests(self.consumer, self._script, pace),
            VirtualNodes(self.consumer, self._script, pace, foreign.is_reachable),
            foreign,
        )

    def provider_parts(self, cluster: Cluster, pace: Pace) -> Sequence[Part]:
        """The controllers of a cluster that shares resources."""
        return (Grants(cluster, self._script, pace),)

    def background(self) -> Iterable[Coroutine[Any, Any, None]]:
        """More work for as long as it plays."""
        return ()


async def _each(parts: Sequence[Part]) -> None:
    """Runs a turn of each part: an error of one does not stop the others."""
    trouble: CloudgraftError | None = None
    for part in parts:
        try:
            await part.turn()
        except CloudgraftError as error:
            trouble = error
    if trouble is not None:
        raise trouble


async def _turns(cluster: Cluster, parts: Sequence[Part], wake: asyncio.Event, pace: Pace) -> None:
    """Runs a turn whenever something changed or is due."""
    while True:
        pause = _LONGEST_PAUSE
        wake.clear()
        if cluster.is_synced:
            pace.begin()
            try:
                await _each(parts)
            except CloudgraftError as error:
                _LOG.debug("%s: %s", cluster.id, error)
                pause = _AFTER_TROUBLE
        try:
            async with asyncio.timeout(pace.wait(pause)):
                await wake.wait()
        except TimeoutError:
            continue


@asynccontextmanager
async def playing(fake: FakeLiqo) -> AsyncIterator[FakeLiqo]:
    """Plays in the background while this is open."""
    task = asyncio.create_task(fake.run())
    try:
        yield fake
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# -- objects and webhooks of a cluster with Liqo -----------------------------------------------------------------------


async def settle(client: KubeClient, cluster_id: str) -> None:
    """Creates Liqo's objects: its namespace, the cluster's id, address ranges, and the role for consumers."""
    await _ensure(client, NAMESPACES, {"metadata": {"name": LIQO}})
    labels = {"app.kubernetes.io/name": "clusterid-configmap"}
    named = {"name": "liqo-clusterid-configmap", "labels": labels}
    await _ensure(client, CONFIG_MAPS, {"metadata": named, "data": {"CLUSTER_ID": cluster_id}}, LIQO)
    rule = {
        "apiGroups": ["authentication.liqo.io", "offloading.liqo.io"],
        "resources": ["resourceslices", "resourceslices/status", "renews", "renews/status", "namespacemaps"],
        "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
    }
    await _ensure(client, CLUSTER_ROLES, {"metadata": {"name": "liqo-remote-controlplane"}, "rules": [rule]})
    digest = hashlib.sha256(cluster_id.encode()).digest()
    for number, kind in enumerate(("pod-cidr", "external-cidr")):
        cidr = f"10.{digest[number]}.0.0/16"
        meta = {"name": kind, "labels": {"ipam.liqo.io/network-type": kind}}
        network = {"apiVersion": "ipam.liqo.io/v1alpha1", "kind": "Network", "metadata": meta, "spec": {"cidr": cidr}}
        await _ensure(client, NETWORKS, network, LIQO)
        status = {"status": {"cidr": cidr}}
        await client.patch(NETWORKS, kind, status, namespace=LIQO, subresource="status", style=PatchStyle.MERGE)


async def _ensure(
    client: KubeClient, kind: Kind[CustomObject], manifest: Mapping[str, Any], namespace: str = ""
) -> None:
    with suppress(AlreadyExistsError):
        await client.create(kind, manifest, namespace=namespace)


def guard_names(api: KubeApi) -> None:
    """Refuses a slice with the name of another one in any namespace, as Liqo's webhook does: nodes get these names.

    For the small API server: a real one cannot call a function in this process.
    """

    def admit(resource: Resource, _namespace: str, manifest: Json) -> None:
        name = manifest["metadata"].get("name", "")
        if resource.kind != "ResourceSlice" or (manifest["metadata"].get("labels") or {}).get(REPLICATED) == "true":
            return
        if any(each["metadata"]["name"] == name for each in api.store.items(resource.name)):
            said = f'admission webhook "resourceslice.validate.liqo.io" denied the request: {name} is taken'
            raise RefusedError(403, "Forbidden", said)

    api.admission.append(admit)
