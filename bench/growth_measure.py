"""How the cost of a call grows: with nodes, with groups, with callers; see :mod:`bench.growth_picture`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench.cluster import FOR_NODE
from bench.transport_measure import Setting, TransportPlan, measure_transports
from bench.transport_processes import GO, GRPCIO, NATIVE

_KINDS: Final = (GO, NATIVE, GRPCIO)
_BASE: Final = TransportPlan(
    rounds=6, rounds_per_process=6, kinds=_KINDS, rpcs=(FOR_NODE,), callers=(1,), mtls=(True,), busy=(False,)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthPlan:
    """The sizes to measure. Each run changes one of them; ``base`` gives the others."""

    nodes: Sequence[int] = (100, 1_000, 10_000, 50_000)
    groups: Sequence[int] = (10, 100, 1_000)
    callers: Sequence[int] = (1, 2, 4, 8, 16, 32, 64)
    base: TransportPlan = _BASE


QUICK_GROWTH: Final = GrowthPlan(
    nodes=(20, 40),
    groups=(2, 4),
    callers=(1, 2),
    base=replace(_BASE, nodes=20, groups=2, rounds=1, calls=20),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One server: its points, from the smallest on."""

    kind: str
    points: Sequence[tuple[int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """One thing that grows, and what it does to every server."""

    along: str  # what grows
    figure: str  # what is measured
    curves: Sequence[Curve]


async def measure_growth(
    directory: Path, plan: GrowthPlan, certificates: Path, tell: Callable[[str], None]
) -> list[Growth]:
    """One caller over nodes and over groups, by the time of one call; then more callers, by calls per second."""

    async def setting(what: str, plan: TransportPlan) -> Setting:
        where = directory / what
        where.mkdir()
        (only,) = await measure_transports(where, plan, certificates, tell)
        return only

    nodes = [(n, await setting(f"nodes-{n}", replace(plan.base, nodes=n))) for n in plan.nodes]
    groups = [
        (n, await setting(f"groups-{n}", replace(plan.base, groups=n, nodes=max(plan.base.nodes, n))))
        for n in plan.groups
    ]
    callers = await setting("callers", replace(plan.base, callers=plan.callers))
    return [
        Growth(along="nodes", figure="p50 of one call, µs", curves=_micros(nodes)),
        Growth(along="node groups", figure="p50 of one call, µs", curves=_micros(groups)),
        Growth(along="callers at a time", figure="calls per second", curves=_calls(callers)),
    ]


def _micros(steps: Sequence[tuple[int, Setting]]) -> list[Curve]:
    return [
        Curve(
            kind=kind,
            points=[(n, row.side.p50_micros) for n, setting in steps for row in setting.rows if row.kind == kind],
        )
        for kind in _KINDS
    ]


def _calls(setting: Setting) -> list[Curve]:
    return [
        Curve(kind=kind, points=[(row.callers, row.side.calls_per_second) for row in setting.rows if row.kind == kind])
        for kind in _KINDS
    ]
