"""Queues calls, sends them as limits allow, and records their outcomes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from cloudgraft.engine.context import EngineContext
from cloudgraft.engine.guards import HOUR, REMOVAL
from cloudgraft.engine.machines.decide import DOUBLE, Create, Delete, Situation, decide, surplus
from cloudgraft.engine.machines.observation import Observation
from cloudgraft.engine.machines.outcomes import Created, CreateFailed, DeleteFailed, Outcome, after, after_call
from cloudgraft.engine.machines.states import amend, is_given_up, move
from cloudgraft.engine.new_records import about
from cloudgraft.engine.reconcile.calls import Caller
from cloudgraft.engine.reconcile.observer import Observer
from cloudgraft.joining.claims import NewMachine
from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.errors import CloudgraftError, ErrorClass, InternalError, NotFoundError, PreconditionError, Retry
from cloudgraft.store.records import Change, ErrorRecord, Event, MachineRecord, Presence, State


class Sender:
    """Sends the queued calls of one cloud as limits allow."""

    def __init__(
        self,
        caller: Caller,
        observer: Observer,
        context: EngineContext,
        situation: Callable[[MachineRecord, Observation, float], Situation],
        on_due: Callable[[str], None],
    ) -> None:
        """``on_due`` is called with machines that must be decided about again."""
        self.creates: dict[str, None] = {}  # names, in order of arrival
        self.deletes: dict[str, None] = {}
        self._caller = caller
        self._observer = observer
        self._context = context
        self._situation = situation
        self._on_due = on_due
        self._told_of_guard: float | None = None  # when a deletion was last held back
        self._sold_out: dict[str, tuple[float, ErrorRecord]] = {}  # by group: the time, and the cloud's error

    @property
    def is_waiting(self) -> bool:
        """Whether a call waits for a limit."""
        return bool(self.creates or self.deletes)

    def sold_out(self, record: MachineRecord) -> ErrorRecord | None:
        """The out-of-capacity error of this group since the machine was requested: another call would get it again."""
        said = self._sold_out.get(record.group)
        return said[1] if said is not None and record.requested_at <= said[0] else None

    async def send(self) -> None:
        """Sends as many calls as limits allow, deletions first: they cost nothing and stop a cost."""
        while self.deletes and self._caller.free(self._context.clock.now()):
            name = next(iter(self.deletes))
            del self.deletes[name]
            await self._delete(name)
        free = self._caller.free(self._context.clock.now())
        while self.creates and free and self._context.may_act():
            names = list(self.creates)[:free]
            for name in names:
                del self.creates[name]
            await self._create(names)
            free = self._caller.free(self._context.clock.now())

    async def take_outcomes(self) -> None:
        """Writes the outcomes of calls to the journal."""
        taken = [(name, self._believed(name, outcome)) for name, outcome in self._caller.take()]
        if not taken:
            return
        for name, outcome in taken:
            self._note(name, outcome)
        await self._context.writer.write(lambda: self._settled(taken))

    # -- creating ----------------------------------------------------------------------------------------------------

    async def _create(self, names: list[str]) -> None:
        """Law 2: one transaction that records the calls, then the calls."""
        change = await self._context.writer.write(lambda: self._ordered(names))
        for record in change.machines:
            if record.state is State.CREATING:
                self._observer.call_begins(record.name, is_create=True)
                self._caller.create(record, self._user_data_for(record))

    def _user_data_for(self, record: MachineRecord) -> Callable[[], Awaitable[str]] | None:
        """How to make the machine's user data; None where machines get none."""
        make, group = self._context.user_data, self._context.fleet.groups.get(record.group)
        if make is None:
            return None
        if group is None or not group.is_configured:
            return _nothing_to_tell
        machine = NewMachine(
            name=record.name,
            group=record.group,
            cloud=record.cloud,
            provider_id=record.provider_id,  # known at this point only where the driver derives it from the name
            labels=group.spec.labels,
            taints=group.spec.taints,
            settings=record.settings,
            user_data_limit=self._caller.traits.user_data_limit,
        )
        return lambda: make.make(machine)

    def _ordered(self, names: list[str]) -> Change:
        now = self._context.clock.now()
        records: list[MachineRecord] = []
        events: list[Event] = []
        for name in names:
            record = self._context.fleet.machines.get(name)
            if record is None or self._context.observes_only(record.cloud):
                continue
            if not self._is_still(record, now, Create):
                continue
            refusal = self._context.guard_usage.order(record.cloud, is_first=record.state is State.REQUESTED)
            if refusal is not None:
                failed = move(record, State.FAILED, now, error=refusal)
                records.append(failed)
                events += [about(failed, now, refusal.message), about(failed, now, refusal.message, kind="guard")]
                continue
            sent = {
                "presence": Presence.UNKNOWN,
                "attempts": record.attempts + 1,
                "attempt_at": now,
                "ordered_at": record.ordered_at if record.ordered_at is not None else now,
            }
            if record.state is State.REQUESTED:
                records.append(move(record, State.CREATING, now, **sent))
                events.append(about(records[-1], now, "the cloud is asked to create it"))
            else:
                records.append(amend(record, **sent))
        return Change(machines=records, events=events)

    # -- deleting ----------------------------------------------------------------------------------------------------

    async def _delete(self, name: str) -> None:
        """Makes the call after the journal has the guard's event; the machine cannot be taken back in between."""
        if not self._context.may_act():
            return
        begun: list[Delete] = []
        counted: list[str] = []
        try:
            await self._context.writer.write(lambda: self._deletion(name, begun, counted))
        except BaseException:  # no call was made, and the next list leads to another decision
            if begun:
                self._observer.call_ends(name)
            for machine_id in counted:
                self._context.deletions.uncount(self._caller.settings.name, machine_id, name=name)
            raise
        for decision in begun:
            if decision.kind == DOUBLE and self._is_overtaken(name, decision.machine):
                self._observer.call_ends(name)
                self._on_due(name)
            else:
                self._caller.delete(name, decision.machine)

    def _is_overtaken(self, name: str, double: Machine) -> bool:
        """Whether a duplicate has joined the cluster while the journal was written, which may take long."""
        record = self._context.fleet.machines.get(name)
        if record is None:
            return True
        found = surplus(record, self._observer.see(record), sees_nodes=self._context.nodes.is_clear)
        return found is None or found.machine_id != double.machine_id

    def _deletion(self, name: str, begun: list[Delete], counted: list[str]) -> Change:
        """Decides in turn with all changes: a machine that is just being taken back must not be deleted."""
        now = self._context.clock.now()
        record = self._context.fleet.machines.get(name)
        if record is None or self._context.observes_only(record.cloud):
            return Change()
        observation = self._observer.see(record)
        decision = decide(record, observation, self._situation(record, observation, now))
        if not isinstance(decision, Delete):
            return Change()
        events: list[Event] = []
        if decision.kind or is_given_up(record):
            why = decision.cause or (record.error.message if record.error else "it failed")
            refusal = self._context.deletions.refusal(record.cloud, decision.machine.machine_id, now, name=name)
            if refusal:
                return self._held_back(record, f"its deletion waits ({why}): {refusal}", now)
            events += self._counted(record, decision.machine, why, now)
            counted += [decision.machine.machine_id for _ in events]
        self._observer.call_begins(name)
        begun.append(decision)
        if decision.kind and self._observer.is_news(name, decision.machine.machine_id):
            data = {"machine_id": decision.machine.machine_id}
            events.append(about(record, now, decision.cause, kind=decision.kind, **data))
        return Change(events=events)

    def _counted(self, record: MachineRecord, machine: Machine, why: str, now: float) -> list[Event]:
        """Counts a deletion that was not ordered; a restart counts the event."""
        if not self._context.deletions.count(record.cloud, machine.machine_id, now, name=record.name):
            return []  # the same deletion is tried again
        message = f"machine {machine.machine_id} is being deleted, and nobody ordered it: {why}"
        return [about(record, now, message, kind=REMOVAL, machine_id=machine.machine_id)]

    def _held_back(self, record: MachineRecord, why: str, now: float) -> Change:
        """Withholds a deletion until the next list. Of many, only the first gets an event."""
        self._observer.held[record.name] = why
        was_told, self._told_of_guard = self._told_of_guard, now
        if was_told is not None and now - was_told < HOUR:
            return Change()
        return Change(events=(about(record, now, f"{why}; others may wait too", kind="guard"),))

    def _is_still(self, record: MachineRecord, now: float, wanted: type) -> bool:
        observation = self._observer.observation(record.name)
        return isinstance(decide(record, observation, self._situation(record, observation, now)), wanted)

    # -- outcomes ----------------------------------------------------------------------------------------------------

    def _note(self, name: str, outcome: Outcome) -> None:
        """Updates the observation from an outcome."""
        now, settings, record = self._context.clock.now(), self._caller.settings, self._context.fleet.machines.get(name)
        attempts = record.attempts if record is not None else 1
        before = self._observer.observation(name)
        self._observer.put(name, after_call(before, outcome, attempts=attempts, settings=settings, now=now))
        if record is None or not isinstance(outcome, CreateFailed):
            return
        if outcome.error.error_class is ErrorClass.OUT_OF_RESOURCES:
            self._remember_sold_out(record.group, outcome.error, now)

    def _believed(self, name: str, outcome: Outcome) -> Outcome:
        """Rejects a create that returned the machine of another record: that machine must not be deleted."""
        if not isinstance(outcome, Created):
            return outcome
        id_ = outcome.machine.machine_id
        holder = self._context.fleet.by_machine_id(self._caller.settings.name, id_)
        if holder is None or holder.name == name or holder.state not in (State.BOOTING, State.RUNNING):
            return outcome
        message = f"the driver's create() of {name} answered with machine {id_}, which is {holder.name}"
        return CreateFailed(InternalError(message))

    def _remember_sold_out(self, group: str, error: CloudgraftError, now: float) -> None:
        said = ErrorRecord(code=error.slug, message=error.message, error_class=int(error.error_class))
        self._sold_out[group] = (now, said)
        waiting = self._context.fleet.groups.get(group)
        if waiting is not None:
            for record in waiting.machines.values():
                if record.state is State.REQUESTED:
                    self.creates.pop(record.name, None)
                    self._on_due(record.name)

    def _settled(self, taken: Sequence[tuple[str, Outcome]]) -> Change:
        now = self._context.clock.now()
        records: dict[str, MachineRecord] = {}
        events: list[Event] = []
        for name, outcome in taken:
            record = records.get(name) or self._context.fleet.machines.get(name)
            if record is None:
                continue
            made = after(record, outcome, now)
            if made is not None:
                records[name] = made.record
                if made.kind is not None:
                    refused = made.kind == "retry" and isinstance(outcome, CreateFailed)
                    data = {"call": "create"} if refused else {}
                    events.append(about(made.record, now, made.cause, kind=made.kind, **data))
            elif isinstance(outcome, CreateFailed) and outcome.error.retry is Retry.SETTLE_FIRST:
                events.append(about(record, now, outcome.error.message, kind="unsettled"))
            elif isinstance(outcome, DeleteFailed) and not isinstance(outcome.error, NotFoundError):
                message = f"it could not be deleted and will be tried again: {outcome.error.message}"
                events.append(about(record, now, message, kind="retry", call="delete"))
        return Change(machines=tuple(records.values()), events=events)


async def _nothing_to_tell() -> str:
    """Fails: the group's join settings are gone, and a machine without user data costs money and never joins."""
    raise PreconditionError("its group is no longer configured")
