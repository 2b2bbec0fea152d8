"""Changes machines without an order: replaces broken or vanished ones, and deletes old orphans if that is allowed."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from cloudgraft.engine.context import EngineContext
from cloudgraft.engine.groups.specs import GroupSpec, RepairSettings
from cloudgraft.engine.guards import REMOVAL
from cloudgraft.engine.machines.breaker import Breaker, BreakerLimit, Turn
from cloudgraft.engine.machines.decide import failure
from cloudgraft.engine.machines.observation import Observation
from cloudgraft.engine.machines.repair import due_at, plan_repair
from cloudgraft.engine.machines.states import REPAIRED, give_up
from cloudgraft.engine.new_records import about, happened, wanted
from cloudgraft.engine.ownership.orphans import Orphan, OrphanKind
from cloudgraft.engine.reconcile.calls import Caller
from cloudgraft.engine.reconcile.observer import Observer
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.store.records import Change, ErrorRecord, Event, MachineRecord, State

# -- repair: where the autoscaler would not replace a machine ----------------------------------------------------------


class Repairer:
    """Replaces the broken machines of one cloud."""

    def __init__(self, observer: Observer, context: EngineContext, refusal: Callable[[], ErrorRecord | None]) -> None:
        """``refusal`` returns why a machine requested now would not come."""
        self._observer = observer
        self._context = context
        self._refusal = refusal
        self.breakers: dict[str, Breaker] = {}  # by group, for broken machines
        self._is_dark = False  # it was reported that most nodes are not ready
        self._held: set[str] = set()  # broken machines reported as not replaceable now

    def keep_minimum(self, lost: Sequence[MachineRecord], now: float) -> Change:
        """Replaces vanished machines where their group would fall below its minimum."""
        records: list[MachineRecord] = []
        events: list[Event] = []
        vanished = [r for r in lost if self._was_running(r)]
        left = Counter(r.group for r in vanished)
        for record in vanished:
            spec = self._repairable(record.group)
            if spec is None:
                continue
            if self._context.fleet.groups[spec.id].target - left[spec.id] < spec.min_size:
                left[spec.id] -= 1
                if self._context.observes_only(record.cloud):
                    why = "replace it: its group falls below its minimum"
                    events += self._observer.withhold(record, why, now).events
                    continue
                error = self._refusal() or self._ask(spec, is_in_place=True)
                new = self._replacement(spec, record, now, error)
                records.append(new)
                why = f"asked for in place of {record.name}, which its cloud does not have any more"
                told = about(record, now, "its group would fall below its minimum", kind="repair", replacement=new.name)
                events += [about(new, now, why), told]
        return Change(machines=records, events=events)

    async def repair(self) -> None:
        """Replaces running machines that the cloud has reported dead for long, or whose nodes are not ready.

        None while the cluster cannot be seen: a node that is ready would say that the cloud is wrong.
        """
        if not self._context.nodes.is_clear:
            return
        broken: dict[str, list[tuple[MachineRecord, float]]] = {}
        now, settings = self._context.clock.now(), self._settings()
        for record in self._context.fleet.in_cloud(self._observer.name).values():
            observation = self._observer.peek(record.name)
            if observation is not None and observation.is_ill and record.state is State.RUNNING:
                at = due_at(observation, settings, now)
                if at is not None:
                    broken.setdefault(record.group, []).append((record, at))
        for group in set(self.breakers) - set(broken):
            del self.breakers[group]
        self._held &= {record.name for machines in broken.values() for record, _ in machines}
        await self._tell_of_darkness()
        for group, machines in broken.items():
            await self._repair_group(group, machines)

    def _settings(self) -> RepairSettings:
        """The repair settings. While most nodes are not ready, none is replaced for that: the network is the cause."""
        settings = self._context.settings.repair
        return replace(settings, not_ready_after=timedelta(0)) if self._context.nodes.is_dark else settings

    async def _tell_of_darkness(self) -> None:
        nodes, settings = self._context.nodes, self._context.settings.repair
        was_dark, self._is_dark = self._is_dark, nodes.is_dark
        if self._is_dark and not was_dark and settings.enabled and settings.not_ready_after:
            total = nodes.total()
            message = f"{total.unready} of {total.joined} nodes are not ready at once; no machine is replaced for that"
            event = happened("breaker", self._context.clock.now(), message, cloud=self._observer.name)
            await self._context.writer.write(lambda: Change(events=(event,)))

    async def _repair_group(self, group: str, dead: list[tuple[MachineRecord, float]]) -> None:
        spec = self._repairable(group)
        if spec is None:
            return
        machines = self._context.fleet.groups[group].machines.values()
        running, now, settings = (
            sum(r.state is State.RUNNING for r in machines),
            self._context.clock.now(),
            self._settings(),
        )
        due = [record for record, at in dead if now >= at]
        breaker = self.breakers.setdefault(group, Breaker())
        limit = BreakerLimit(share=settings.max_share, few=1)
        if breaker.look({record.name for record in due}, running, limit) is Turn.OPENED:
            event = happened("breaker", now, _held_back(group, breaker), cloud=spec.cloud, group=group)
            await self._context.writer.write(lambda: Change(events=(event,)))
        if breaker.is_open:
            return
        under_way = sum(bool(r.replaces) and r.state not in (State.RUNNING, State.DELETING) for r in machines)
        for record in plan_repair(due, running=running, under_way=under_way, settings=settings):
            await self._replace(spec, record)

    async def _replace(self, spec: GroupSpec, dead: MachineRecord) -> None:
        await self._context.writer.write(lambda: self._replaced(spec, dead))

    def _replaced(self, spec: GroupSpec, dead: MachineRecord) -> Change:
        now = self._context.clock.now()
        current = self._context.fleet.machines.get(dead.name)
        if current is None or current.version != dead.version:
            return Change()
        observation = self._observer.see(current)
        at = due_at(observation, self._settings(), now) if self._context.nodes.is_clear else None
        if at is None or now < at:
            return Change()  # it recovered while this waited for its turn
        why = _why(observation, now)
        if self._context.observes_only(current.cloud):
            return self._observer.withhold(current, f"replace it: {why}", now)
        refusal = self._context.deletions.refusal(current.cloud, current.machine_id, now, name=current.name)
        error = failure("guard", refusal) if refusal else self._refusal() or self._ask(spec)
        if error is not None:  # a broken machine is better than none
            return self._held_back(current, f"{why}, and it cannot be replaced now: {error.message}", now)
        self._held.discard(dead.name)
        new, old = self._replacement(spec, dead, now, None), give_up(current, now, REPAIRED, why)
        return Change(
            machines=[old, new],
            events=[
                about(old, now, f"{why}; {new.name} takes its place"),
                about(new, now, f"asked for in place of {old.name}: {why}"),
                about(old, now, why, kind="repair", replacement=new.name),
            ],
        )

    def _held_back(self, dead: MachineRecord, why: str, now: float) -> Change:
        if dead.name in self._held:
            return Change()
        self._held.add(dead.name)
        return Change(events=(about(dead, now, why, kind="repair"),))

    def _repairable(self, group: str) -> GroupSpec | None:
        found = self._context.fleet.groups.get(group)
        if found is None or not found.is_configured or not self._context.settings.repair.enabled:
            return None
        if found.spec.cloud != self._observer.name:
            return None  # the group moved to another cloud: a replacement there would be of another kind
        return None if self._context.fleet.pause_of(group, found.spec.cloud) else found.spec

    def _was_running(self, record: MachineRecord) -> bool:
        current = self._context.fleet.machines.get(record.name)
        return current is not None and current.state is State.RUNNING

    def _ask(self, spec: GroupSpec, *, is_in_place: bool = False) -> ErrorRecord | None:
        price = spec.price.amount if spec.price else None
        return self._context.guard_usage.ask(spec.cloud, price, is_in_place=is_in_place)

    def _replacement(
        self, spec: GroupSpec, lost: MachineRecord, now: float, error: ErrorRecord | None
    ) -> MachineRecord:
        context = self._context
        return wanted(
            spec, context.fleet, context.identity, self._observer.traits, now, error=error, replaces=lost.name
        )


def _held_back(group: str, breaker: Breaker) -> str:
    return (
        f"{len(breaker.affected)} of {breaker.total} machines of group {group} are broken at once; none is replaced. "
        f"If they are really broken, run `cloudgraft accept-loss {group}`: then they are replaced step by step"
    )


def _why(observation: Observation, now: float) -> str:
    if observation.listed.dead_since is not None and observation.listed.machine is not None:
        return f"its cloud reports it {observation.listed.machine.state.value}"
    if observation.node.unready_since is not None:
        return f"its node has not been ready for {(now - observation.node.unready_since) / 60:.0f} minutes"
    return "it is broken"


# -- orphans: off by default -------------------------------------------------------------------------------------------


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
