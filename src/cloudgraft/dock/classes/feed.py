"""Keeps the machine classes in memory in step with their sources: configuration, files, and a Kubernetes cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from cloudgraft.config.section import hide_secrets
from cloudgraft.config.sections.dock import Dock
from cloudgraft.dock.classes.declared import Declared, SecretId, Snapshot, class_of, secret_ids
from cloudgraft.dock.classes.files import ConfiguredReader, DirectoryReader
from cloudgraft.dock.classes.store import MachineClasses
from cloudgraft.kube.objects import MACHINE_CLASSES, SECRET_CONTENTS, Change, Kind, Listing, MachineClassObject, V
from cloudgraft.kube.watched import Watched
from cloudgraft.sdk.common.event_loop import BlockingPool
from cloudgraft.sdk.errors import InvalidArgumentError, PreconditionError, UnavailableError

if TYPE_CHECKING:
    from cloudgraft.kube.client import KubeClient  # needs an extra

# -- Classes of a Kubernetes cluster -----------------------------------------------------------------------------------


class _Namespaced:
    """One namespace of a cluster, as a source for watched copies."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def list(self, kind: Kind[V]) -> Listing[V]:
        return await self._client.list(kind, namespace=self._namespace)

    def watch(self, kind: Kind[V], *, version: str) -> AsyncGenerator[Change[V], None]:
        return self._client.watch(kind, version=version, namespace=self._namespace)


class ClusterClasses:
    """The classes of one namespace and the Secrets that they name, kept current by watches.

    Publishes nothing before classes and Secrets were both listed once. While the API is unavailable, nothing changes.
    """

    def __init__(self, client: KubeClient, namespace: str, publish: Callable[[Snapshot], None]) -> None:
        source = _Namespaced(client, namespace)
        self._namespace = namespace
        self._publish = publish
        self._classes = Watched(source, MACHINE_CLASSES, on_change=self._publish_snapshot)
        self._secrets = Watched(source, SECRET_CONTENTS, on_change=self._publish_snapshot)
        # by key: the objects it was built from, and the class
        self._read: dict[str, tuple[object, Declared | str]] = {}

    async def run(self) -> None:
        """Watches the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._classes.run())
            group.create_task(self._secrets.run())

    def _publish_snapshot(self) -> None:
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
        """Rebuilds a class only if it, or one of its Secrets, has changed."""
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


# -- Feed --------------------------------------------------------------------------------------------------------------


_LOG = logging.getLogger("cloudgraft.dock")
_CONFIGURED: Final = "dock.classes"
_FILES: Final = "dock.classesDir"
_CLUSTER: Final = "dock.kubernetes"


class ClassFeed:
    """Fills :attr:`store` from the configuration, a directory and a cluster, in this order of precedence."""

    def __init__(
        self, dock: Dock, *, client: KubeClient | None = None, every: float = 1.0, timeout: float = 10.0
    ) -> None:
        """``client`` is needed for ``dock.kubernetes``. Files are checked ``every`` so many seconds."""
        if dock.kubernetes is not None and client is None:
            raise PreconditionError("dock.kubernetes needs the section kubernetes, to know where the cluster is")
        self._client = client
        self._every = every
        self._timeout = timeout
        self._namespace = dock.kubernetes.namespace if dock.kubernetes is not None else ""
        self._readers = _readers(dock)
        self._pool = BlockingPool("machine classes", threads=1, waiting=1)
        sources = [_CONFIGURED, _FILES, *([_CLUSTER] if self._namespace else [])]
        self.store = MachineClasses(sources)

    def replace(self, dock: Dock) -> None:
        """Applies the classes of a new configuration, within :attr:`every`. The namespace of the cluster stays."""
        self._readers = _readers(dock)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keeps the store current inside the block. Classes of files are loaded before the block begins."""
        await self.refresh()
        tasks = {asyncio.create_task(self._poll(), name="machine classes in files")}
        if self._client is not None and self._namespace:
            cluster = ClusterClasses(self._client, self._namespace, self._publish_cluster)
            tasks.add(asyncio.create_task(self._follow(cluster), name="machine classes in the cluster"))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            self._pool.close()

    async def refresh(self) -> None:
        """Checks the files now. If the file system hangs, logs that and keeps the known classes."""
        readers = self._readers
        for source, reader in readers.items():
            try:
                async with asyncio.timeout(self._timeout):
                    snapshot = await self._pool.run(reader.read)
            except (TimeoutError, UnavailableError):
                _LOG.warning("files of machine classes cannot be read in time", extra={"source": source})
                continue
            if snapshot is not None and readers is self._readers:
                self.store.publish(source, snapshot)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            try:
                await self.refresh()
            except Exception:  # noqa: BLE001 - a bug in reading one file must not end the reading of all
                _LOG.exception("reading files of machine classes failed")

    async def _follow(self, cluster: ClusterClasses) -> None:
        while True:
            try:
                await cluster.run()
            except Exception:  # noqa: BLE001 - a bug in reading one object must not end the reading of all
                _LOG.exception("reading machine classes of the cluster failed")
            await asyncio.sleep(self._every)

    def _publish_cluster(self, snapshot: Snapshot) -> None:
        self.store.publish(_CLUSTER, snapshot)


def _readers(dock: Dock) -> Mapping[str, ConfiguredReader | DirectoryReader]:
    directory = dock.classes_dir
    empty = ConfiguredReader({})  # publishes that there are none
    return {
        _CONFIGURED: ConfiguredReader(dock.classes),
        _FILES: DirectoryReader(directory) if directory is not None else empty,
    }
