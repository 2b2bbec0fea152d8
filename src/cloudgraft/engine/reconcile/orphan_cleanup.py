"""Deletes orphans that have existed for long, without an order. This policy is off by default."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from cloudgraft.engine.context import EngineContext
from cloudgraft.engine.guards import REMOVAL
from cloudgraft.engine.new_records import happened
from cloudgraft.engine.ownership.orphans import Orphan, OrphanKind
from cloudgraft.engine.reconcile.calls import Caller
from cloudgraft.engine.reconcile.observer import Observer
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.store.records import Change, Event

log = logging.getLogger("cloudgraft.engine")

_PATIENCE: Final = 3600.0  # seconds for which lists must have shown an orphan, observed by this process
_AGAIN: Final = 300.0  # seconds before a call without effect is repeated


class OrphanCleanup:
    """Deletes the orphans of one cloud, if configured."""

    def __init__(self, observer: Observer, caller: Caller, context: EngineContext) -> None:
        self._observer = observer
        self._caller = caller
        self._context = context
        self._seen_for: dict[str, float] = {}  # by machine id: observed seconds
        self._tried: dict[str, float] = {}
        self._held: dict[str, str] = {}  # by machine id: the reported reason why it is not deleted

    async def sweep(self) -> None:
        """After a list: counts the time of its orphans, and starts to delete those that have existed for too long.

        Only machines that are proven to be ours and that no operator has released. A pause stops this too. An
        inventory proves unmarked machines to be ours, so they must also look like machines that we created.
        """
        now, context = self._context.clock.now(), self._context
        ours = (o for o in self._observer.orphans if context.identity.looks_ours(o.machine))
        orphans = {o.machine.machine_id: o for o in ours if _may_clean_up(o)}
        listing = self._observer.listing
        passed = listing.began - listing.follows if listing is not None and listing.follows is not None else 0.0
        self._seen_for = {id_: self._seen_for[id_] + passed if id_ in self._seen_for else 0.0 for id_ in orphans}
        self._tried = {id_: at for id_, at in self._tried.items() if id_ in orphans}
        self._held = {id_: why for id_, why in self._held.items() if id_ in orphans}
        if not context.settings.delete_orphans or not self._observer.may_create:
            return
        for id_, orphan in orphans.items():
            is_due = self._seen_for[id_] >= _PATIENCE and now - self._tried.get(id_, -_AGAIN) >= _AGAIN
            is_paused = context.fleet.pause_of(orphan.group or "", orphan.cloud) is not None
            if is_due and not is_paused and context.nodes.is_clear and context.may_act() and self._caller.free(now):
                await self._delete(orphan, now)

    async def _delete(self, orphan: Orphan, now: float) -> None:
        """Deletes an orphan after writing the journal, unless it was adopted, or a guard or observeOnly forbids it."""
        begun: list[Machine] = []
        counted: list[str] = []
        id_ = orphan.machine.machine_id
        try:
            await self._context.writer.write(lambda: self._deletion(orphan, now, begun, counted))
        except BaseException:
            for machine_id in counted:
                self._context.deletions.uncount(orphan.cloud, machine_id)
            raise
        if begun and self._context.fleet.by_machine_id(orphan.cloud, id_) is None:
            self._tried[id_] = now
            self._caller.remove(orphan.machine).add_done_callback(self._tell)

    def _deletion(self, orphan: Orphan, now: float, begun: list[Machine], counted: list[str]) -> Change:
        context, id_ = self._context, orphan.machine.machine_id
        if context.fleet.by_machine_id(orphan.cloud, id_) is not None:
            return Change()
        if context.observes_only(orphan.cloud):
            return self._withheld(orphan, now, "observed", "observeOnly is set; otherwise cloudgraft would delete it")
        if context.nodes.is_used(orphan.machine):
            return self._withheld(orphan, now, "orphan", "its node is ready, so that only you adopt or delete it")
        refusal = context.deletions.refusal(orphan.cloud, id_, now)
        if refusal:
            return self._withheld(orphan, now, "guard", f"its deletion waits: {refusal}")
        begun.append(orphan.machine)
        if not context.deletions.count(orphan.cloud, id_, now):
            return Change()
        counted.append(id_)
        message = (
            f"machine {id_} ({orphan.machine.name}) has our marks and has not been in the journal for "
            f"{self._seen_for[id_] / 60:.0f} minutes; engine.orphans.delete says to delete it"
        )
        return Change(events=[_event(kind, orphan, now, message) for kind in ("orphan_deleted", REMOVAL)])

    def _withheld(self, orphan: Orphan, now: float, kind: str, why: str) -> Change:
        """Reports each reason once. The deletion is tried again after the next list."""
        id_ = orphan.machine.machine_id
        if self._held.get(id_) == why:
            return Change()
        self._held[id_] = why
        return Change(events=(_event(kind, orphan, now, f"orphan {id_} ({orphan.machine.name}): {why}"),))

    def _tell(self, call: asyncio.Task[None]) -> None:
        error = None if call.cancelled() else call.exception()
        if error is not None:
            log.warning("an orphan was not deleted", extra={"cloud": self._observer.name, "error": str(error)})


def _event(kind: str, orphan: Orphan, now: float, message: str) -> Event:
    group, id_ = orphan.group or "", orphan.machine.machine_id
    return happened(kind, now, message, cloud=orphan.cloud, group=group, machine_id=id_)


def _may_clean_up(orphan: Orphan) -> bool:
    return orphan.kind is OrphanKind.UNKNOWN and orphan.machine.state is not MachineState.DELETING
