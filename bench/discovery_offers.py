"""What a search over many clusters costs a discovery server: ``python -m bench.discovery_offers``, or with the rest
``python -m bench --discovery``.

Processor time, not time on the clock, so that a busy machine changes less. Every cluster has prices of its own, so that
nothing can be worked out for many at once. ``--check`` exits with 1 above the target.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Final

import click
from sqlalchemy import insert

from cloudgraft.discovery.model import ClusterSpec, Heartbeat, Need, PriceList, Strategy
from cloudgraft.discovery.service import Discovery
from cloudgraft.discovery.store import schema
from cloudgraft.discovery.store.statements import beat_text, prices_text, spec_text
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.store.databases.database import Access, Database, Mode

SEARCH_LIMIT: Final = 50.0  # milliseconds of processor time
KINDS: Final = ("first", "again", "after heartbeats")


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Milliseconds of processor time of one search: ``first`` of its kind, ``again``, ``after heartbeats`` of all."""

    strategy: str
    kind: str
    median: float
    lowest: float
    highest: float


def _fill(database: Database, count: int) -> None:
    database.open(Access.SERVE)
    rows = [_row(number) for number in range(count)]
    with database.transaction(Mode.WRITE) as connection:
        connection.execute(insert(schema.clusters), rows)
    database.close()


def _row(number: int) -> dict[str, object]:
    spec = ClusterSpec(
        id=f"cluster-{number:05d}",
        labels={"country": ("italy", "france")[number % 2], "tier": f"t{number % 7}"},
        max_nodes=10,
    )
    prices = PriceList(
        currency="EUR",
        unit={"cpu": Decimal("0.0310") + Decimal(number % 9973) / 1000000, "memory": Decimal("0.0042")},
        fixed_per_node=Decimal("0.01"),
        peering_fee=Decimal("0.5"),
    )
    return {
        "id": spec.id,
        "seq": 0,
        "revision": 1,
        "spec": spec_text(spec),
        "prices": prices_text([prices]),
        "beat": beat_text(_beat(number)),
        "beat_at": time.time(),
    }


def _beat(number: int) -> Heartbeat:
    free = {"cpu": Quantity(8 + number % 32), "memory": Quantity(f"{16 + number % 64}Gi"), "pods": Quantity(110)}
    return Heartbeat(allocatable=free, free=free)


def _need(strategy: Strategy, number: int) -> Need:
    shape = {"cpu": Quantity(f"{2000 + number}m"), "memory": Quantity("4Gi"), "pods": Quantity("20")}
    return Need(
        resources=shape,
        strategy=strategy,
        label_selector="country in (italy, france),tier!=t9",
        price_cap=Decimal(5),
        currency="EUR",
    )


async def _costs(discovery: Discovery, strategy: Strategy, clusters: int, rounds: int) -> list[Search]:
    """Of a search whose need was never asked before, of the same again, and once every cluster was heard of anew."""
    costs: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(rounds):
        need = _need(strategy, number + 1000 * list(Strategy).index(strategy))
        for kind in KINDS:
            if kind == "after heartbeats":
                await asyncio.gather(*(discovery.heartbeat(f"cluster-{n:05d}", _beat(n)) for n in range(clusters)))
            began = time.process_time()
            await discovery.search(need)
            costs[kind].append((time.process_time() - began) * 1000)
    return [
        Search(
            strategy=strategy.value,
            kind=kind,
            median=statistics.median(taken),
            lowest=min(taken),
            highest=max(taken),
        )
        for kind, taken in costs.items()
    ]


async def measure_searches(*, clusters: int = 10_000, rounds: int = 20) -> list[Search]:
    """Makes the clusters in a SQLite file, and searches."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "discovery.db"
        _fill(Discovery.sqlite(path), clusters)
        discovery = Discovery(Discovery.sqlite(path), stale_after=86_400.0)
        await discovery.open()
        try:
            return [one for strategy in Strategy for one in await _costs(discovery, strategy, clusters, rounds)]
        finally:
            await discovery.close()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--clusters", type=click.IntRange(min=1), default=10_000, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=10, show_default=True, help="Searches of each kind.")
@click.option("--check", is_flag=True, help="Exit with 1 above the target.")
def main(*, clusters: int, rounds: int, check: bool) -> None:
    """Measure discovery's searches, without HTTP."""
    found = asyncio.run(measure_searches(clusters=clusters, rounds=rounds))
    for line in _lines(found, clusters):
        click.echo(line)
    if check and any(one.median >= SEARCH_LIMIT for one in found):
        raise SystemExit(1)


def _lines(found: Sequence[Search], clusters: int) -> Sequence[str]:
    return [
        f"{one.strategy:<12} {one.kind:<16} {one.median:5.1f} ms of CPU ({one.lowest:.1f}..{one.highest:.1f}) over "
        f"{clusters} clusters (limit {SEARCH_LIMIT:.0f})"
        for one in found
    ]


if __name__ == "__main__":
    main()
