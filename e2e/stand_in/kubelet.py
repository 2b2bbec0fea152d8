"""A kubelet without containers: its node, its heartbeat, and pods that run as soon as they are bound."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx2

from e2e.stand_in.bootstrap import bootstrap
from e2e.stand_in.join_file import Join, read_join

__all__ = ["Kubelet"]

_TIMEOUT: Final = 20.0
_BEAT: Final = 0.5
_STRATEGIC: Final = {"Content-Type": "application/strategic-merge-patch+json"}


class Kubelet:
    """One machine's. It ends with its task, and leaves its node behind, as a machine does that is switched off."""

    def __init__(self, user_data: str, capacity: Mapping[str, str], directory: Path) -> None:
        """``capacity`` is what the machine holds."""
        self._join: Join = read_join(user_data)
        self._capacity = {"pods": "110", **capacity}
        self._directory = directory

    @property
    def node(self) -> str:
        """The name of its node."""
        return self._join.name

    async def run(self) -> None:
        """Joins, and plays on until cancelled."""
        credentials = await bootstrap(self._join, self._directory)
        base = self._join.server
        async with httpx2.AsyncClient(base_url=base, verify=credentials.context(), timeout=_TIMEOUT) as api:
            answer = await api.post("/api/v1/nodes", json=self._manifest())
            answer.raise_for_status()
            while True:
                with suppress(httpx2.TransportError):  # the API server may be away for a while
                    await self._beat(api)
                await asyncio.sleep(_BEAT)

    def _manifest(self) -> dict[str, Any]:
        labels = {"kubernetes.io/hostname": self.node, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        spec: dict[str, Any] = {"taints": [dict(taint) for taint in self._join.taints]}
        if "provider-id" in self._join.kubelet:
            spec["providerID"] = self._join.kubelet["provider-id"]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.node, "labels": {**labels, **self._join.labels}},
            "spec": spec,
        }

    async def _beat(self, api: httpx2.AsyncClient) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}
        status = {"capacity": self._capacity, "allocatable": self._capacity, "conditions": [ready]}
        address = [{"type": "Hostname", "address": self.node}]
        body = {"status": {**status, "addresses": address}}
        await api.patch(f"/api/v1/nodes/{self.node}/status", json=body, headers=_STRATEGIC)
        found = await api.get("/api/v1/pods", params={"fieldSelector": f"spec.nodeName={self.node}"})
        for pod in found.json().get("items", ()):
            await self._play(api, pod, now)

    async def _play(self, api: httpx2.AsyncClient, pod: Mapping[str, Any], now: str) -> None:
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        if meta.get("deletionTimestamp"):
            options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
            await api.request("DELETE", path, json={**options, "preconditions": {"uid": meta["uid"]}})
        elif pod["status"].get("phase") == "Pending":
            conditions = [{"type": kind, "status": "True"} for kind in ("Initialized", "Ready", "ContainersReady")]
            status = {"phase": "Running", "conditions": conditions, "startTime": now}
            await api.patch(f"{path}/status", json={"status": status}, headers=_STRATEGIC)
