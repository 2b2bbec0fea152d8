"""Of each machine that a cloud runs, makes one that joins a cluster with the user data that it was given.

It also does for their nodes what the control plane's own controller would do, which is off: takes off the taint of a
new node, and finds the node of a machine that has ended silent.
"""

from __future__ import annotations

import asyncio
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lightkube import ApiError, AsyncClient, KubeConfig
from lightkube.models.core_v1 import Node as NodeModel
from lightkube.resources.core_v1 import Node
from lightkube.types import PatchType

from e2e.stand_in.kubelet import Kubelet

__all__ = ["Host", "Source", "Started", "serve"]

log = logging.getLogger("host")
_LOOK: Final = 0.2
_NOT_READY: Final = "node.kubernetes.io/not-ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A machine that its cloud runs."""

    name: str
    capacity: Mapping[str, str]
    user_data: str = field(repr=False)


class Source(ABC):
    """A cloud, looked at from the side of its hypervisor."""

    @abstractmethod
    def running(self) -> set[str]:
        """The ids of the machines that run now."""

    @abstractmethod
    def started(self, id_: str) -> Started:
        """What this machine is; asked once, when it is new."""


class Host:
    """Runs the machines of a source, and keeps a ledger of what really was, whatever anybody else says."""

    def __init__(self, source: Source, home: Path, admin: AsyncClient) -> None:
        self._source = source
        self._home = home
        self._admin = admin
        self._running: dict[str, tuple[str, asyncio.Task[None]]] = {}  # by machine id: its name, and its life

    async def run(self) -> None:
        """Follows the source until cancelled."""
        while True:
            there = await asyncio.to_thread(self._source.running)
            for id_ in self._running.keys() - there:
                name, task = self._running.pop(id_)
                task.cancel()
                self._note("ended", id_, name)
                await self._find_silent(name)
            for id_ in there - self._running.keys():
                await self._start(id_)
            await self._take_off_taints()
            await asyncio.sleep(_LOOK)

    async def _start(self, id_: str) -> None:
        try:
            machine = await asyncio.to_thread(self._source.started, id_)
        except LookupError:
            return  # gone meanwhile
        self._note("started", id_, machine.name)
        self._running[id_] = (machine.name, asyncio.create_task(self._live(id_, machine)))

    async def _live(self, id_: str, machine: Started) -> None:
        disk = self._home / "disks" / id_
        disk.mkdir(parents=True)
        try:
            await Kubelet(machine.user_data, machine.capacity, disk).run()
        except Exception:  # whatever it is, it is this machine's own trouble, and the log tells it
            log.exception("machine %s does not come up", machine.name)

    def _note(self, what: str, id_: str, name: str) -> None:
        with (self._home / "ledger.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"what": what, "id": id_, "name": name}) + "\n")

    async def _find_silent(self, name: str) -> None:
        condition = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        with suppress(ApiError):  # it never joined, or is removed already
            await self._admin.patch(Node.Status, name, {"status": {"conditions": [condition]}})

    async def _take_off_taints(self) -> None:
        async for node in self._admin.list(Node):
            taints = (node.spec and node.spec.taints) or []
            name = (node.metadata and node.metadata.name) or ""
            if _is_ready(node) and any(taint.key == _NOT_READY for taint in taints):
                kept = [taint.to_dict() for taint in taints if taint.key != _NOT_READY]
                await self._admin.patch(Node, name, {"spec": {"taints": kept}}, patch_type=PatchType.MERGE)


def _is_ready(node: NodeModel) -> bool:
    conditions = (node.status and node.status.conditions) or ()
    return any(condition.type == "Ready" and condition.status == "True" for condition in conditions)


async def serve(source: Source, home: Path, kubeconfig: Path) -> None:
    """Runs the machines of a source in a cluster, until cancelled."""
    admin = AsyncClient(config=KubeConfig.from_file(kubeconfig), trust_env=False)
    try:
        await Host(source, home, admin).run()
    finally:
        await admin.close()
