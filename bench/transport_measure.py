"""The Go server and cloudgraft over both transports, in interleaved rounds; see :mod:`bench.transport_report`."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.cluster import FOR_NODE, GET_OPTIONS
from bench.engine_fleet import Seed, make_seed
from bench.load import Block
from bench.measure import Side, Spread
from bench.transport_processes import (
    GO,
    GRPCIO,
    NATIVE,
    GoLoad,
    Peer,
    Programs,
    build_programs,
    cloudgraft_peer,
    go_peer,
)

_KINDS: Final = (GO, NATIVE, GRPCIO)
_IDLE: Final = "1h"
_BUSY: Final = "10s"  # while machines come and go, a fifth of it: a list every 2 s
_TO_WARM_UP: Final = 8  # callers
_ENOUGH_STEPS: Final = 12  # of the churn, until machines go too
_NEAR: Final = 0.3  # seconds until a server that was at rest is at work again


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportPlan:
    """How much to measure."""

    nodes: int = 1000
    groups: int = 20
    rounds: int = 5
    calls: int = 4000  # per server, scenario and round: long enough for several steps of the churn in each
    rounds_per_process: int = 5
    churn: int = 4  # steps per second, of five machines that come and five that go
    kinds: Sequence[str] = _KINDS
    rpcs: Sequence[str] = (FOR_NODE, GET_OPTIONS)
    callers: Sequence[int] = (1, 8)  # the autoscaler's main loop; with up to ten deletions beside it
    mtls: Sequence[bool] = (False, True)
    busy: Sequence[bool] = (False, True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportRow:
    """One server in one scenario, and what it is to the Go server: medians over the rounds of ratios.

    Beside them the ratios of each server's best rounds: those which whatever else the machine does disturbed least.
    """

    kind: str
    mtls: bool
    busy: bool
    rpc: str
    callers: int
    side: Side
    p50_ratio: Spread
    p99_ratio: Spread
    throughput_ratio: Spread
    cpu_ratio: float | None
    best_p50_ratio: float
    best_p99_ratio: float
    best_throughput_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """All scenarios of one transport security and one amount of work."""

    mtls: bool
    busy: bool
    rows: Sequence[TransportRow]
    resident_kib: Mapping[str, int]  # by server, the most of all processes
    hits: float | None  # share of the reads that the native transport answered without Python
    errors: Mapping[str, int]  # calls and changes that failed, by server
    created_per_second: float
    deleted_per_second: float
    load_average: float


@dataclass(slots=True)
class _Scenario:
    rpc: str
    callers: int
    first: int = 0
    blocks: dict[str, list[Block]] = field(default_factory=dict)
    cpu_seconds: dict[str, list[float]] = field(default_factory=dict)


@dataclass(slots=True)
class _Tally:
    """What comes together over the rounds of a setting."""

    scenarios: Sequence[_Scenario]
    resident: dict[str, int] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    hits: float = 0.0
    misses: float = 0.0
    created: int = 0
    deleted: int = 0
    seconds: float = 0.0  # in which machines came and went


async def measure_transports(
    directory: Path, plan: TransportPlan, certificates: Path, tell: Callable[[str], None]
) -> list[Setting]:
    """Every setting: plaintext and mTLS, the engine idle and busy."""
    tell("building the Go server and client (minutes, the first time) ...")
    programs = build_programs()
    seed = await make_seed(
        directory / "seed", machines=plan.nodes, groups=plan.groups, events=plan.nodes, in_cloud=True
    )
    fleet = directory / "fleet.json"
    fleet.write_text(json.dumps(fleet_of(seed)), "utf-8")
    settings = []
    for mtls in plan.mtls:
        for busy in plan.busy:
            tell(f"{plan.nodes:,} nodes, {'mTLS' if mtls else 'plaintext'}, engine {'busy' if busy else 'idle'} ...")
            where = directory / f"{mtls}-{busy}"
            where.mkdir()
            seeds = {kind: seed.copy(where / kind) for kind in plan.kinds if kind != GO}
            rig = _Rig(plan, programs, fleet, seeds, certificates if mtls else None, busy=busy)
            settings.append(rig.measure())
    return settings


def fleet_of(seed: Seed) -> Mapping[str, object]:
    """The nodes for the Go programs, with some labels more than the nodes of other measurements have."""
    more = {"node-role.kubernetes.io/worker": "", "example.com/team": "platform", "example.com/generation": "7"}
    nodes = [
        {
            "name": node.name,
            "providerID": node.provider_id,
            "group": record.group,
            "labels": {**node.labels, **more},
            "annotations": dict(node.annotations),
        }
        for node, record in zip(seed.cluster().nodes, seed.machines, strict=True)
    ]
    return {"groups": list(seed.cluster().groups), "nodes": nodes}


class _Rig:
    """The servers of one setting."""

    def __init__(
        self,
        plan: TransportPlan,
        programs: Programs,
        fleet: Path,
        seeds: Mapping[str, Seed],
        certificates: Path | None,
        *,
        busy: bool,
    ) -> None:
        self._plan, self._programs, self._fleet = plan, programs, fleet
        self._seeds, self._certificates, self._busy = seeds, certificates, busy
        self._tally = _Tally([_Scenario(rpc, callers) for rpc in plan.rpcs for callers in plan.callers])

    def measure(self) -> Setting:
        """All rounds. Now and then new processes even out what a process has for life."""
        plan, tally = self._plan, self._tally
        for first in range(0, plan.rounds, plan.rounds_per_process):
            self._with_new_servers(range(first, min(first + plan.rounds_per_process, plan.rounds)))
        mtls = self._certificates is not None
        looked = tally.hits + tally.misses
        return Setting(
            mtls=mtls,
            busy=self._busy,
            rows=[
                _row(kind, scenario, mtls=mtls, busy=self._busy) for scenario in tally.scenarios for kind in plan.kinds
            ],
            resident_kib=tally.resident,
            hits=tally.hits / looked if looked else None,
            errors=dict(tally.errors),
            created_per_second=tally.created / tally.seconds if tally.seconds else 0.0,
            deleted_per_second=tally.deleted / tally.seconds if tally.seconds else 0.0,
            load_average=os.getloadavg()[1],
        )

    def _with_new_servers(self, rounds: Sequence[int]) -> None:
        with ExitStack() as stack:
            load = stack.enter_context(GoLoad.started(self._programs, self._fleet))
            peers = [stack.enter_context(self._peer(kind)) for kind in self._plan.kinds]
            for peer in peers:
                load.connect(peer.server, self._certificates)
            _check_answers(load, peers)
            for peer in peers:
                self._warm_up(load, peer)
                peer.rest()
            before = {peer.server.kind: _lookups(peer) for peer in peers}
            for number in rounds:
                turn = number % len(peers)  # they take turns in going first
                for peer in (*peers[turn:], *peers[:turn]):
                    self._turn(load, peer, number)
                for scenario in self._tally.scenarios:
                    scenario.first += self._plan.calls
            for peer in peers:
                self._take(peer, before[peer.server.kind])

    def _peer(self, kind: str) -> AbstractContextManager[Peer]:
        if kind == GO:
            return go_peer(self._programs, self._fleet, self._certificates)
        return cloudgraft_peer(kind, self._seeds[kind], _BUSY if self._busy else _IDLE, self._certificates)

    def _warm_up(self, load: GoLoad, peer: Peer) -> None:
        """Every node and group once, as the autoscaler's first loop does; with machines that come and go if busy."""
        with self._churning(load, peer, seconds=_ENOUGH_STEPS / self._plan.churn):
            for rpc in self._plan.rpcs:
                load.block(peer.server, rpc, first=0, calls=self._plan.nodes, callers=_TO_WARM_UP)

    def _turn(self, load: GoLoad, peer: Peer, number: int) -> None:
        """Every scenario on one server, while the others are at rest.

        The scenarios take turns in going first. A server that goes on after a rest lists its cloud at once, so the same
        scenario would meet the same work in every round.
        """
        peer.work()
        scenarios = self._tally.scenarios
        turn = number % len(scenarios)
        with self._churning(load, peer, seconds=_NEAR):
            for scenario in (*scenarios[turn:], *scenarios[:turn]):
                kind, cpu = peer.server.kind, peer.server.cpu_seconds()
                block, errors = load.block(
                    peer.server,
                    scenario.rpc,
                    first=scenario.first,
                    calls=self._plan.calls,
                    callers=scenario.callers,
                )
                scenario.blocks.setdefault(kind, []).append(block)
                self._tally.errors[kind] += errors
                used = peer.server.cpu_seconds()
                if cpu is not None and used is not None:
                    scenario.cpu_seconds.setdefault(kind, []).append(used - cpu)
        peer.rest()

    @contextmanager
    def _churning(self, load: GoLoad, peer: Peer, *, seconds: float) -> Iterator[None]:
        """Machines come and go in a busy setting, from some seconds before the block on."""
        began = time.perf_counter()
        if self._busy:
            load.churn(peer.server, self._plan.churn)
        time.sleep(seconds if self._busy else _NEAR)
        yield
        if self._busy:
            created, deleted, errors = load.churn(peer.server, 0)
            self._tally.errors[peer.server.kind] += errors
            if peer.server.kind == NATIVE:
                self._tally.created += created
                self._tally.deleted += deleted
                self._tally.seconds += time.perf_counter() - began

    def _take(self, peer: Peer, before: tuple[float, float]) -> None:
        peer.work()
        tally, kind = self._tally, peer.server.kind
        resident = peer.server.resident_kib()
        if resident is not None:
            tally.resident[kind] = max(resident, tally.resident.get(kind, 0))
        hits, misses = peer.lookups()
        tally.hits += hits - before[0]
        tally.misses += misses - before[1]


def _lookups(peer: Peer) -> tuple[float, float]:
    peer.work()
    try:
        return peer.lookups()
    finally:
        peer.rest()


def _check_answers(load: GoLoad, peers: Sequence[Peer]) -> None:
    """A server that answers nonsense quickly must not win: all must say the same of a node and of a group."""
    groups = {load.answer(peer.server, FOR_NODE)["nodeGroup"]["id"] for peer in peers}
    if len(groups) != 1:
        raise RuntimeError(f"the servers say that a node is in {', '.join(sorted(groups))}")
    options = [load.answer(peer.server, GET_OPTIONS)["nodeGroupAutoscalingOptions"] for peer in peers]
    if len({one["scaleDownUnneededDuration"] for one in options}) != 1:
        raise RuntimeError(f"the servers answer {GET_OPTIONS} with {options}")


def _row(kind: str, scenario: _Scenario, *, mtls: bool, busy: bool) -> TransportRow:
    ours, theirs = scenario.blocks[kind], scenario.blocks[GO]
    side, go = (_side(scenario, one) for one in (kind, GO))
    cpu = side.cpu_micros_per_call
    return TransportRow(
        kind=kind,
        mtls=mtls,
        busy=busy,
        rpc=scenario.rpc,
        callers=scenario.callers,
        side=side,
        p50_ratio=_spread(ours, theirs, _p50),
        p99_ratio=_spread(ours, theirs, _p99),
        throughput_ratio=_spread(ours, theirs, _throughput),
        cpu_ratio=cpu / go.cpu_micros_per_call if cpu and go.cpu_micros_per_call else None,
        best_p50_ratio=min(map(_p50, ours)) / min(map(_p50, theirs)),
        best_p99_ratio=min(map(_p99, ours)) / min(map(_p99, theirs)),
        best_throughput_ratio=max(map(_throughput, ours)) / max(map(_throughput, theirs)),
    )


def _spread(ours: Sequence[Block], theirs: Sequence[Block], figure: Callable[[Block], float]) -> Spread:
    ratios = [figure(mine) / figure(other) for mine, other in zip(ours, theirs, strict=True)]
    return Spread(statistics.median(ratios), min(ratios), max(ratios))


def _p50(block: Block) -> float:
    return statistics.median(block.micros)


def _throughput(block: Block) -> float:
    return len(block.micros) / block.seconds


def _p99(block: Block) -> float:
    return sorted(block.micros)[len(block.micros) * 99 // 100]


def _side(scenario: _Scenario, kind: str) -> Side:
    blocks, cpu = scenario.blocks[kind], scenario.cpu_seconds.get(kind, [])
    calls = len(blocks[0].micros)
    return Side(
        p50_micros=statistics.median(map(_p50, blocks)),
        p99_micros=statistics.median(map(_p99, blocks)),
        calls_per_second=statistics.median(map(_throughput, blocks)),
        cpu_micros_per_call=statistics.median(cpu) / calls * 1e6 if len(cpu) == len(blocks) else None,
    )
