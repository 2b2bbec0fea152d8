"""The engine at work against the engine at rest, its start, and large orders: interleaved rounds, ratios in one run."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.cluster import FOR_NODE, GET_OPTIONS, NODES, TARGET_SIZE, Cluster, requests_for
from bench.engine_fleet import Seed, make_seed
from bench.engine_processes import EngineProcess, cloud_process, engine_process
from bench.load import Block, Caller, in_turn
from bench.measure import CLIENTS, Spread

IDLE, BUSY = "idle", "busy"
_READS = (FOR_NODE, TARGET_SIZE, GET_OPTIONS, NODES)
_PATIENCE = 60.0  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlan:
    """How much to measure."""

    machines: int = 5000
    groups: int = 100
    events_per_machine: int = 20
    rounds: int = 50
    calls: int = 100  # per engine, RPC and round
    rounds_per_process: int = 10
    client: str = "grpc"
    observe_every: float = 5.0  # seconds; while something is under way a fifth of that: every second
    churn: float = 4.0  # steps per second, of five machines each
    starts: Sequence[int] = (500, 5000, 50_000)  # machines in the journal
    rounds_of_starts: int = 5
    orders: int = 100  # machines asked for in one call, against one
    rounds_of_orders: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One RPC, asked of both engines."""

    rpc: str
    idle_p50_micros: float
    busy_p50_micros: float
    p50_ratio: Spread
    idle_p99_micros: float
    busy_p99_micros: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalls:
    """The longest that an event loop was held up in a process's life, in milliseconds: by anything, by its own process.

    Over all processes. What the engine does shows in each of them, what the machine does only in some.
    """

    idle: Spread
    idle_own: Spread
    busy: Spread
    busy_own: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The engine at work."""

    machines: int
    groups: int
    seconds: float
    reads: Sequence[Read]
    stalls: Stalls
    resident_kib: int | None  # of the busy engine, the most of all its processes
    lists_per_second: float
    creates_per_second: float
    deletes_per_second: float
    transactions_per_second: float


@dataclass(slots=True)
class _Tally:
    """What comes together over all rounds."""

    blocks: dict[tuple[str, str], list[Block]] = field(default_factory=dict)  # by RPC and engine
    reports: dict[str, list[dict[str, float]]] = field(default_factory=lambda: {IDLE: [], BUSY: []})
    resident: list[int] = field(default_factory=list)
    seconds: float = 0.0
    done: dict[str, float] = field(default_factory=dict)  # by the busy engine


async def measure_work(directory: Path, plan: EnginePlan) -> Work:
    """Both engines with the same fleet, each with a cloud of its own that is a process of its own."""
    events = plan.machines * plan.events_per_machine
    idle = await make_seed(directory / IDLE, machines=plan.machines, groups=plan.groups, events=events, in_cloud=True)
    seeds = {IDLE: idle, BUSY: idle.copy(directory / BUSY)}
    cluster, tally = idle.cluster(), _Tally()
    requests = {rpc: in_turn(requests_for(rpc, cluster), plan.calls) for rpc in _READS}
    for first in range(0, plan.rounds, plan.rounds_per_process):
        rounds = range(first, min(first + plan.rounds_per_process, plan.rounds))
        await _with_new_engines(seeds, cluster, requests, rounds, plan, tally)
    return _work(plan, tally)


async def _with_new_engines(
    seeds: dict[str, Seed],
    cluster: Cluster,
    requests: dict[str, Iterator[list[bytes]]],
    rounds: Sequence[int],
    plan: EnginePlan,
    tally: _Tally,
) -> None:
    """Some of the rounds. Now and then new processes even out what a process has for life."""
    work = ("--observe-every", str(plan.observe_every), "--churn", str(plan.churn))
    with ExitStack() as stack:
        urls = {kind: stack.enter_context(cloud_process(seed))[0] for kind, seed in seeds.items()}
        engines = {
            IDLE: stack.enter_context(engine_process(IDLE, seeds[IDLE], "--cloud", urls[IDLE])),
            BUSY: stack.enter_context(engine_process(BUSY, seeds[BUSY], "--cloud", urls[BUSY], *work)),
        }
        async with AsyncExitStack() as connections:
            callers = [CLIENTS[plan.client](engine.server, None) for engine in engines.values()]
            for caller in callers:
                connections.push_async_callback(caller.close)
            await _until_at_work(engines)
            await _check_answers(callers, cluster)
            await _round(requests, callers, _Tally())  # not counted
            gc.collect()
            gc.freeze()  # no collection of ours in the middle of a call
            before, began = {kind: engine.report() for kind, engine in engines.items()}, time.perf_counter()
            for number in rounds:
                await _round(requests, callers if number % 2 else callers[::-1], tally)
            _take(engines, before, time.perf_counter() - began, tally)


async def _until_at_work(engines: dict[str, EngineProcess]) -> None:
    """The idle one has listed its cloud once and will not again; the other one creates and deletes."""
    deadline = time.monotonic() + _PATIENCE
    while not engines[IDLE].report()["lists"] or not engines[BUSY].report()["deletes"]:
        if time.monotonic() > deadline:
            raise RuntimeError("the engines did not begin to work")
        await asyncio.sleep(0.2)


async def _check_answers(callers: Sequence[Caller], cluster: Cluster) -> None:
    """Both must say the same of the nodes that stay, or what is compared is not the same."""
    request = requests_for(FOR_NODE, cluster)[0]
    answers = {await caller.answer(FOR_NODE, request) for caller in callers}
    if len(answers) != 1 or not next(iter(answers)):
        raise RuntimeError(f"the engines answer {FOR_NODE} with {answers!r}")


async def _round(requests: dict[str, Iterator[list[bytes]]], callers: Sequence[Caller], tally: _Tally) -> None:
    """Every RPC on one engine and at once on the other: whatever else the machine does hits both alike."""
    for rpc, questions in requests.items():
        asked = next(questions)
        for caller in callers:
            block = await caller.block(rpc, asked, callers=1)
            tally.blocks.setdefault((rpc, caller.server.kind), []).append(block)


def _take(
    engines: dict[str, EngineProcess], before: dict[str, dict[str, float]], seconds: float, tally: _Tally
) -> None:
    after = {kind: engine.report() for kind, engine in engines.items()}
    for kind, report in after.items():
        tally.reports[kind].append(report)
    for what, count in after[BUSY].items():
        tally.done[what] = tally.done.get(what, 0) + count - before[BUSY][what]
    tally.seconds += seconds
    resident = engines[BUSY].server.resident_kib()
    if resident is not None:
        tally.resident.append(resident)


def _work(plan: EnginePlan, tally: _Tally) -> Work:
    def longest(kind: str, what: str) -> Spread:
        each = [report[what] * 1000 for report in tally.reports[kind]]
        return Spread(statistics.median(each), min(each), max(each))

    return Work(
        machines=plan.machines,
        groups=plan.groups,
        seconds=tally.seconds,
        reads=[_read(rpc, tally) for rpc in _READS],
        stalls=Stalls(
            idle=longest(IDLE, "stall"),
            idle_own=longest(IDLE, "own_stall"),
            busy=longest(BUSY, "stall"),
            busy_own=longest(BUSY, "own_stall"),
        ),
        resident_kib=max(tally.resident, default=None),
        lists_per_second=tally.done["lists"] / tally.seconds,
        creates_per_second=tally.done["creates"] / tally.seconds,
        deletes_per_second=tally.done["deletes"] / tally.seconds,
        transactions_per_second=tally.done["transactions"] / tally.seconds,
    )


def _read(rpc: str, tally: _Tally) -> Read:
    idle, busy = tally.blocks[rpc, IDLE], tally.blocks[rpc, BUSY]
    ratios = [
        statistics.median(mine.micros) / statistics.median(theirs.micros)
        for mine, theirs in zip(busy, idle, strict=True)
    ]
    idle_micros, busy_micros = (sorted(one for block in blocks for one in block.micros) for blocks in (idle, busy))
    return Read(
        rpc=rpc,
        idle_p50_micros=statistics.median(idle_micros),
        busy_p50_micros=statistics.median(busy_micros),
        p50_ratio=Spread(statistics.median(ratios), min(ratios), max(ratios)),
        idle_p99_micros=idle_micros[len(idle_micros) * 99 // 100],
        busy_p99_micros=busy_micros[len(busy_micros) * 99 // 100],
    )
