"""What is behind ``labctl`` (examples/exec): of each of its machines it makes one that joins a cluster.

``labctl`` keeps a directory for each machine, with the user data that it was given; this process follows them. It is
run by scenarios, as ``python -m e2e.stand_in.lab_host``.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from pathlib import Path
from typing import Final

import click
from lightkube import ApiError, AsyncClient, KubeConfig
from lightkube.models.core_v1 import Node as NodeModel
from lightkube.resources.core_v1 import Node
from lightkube.types import PatchType

from e2e.stand_in.kubelet import Kubelet

__all__ = ["SIZES", "main"]

log = logging.getLogger("lab")
SIZES: Final = {"small": {"cpu": "2", "memory": "4Gi"}, "large": {"cpu": "4", "memory": "8Gi"}}
_LOOK: Final = 0.2
_NOT_READY: Final = "node.kubernetes.io/not-ready"


class Host:
    """Runs machines, and does for their nodes what the control plane's own controller would do, which is off: takes off
    the taint of a new node, and finds the node of a machine that has ended silent.
    """

    def __init__(self, home: Path, admin: AsyncClient) -> None:
        self._home = home
        self._admin = admin
        self._running: dict[str, tuple[str, asyncio.Task[None]]] = {}  # by machine id: its name, and its life

    async def run(self) -> None:
        """Follows the books until cancelled."""
        while True:
            ordered = self._ordered()
            for id_ in [id_ for id_ in self._running if id_ not in ordered]:
                name, task = self._running.pop(id_)
                task.cancel()
                self._note("ended", id_, name)
                await self._find_silent(name)
            for id_ in [id_ for id_ in ordered if id_ not in self._running]:
                directory = ordered[id_]
                self._note("started", id_, directory.name)
                self._running[id_] = (directory.name, asyncio.create_task(self._live(id_, directory)))
            await self._take_off_taints()
            await asyncio.sleep(_LOOK)

    def _ordered(self) -> dict[str, Path]:
        """The directory of each machine, by its id."""
        found = {}
        for path in self._home.glob("machines/*/id"):
            try:
                found[path.read_text("utf-8").strip()] = path.parent
            except FileNotFoundError:
                continue  # deleted meanwhile
        return found

    async def _live(self, id_: str, directory: Path) -> None:
        disk = self._home / "disks" / id_
        disk.mkdir(parents=True)
        try:
            user_data = (directory / "user-data").read_text("utf-8")
            capacity = SIZES[(directory / "size").read_text("utf-8").strip()]
            await Kubelet(user_data, capacity, disk).run()
        except Exception:  # whatever it is, it is this machine's own trouble, and the log tells it
            log.exception("machine %s does not come up", directory.name)

    def _note(self, what: str, id_: str, name: str) -> None:
        """The ledger: what really was, whatever anybody else says."""
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


async def _serve(home: Path, kubeconfig: Path) -> None:
    admin = AsyncClient(config=KubeConfig.from_file(kubeconfig), trust_env=False)
    try:
        await Host(home, admin).run()
    finally:
        await admin.close()


@click.command()
@click.option("--home", type=click.Path(path_type=Path), required=True)
@click.option("--kubeconfig", type=click.Path(path_type=Path), required=True)
def main(home: Path, kubeconfig: Path) -> None:
    """Run the machines of a lab."""
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(_serve(home, kubeconfig))


if __name__ == "__main__":
    main()
