"""Replaces machines that broke or vanished, where the autoscaler would not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from cloudgraft.engine.context import EngineContext
from cloudgraft.engine.groups.specs import GroupSpec, RepairSettings
from cloudgraft.engine.machines.breaker import Breaker, BreakerLimit, Turn
from cloudgraft.engine.machines.decide import failure
from cloudgraft.engine.machines.observation import Observation
from cloudgraft.engine.machines.repair import due_at, plan_repair
from cloudgraft.engine.machines.states import REPAIRED, give_up
from cloudgraft.engine.new_records import about, happened, wanted
from cloudgraft.engine.reconcile.observer import Observer
from cloudgraft.store.records import Change, ErrorRecord, Event, MachineRecord, State


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
