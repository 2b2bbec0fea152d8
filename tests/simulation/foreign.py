"""The journal of another cluster, with machines of its own in the same clouds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cloudgraft.engine.machines.identity import Identity, placeholder
from cloudgraft.sdk.driver import Ownership
from cloudgraft.store import statements
from cloudgraft.store.databases.database import Access, Mode
from cloudgraft.store.databases.sqlite import SqliteDatabase
from cloudgraft.store.identity import Configured, settle_owner
from cloudgraft.store.records import Change, CloudRecord, MachineRecord, Presence, State
from tests.simulation.determinism import EPOCH

if TYPE_CHECKING:
    from tests.simulation.world import World

_BETA = Identity("beta", "betabetabe")


def write_journal(path: Path, world: World) -> None:
    """Puts the journal of cluster beta at a path; its machines are in the clouds."""
    aside = path.with_name("beta.db")
    for old in aside.parent.glob("beta.db*"):
        old.unlink()
    records = [_machine(world, number) for number in range(2)]
    clouds = [CloudRecord(name=name, adopted_at=EPOCH) for name in world.clouds]
    database = SqliteDatabase(aside)
    database.open(Access.SERVE)
    settle_owner(database, Configured(_BETA.cluster, _BETA.cluster_id))
    with database.transaction(Mode.WRITE) as connection:
        statements.write_change(connection, Change(machines=records, clouds=clouds))
    database.close()
    aside.replace(path)


def _machine(world: World, number: int) -> MachineRecord:
    declared = world.groups[0]
    cloud = world.clouds[declared.cloud]
    name = f"{_BETA.prefix}{declared.id}-ca978112-bbbbbbb{number}"
    tags = _BETA.tags(name, declared.id)
    machine = cloud.make(name, {} if cloud.traits.ownership is Ownership.NAME else tags, "cluster beta")
    wall = EPOCH + world.loop.time()
    return MachineRecord(
        name=name,
        group=declared.id,
        cloud=cloud.name,
        placeholder=placeholder(cloud.name, name),
        state=State.RUNNING,
        presence=Presence.PRESENT,
        tags=tags,
        requested_at=wall - 1000,
        state_since=wall - 900,
        ordered_at=wall - 999,
        attempt_at=wall - 999,
        attempts=1,
        machine_id=machine.machine_id,
        provider_id=machine.provider_id,
        version=1,
    )
