"""The simulated cloud's ledger against the journal: nothing lost, doubled or foreign."""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cloudgraft.sdk.driver import Idempotency
from cloudgraft.simcloud.records import LedgerEntry
from cloudgraft.store.databases.sqlite import SqliteDatabase
from cloudgraft.store.records import Contents, MachineRecord, Presence, State
from cloudgraft.store.statements import read_contents, read_owner
from cloudgraft.torture.journal_view import open_to_look
from tests.crash.lasting_cloud import LastingCloud
from tests.crash.setting import Variant

_AT_WORK = frozenset({State.BOOTING, State.RUNNING})
_OPEN = frozenset({State.REQUESTED, State.CREATING, State.BOOTING, State.DELETING})


@dataclass(slots=True)
class Judge:
    """Compares, at each crash and when everything has come to rest."""

    sky: LastingCloud
    variant: Variant
    journal: Path
    # (machine, from, until): a call of unknown outcome was made at the one time, and none may follow before the other
    _waits: list[tuple[str, float, float]] = field(default_factory=list)

    def at_crash(self) -> None:
        """The process is dead: whatever the cloud has of ours, the journal said so before (law 2)."""
        records = {record.name: record for record in _on_disk(self.journal)}
        for entry in self.sky.ours():
            record = records.get(entry.name)
            if record is None:
                raise AssertionError(f"the cloud has {entry.name}, and the journal has no such machine")
            if record.state is State.REQUESTED:
                raise AssertionError(f"the cloud has {entry.name}, and the journal says that it was never asked for")
        for record in records.values():
            if record.presence is Presence.UNKNOWN and record.attempt_at is not None:
                self._waits.append((record.name, record.attempt_at, record.attempt_at + self.variant.settling))

    def why_not_at_rest(self, contents: Contents, differing: Sequence[str]) -> str:
        """What still differs; empty when cloud and journal agree and nothing is open.

        ``differing`` are machines of which the process has something else in memory than on disk.
        """
        if differing:
            return f"memory and journal do not agree about {differing}"
        live = {entry.machine_id: entry.name for entry in self.sky.live()}
        here = {record.machine_id: record.name for record in contents.machines if record.state in _AT_WORK}
        if live != here:
            return f"the cloud has {live}, and the journal {here}"
        waiting = [f"{r.name} {r.state.value}" for r in contents.machines if r.state in _OPEN]
        return f"not settled: {waiting}" if waiting else ""

    def at_rest(self, contents: Contents, asked: set[str], told: Iterable[str]) -> None:
        """Cloud and journal agree; now whether they came to that in an honest way.

        ``asked`` are the machines that the autoscaler deleted, ``told`` those of which a double was reported.
        """
        records = {record.name: record for record in contents.machines}
        entries: dict[str, list[LedgerEntry]] = defaultdict(list)
        for entry in self.sky.ours():
            entries[entry.name].append(entry)
        if self.sky.harmed():
            raise AssertionError(f"machines of others were touched: {self.sky.harmed()}")
        if strange := set(entries) - set(records):
            raise AssertionError(f"the cloud made {sorted(strange)}, of which the journal knows nothing")
        for name, made in entries.items():
            self._check_doubles(name, made, set(told))
            _check_deletes(records[name], made, asked)

    def _check_doubles(self, name: str, made: Sequence[LedgerEntry], told: set[str]) -> None:
        """Law 3: one machine per intent."""
        if len(made) == 1:
            return
        if self.variant.idempotency is not Idempotency.NONE:
            raise AssertionError(f"{name} was made {len(made)} times")
        if name not in told:
            raise AssertionError(f"{name} was made {len(made)} times, and nobody was told")
        for who, since, until in self._waits:
            if who == name and sum(since <= entry.created_at < until for entry in made) > 1:
                raise AssertionError(f"{name} was made again before the outcome of the first call was settled")


def _check_deletes(record: MachineRecord, made: Sequence[LedgerEntry], asked: set[str]) -> None:
    """Nothing is deleted unless the autoscaler asked, it failed, or it was replaced or a double."""
    is_fair = record.name in asked or record.error is not None or record.state in (State.DELETING, State.GONE)
    for entry in made:
        if entry.deletes and not is_fair and entry.machine_id == record.machine_id:
            raise AssertionError(f"{entry.name} ({entry.machine_id}) was deleted, and nobody had asked for it")


def _on_disk(journal: Path) -> Sequence[MachineRecord]:
    """What a dead process left. Of a copy: to open the files would already mend them."""
    if not journal.exists():
        return ()
    with tempfile.TemporaryDirectory(dir=journal.parent) as directory:
        for path in (journal, journal.with_name(f"{journal.name}-wal")):
            if path.exists():
                shutil.copy(path, directory)
        with open_to_look(SqliteDatabase(Path(directory) / journal.name)) as connection:
            return read_contents(connection).machines if connection and read_owner(connection) else ()
