"""Machines of an inventory, switched on and off: a provider without ``async``, for a library that blocks.

    python examples/blocking_provider.py inventory.db 127.0.0.1:8086

The inventory is a SQLite database here. Calls run in threads, several at once, so each opens a connection of its own;
a transaction makes a change happen as a whole or not at all.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from cloudgraft.sdk import (
    AutoscalingOptions,
    BlockingProvider,
    Instance,
    InvalidArgumentError,
    NodeGroup,
    NodeRef,
    NodeTemplate,
    OutOfStockError,
    Quantity,
)
from cloudgraft.server import ServeOptions, serve

PREFIX = "inventory://"
CAPACITY = {"cpu": Quantity("32"), "memory": Quantity("256Gi"), "pods": Quantity("110")}
# What is left for pods: the kubelet and the system keep the rest.
ALLOCATABLE = {**CAPACITY, "cpu": Quantity("31500m"), "memory": Quantity("250Gi")}


@dataclass(frozen=True, kw_only=True)
class InventoryOptions:
    """What cloudgraft.yaml may say under ``options``."""

    database: Path
    machines: Sequence[str] = ("rack-1", "rack-2", "rack-3", "rack-4")
    group: str = "metal"


class InventoryProvider(BlockingProvider):
    """One node group: as many machines as the inventory has, of which some are on."""

    Options = InventoryOptions

    def __init__(self, options: InventoryOptions) -> None:
        self._options = options

    def start(self) -> None:
        with self._inventory() as db:
            db.execute("CREATE TABLE IF NOT EXISTS machine (name TEXT PRIMARY KEY, is_on INTEGER NOT NULL DEFAULT 0)")
            db.executemany("INSERT OR IGNORE INTO machine (name) VALUES (?)", [(m,) for m in self._options.machines])

    def node_groups(self) -> Sequence[NodeGroup]:
        return [self._group()]

    def node_group_for_node(self, node: NodeRef) -> NodeGroup | None:
        # Also for a machine that is off by now: its Node object lives a little longer.
        with self._inventory() as db:
            known = db.execute("SELECT 1 FROM machine WHERE name = ?", (_machine(node),)).fetchone()
        return self._group() if known else None

    def target_size(self, group: str) -> int:
        return len(self.instances(group))

    def instances(self, group: str) -> Sequence[Instance]:
        with self._inventory() as db:
            names = db.execute("SELECT name FROM machine WHERE is_on ORDER BY name").fetchall()
        return [Instance(id=PREFIX + name) for (name,) in names]

    def increase_size(self, group: str, delta: int) -> None:
        with self._inventory() as db:
            free = db.execute("SELECT name FROM machine WHERE NOT is_on ORDER BY name LIMIT ?", (delta,)).fetchall()
            if len(free) < delta:
                raise OutOfStockError(f"only {len(free)} machines of {group} are off, {delta} are wanted")
            db.executemany("UPDATE machine SET is_on = 1 WHERE name = ?", free)

    def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        with self._inventory() as db:
            for node in nodes:
                changed = db.execute("UPDATE machine SET is_on = 0 WHERE name = ?", (_machine(node),))
                if changed.rowcount == 0:  # the exception undoes what this call has changed so far
                    raise InvalidArgumentError(f"{node.name or node.provider_id} is not in the inventory")

    def decrease_target_size(self, group: str, delta: int) -> None:
        """What is on is there: nothing was asked for that never came."""

    def template(self, group: str) -> NodeTemplate:
        return NodeTemplate(labels={"pool": group}, capacity=CAPACITY, allocatable=ALLOCATABLE)

    def options(self, group: str, defaults: AutoscalingOptions) -> AutoscalingOptions | None:
        # Large servers take their time to boot. All other options stay as the autoscaler was told.
        return AutoscalingOptions(max_node_provision_time=timedelta(minutes=30))

    def _group(self) -> NodeGroup:
        with self._inventory() as db:
            (count,) = db.execute("SELECT count(*) FROM machine").fetchone()
        return NodeGroup(id=self._options.group, min_size=0, max_size=count)

    @contextmanager
    def _inventory(self) -> Iterator[sqlite3.Connection]:
        """A connection for one call: committed at its end, rolled back after an exception."""
        with closing(sqlite3.connect(self._options.database, timeout=2)) as db, db:
            yield db


def _machine(node: NodeRef) -> str:
    return (node.provider_id or node.name).removeprefix(PREFIX)


if __name__ == "__main__":
    database, listen = sys.argv[1:3]
    serve(InventoryProvider(InventoryOptions(database=Path(database))), ServeOptions(listen=listen))
