"""The policy that is off by default: orphans that have been there for long are deleted without anybody's word."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from cloudgraft.engine.calls import Caller
from cloudgraft.engine.events import happened
from cloudgraft.engine.observer import Observer
from cloudgraft.engine.orphans import Orphan, OrphanKind
from cloudgraft.engine.surroundings import Surroundings
from cloudgraft.sdk.driver import MachineState
from cloudgraft.store.records import Change

__all__ = ["Sweeper"]

log = logging.getLogger("cloudgraft.engine")

_PATIENCE: Final = 3600.0  # seconds that an orphan must have been there, as far as this process remembers
_AGAIN: Final = 300.0  # seconds before a call that did not help is made again


class Sweeper:
    """Deletes the orphans of one cloud, where the configuration says so."""

    def __init__(self, observer: Observer, caller: Caller, around: Surroundings) -> None:
        self._observer = observer
        self._caller = caller
        self._around = around
        self._since: dict[str, float] = {}  # by machine id
        self._tried: dict[str, float] = {}

    async def sweep(self) -> None:
        """After a list: remembers what it shows, and begins to delete what has been there for too long.

        Only what proves to be ours and was never in the hands of an operator. A pause holds it like everything else.
        In an inventory what has no marks at all proves to be ours, so that it must also look like one that we made.
        """
        now, around = self._around.clock.now(), self._around
        ours = (o for o in self._observer.orphans if around.identity.looks_ours(o.machine))
        orphans = {o.machine.machine_id: o for o in ours if _is_fair_game(o)}
        self._since = {id_: self._since.get(id_, now) for id_ in orphans}
        self._tried = {id_: at for id_, at in self._tried.items() if id_ in orphans}
        if not around.settings.delete_orphans or not self._observer.may_create:
            return
        for id_, orphan in orphans.items():
            is_due = now - self._since[id_] >= _PATIENCE and now - self._tried.get(id_, -_AGAIN) >= _AGAIN
            is_paused = around.fleet.pause_of(orphan.group or "", orphan.cloud) is not None
            if is_due and not is_paused and around.may_act() and self._caller.free(now):
                await self._delete(orphan, now)

    async def _delete(self, orphan: Orphan, now: float) -> None:
        machine = orphan.machine
        if machine.machine_id not in self._tried:
            message = (
                f"machine {machine.machine_id} ({machine.name}) has our marks and has not been in the journal for "
                f"{(now - self._since[machine.machine_id]) / 60:.0f} minutes; engine.orphans.delete says to delete it"
            )
            event = happened(
                "orphan_deleted",
                now,
                message,
                cloud=orphan.cloud,
                group=orphan.group or "",
                machine_id=machine.machine_id,
            )
            await self._around.writer.write(lambda: Change(events=(event,)))
        if self._around.fleet.by_machine_id(orphan.cloud, machine.machine_id) is not None:
            return  # taken into the journal while that was written
        self._tried[machine.machine_id] = now
        self._caller.remove(machine).add_done_callback(self._tell)

    def _tell(self, call: asyncio.Task[None]) -> None:
        error = None if call.cancelled() else call.exception()
        if error is not None:
            log.warning("an orphan was not deleted", extra={"cloud": self._observer.name, "error": str(error)})


def _is_fair_game(orphan: Orphan) -> bool:
    return orphan.kind is OrphanKind.UNKNOWN and orphan.machine.state is not MachineState.DELETING
