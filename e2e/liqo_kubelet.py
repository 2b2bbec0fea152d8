"""Plays the virtual kubelets' part for pods, and writes down how nodes came to be. A process of its own.

The fake Liqo makes nodes and lets them be ready; pods that are bound to them would stay pending, and deleted ones would
never go.

python -m e2e.liqo_kubelet KUBECONFIG NODES.jsonl
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
from lightkube import ApiError, AsyncClient, KubeConfig
from lightkube.resources.core_v1 import Node, Pod

from e2e.processes import Program

__all__ = ["Seen", "VirtualKubelet"]

_VIRTUAL: Final[dict[str, Any]] = {"liqo.io/type": "virtual-node"}
_ROUND: Final = 0.5  # seconds between two looks at all pods


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One version of a node."""

    name: str
    provider_id: str
    is_ready: bool
    cluster: str
    taints: list[str]  # as kubectl writes them


class VirtualKubelet(Program):
    """The process."""

    def __init__(self, directory: Path, kubeconfig: Path) -> None:
        self._book = directory / "virtual-nodes.jsonl"
        self._book.touch()
        command = [sys.executable, "-m", "e2e.liqo_kubelet", str(kubeconfig), str(self._book)]
        here = {"PYTHONPATH": str(Path(__file__).parents[1])}
        super().__init__("the virtual kubelet", command, directory / "kubelet.log", environment=here)

    def nodes(self) -> dict[str, list[Seen]]:
        """Every version of every virtual node, in their order. A watch leaves none out."""
        found: dict[str, list[Seen]] = {}
        for line in self._book.read_text("utf-8").splitlines():
            seen = Seen(**json.loads(line))
            found.setdefault(seen.name, []).append(seen)
        return found


async def _play(kubeconfig: Path, book: Path) -> None:
    config = KubeConfig.from_file(kubeconfig)
    client = AsyncClient(config=config, timeout=httpx2.Timeout(30.0), trust_env=False)
    async with asyncio.TaskGroup() as group:
        group.create_task(_watch_nodes(client, book))
        group.create_task(_keep_pods(client))


async def _watch_nodes(client: AsyncClient, book: Path) -> None:
    with book.open("a", encoding="utf-8") as file:
        async for operation, node in client.watch(Node, labels=_VIRTUAL):
            if operation in {"ADDED", "MODIFIED"}:
                file.write(json.dumps(asdict(_seen(node))) + "\n")
                file.flush()


def _seen(node: Node) -> Seen:
    conditions = (node.status and node.status.conditions) or []
    taints = (node.spec and node.spec.taints) or []
    return Seen(
        name=(node.metadata and node.metadata.name) or "",
        provider_id=(node.spec and node.spec.providerID) or "",
        is_ready=any(one.type == "Ready" and one.status == "True" for one in conditions),
        cluster=((node.metadata and node.metadata.labels) or {}).get("liqo.io/remote-cluster-id", ""),
        taints=[f"{one.key}={one.value or ''}:{one.effect}" for one in taints],
    )


async def _keep_pods(client: AsyncClient) -> None:
    """Anew every moment: a pod that was missed is found in the next round."""
    while True:
        with suppress(ApiError, httpx2.HTTPError):
            async for pod in client.list(Pod, namespace="*"):
                with suppress(ApiError):  # it has changed meanwhile
                    await _tend(client, pod)
        await asyncio.sleep(_ROUND)


async def _tend(client: AsyncClient, pod: Pod) -> None:
    if pod.metadata is None or not (pod.spec and pod.spec.nodeName):
        return
    name, namespace = pod.metadata.name or "", pod.metadata.namespace or ""
    if pod.metadata.deletionTimestamp is not None:
        await client.delete(Pod, name, namespace=namespace, grace_period=0)
    elif pod.status is None or pod.status.phase == "Pending":
        conditions = [{"type": kind, "status": "True"} for kind in ("Initialized", "Ready", "ContainersReady")]
        patch = {"status": {"phase": "Running", "conditions": conditions}}
        await client.patch(Pod.Status, name, patch, namespace=namespace)


if __name__ == "__main__":
    asyncio.run(_play(Path(sys.argv[1]), Path(sys.argv[2])))
