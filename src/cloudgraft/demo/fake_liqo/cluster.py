"""Gives a controller what it works with: its view of one cluster, the rules for slices, and delays."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from cloudgraft.kube.client import KubeClient
from cloudgraft.kube.objects import CustomObject, Kind, Manifest, PatchStyle
from cloudgraft.kube.watched import Watched
from cloudgraft.sdk.errors import AlreadyExistsError, ConflictError, NotFoundError


class Cluster:
    """A cluster's API. Reads may be slightly old, so that all changes are idempotent."""

    def __init__(self, cluster_id: str, client: KubeClient, kinds: Iterable[Kind[CustomObject]]) -> None:
        self.id = cluster_id
        self.client = client
        self.on_change: Callable[[], None] = lambda: None
        self._watched = {kind: Watched(client, kind, on_change=self.wake) for kind in kinds}

    def wake(self) -> None:
        """Starts a turn: something may be due."""
        self.on_change()

    async def watch(self) -> None:
        """Keeps the copies up to date until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for watched in self._watched.values():
                tasks.create_task(watched.run())

    @property
    def is_synced(self) -> bool:
        """Whether everything was read at least once: before, a missing object may only be unread."""
        return all(watched.is_synced for watched in self._watched.values())

    def all(self, kind: Kind[CustomObject], **labels: str) -> list[CustomObject]:
        """All objects of a kind that is watched, or those about a cluster: ``remote="x"``."""
        found = list(self._watched[kind].objects.values())
        wanted = labels.get("remote")
        return found if wanted is None else [each for each in found if _about(each) == wanted]

    def find(self, kind: Kind[CustomObject], name: str, namespace: str = "") -> CustomObject | None:
        """One object of a kind that is watched."""
        return self._watched[kind].objects.get(f"{namespace}/{name}")

    async def create(self, kind: Kind[CustomObject], manifest: Manifest, namespace: str = "") -> None:
        """Creates an object; an existing one is not changed."""
        with suppress(AlreadyExistsError):
            await self.client.create(kind, manifest, namespace=namespace)

    async def change(self, kind: Kind[CustomObject], found: CustomObject, patch: Manifest) -> None:
        """Merges this into the object, unless it is gone."""
        with suppress(NotFoundError, ConflictError):
            await self.client.patch(kind, found.name, patch, namespace=found.namespace, style=PatchStyle.MERGE)

    async def report(self, kind: Kind[CustomObject], found: CustomObject, status: Mapping[str, Any]) -> None:
        """Merges this into its status, unless it is there already or the object is gone."""
        if _says(found.content.get("status"), status):
            return
        with suppress(NotFoundError, ConflictError):
            await self.client.patch(
                kind,
                found.name,
                {"status": dict(status)},
                namespace=found.namespace,
                subresource="status",
                style=PatchStyle.MERGE,
            )

    async def delete(self, kind: Kind[CustomObject], found: CustomObject) -> None:
        """Deletes exactly this object, unless it is gone or being deleted."""
        if not found.deleting:
            with suppress(NotFoundError, ConflictError):
                await self.client.delete(kind, found.name, namespace=found.namespace, uid=found.uid)

    async def hold(self, kind: Kind[CustomObject], found: CustomObject, finalizer: str, *, wanted: bool) -> None:
        """Adds or removes a finalizer."""
        metadata: Any = found.content["metadata"]
        had = list(metadata.get("finalizers") or ())
        if (finalizer in had) is wanted or (wanted and found.deleting):
            return
        finalizers = [*had, finalizer] if wanted else [each for each in had if each != finalizer]
        await self.change(kind, found, {"metadata": {"finalizers": finalizers, "resourceVersion": found.version}})


class Controller:
    """One of Liqo's controllers, in one cluster."""

    def __init__(self, cluster: Cluster, script: Script, pace: Pace) -> None:
        self._cluster = cluster
        self._script = script
        self._pace = pace


def _says(old: object, new: object) -> bool:
    """Whether all of this is in there: an API server adds fields of its own."""
    if isinstance(new, Mapping):
        return isinstance(old, dict) and all(_says(old.get(key), value) for key, value in new.items())
    if isinstance(new, list):
        return isinstance(old, list) and len(old) == len(new) and all(map(_says, old, new))
    return old == new


def _about(found: CustomObject) -> str:
    return found.labels.get("liqo.io/remote-cluster-id", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules for one slice; by default everything succeeds at once."""

    delays: Mapping[str, float] = field(default_factory=dict)  # seconds by step
    deny: str = ""  # a reason: the resources are denied with it
    deny_message: str = ""
    deny_authentication: bool = False
    grant: Mapping[str, str] = field(default_factory=dict)  # amounts that are granted whatever was asked
    dead: bool = False  # the provider does nothing, and cannot be reached
    never_ready: bool = False  # the node stays as it was made

    def delay(self, step: str) -> float:
        """Seconds before that step."""
        return self.delays.get(step, 0.0)


class Script:
    """The rules for clusters, and for slices of them. Here everything succeeds at once."""

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = lambda: None

    def rules(self, cluster: str, slice_name: str = "") -> Rules:
        """The rules for a cluster, or for a slice of it."""
        del cluster, slice_name  # a script with rules of its own looks at them
        return Rules()


class Pace:
    """Counts delays from when a step became possible. A step not asked about in a whole turn is forgotten."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[Hashable, float] = {}
        self._asked: dict[Hashable, float] = {}
        self._next = float("inf")

    def begin(self) -> None:
        """Another turn."""
        self._since, self._asked = self._asked, {}
        self._next = float("inf")

    def due(self, key: Hashable, seconds: float) -> bool:
        """Whether it has been possible for that long."""
        now = self._clock()
        since = self._asked[key] = self._asked.get(key, self._since.get(key, now))
        if now - since >= seconds:
            return True
        self._next = min(self._next, since + seconds)
        return False

    def wait(self, longest: float) -> float:
        """Seconds until the next thing is due."""
        return max(0.0, min(longest, self._next - self._clock()))
