"""The hub against a bare stream that sends everything back: interleaved rounds, ratios in one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from bench.dock_processes import DockProcess, dock_process
from bench.measure import Spread

ECHO, V1, V0, RUNNER = "echo", "v1", "v0", "runner"
_SETTLED = 1.0  # seconds for what is left of connecting


@dataclass(frozen=True, slots=True, kw_only=True)
class DockPlan:
    """How much to measure."""

    drivers: int = 200
    in_flight: int = 50  # operations of each driver
    operations: int = 100  # of each driver, in each round
    rounds: int = 10
    rounds_per_process: int = 5
    idle: int = 400  # drivers that do nothing


@dataclass(frozen=True, slots=True)
class _Block:
    """One round of one pair: what an operation took on the average, in microseconds."""

    wall: float
    server: float
    client: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DockFigures:
    """One pair of server and client, microseconds per operation: the median of the rounds."""

    wall: float
    server_cpu: float
    client_cpu: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DockRow:
    """One kind of driver, against the echo."""

    driver: str  # "v1", "v0": the lean client; "runner": ours, over v1
    bare: DockFigures
    hub: DockFigures
    cpu_ratio: Spread  # of the servers
    wall_ratio: Spread
    client_ratio: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class DockMemory:
    """The memory of a fresh server without drivers, and with many that do nothing."""

    server: str
    drivers: int
    none_kib: int
    all_kib: int

    @property
    def per_driver(self) -> float:
        """Bytes."""
        return (self.all_kib - self.none_kib) * 1024 / self.drivers


@dataclass(slots=True)
class _Tally:
    blocks: dict[str, list[_Block]] = field(default_factory=lambda: {kind: [] for kind in (ECHO, V1, V0, RUNNER)})


def measure_dispatch(plan: DockPlan) -> list[DockRow]:
    """All pairs, round by round. Raises RuntimeError when an operation was lost, or answered twice, or wrongly."""
    tally = _Tally()
    for first in range(0, plan.rounds, plan.rounds_per_process):
        with ExitStack() as stack:
            pairs = {kind: stack.enter_context(_pair(kind, plan)) for kind in tally.blocks}
            for kind, pair in pairs.items():  # not counted
                _block(kind, *pair, plan)
            for number in range(first, min(first + plan.rounds_per_process, plan.rounds)):
                order = list(pairs) if number % 2 else list(pairs)[::-1]
                for kind in order:
                    tally.blocks[kind].append(_block(kind, *pairs[kind], plan))
    return [_row(kind, tally.blocks[ECHO], tally.blocks[kind]) for kind in (V1, V0, RUNNER)]


@contextmanager
def _pair(kind: str, plan: DockPlan) -> Iterator[tuple[DockProcess, DockProcess]]:
    drivers = str(plan.drivers)
    with dock_process("dock_echo_server" if kind == ECHO else "dock_hub_server") as server:
        address = str(server.first["address"])
        client = (
            dock_process("dock_runners", address, drivers, str(plan.in_flight))
            if kind == RUNNER
            else dock_process("dock_client", kind, address, drivers)
        )
        with client as connected:
            yield server, connected


def _block(kind: str, server: DockProcess, client: DockProcess, plan: DockPlan) -> _Block:
    amount = {"drivers": plan.drivers, "operations": plan.operations, "in_flight": plan.in_flight}
    before = server.cpu_seconds(), client.cpu_seconds()
    asked = (client if kind == ECHO else server).do(**amount)
    after = server.cpu_seconds(), client.cpu_seconds()
    total = plan.drivers * plan.operations
    trouble = wrong(total, asked, asked if kind == ECHO else client.do())
    if trouble:
        raise RuntimeError(f"{kind}: {'; '.join(trouble)}")
    micros = [seconds / total * 1e6 for seconds in (asked["seconds"], after[0] - before[0], after[1] - before[1])]
    return _Block(*micros)


def wrong(total: int, asked: Mapping[str, Any], answered: Mapping[str, Any]) -> list[str]:
    """What is not as it must be: each of so many operations answered once, by what was asked."""
    found = []
    if asked.get("answered", total) != total:
        found.append(f"{asked['answered']:,} of {total:,} operations were answered")
    if answered["seen"] != total:
        found.append(f"{answered['seen']:,} of {total:,} operations were seen")
    found += [
        f"{told[what]:,} {words}"
        for told, what, words in (
            (asked, "wrong", "answers were those of other operations"),
            (asked, "late", "results came late"),
            (answered, "repeated", "operations came twice"),
            (answered, "strange", "messages were never asked for"),
        )
        if told.get(what)
    ]
    return found


def _row(kind: str, bare: Sequence[_Block], ours: Sequence[_Block]) -> DockRow:
    pairs = list(zip(bare, ours, strict=True))
    return DockRow(
        driver=kind,
        bare=_figures(bare),
        hub=_figures(ours),
        cpu_ratio=_spread([mine.server / theirs.server for theirs, mine in pairs if theirs.server]),
        wall_ratio=_spread([mine.wall / theirs.wall for theirs, mine in pairs]),
        client_ratio=_spread([mine.client / theirs.client for theirs, mine in pairs if theirs.client]),
    )


def _figures(blocks: Sequence[_Block]) -> DockFigures:
    return DockFigures(
        wall=statistics.median(block.wall for block in blocks),
        server_cpu=statistics.median(block.server for block in blocks),
        client_cpu=statistics.median(block.client for block in blocks),
    )


def _spread(ratios: Sequence[float]) -> Spread:
    if not ratios:
        raise RuntimeError("the system does not tell how much processor time a process has used: this needs /proc")
    return Spread(statistics.median(ratios), min(ratios), max(ratios))


def measure_memory(plan: DockPlan) -> list[DockMemory]:
    """A fresh server for each kind of driver."""
    found = []
    for kind in (ECHO, V1, V0):
        with dock_process("dock_echo_server" if kind == ECHO else "dock_hub_server") as server:
            before = server.resident_kib()
            with dock_process("dock_client", kind, str(server.first["address"]), str(plan.idle)):
                time.sleep(_SETTLED)
                after = server.resident_kib()
        found.append(DockMemory(server=kind, drivers=plan.idle, none_kib=before, all_kib=after))
    return found
