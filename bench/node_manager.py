"""A node manager behind the front: what one loop of the autoscaler costs in HTTPS requests, and what the front adds to
the calls. ``python -m bench --manager``.

Both services are asked in one process and in turn, block by block: one over the engine itself, one over a front whose
manager is that engine behind real TLS. No socket of gRPC is between, which would only hide a difference.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from bench.cluster import FOR_NODE, GET_OPTIONS, NODES, TARGET_SIZE, Cluster, requests_for
from bench.engine_fleet import desired_state, make_seed
from bench.engine_server import SilentDriver
from cloudgraft.app import logs
from cloudgraft.certs.authority import create_bundle
from cloudgraft.certs.defaults import DEFAULT_CLIENT
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.nodemanager.api.app import manager_app
from cloudgraft.nodemanager.front.provider import ManagerLink, NodeManagerProvider
from cloudgraft.nodemanager.manager import Manager
from cloudgraft.sdk.types import AutoscalingOptions, NodeRef
from cloudgraft.service import Call, CloudProviderService
from cloudgraft.service.gate import Gate
from cloudgraft.store.sql import SqlJournal
from cloudgraft.web.authentication import AuditLog, ClientRule, Gatekeeper
from cloudgraft.web.client import ClientTls, WebClient
from cloudgraft.web.listener import WebListener, WebTls
from cloudgraft.wire import externalgrpc as wire

MOST_REQUESTS: Final = 5  # per loop of the autoscaler at 1,000 nodes
MOST_RATIO: Final = 1.1  # of the p50 of the front's calls to the engine's own
_RPCS: Final = (FOR_NODE, TARGET_SIZE, GET_OPTIONS, NODES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerPlan:
    """How much to measure."""

    nodes: int = 1000
    groups: int = 20
    rounds: int = 50
    calls: int = 100
    loops: int = 5


QUICK_MANAGER: Final = ManagerPlan(nodes=60, groups=4, rounds=3, calls=10, loops=2)  # shows that it works


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcRatio:
    """One RPC: microseconds of the engine and of the front, and the median over the rounds of their ratio."""

    rpc: str
    engine_p50_micros: float
    front_p50_micros: float
    p50_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerReport:
    """What was found."""

    nodes: int
    requests_per_loop: Sequence[int]  # each of a loop that also scales up and down
    rpcs: Sequence[RpcRatio]

    @property
    def over_limit(self) -> list[str]:
        """What is not as it should be."""
        found = [
            f"{one.rpc}: {one.p50_ratio:.2f} of the engine's p50" for one in self.rpcs if one.p50_ratio > MOST_RATIO
        ]
        most = max(self.requests_per_loop)
        return [*found, *([f"{most} requests in a loop"] if most > MOST_REQUESTS else [])]


async def measure_manager(plan: ManagerPlan, directory: Path) -> ManagerReport:
    """Measures both in a directory of its own."""
    seed = await make_seed(directory / "seed", machines=plan.nodes, groups=plan.groups, events=0, in_cloud=False)
    engine = Engine(desired_state(plan.groups, SilentDriver, timedelta(hours=1)), SqlJournal.sqlite(seed.journal))
    provider = EngineProvider(engine)
    await provider.start()
    try:
        async with _front(engine, provider, directory) as front:
            cluster = seed.cluster()
            loops = [await _loop(front, cluster) for _ in range(plan.loops)]
            rpcs = [await _ratio(rpc, provider, front, cluster, plan) for rpc in _RPCS]
    finally:
        await provider.close()
    return ManagerReport(nodes=plan.nodes, requests_per_loop=loops, rpcs=rpcs)


@asynccontextmanager
async def _front(engine: Engine, provider: EngineProvider, directory: Path) -> AsyncIterator[NodeManagerProvider]:
    bundle = create_bundle(directory / "certs", hosts=["127.0.0.1"])
    gatekeeper = Gatekeeper([ClientRule(name="front", role="front", certificate=DEFAULT_CLIENT)], secure=True)
    manager = Manager(engine, provider)
    app = manager_app(manager, gatekeeper=gatekeeper, audit=AuditLog(directory / "audit.log"))
    tls = WebTls(cert=bundle.server_cert, key=bundle.server_key, client_ca=bundle.ca_cert)
    listener = WebListener(app, listen="127.0.0.1:0", tls=tls)
    await listener.open()
    files = ClientTls(ca=bundle.ca_cert, cert=bundle.client_cert, key=bundle.client_key)
    front = NodeManagerProvider(ManagerLink(WebClient(listener.url, tls=files), timeout=5.0))
    await front.start()
    try:
        yield front
    finally:
        await front.close()
        manager.feed.close()
        await listener.close(1.0)


async def _loop(front: NodeManagerProvider, cluster: Cluster) -> int:
    """One loop as the autoscaler makes it, with a scale-up and a scale-down; how many requests went to the manager."""
    before, start = front.requests, datetime.now(UTC)
    await front.refresh()
    for group in await front.node_groups():
        await front.target_size(group.id)
        await front.instances(group.id)
        await front.template(group.id)
        await front.options(group.id, AutoscalingOptions())
        await front.node_price(NodeRef(name=f"template-node-for-{group.id}-1"), start, start + timedelta(hours=1))
    for node in cluster.nodes:
        await front.node_group_for_node(node)
    known = {instance.id for instance in await front.instances(cluster.groups[0])}
    await front.increase_size(cluster.groups[0], 1)
    new = [i for i in await front.instances(cluster.groups[0]) if i.id not in known]
    await front.delete_nodes(cluster.groups[0], [NodeRef(name=i.id, provider_id=i.id) for i in new])
    return front.requests - before


async def _ratio(
    rpc: str, engine: EngineProvider, front: NodeManagerProvider, cluster: Cluster, plan: ManagerPlan
) -> RpcRatio:
    services = [CloudProviderService(engine, gate=Gate(engine.engine.check_leader)), CloudProviderService(front)]
    encoded = requests_for(rpc, cluster)
    requests = [wire.RPCS[rpc].request.FromString(encoded[number % len(encoded)]) for number in range(plan.calls)]
    times: list[list[float]] = [[], []]
    ratios: list[float] = []
    for number in range(plan.rounds + 1):
        gc.collect()
        p50 = {which: await _p50(rpc, services[which], requests) for which in ((0, 1) if number % 2 else (1, 0))}
        if number:  # the first warms up
            ratios.append(p50[1] / p50[0])
            for which, micros in p50.items():
                times[which].append(micros)
    return RpcRatio(
        rpc=rpc,
        engine_p50_micros=statistics.median(times[0]),
        front_p50_micros=statistics.median(times[1]),
        p50_ratio=statistics.median(ratios),
    )


async def _p50(rpc: str, service: CloudProviderService, requests: Sequence[Any]) -> float:
    call, micros = Call(peer="ipv4:127.0.0.1:50000", seconds_left=5.0), []
    for request in requests:
        began = time.perf_counter()
        await service.handle(rpc, request, call)
        micros.append((time.perf_counter() - began) * 1e6)
    return statistics.median(micros)


def run_manager(plan: ManagerPlan) -> ManagerReport:
    """Measures, without a word in the log."""
    with tempfile.TemporaryDirectory() as place, Path(os.devnull).open("w") as nowhere:
        logs.configure(2, "json", nowhere)
        return asyncio.run(measure_manager(plan, Path(place)))


def manager_as_json(report: ManagerReport) -> str:
    """All figures, for a program."""
    return json.dumps({**asdict(report), "overLimit": report.over_limit}, indent=2)


def print_manager_tables(report: ManagerReport, console: Console) -> None:
    """The figures for people; as Markdown when not on a terminal."""
    box = None if console.is_terminal else MARKDOWN
    calls = Table("call", "p50 µs, engine / front", "ratio", box=box)
    for one in report.rpcs:
        calls.add_row(one.rpc, f"{one.engine_p50_micros:.1f} / {one.front_p50_micros:.1f}", f"{one.p50_ratio:.2f}")
    loops = Table("nodes", "HTTPS requests per loop", "the most allowed", box=box)
    loops.add_row(f"{report.nodes:,}", ", ".join(map(str, report.requests_per_loop)), str(MOST_REQUESTS))
    for table in (calls, loops):
        console.print(table)
    for told in report.over_limit:
        console.print(f"over the limit: {told}")
