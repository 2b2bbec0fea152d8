"""What a search over many clusters costs, and what many agents' heartbeats cost: ``python -m bench.discovery_offers``.

Processor time, not time on the clock, so that a busy machine changes little. ``--check`` exits with 1 above a target.
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

import click
from sqlalchemy import insert

from cloudgraft.discovery import schema
from cloudgraft.discovery.model import ClusterSpec, Heartbeat, Need, PriceList, Strategy
from cloudgraft.discovery.service import Discovery
from cloudgraft.discovery.store_rows import beat_text, prices_text, spec_text
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.store.database import Access, Database, Mode

SEARCH_LIMIT = 0.050  # seconds of processor time per search
BEATS_LIMIT = 0.25  # of one core, for as many agents as there are clusters / 10, each every 10 s
_AGENTS_EVERY = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Seconds of processor time per search, by strategy, and the share of a core that heartbeats take."""

    searches: dict[str, float]
    beats: float

    @property
    def over_limit(self) -> list[str]:
        """What costs too much."""
        found = [name for name, seconds in self.searches.items() if seconds > SEARCH_LIMIT]
        return [*found, "heartbeats"] if self.beats > BEATS_LIMIT else found


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
        unit={"cpu": Decimal("0.0310") + Decimal(number % 97) / 10000, "memory": Decimal("0.0042")},
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
        "beat_at": time.time() + 3600,
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


async def _search_cost(discovery: Discovery, strategy: Strategy, rounds: int) -> tuple[float, float]:
    """Of a search whose need was never asked before, and of one that was."""
    costs = []
    for number in range(rounds):
        need = _need(
            strategy, number // 2 + 1000 * list(Strategy).index(strategy)
        )  # every other one is the first of its kind
        began = time.process_time()
        await discovery.search(need)
        costs.append(time.process_time() - began)
    return statistics.median(costs[::2]), statistics.median(costs[1::2])


async def _beat_cost(discovery: Discovery, agents: int, seconds: float) -> float:
    """The share of one core while each of the agents sends a heartbeat every ten seconds, evenly spread."""
    began, clock = time.process_time(), time.monotonic()
    pending: set[asyncio.Task[None]] = set()
    sent = 0
    while (passed := time.monotonic() - clock) < seconds:
        due = int(passed * agents / _AGENTS_EVERY)
        for number in range(sent, due):
            task = asyncio.create_task(discovery.heartbeat(f"cluster-{number % agents:05d}", _beat(number)))
            pending.add(task)
            task.add_done_callback(pending.discard)
        sent = max(sent, due)
        await asyncio.sleep(0.005)
    await asyncio.gather(*pending)
    return (time.process_time() - began) / (time.monotonic() - clock)


async def measure(*, clusters: int, rounds: int, seconds: float) -> Measured:
    """Makes the clusters in a SQLite file, and measures."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "discovery.db"
        _fill(Discovery.sqlite(path), clusters)
        discovery = Discovery(Discovery.sqlite(path))
        await discovery.open()
        searches: dict[str, float] = {}
        try:
            for strategy in Strategy:
                first, again = await _search_cost(discovery, strategy, rounds)
                searches |= {f"{strategy.value}, first": first, f"{strategy.value}, again": again}
            beats = await _beat_cost(discovery, max(clusters // 10, 1), seconds)
        finally:
            await discovery.close()
    return Measured(searches=searches, beats=beats)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--clusters", type=click.IntRange(min=1), default=10_000, show_default=True)
@click.option("--rounds", type=click.IntRange(min=2), default=20, show_default=True, help="Searches per strategy.")
@click.option("--seconds", type=float, default=5.0, show_default=True, help="How long agents are listened to.")
@click.option("--check", is_flag=True, help="Exit with 1 above a target.")
def main(*, clusters: int, rounds: int, seconds: float, check: bool) -> None:
    """Measure discovery's searches and heartbeats, without HTTP."""
    measured = asyncio.run(measure(clusters=clusters, rounds=rounds, seconds=seconds))
    for line in _lines(measured, clusters):
        click.echo(line)
    if check and measured.over_limit:
        raise SystemExit(1)


def _lines(measured: Measured, clusters: int) -> Sequence[str]:
    found = [
        f"search {name:<20} {seconds * 1000:7.1f} ms of CPU over {clusters} clusters (limit {SEARCH_LIMIT * 1000:.0f})"
        for name, seconds in measured.searches.items()
    ]
    agents = max(clusters // 10, 1)
    return [*found, f"{agents} agents: {measured.beats:.1%} of one core (at most {BEATS_LIMIT:.0%})"]


if __name__ == "__main__":
    main()
