"""Machine classes that are objects of a Kubernetes cluster, and the Secrets that they name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

from cloudgraft.config.section import hide_secrets
from cloudgraft.dock.classes.declared import Declared, SecretId, Snapshot, class_of, secret_ids
from cloudgraft.kube.objects import MACHINE_CLASSES, SECRET_CONTENTS, Change, Kind, Listing, MachineClassObject, V
from cloudgraft.kube.watched import Watched
from cloudgraft.sdk.errors import InvalidArgumentError

if TYPE_CHECKING:
    from cloudgraft.kube.client import KubeClient  # needs an extra

__all__ = ["ClusterClasses"]


class _Namespaced:
    """One namespace of a cluster, as a source for copies."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def list(self, kind: Kind[V]) -> Listing[V]:
        return await self._client.list(kind, namespace=self._namespace)

    def watch(self, kind: Kind[V], *, version: str) -> AsyncGenerator[Change[V], None]:
        return self._client.watch(kind, version=version, namespace=self._namespace)


class ClusterClasses:
    """The classes of one namespace, kept up to date by watches.

    Nothing is told before both classes and Secrets were listed once. While the API is away, all stays as it was.
    """

    def __init__(self, client: KubeClient, namespace: str, publish: Callable[[Snapshot], None]) -> None:
        source = _Namespaced(client, namespace)
        self._namespace = namespace
        self._publish = publish
        self._classes = Watched(source, MACHINE_CLASSES, on_change=self._tell)
        self._secrets = Watched(source, SECRET_CONTENTS, on_change=self._tell)
        self._read: dict[str, tuple[object, Declared | str]] = {}  # by key: what it was read from, and what it gave

    async def run(self) -> None:
        """Follows the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._classes.run())
            group.create_task(self._secrets.run())

    def _tell(self) -> None:
        if not (self._classes.is_synced and self._secrets.is_synced):
            return
        self._read = {key: self._class(item) for key, item in self._classes.objects.items()}
        found = [result for _, result in self._read.values()]
        self._publish(
            Snapshot(
                classes=tuple(result for result in found if isinstance(result, Declared)),
                problems=tuple(result for result in found if isinstance(result, str)),
            )
        )

    def _class(self, item: MachineClassObject) -> tuple[object, Declared | str]:
        """Reads a class anew only if it, or one of its Secrets, is another one now."""
        try:
            secrets = [self._secrets.objects.get("/".join(id_)) for id_ in secret_ids(item.content, item.namespace)]
            basis = (item, *secrets)
            old = self._read.get(item.key)
            if old is not None and old[0] == basis:
                return old
            hide_secrets(item.content)
            return basis, class_of(item.content, self._data)
        except InvalidArgumentError as error:
            return item, f"machine class {item.name} in the namespace {self._namespace}: {error.message}"

    def _data(self, id_: SecretId) -> dict[str, bytes] | None:
        found = self._secrets.objects.get("/".join(id_))
        return dict(found.data) if found is not None else None
