"""`cloudgraft serve` and what can be seen of it from outside: calls, probes, the operators' socket."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from cloudgraft.admin.client import AdminClient
from cloudgraft.client import Address, CloudConfig, Connection, RemoteProvider
from cloudgraft.sdk import InstanceState, NodeRef
from tests.conditions import until
from tests.serve.processes import Command


class Server(Command):
    """A server with ports of its own; ``text`` is its configuration, if the file is not there already."""

    def __init__(self, file: Path, text: str = "", **how: Any) -> None:
        self.file = file
        if text:
            file.write_text(text)
        super().__init__("serve", "-c", file, **how)

    @property
    def address(self) -> str:
        """Of the autoscaler's port; waits until it serves."""
        return str(self.wait_for(lambda line: line.get("event") == "serving")["address"])

    def connected(self) -> AbstractAsyncContextManager[RemoteProvider]:
        """The autoscaler's calls."""
        return connected(self.address)

    async def readyz(self) -> tuple[int, str]:
        """The status of /readyz, and the reason in it."""
        ops = self.wait_for(lambda line: line.get("event") == "serving")["ops"]
        status, body = await asyncio.to_thread(_get, f"http://{ops}/readyz")
        return status, str(json.loads(body)["reason"])

    async def metric(self, name: str, **labels: str) -> float:
        """One value of /metrics; 0 when it is not there."""
        ops = self.wait_for(lambda line: line.get("event") == "serving")["ops"]
        _, body = await asyncio.to_thread(_get, f"http://{ops}/metrics")
        found = [
            sample.value
            for family in text_string_to_metric_families(body)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return sum(found)

    async def is_ready(self) -> bool:
        return (await self.readyz())[0] == 200

    async def health(self) -> str:
        """What gRPC's health service says: SERVING or NOT_SERVING."""
        async with grpc.aio.insecure_channel(self.address) as channel:
            answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=20)
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))

    async def admin(self, method: str, **request: object) -> dict[str, Any]:
        """A call of an operator."""
        address = str(self.wait_for(lambda line: line.get("event") == "operators may call")["address"])
        async with AdminClient(address) as client:
            return await client.call(method, request)

    async def events(self, group: str, kind: str) -> list[str]:
        """What the journal says of a group."""
        found = (await self.admin("Explain", subject=group, limit=200))["events"]
        return [event["message"] for event in found if event["kind"] == kind]


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[RemoteProvider]:
    """As the autoscaler does, with more patience than it has: nothing here depends on speed."""
    config = CloudConfig(address=Address.parse(address), grpc_timeout=timedelta(seconds=20))
    async with Connection(config) as connection:
        yield RemoteProvider(connection)


async def targets(provider: RemoteProvider) -> dict[str, int]:
    """The target of every group."""
    return {group.id: await provider.target_size(group.id) for group in await provider.node_groups()}


async def running(provider: RemoteProvider, group: str, count: int) -> Sequence[NodeRef]:
    """Waits for so many running machines and nothing else in a group; as nodes."""
    found: list[NodeRef] = []

    async def are_there() -> bool:
        listed = await provider.instances(group)
        found[:] = [NodeRef(name=i.id, provider_id=i.id) for i in listed if i.state is InstanceState.RUNNING]
        return len(found) == len(listed) == count

    await until(are_there, what=f"{count} machines run in {group}", seconds=30)
    return found


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
