"""How long an engine needs to be ready, by the size of its journal; and what a large order costs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.engine_fleet import Seed, group_names, make_seed
from bench.engine_measure import EnginePlan
from bench.engine_processes import EngineProcess, engine_process
from bench.load import GrpcCaller
from cloudgraft.wire.pb import externalgrpc_pb2 as pb

_INCREASE = "NodeGroupIncreaseSize"
_DECREASE = "NodeGroupDecreaseTargetSize"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The start with one journal: the median of the rounds."""

    machines: int
    events: int
    journal_mib: float
    seconds: float  # from the opening of the journal to the opening of the port
    process_seconds: float  # from the start of the program, with all that Python has to read
    resident_kib: int | None

    @property
    def micros_per_machine(self) -> float:
        """What each machine, with its history, adds."""
        return self.seconds / self.machines * 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """One machine against many in one call of IncreaseSize."""

    many: int
    one_p50_micros: float
    many_p50_micros: float
    p50_ratio: float  # the median of the rounds
    one_transactions: float  # per call
    many_transactions: float


async def measure_starts(directory: Path, plan: EnginePlan) -> list[Start]:
    """Every size in every round. The cloud never answers: a restart does not wait for it."""
    seeds = [await _seed(directory, size, plan) for size in plan.starts]
    found: dict[int, list[tuple[EngineProcess, int | None]]] = {size: [] for size in plan.starts}
    for _ in range(plan.rounds_of_starts):
        for seed in seeds:
            with engine_process("start", seed) as engine:
                found[len(seed.machines)].append((engine, engine.server.resident_kib()))
    return [_start(seed, found[len(seed.machines)]) for seed in seeds]


async def _seed(directory: Path, size: int, plan: EnginePlan) -> Seed:
    events = size * plan.events_per_machine
    return await make_seed(
        directory / f"start-{size}", machines=size, groups=plan.groups, events=events, in_cloud=False
    )


def _start(seed: Seed, started: Sequence[tuple[EngineProcess, int | None]]) -> Start:
    return Start(
        machines=len(seed.machines),
        events=seed.events,
        journal_mib=seed.journal.stat().st_size / 2**20,
        seconds=statistics.median(engine.seconds_to_ready for engine, _ in started),
        process_seconds=statistics.median(engine.seconds_of_process for engine, _ in started),
        resident_kib=max((kib for _, kib in started if kib is not None), default=None),
    )


async def measure_orders(directory: Path, plan: EnginePlan) -> Orders:
    """Turn about one machine and many, each taken back at once, with the same number of machines in the journal."""
    seed = await make_seed(directory / "orders", machines=plan.machines, groups=plan.groups, events=0, in_cloud=False)
    group = group_names(plan.groups)[0]
    micros: dict[int, list[float]] = {1: [], plan.orders: []}
    transactions = dict.fromkeys(micros, 0.0)
    with engine_process("orders", seed) as engine:
        caller = GrpcCaller(engine.server, None)
        for number in range(plan.rounds_of_orders):
            for count in micros if number % 2 else reversed(micros):
                before = engine.report()["transactions"]
                block = await caller.block(_INCREASE, [_increase(group, count)], callers=1)
                transactions[count] += engine.report()["transactions"] - before
                micros[count] += block.micros
                await caller.answer(_DECREASE, _decrease(group, count))
        await caller.close()
    one, many = micros[1], micros[plan.orders]
    return Orders(
        many=plan.orders,
        one_p50_micros=statistics.median(one),
        many_p50_micros=statistics.median(many),
        p50_ratio=statistics.median(large / small for large, small in zip(many, one, strict=True)),
        one_transactions=transactions[1] / plan.rounds_of_orders,
        many_transactions=transactions[plan.orders] / plan.rounds_of_orders,
    )


def _increase(group: str, count: int) -> bytes:
    return pb.NodeGroupIncreaseSizeRequest(id=group, delta=count).SerializeToString()


def _decrease(group: str, count: int) -> bytes:
    return pb.NodeGroupDecreaseTargetSizeRequest(id=group, delta=-count).SerializeToString()
