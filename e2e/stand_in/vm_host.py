"""The cloud itself, ``python -m e2e.stand_in.vm_host``: of each order it makes a machine that joins a cluster."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

import click
from lightkube import AsyncClient, KubeConfig
from lightkube.resources.core_v1 import Node
from lightkube.types import PatchType

from e2e.stand_in.kubelet import Kubelet
from e2e.stand_in.vm import Books, Vm

__all__ = ["main"]

log = logging.getLogger("vm")
_LOOK: Final = 0.2
_NOT_READY: Final = "node.kubernetes.io/not-ready"


class Host:
    """Runs machines, and takes off the taint of a new node: the control plane's own controller for that is off."""

    def __init__(self, home: Path, admin: AsyncClient) -> None:
        self._home = home
        self._books = Books(home)
        self._admin = admin
        self._running: dict[str, tuple[Vm, asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Follows the orders until cancelled."""
        while True:
            ordered = self._books.ordered()
            for name in [name for name in self._running if name not in ordered]:
                vm, task = self._running.pop(name)
                task.cancel()
                self._books.note("ended", vm)
            for name in [name for name in ordered if name not in self._running]:
                self._books.note("started", ordered[name])
                self._running[name] = (ordered[name], asyncio.create_task(self._live(ordered[name])))
            await self._take_off_taints()
            await asyncio.sleep(_LOOK)

    async def _live(self, vm: Vm) -> None:
        directory = self._home / "disks" / vm.name
        directory.mkdir(parents=True, exist_ok=True)
        try:
            user_data = (self._books.user_data / vm.name).read_text("utf-8")
            await Kubelet(user_data, {"cpu": vm.cpus, "memory": vm.memory}, directory).run()
        except Exception:  # whatever it is, it is this machine's own trouble, and the log tells it
            log.exception("machine %s does not come up", vm.name)

    async def _take_off_taints(self) -> None:
        async for node in self._admin.list(Node):
            taints = (node.spec and node.spec.taints) or []
            is_ready = any(
                c.type == "Ready" and c.status == "True" for c in (node.status and node.status.conditions) or ()
            )
            if is_ready and node.metadata and node.metadata.name and any(taint.key == _NOT_READY for taint in taints):
                kept = [taint.to_dict() for taint in taints if taint.key != _NOT_READY]
                patch = {"spec": {"taints": kept}}
                await self._admin.patch(Node, node.metadata.name, patch, patch_type=PatchType.MERGE)


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
    """Run machines."""
    logging.basicConfig(level=logging.INFO)
    asyncio.run(_serve(home, kubeconfig))


if __name__ == "__main__":
    main()
