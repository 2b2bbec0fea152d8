"""Discoveries on a SQLite file or a real PostgreSQL, a clock that stands until it is moved, and things to put there."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from cloudgraft.discovery.model import ClusterSpec, Heartbeat, PriceList, Resources
from cloudgraft.discovery.service import Discovery
from cloudgraft.discovery.store.vault import Vault
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.store.databases.database import Database

NOON = 1_800_000_000.0
STALE_AFTER = 45.0


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


class Place:
    """Where one discovery's database is, however many have it open."""

    def __init__(self, where: Path | str) -> None:
        self.where = where
        self.clock = Clock()
        self._opened: list[Discovery] = []

    def database(self) -> Database:
        return Discovery.sqlite(self.where) if isinstance(self.where, Path) else Discovery.postgresql(self.where)

    async def opened(self, *, vault: Vault | None = None) -> Discovery:
        found = Discovery(self.database(), vault=vault, stale_after=STALE_AFTER, gather=0.0, clock=self.clock)
        await found.open()
        self._opened.append(found)
        return found

    async def let_go(self) -> None:
        for one in self._opened:
            await one.close()


def shape(**amounts: str) -> Resources:
    return {name: Quantity(text) for name, text in (amounts or {"cpu": "2", "memory": "4Gi"}).items()}


def spec(id_: str = "a", **changes: object) -> ClusterSpec:
    values: dict[str, object] = {"id": id_, "capacity": shape(cpu="8", memory="16Gi")}
    return ClusterSpec(**{**values, **changes})  # type: ignore[arg-type]  # a test knows what it asks for


def beat(**free: str) -> Heartbeat:
    return Heartbeat(allocatable=shape(**free), free=shape(**free))


def prices(cpu: str = "0.05", **changes: object) -> PriceList:
    values: dict[str, object] = {"currency": "EUR", "unit": {"cpu": Decimal(cpu)}}
    return PriceList(**{**values, **changes})  # type: ignore[arg-type]  # a test knows what it asks for
