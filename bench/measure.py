"""Interleaved rounds over both servers, and the figures that come of them."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.cluster import FOR_NODE, GET_OPTIONS, Cluster, requests_for
from bench.load import Block, Caller, GrpcCaller, in_turn
from bench.processes import BARE, CLOUDGRAFT, ServerProcess, both_servers
from bench.raw_load import RawCaller
from cloudgraft.wire import externalgrpc as wire
from cloudgraft.wire.pb import externalgrpc_pb2 as pb

_KINDS = (BARE, CLOUDGRAFT)
# Where a process happens to lie in memory and on which core it starts makes it some percent faster or slower for life:
# new servers now and then let that even out.
_ROUNDS_PER_PROCESS = 5
_CALLERS = (1, 8)  # the autoscaler's main loop; with up to ten deletions beside it
CLIENTS: dict[str, Callable[[ServerProcess, Path | None], Caller]] = {"grpc": GrpcCaller, "raw": RawCaller}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure."""

    rounds: int
    calls: int  # per server, scenario and round
    client: str = "grpc"
    certificates: Path | None = None  # with them, mTLS


@dataclass(frozen=True, slots=True)
class Spread:
    """A ratio of ours to bare: the median of the rounds, and how far the rounds lie apart."""

    median: float
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One server in one scenario, over all rounds."""

    p50_micros: float
    p99_micros: float
    calls_per_second: float
    cpu_micros_per_call: float | None  # of the server's process


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One scenario."""

    rpc: str
    nodes: int
    callers: int
    bare: Side
    cloudgraft: Side
    p50_ratio: Spread
    p99_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory of both servers after their rounds, the most of all pairs of them."""

    nodes: int
    bare_kib: int | None
    cloudgraft_kib: int | None

    @property
    def ratio(self) -> float | None:
        """Ours to bare."""
        return self.cloudgraft_kib / self.bare_kib if self.bare_kib and self.cloudgraft_kib else None


@dataclass(slots=True)
class _Scenario:
    rpc: str
    callers: int
    requests: Iterator[list[bytes]]
    blocks: dict[str, list[Block]] = field(default_factory=lambda: {kind: [] for kind in _KINDS})
    cpu_seconds: dict[str, list[float | None]] = field(default_factory=lambda: {kind: [] for kind in _KINDS})


async def measure_size(nodes: int, plan: Plan) -> tuple[list[Row], Memory]:
    """All scenarios for a cluster of this size."""
    cluster = Cluster.of_size(nodes)
    scenarios = [
        _Scenario(rpc, callers, in_turn(requests_for(rpc, cluster), plan.calls))
        for rpc in (FOR_NODE, GET_OPTIONS)
        for callers in _CALLERS
    ]
    memory = []
    for first in range(0, plan.rounds, _ROUNDS_PER_PROCESS):
        rounds = range(first, min(first + _ROUNDS_PER_PROCESS, plan.rounds))
        memory.append(await _with_new_servers(cluster, scenarios, rounds, plan))
    return [_row(nodes, scenario) for scenario in scenarios], max(memory, key=lambda used: used.cloudgraft_kib or 0)


async def _with_new_servers(
    cluster: Cluster, scenarios: Sequence[_Scenario], rounds: Sequence[int], plan: Plan
) -> Memory:
    """Some of the rounds, and the memory of the two servers after them."""
    nodes = len(cluster.nodes)
    with both_servers(_constants(), nodes, plan.certificates) as servers:
        async with AsyncExitStack() as stack:
            callers: list[Caller] = []
            for server in servers:
                callers.append(CLIENTS[plan.client](server, plan.certificates))
                stack.push_async_callback(callers[-1].close)
            await _check_answers(callers, cluster)
            await _warm_up(scenarios, callers)
            await _run_rounds(scenarios, callers, rounds)
        bare, ours = (server.resident_kib() for server in servers)
    return Memory(nodes=nodes, bare_kib=bare, cloudgraft_kib=ours)


def _constants() -> dict[str, bytes]:
    """What the bare server answers: as long as a real answer."""
    group = pb.NodeGroup(id="pool-00", minSize=0, maxSize=1000, debug="pool-00 (bench)")
    return {
        wire.RPCS[FOR_NODE].path: pb.NodeGroupForNodeResponse(nodeGroup=group).SerializeToString(),
        wire.RPCS[GET_OPTIONS].path: b"",
    }


async def _check_answers(callers: Sequence[Caller], cluster: Cluster) -> None:
    """A server that answers nonsense quickly must not win: both are asked once and looked at."""
    for caller in callers:
        for rpc in (FOR_NODE, GET_OPTIONS):
            answer = await caller.answer(rpc, requests_for(rpc, cluster)[0])
            if answer != _constants()[wire.RPCS[rpc].path]:
                raise RuntimeError(f"the {caller.server.kind} server answers {rpc} with {answer!r}")


async def _warm_up(scenarios: Sequence[_Scenario], callers: Sequence[Caller]) -> None:
    """A round whose times are thrown away."""
    for scenario in scenarios:
        requests = next(scenario.requests)
        for caller in callers:
            await caller.block(scenario.rpc, requests, callers=scenario.callers)
    gc.collect()
    gc.freeze()  # the requests: no collection of ours in the middle of a call


async def _run_rounds(scenarios: Sequence[_Scenario], callers: Sequence[Caller], rounds: Sequence[int]) -> None:
    """Round by round, every scenario on both servers, the one right after the other.

    Whatever else the machine does then hits both alike. The servers take turns in going first, and both get the same
    requests.
    """
    for number in rounds:
        for scenario in scenarios:
            requests = next(scenario.requests)
            for caller in callers if number % 2 else reversed(callers):
                kind, cpu = caller.server.kind, caller.server.cpu_seconds()
                block = await caller.block(scenario.rpc, requests, callers=scenario.callers)
                scenario.blocks[kind].append(block)
                scenario.cpu_seconds[kind].append(_difference(cpu, caller.server.cpu_seconds()))


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _row(nodes: int, scenario: _Scenario) -> Row:
    bare, ours = (scenario.blocks[kind] for kind in _KINDS)
    ratios = [_p50(mine.micros) / _p50(theirs.micros) for mine, theirs in zip(ours, bare, strict=True)]
    bare_side, our_side = (_side(scenario, kind) for kind in _KINDS)
    return Row(
        rpc=scenario.rpc,
        nodes=nodes,
        callers=scenario.callers,
        bare=bare_side,
        cloudgraft=our_side,
        p50_ratio=Spread(statistics.median(ratios), min(ratios), max(ratios)),
        p99_ratio=our_side.p99_micros / bare_side.p99_micros,
    )


def _side(scenario: _Scenario, kind: str) -> Side:
    blocks = scenario.blocks[kind]
    micros = sorted(value for block in blocks for value in block.micros)
    cpu = [seconds for seconds in scenario.cpu_seconds[kind] if seconds is not None]
    return Side(
        p50_micros=_p50(micros),
        p99_micros=micros[len(micros) * 99 // 100],
        calls_per_second=len(micros) / sum(block.seconds for block in blocks),
        cpu_micros_per_call=sum(cpu) / len(micros) * 1e6 if len(cpu) == len(blocks) else None,
    )


def _p50(micros: Sequence[float]) -> float:
    return statistics.median(micros)
