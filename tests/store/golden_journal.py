"""A journal with something of everything, and the golden files that are made of it.

`python -m tests.store.golden_journal` writes those of the present schema: once, with the last commit before a change of
the schema. What is there already stays as it is, for it shows what older releases wrote.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sqlite3
import tempfile
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from cloudgraft.engine.groups.resolution import record_of
from cloudgraft.engine.groups.specs import GroupSpec
from cloudgraft.engine.machines.identity import Identity, placeholder
from cloudgraft.engine.nodes.node_facts import facts_to_json
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import NodeTemplate
from cloudgraft.store.databases.database import Database
from cloudgraft.store.databases.sqlite import SqliteDatabase
from cloudgraft.store.journal import EventQuery
from cloudgraft.store.maintenance.transfer import export_lines
from cloudgraft.store.records import (
    Change,
    CloudRecord,
    Contents,
    DeclaredGroup,
    ErrorRecord,
    Event,
    GroupRecord,
    LearnedRecord,
    MachineRecord,
    PauseRecord,
    Presence,
    Progress,
    RequestRecord,
    Scope,
    State,
)
from cloudgraft.store.schema import HEAD
from cloudgraft.store.sql import SqlJournal
from tests.golden.engine_forms import FACTS, FULL
from tests.golden.forms import told

FOLDER: Final = Path(__file__).parent / "golden"
CLUSTER_ID: Final = "abcdefghij"
EPOCH: Final = 1_800_000_000.0
IDENTITY: Final = Identity("test", CLUSTER_ID)
_PREFIX: Final = f"{IDENTITY.prefix}lab"


def make(folder: Path, schema: str) -> Path:
    """A journal file as the release with that schema wrote it."""
    path = folder / "journal.db"
    connection = sqlite3.connect(path)
    connection.executescript((FOLDER / f"journal-{schema}.sql").read_text("utf-8"))
    connection.close()
    return path


def exported(database: Database) -> list[str]:
    """Its export."""
    try:
        return list(export_lines(database))
    finally:
        database.close()


def records_of(contents: Contents, events: Sequence[Event]) -> object:
    """All that is in a journal, in words of JSON; whether its id was generated is not in it."""
    return {"contents": told(dataclasses.replace(contents, is_id_new=False)), "events": told(events)}


def _machine(number: int, state: State, presence: Presence = Presence.NONE, **changes: Any) -> MachineRecord:
    name = f"{_PREFIX}-{number:08x}-aaaaaaaa"
    ordered = (
        {} if state is State.REQUESTED else {"ordered_at": EPOCH + number + 0.25, "attempt_at": EPOCH + number + 1}
    )
    there = {"machine_id": f"m-{number}", "provider_id": f"sim://m-{number}"} if presence is Presence.PRESENT else {}
    values: dict[str, Any] = {
        "group": "lab",
        "cloud": "sim",
        "placeholder": placeholder("sim", name),
        "settings": FULL.machine,
        "tags": IDENTITY.tags(name, "lab"),
        "requested_at": EPOCH + number + 0.123456,
        "state_since": EPOCH + number + 2.5,
        "attempts": 0 if state is State.REQUESTED else 1,
        "hourly": Decimal("0.0500"),
        "currency": "EUR",
        "version": 1,
    }
    return MachineRecord(name=name, state=state, presence=presence, **{**values, **ordered, **there, **changes})


def _machines() -> list[MachineRecord]:
    error = ErrorRecord(code="out_of_stock", message="größer: no more of m5", error_class=1)
    return [
        _machine(1, State.REQUESTED),
        _machine(2, State.CREATING, Presence.UNKNOWN, attempts=3),
        _machine(3, State.BOOTING, Presence.PRESENT),
        _machine(4, State.RUNNING, Presence.PRESENT, replaces=f"{_PREFIX}-00000000-aaaaaaaa"),
        _machine(5, State.RUNNING, Presence.PRESENT, is_adopted=True, is_marked=True, created_at=EPOCH - 1000.5),
        _machine(6, State.FAILED, error=error, hourly=None, currency=""),
        _machine(7, State.DELETING, Presence.PRESENT, group="old", settings={}, tags={}),
        _machine(8, State.GONE, gone_at=EPOCH + 20.0, machine_id="m-8", provider_id="sim://m-8"),
    ]


def _groups() -> list[GroupRecord]:
    draining = GroupSpec(
        id="old",
        cloud="sim",
        min_size=0,
        max_size=5,
        machine={"shape": "large"},
        template=NodeTemplate(labels={"pool": "old"}, capacity={"cpu": Quantity("8")}),
    )
    of_old = record_of(draining, configured=False)
    # As a release wrote it that learned nothing of nodes.
    spec = {key: value for key, value in of_old.spec.items() if key not in ("labels", "taints")}
    return [record_of(FULL), dataclasses.replace(of_old, spec=spec)]


CHANGE: Final = Change(
    machines=_machines(),
    groups=_groups(),
    learned=[
        LearnedRecord(group="lab", settings=FULL.machine, since=EPOCH, facts=facts_to_json(FACTS)),
        LearnedRecord(group="old", settings={}, since=EPOCH, facts={}),
    ],
    clouds=[CloudRecord(name="sim", adopted_at=EPOCH - 60.0)],
    pauses=[
        PauseRecord(scope=Scope.GROUP, name="lab", since=EPOCH + 30.0, reason="roof"),
        PauseRecord(scope=Scope.CLOUD, name="sim", since=EPOCH + 31.5),
    ],
    requests=[
        RequestRecord(
            caller="ca", key="0a1b", fingerprint="f00d", answer={"revision": "m.7", "picture": None}, at=EPOCH + 5.0
        )
    ],
    declared=[
        DeclaredGroup(
            id="declared",
            document={"id": "declared", "cloud": "sim", "maxSize": 3, "machine": {"shape": "small"}},
            revision=2,
        )
    ],
    progress=Progress(at=EPOCH + 40.0, boot_id="0000-boot", boot_time=12345.5),
    events=[
        Event(at=EPOCH, kind="leader", message="began"),
        Event(
            at=EPOCH + 6.0,
            kind="failed",
            message="größer",
            cloud="sim",
            group="lab",
            machine=f"{_PREFIX}-00000006-aaaaaaaa",
            state=State.FAILED,
            data={"code": "out_of_stock", "nested": {"a": [1, 2.5, None, True]}},
        ),
        Event(at=EPOCH + 30.0, kind="paused", message="roof", group="lab", data={"scope": "group"}),
    ],
)


async def _write(folder: Path) -> None:
    path = folder / "journal.db"
    journal = SqlJournal.sqlite(path, cluster="test", cluster_id=CLUSTER_ID)
    await journal.open()
    await journal.load()
    await journal.write(CHANGE)
    records = records_of(await journal.load(), await journal.events(EventQuery(limit=100)))
    await journal.close()
    lines = exported(SqliteDatabase(path))
    connection = sqlite3.connect(path)
    dump = "\n".join(connection.iterdump())
    connection.close()
    (FOLDER / f"journal-{HEAD}.sql").write_text(dump + "\n", "utf-8")
    (FOLDER / f"journal-{HEAD}.export").write_text("\n".join(lines) + "\n", "utf-8")
    text = json.dumps(records, indent=2, ensure_ascii=False)
    (FOLDER / f"journal-{HEAD}.records.json").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    if (FOLDER / f"journal-{HEAD}.sql").exists():
        raise SystemExit(f"there is one of schema {HEAD} already; it shows what releases with that schema wrote")
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(_write(Path(made)))
