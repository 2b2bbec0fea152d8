"""Observes one cloud: reads its lists into observations, and finds our machines that the journal does not have."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from cloudgraft.engine.clock import wall_time
from cloudgraft.engine.context import EngineContext
from cloudgraft.engine.guards import Tally, tally, tally_returned
from cloudgraft.engine.machines.decide import failure
from cloudgraft.engine.machines.observation import Indexing, Listing, Looker, Observation, look, observed_lag
from cloudgraft.engine.machines.outcomes import hinted
from cloudgraft.engine.machines.states import is_released, was_released
from cloudgraft.engine.new_records import about, found, happened
from cloudgraft.engine.ownership.orphans import (
    Orphan,
    OrphanKind,
    find_orphans,
    known_names,
    moved_here,
    renamed,
    strangers,
    strays,
)
from cloudgraft.engine.reconcile.calls import Caller
from cloudgraft.engine.reconcile.mass_absence import Absence
from cloudgraft.sdk.common.event_loop import in_slices
from cloudgraft.sdk.driver import DriverTraits, Machine, MachineState
from cloudgraft.sdk.errors import AuthenticationError, CloudgraftError, PermissionDeniedError, PreconditionError
from cloudgraft.store.records import Change, CloudRecord, ErrorRecord, Event, MachineRecord, Presence, State

# -- health ------------------------------------------------------------------------------------------------------------
# A cloud is down when its lists fail.


_FAILURES = 2  # a single failure may be bad luck
_CERTAIN = (AuthenticationError, PermissionDeniedError, PreconditionError)  # errors that a retry will not fix
_LONG = 60.0  # seconds: a longer retry-after counts as down without a second list to confirm it


@dataclass(slots=True)
class Health:
    """The health of one cloud, by its lists."""

    cloud: str
    listed_at: float | None = None  # start of the latest list that succeeded
    failures: int = 0  # in a row
    error: str = ""
    code: str = ""
    since: float | None = None  # since when lists have been failing
    machines: int = 0  # in the latest list
    retry_after: float | None = None  # the cloud's retry-after in seconds, if the latest list failed

    @property
    def is_down(self) -> bool:
        """Whether a machine requested now would not come."""
        return bool(self.error)

    def good(self, began: float, machines: int) -> bool:
        """Records a list that succeeded; returns whether the cloud was down before."""
        was_down = self.is_down
        self.listed_at, self.machines, self.failures = began, machines, 0
        self.error, self.code, self.since, self.retry_after = "", "", None, None
        return was_down

    def bad(self, error: CloudgraftError, now: float) -> bool:
        """Records a list that failed; returns whether the cloud counts as down since this one."""
        was_down = self.is_down
        self.failures += 1
        self.retry_after = error.retry_after
        self.since = self.since or now
        is_certain = isinstance(error, _CERTAIN) or hinted(error.retry_after) > _LONG
        if self.failures >= _FAILURES or is_certain or self.listed_at is None:
            self.error, self.code = error.message, error.slug
        return self.is_down and not was_down

    def refusal(self) -> ErrorRecord | None:
        """The error of a machine requested now; None when the cloud is not down."""
        if not self.is_down:
            return None
        return failure(self.code, f"cloud {self.cloud} cannot be used: {self.error}")


SLICE = 50  # machines evaluated before the event loop gets control
_NAME_SLICE = 1000  # the same where only names are compared


class Observer:
    """Keeps the observations of one cloud."""

    def __init__(self, name: str, caller: Caller, context: EngineContext) -> None:
        self.name = name
        self.health = Health(name)
        self.listing: Listing | None = None  # the latest
        self.orphans: list[Orphan] = []
        self._unlisted: list[Orphan] = []  # orphans of earlier lists that the latest one does not cover
        self.blocked = ""  # why nothing may be created here although the cloud is reachable
        self._caller = caller
        self._context = context
        self._observations: dict[str, Observation] = {}
        self.held: dict[str, str] = {}  # by machine: why a decision is not carried out, such as a guard or observeOnly
        self._told_of: dict[str, set[str]] = {}  # by machine: what was reported about it already
        self._began = context.clock.now()
        self._told: set[str] = set()  # machine ids of reported orphans
        self._listed = False  # since we started
        self._taken_in = 0  # machines that were taken in since we started, before the first create (law 11)
        self.list_lag = 0.0  # seconds by which lists were observed to lag beyond the declared list_delay
        self.absence = Absence(name, context, self.observation)

    @property
    def traits(self) -> DriverTraits:
        """The traits that the driver declares; a remote driver declares them once it was reached."""
        return self._caller.traits

    @property
    def may_create(self) -> bool:
        """Whether the cloud was listed and our machines were taken in; before that nothing is created (law 11)."""
        return self._listed and not self.blocked and self.name in self._context.fleet.adopted_clouds

    def observation(self, name: str) -> Observation:
        """The observation of one machine, created if needed."""
        observation = self._observations.get(name)
        if observation is None:
            observation = self._observations[name] = Observation(since=self._context.clock.now())
        return observation

    def put(self, name: str, observation: Observation) -> None:
        """Replaces the observation of one machine."""
        self._observations[name] = observation

    def see(self, record: MachineRecord) -> Observation:
        """The observation of one machine, with its node as the cluster shows it now."""
        before = self.observation(record.name)
        node = self._context.nodes.see(record, before)
        if node is not before.node:
            before = self._observations[record.name] = before.with_node(node)
        return before

    def call_begins(self, name: str, *, is_create: bool = False) -> None:
        """Notes a call under way. Absences from before a create say nothing about what it creates."""
        before = self.observation(name)
        listed = replace(before.listed, absences=0) if is_create else before.listed
        self.put(name, replace(before, calls=replace(before.calls, is_open=True), listed=listed))

    def call_ends(self, name: str) -> None:
        """Takes back :meth:`call_begins`: no call was made."""
        before = self.observation(name)
        self.put(name, replace(before, calls=replace(before.calls, is_open=False)))

    def is_news(self, name: str, what: str) -> bool:
        """Whether this was not reported about the machine yet; from now on it counts as reported."""
        told = self._told_of.setdefault(name, set())
        is_new = what not in told
        told.add(what)
        return is_new

    def withhold(self, record: MachineRecord, what: str, now: float) -> Change:
        """The event about an action that `observeOnly` forbids, once for each machine and action."""
        self.held[record.name] = f"observeOnly: it would {what}"
        if not self.is_news(record.name, f"observed: {what}"):
            return Change()
        message = f"observeOnly of cloud {record.cloud} is set, so nothing was done; otherwise cloudgraft would {what}"
        return Change(events=(about(record, now, message, kind="observed"),))

    def peek(self, name: str) -> Observation | None:
        """The observation of one machine for reports; None if there is none."""
        return self._observations.get(name)

    def trust(self, name: str) -> None:
        """Forgets that the machine was missing: an operator says that the one that exists now is ours."""
        observation = self._observations.get(name)
        if observation is not None:
            self.put(name, observation.with_listed(replace(observation.listed, was_missing=False)))

    def forget(self, name: str) -> None:
        """Drops the observation of a machine that is gone."""
        for kept in (self._observations, self._told_of, self.held):
            kept.pop(name, None)

    async def observe(self) -> bool:
        """Lists the cloud once and updates the observations; returns whether it answered."""
        began = self._context.clock.now()
        try:
            machines = await self._caller.list()
        except CloudgraftError as error:
            if self.health.bad(error, self._context.clock.now()):
                await self._tell("cloud_down", f"cloud {self.name} cannot be used: {error.message}")
            return False
        # A long list is evaluated in slices, so that calls are answered in between.
        machines = await self._known_names(machines)
        # None after a failure: then it is unknown what happened since the latest list that succeeded.
        follows = self.health.listed_at if self.health.failures == 0 else None
        listing = await _indexed(machines, began, follows)
        await self._look_at_all(listing)
        orphans: list[Orphan] = []
        await asyncio.sleep(0)
        async for some in in_slices(machines, SLICE):
            orphans += self._orphans_of(some)
        self._unlisted = self._still_unlisted(listing)
        self.listing, self.orphans = listing, orphans
        await self.take_in()
        await self.count()
        if self.health.good(began, len(machines)):
            await self._tell("cloud_up", f"cloud {self.name} answers again")
        self._listed = True
        return True

    async def _known_names(self, machines: Sequence[Machine]) -> Sequence[Machine]:
        others: list[Machine] = []
        async for some in in_slices(machines, _NAME_SLICE):
            others += renamed(some, self._context.identity, self.traits.ownership)
        await asyncio.sleep(0)
        return known_names(self.name, machines, others, self._context.fleet)

    def review(self) -> None:
        """Finds the orphans in the latest list, by the current journal."""
        if self.listing is not None:
            self.orphans = self._orphans_of(self.listing.machines)

    def _orphans_of(self, machines: Sequence[Machine]) -> list[Orphan]:
        context = self._context
        return find_orphans(self.name, machines, context.fleet, context.identity, self.traits.ownership)

    def _still_unlisted(self, listing: Listing) -> list[Orphan]:
        """Orphans of earlier lists in a part of the cloud that this list does not cover: they still count (law 10)."""
        return [
            orphan
            for orphan in (*self.orphans, *self._unlisted)
            if not listing.tells_of_id(machine_id := orphan.machine.machine_id)
            and machine_id not in listing.by_id
            and self._context.fleet.by_machine_id(self.name, machine_id) is None
        ]

    async def count(self) -> None:
        """Recounts this cloud for the guards, in turn with all changes, so that no change under way is missed."""
        if not self._context.guard_usage.is_guarded:
            return
        now, wall = self._context.clock.now(), wall_time(self._context.clock)
        records = [r for r in self._context.fleet.machines.values() if r.cloud == self.name]
        parts = [(some, tally(some, (), now, wall=wall)) async for some in in_slices(records, SLICE)]
        await asyncio.sleep(0)
        await self._context.writer.write(lambda: self._counted(parts, now, wall))

    def _counted(self, parts: Sequence[tuple[Sequence[MachineRecord], Tally]], now: float, wall: float) -> Change:
        """Stores the count, after a recount of the parts that have changed meanwhile."""
        context, known = self._context, self._context.fleet.machines
        prices = {
            group.spec.id: float(group.spec.price.amount)
            for group in context.fleet.groups.values()
            if group.spec.cloud == self.name and group.spec.price
        }
        new = {name: record for name, record in known.items() if record.cloud == self.name}
        tallies = []
        for some, counted in parts:
            current = [new.pop(record.name, None) for record in some]
            is_same = all(record is was for record, was in zip(current, some, strict=True))
            again = (record for record in current if record is not None)
            tallies.append(counted if is_same else tally(again, (), now, wall=wall))
        found = strays([*self.orphans, *self._unlisted], prices, now)
        tallies.append(tally(new.values(), found, now, wall=wall))
        tallies.append(tally_returned(self._returned({stray.machine_id for stray in found}), now, wall=wall))
        context.guard_usage.put(self.name, Tally.total(tallies))
        return Change()

    def _returned(self, strays: AbstractSet[str]) -> list[MachineRecord]:
        """Gone records whose machines are in the latest list, without those that count as strays."""
        found = []
        for name, observation in self._observations.items():
            record = self._context.fleet.machines.get(name)
            if (
                record is None
                or observation.listed.machine is None
                or not observation.listed.is_ours
                or observation.listed.machine.machine_id in strays
            ):
                continue
            if record.state is State.GONE and record.cloud == self.name and not was_released(record):
                found.append(record)
        return found

    def is_hurried(self) -> bool:
        """Whether a change is under way that the next list will show."""
        return self.name not in self._context.fleet.adopted_clouds or bool(self._context.fleet.moving.get(self.name))

    async def _look_at_all(self, listing: Listing) -> None:
        context = self._context
        looker = Looker(
            context.identity,
            self.traits,
            self._caller.settings,
            rivals=context.nodes.rivals,
            trusts_nodes=not context.nodes.is_dark,
            sees_nodes=context.nodes.is_clear,
        )
        looker = await self.absence.judge(listing, looker)
        fleet = context.fleet
        names = dict.fromkeys((*fleet.in_cloud(self.name), *fleet.released, *listing.by_name, *self._observations))
        lag = 0.0
        async for some in in_slices(names, SLICE):
            for name in some:
                record = fleet.machines.get(name)
                if record is not None and record.cloud == self.name and self._matters(record, listing):
                    observation = self.observation(name)
                    listed = look(record, observation, listing, looker)
                    lag = max(lag, observed_lag(record, observation.listed, listed, listing))
                    self.put(name, observation.with_listed(listed))
                    if _is_over(record) and listed.machine is None and not observation.calls.is_open:
                        self.forget(name)  # it had shown up again, and is gone for good
                elif record is None:
                    self.forget(name)
        await self._note_lag(lag)

    async def _note_lag(self, lag: float) -> None:
        """Reports lists that lag beyond the declared delay: once, and again when the lag has doubled."""
        declared = self.traits.list_delay.total_seconds()
        if lag > max(declared, 2 * self.list_lag):
            self.list_lag = lag
            await self._tell("list_lag", self.lag_trouble)

    @property
    def lag_trouble(self) -> str:
        """What is wrong with the declared list_delay; empty when lists did not lag beyond it."""
        declared = self.traits.list_delay.total_seconds()
        if self.list_lag <= declared:
            return ""
        return (
            f"lists of cloud {self.name} showed a machine {self.list_lag:.0f} s late, and its driver declares a "
            f"list_delay of {declared:g} s: a machine that exists can be taken for missing, and be created twice or "
            f"deleted. Declare a list_delay of more than {self.list_lag:.0f} s"
        )

    def _matters(self, record: MachineRecord, listing: Listing) -> bool:
        """Whether to evaluate a record. A gone one matters only while the cloud has, or had, its machine."""
        if (record.presence is not Presence.NONE and not _is_over(record)) or record.name in listing.by_name:
            return True
        observation = self._observations.get(record.name)
        return observation is not None and observation.listed.machine is not None

    async def take_in(self) -> None:
        """Before the first create: adopts machines that are proven to be ours. Later ones are reported as orphans."""
        context, listing = self._context, self.listing
        if listing is None or not context.is_placed(self.name):
            return
        if any(records and not context.is_configured(name) for name, records in context.fleet.active.items()):
            await context.writer.write(lambda: self._moved(listing))
        if self.name in context.fleet.adopted_clouds:
            await self._tell_of_orphans()
            return
        before, self.blocked = self.blocked, self._why_not_ours(listing)
        if self.blocked:
            if self.blocked != before:
                await self._tell("blocked", self.blocked)
            return
        # Two delays: a machine created just before the journal got lost must be in this list.
        is_last = listing.began >= self._began + self.traits.list_delay.total_seconds()
        change = await context.writer.write(lambda: self._adoption(is_last=is_last))
        self._taken_in += len(change.machines)
        self.orphans = [o for o in self.orphans if context.fleet.by_machine_id(self.name, o.machine.machine_id) is None]

    def _moved(self, listing: Listing) -> Change:
        context, now = self._context, self._context.clock.now()
        records = moved_here(
            self.name, listing, context.fleet, context.identity, self.traits.ownership, context.is_configured
        )
        why = f"its cloud is named {self.name} now"
        return Change(machines=records, events=[about(record, now, why, kind="adopted") for record in records])

    def _adoption(self, *, is_last: bool) -> Change:
        context, now = self._context, self._context.clock.now()
        records: dict[str, MachineRecord] = {}
        events: list[Event] = []
        if self.name in context.fleet.adopted_clouds:
            return Change()  # the engine and the worker may both have started this
        for orphan in self.orphans:
            # The list may have come before the groups were known: then the group in a name could not be read.
            named = orphan.group or context.identity.group_of(orphan.machine, context.fleet.groups)
            group = context.fleet.groups.get(named or "")
            is_fit = orphan.kind is OrphanKind.UNKNOWN and group is not None and group.spec.cloud == self.name
            if not is_fit or group is None or orphan.machine.state is MachineState.DELETING:
                continue
            if context.fleet.by_machine_id(self.name, orphan.machine.machine_id) is not None:
                continue  # it was taken in meanwhile
            if orphan.machine.name in records:
                continue  # a duplicate: it is handled once the first machine has its record
            record = found(orphan.machine, group.spec, context.fleet, now, is_adopted=False, taken=records)
            records[record.name] = record
            events += [about(record, now, "found in its cloud, and it proves to be ours"), _adopted(record, now)]
        if is_last:
            taken_in = self._taken_in + len(records)  # earlier lists may have shown most of them
            message = f"cloud {self.name} was listed; {taken_in} machines of ours were taken in"
            events.append(happened("cloud_ready", now, message, cloud=self.name, adopted=taken_in))
        ready = [CloudRecord(name=self.name, adopted_at=now)] if is_last else []
        return Change(machines=tuple(records.values()), events=events, clouds=ready)

    def _why_not_ours(self, listing: Listing) -> str:
        """Why no machine of this list may be taken in; empty when they may.

        Either the journal got lost, or two clusters have one name. Only a person can decide, so nothing is done until
        then.
        """
        if not listing.is_whole:
            return (
                f"a part of cloud {self.name} cannot be listed: nothing is created before all of its machines that "
                "are ours are known"
            )
        identity = self._context.identity
        others = strangers(listing, identity)
        if identity.is_certain or not others or any(map(identity.looks_ours, listing.machines)):
            return ""
        counted = ", ".join(f"{count} of cluster id {other}" for other, count in sorted(others.items()))
        theirs = min(others)
        return (
            f"cloud {self.name} has machines of a cluster that is also named {identity.cluster!r}: {counted}. If that "
            f"is this cluster and its journal was lost, set `clusterId: {theirs}`; if it is another one, "
            f"give this one another name, or set `clusterId: {identity.cluster_id}`"
        )

    async def _tell_of_orphans(self) -> None:
        news = [
            orphan
            for orphan in self.orphans
            if orphan.machine.machine_id not in self._told and orphan.kind is not OrphanKind.RELEASED
        ]
        self._told = {orphan.machine.machine_id for orphan in (*self.orphans, *self._unlisted)}
        if news:
            now = self._context.clock.now()
            await self._context.writer.write(lambda: Change(events=[_told(orphan, now) for orphan in news]))

    async def _tell(self, kind: str, message: str) -> None:
        event = happened(kind, self._context.clock.now(), message, cloud=self.name)
        await self._context.writer.write(lambda: Change(events=(event,)))


async def _indexed(machines: Sequence[Machine], began: float, follows: float | None) -> Listing:
    indexing = Indexing()
    async for some in in_slices(machines, _NAME_SLICE):
        indexing.add(some)
    await asyncio.sleep(0)
    return indexing.listing(machines, began, follows)


def _is_over(record: MachineRecord) -> bool:
    return record.state is State.GONE and not is_released(record)


def _adopted(record: MachineRecord, now: float) -> Event:
    return about(record, now, f"machine {record.machine_id} was taken into the journal", kind="adopted")


def _told(orphan: Orphan, now: float) -> Event:
    what = "has our marks" if orphan.kind is OrphanKind.UNKNOWN else "is named like ours but does not show our marks"
    return happened(
        "orphan",
        now,
        f"machine {orphan.machine.machine_id} ({orphan.machine.name}) {what} and is not in the journal; "
        "see `cloudgraft orphans list`",
        cloud=orphan.cloud,
        group=orphan.group or "",
        machine_id=orphan.machine.machine_id,
    )
