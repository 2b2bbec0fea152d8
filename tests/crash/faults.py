"""Engines with a bug, to show that the crash test would find it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.reconcile.sender import Sender
from cloudgraft.engine.writer import Writer
from cloudgraft.store.records import Change, Contents, Presence, State


def plant(name: str) -> None:
    """Puts the bug of that name into this process; an empty name is no bug."""
    if name:
        _FAULTS[name]()


def _act_before_intent() -> None:
    """Law 2 broken: the cloud is called, and what was done is written down afterwards."""

    async def create(self: Sender, names: list[str]) -> None:
        for name in names:
            record = self._context.fleet.machines.get(name)
            if record is not None and record.state is State.REQUESTED:
                self._observer.call_begins(name)
                self._caller.create(record)
        await self._caller.settled()
        for name in names:
            self._observer.call_ends(name)
        await self._context.writer.write(lambda: self._ordered(names))

    Sender._create = create  # type: ignore[method-assign]


def _trust_silence() -> None:
    """Law 3 broken: after a crash, what was never answered counts as never done."""
    original = Engine._load

    def load(self: Engine, contents: Contents) -> None:
        machines = [
            replace(record, presence=Presence.NONE) if record.presence is Presence.UNKNOWN else record
            for record in contents.machines
        ]
        original(self, replace(contents, machines=machines))

    Engine._load = load  # type: ignore[method-assign]


def _answer_before_journal() -> None:
    """Memory and the answer come first, and the disk with the next Refresh."""
    late: list[Change] = []

    async def commit(self: Writer, change: Change) -> None:
        self._fleet.apply(change)
        late.append(change)

    async def probe(self: Writer) -> None:
        while late:
            await self._journal.write(late.pop(0))

    Writer._commit = commit  # type: ignore[method-assign]
    Writer.probe = probe  # type: ignore[method-assign]


_FAULTS: dict[str, Callable[[], None]] = {
    "act before intent": _act_before_intent,
    "trust silence": _trust_silence,
    "answer before journal": _answer_before_journal,
}
