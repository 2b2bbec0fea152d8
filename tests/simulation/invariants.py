"""The judge: knows the truth, is told of every step, and says when something happened that must not."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from cloudgraft.engine.groups.specs import EngineSettings, GuardLimits
from cloudgraft.engine.machines.states import COUNTED, is_lost
from cloudgraft.sdk.driver import Idempotency, Machine, MachineSpec, Ownership
from cloudgraft.sdk.types import InstanceState, NodeGroup, NodeRef
from cloudgraft.store.records import Change, Contents, MachineRecord, Presence, State
from tests.simulation.cloud import SimCloud, SimMachine
from tests.simulation.deletion_reasons import PACE, DeletionReasons, Fall
from tests.simulation.kubernetes import SimNode
from tests.simulation.loop import Host
from tests.simulation.restraint import Restraint
from tests.simulation.server import SimServer

if TYPE_CHECKING:
    from tests.simulation.world import World

INVARIANTS: Final[Mapping[str, str]] = {
    "foreign-deleted": "a machine that is not ours is never deleted (law 4)",
    "unproven-deleted": "a machine without our marks is not deleted (law 4)",
    "deleted-without-reason": "no machine is deleted without a reason that is true",
    "wrong-double-deleted": "of two machines for one intent the one that joined is kept (law 3)",
    "deletion-without-event": "every deletion has an event with its reason",
    "call-before-journal": "the journal has the intent before the cloud is called (law 2)",
    "create-before-list": "nothing is created in a cloud before it was listed (law 11)",
    "second-create": "what exists is not created again (law 3)",
    "create-while-open": "nothing is created again while an earlier call may still succeed (law 3)",
    "too-many-creates": "creates per hour stay within the guard (law 10)",
    "too-many-machines": "machines stay within the guard (law 10)",
    "too-much-spent": "nothing is created once a day's spend is used up (law 10)",
    "target-is-not-list": "the target is the number of machines that are listed and not deleting (law 5)",
    "absence-believed": "a machine that runs is not gone before two complete lists lack it (law 5)",
    "acted-while-paused": "nothing is created or deleted in a paused group",
    "acted-while-observing": "nothing is created, deleted or given up in a cloud that is only to be observed",
    "too-many-deletions": "deletions that nobody ordered stay within the guard",
    "mass-absence-believed": "a list that misses most machines at once is not believed at once",
    "damage-believed": "a record that a flipped bit has changed is not believed",
    "acknowledged-is-lost": "every acknowledged change survives",
    "order-made-once": "an operator's order is made once, and not at all when it was refused",
    "removed-in-use": "an operator's order removes no machine that is ready, unless it says so",
    "answer-without-change": "what was answered with OK was done",
    "leak": "no machine of ours runs without a record for long",
    "double": "no two machines of one intent run for long (law 3)",
    "stuck": "no machine stays on its way for ever",
    "two-leaders": "one process at a time writes to the journal and calls clouds",
    "group-missing": "a group whose cloud was listed is served",
    "node-denied": "a node of ours belongs to its group",
    "not-converged": "everything settles after the last fault",
    "error": "no task ends with an unexpected exception",
}
_CALM: Final = 900.0  # seconds of calm in which a leak or a double must end
_STUCK: Final = 4500.0  # create deadline, time as a failed machine, deletion, and some
_MASS: Final = 3
_HOURLY: Final = 0.10  # the price of every group
_TAKING_IN: Final = 900.0  # seconds after a lost journal in which a list that lies makes orphans


class Violation(Exception):  # noqa: N818 - it is no error of the program that finds it
    """An invariant does not hold."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


class Judge:
    """Holds a run to the invariants."""

    def __init__(self, world: World, settings: EngineSettings, *, ignored: frozenset[str] = frozenset()) -> None:
        self.guards = GuardLimits()
        self.guards_since = 0.0
        self.doubtful_until = 0.0  # clocks or media were tampered with: counts may be off
        self.restraint = Restraint(world, self)
        self._world = world
        self._settings = settings
        self._ignored = ignored
        self._reasons = DeletionReasons(world, settings, self._on_wrong_double)
        self._records: dict[str, MachineRecord] = {}  # as committed
        self._events: dict[str, list[str]] = defaultdict(list)  # messages by machine
        self._creates: dict[str, deque[float]] = defaultdict(deque)
        self._calls: dict[str, float] = {}  # name -> when the latest create call began
        self._listed: dict[tuple[Host, str], float] = {}
        self._truly: dict[tuple[Host, str], float] = {}
        self._lie_since: dict[str, float | None] = {}
        self._calm: dict[object, float] = defaultdict(float)
        self._of_cloud: dict[object, str] = {}
        self._checked_at = 0.0
        self._last_writer = 0.0  # when the latest process began that wrote to the journal
        self._destroyed_at = -1e9
        self._is_destroyed = False  # the medium, since the journal was last read
        self._new_names: dict[str, list[float]] = defaultdict(list)
        self._asked_at: dict[str, float] = {}

    def fail(self, invariant: str, detail: str) -> None:
        if invariant not in self._ignored:
            self._world.fail(Violation(invariant, detail))

    def _now(self) -> float:
        return self._world.loop.time()

    # -- calls to clouds -----------------------------------------------------------------------------------------------

    def on_list(self, host: Host, cloud: SimCloud, began: float, shown: Sequence[Machine], *, is_lie: bool) -> None:
        key = (host, cloud.name)
        self._listed[key] = began
        if is_lie:
            ids = {m.machine_id for m in shown}
            for machine in cloud.alive():
                if machine.machine_id not in ids and machine.shown_from <= began:
                    machine.missed += 1
                    machine.is_orphan |= began < self._destroyed_at + _TAKING_IN
            if self._lie_since.get(cloud.name) is None:
                self._lie_since[cloud.name] = began
        else:
            self._truly[key] = began
            self._lie_since[cloud.name] = None

    def on_list_call(self, host: Host) -> None:
        self._check_leader(host)

    def on_create_call(self, host: Host, cloud: SimCloud, spec: MachineSpec) -> None:
        now = self._now()
        record = self._records.get(spec.name)
        if record is None or record.state is not State.CREATING or record.presence is not Presence.UNKNOWN:
            self.fail("call-before-journal", f"create of {spec.name} is not in the journal")
        self._check_pause(spec.group, spec.name)
        self.restraint.on_call(host, cloud.name, f"{spec.name} is created")
        if (host, cloud.name) not in self._listed:
            self.fail("create-before-list", f"{cloud.name} was not listed before {spec.name} was created")
        self._check_leader(host)
        if cloud.traits.idempotency is Idempotency.NONE:
            self._check_second(cloud, spec.name)
        self._calls[spec.name] = now
        self._count_create(cloud.name, now)

    def _check_pause(self, group: str, name: str) -> None:
        since = self._world.paused.get(group)
        if since is not None and self._now() > since + 5:
            self.fail("acted-while-paused", f"a call about {name} of group {group}, paused since {since:.0f}")

    def _check_second(self, cloud: SimCloud, name: str) -> None:
        for machine in cloud.alive():
            if machine.intent == name and not machine.deleting and not machine.missed:
                self.fail("second-create", f"{name} is there as {machine.machine_id}, and is created again")
        before = self._calls.get(name)
        if before is not None and name in self._world.open_creates(cloud.name):
            self.fail("create-while-open", f"the create of {name} at {before:.0f} is still on its way")

    def _count_create(self, cloud: str, now: float) -> None:
        calls = self._creates[cloud]
        calls.append(now)
        limit = self.guards.max_creates_per_hour
        if limit is None or now < self.doubtful_until:
            return
        hour = 3600 * PACE
        count = sum(at > max(now - hour, self.guards_since) for times in self._creates.values() for at in times)
        if count > limit:
            self.fail("too-many-creates", f"{count} creates in an hour; the guard says {limit}")

    def on_created(self, cloud: SimCloud, machine: SimMachine) -> None:
        self._check_spend()
        limit = self.guards.max_machines
        if limit is None or self._now() < max(self.doubtful_until, self.guards_since + 3600):
            return
        there = [m for c in self._world.clouds.values() for m in c.alive() if not m.deleting]
        if any(self._now() - c.lied_at < 7200 for c in self._world.clouds.values()) or any(m.marks_lost for m in there):
            return
        count = len({(m.group, m.intent) for m in there})
        if count > limit:
            self.fail("too-many-machines", f"{count} machines; the guard says {limit}")

    def _check_spend(self) -> None:
        cap, now = self.guards.max_spend_per_day, self._now()
        if cap is None or now < self.doubtful_until:
            return
        began, known_from = max(0.0, now - 86400), self._destroyed_at + _TAKING_IN
        every = [m for cloud in self._world.clouds.values() for m in cloud.all if m.is_ours]
        every = [m for m in every if m.gone_at is None or m.gone_at > known_from]  # others went with the journal
        hours = sum(max(0.0, (m.gone_at or now) - max(began, m.created_at)) for m in every) / 3600
        if hours * _HOURLY > float(cap.amount):
            self.fail("too-much-spent", f"{hours * _HOURLY:.2f} in a day; the guard says {cap.amount}")

    def on_delete_call(self, host: Host, cloud: SimCloud, asked: Machine, machine: SimMachine | None) -> None:
        self._check_leader(host)
        self.restraint.on_call(host, cloud.name, f"{asked.machine_id} is deleted")
        if machine is not None:
            self.restraint.on_delete_call(host, machine)
        if machine is None or machine.owner == "clone":
            return
        listed = self._listed.get((host, cloud.name), -1.0)
        if not machine.is_ours:
            if machine.created_at < listed:
                self.fail("foreign-deleted", f"{machine.machine_id} ({machine.name}) of {machine.owner} is deleted")
            return
        if machine.deleting:
            return
        self._check_pause(machine.group, machine.name)
        is_tagged = cloud.traits.ownership is Ownership.TAGS
        is_unmarked = machine.marks_lost_at is not None and machine.marks_lost_at < listed
        if is_tagged and is_unmarked and not machine.is_adopted:
            self.fail("unproven-deleted", f"{machine.machine_id} ({machine.name}) shows no marks of ours")
        reason = self._reasons.of(cloud, machine)
        if not reason:
            self.fail("deleted-without-reason", self._describe(machine))
        else:
            self._world.trace("judge", f"{machine.name} is deleted: {reason}")
        self._world.loop.later(30, self._check_event, host, machine.intent)

    def _on_wrong_double(self, machine: SimMachine, kept: SimMachine) -> None:
        self.fail("wrong-double-deleted", f"{self._describe(machine)}, and {kept.machine_id} is kept")

    def _check_event(self, host: Host, intent: str) -> None:
        if not self._events.get(intent) and not host.is_dead and self._world.is_calm(""):
            self.fail("deletion-without-event", f"no event says why {intent} was deleted")

    def _describe(self, machine: SimMachine) -> str:
        record, fall = self._records.get(machine.intent), self._reasons.falls.get(machine.intent)
        nodes = [("ready" if n.is_ready else "unready") for n in self._world.kubernetes.nodes_of(machine)]
        state = f"{record.state.value}/{record.presence.value}" if record else "no record"
        why = f"{fall.code or fall.record.state.value} at {fall.at:.0f}" if fall else "nothing"
        told = (self._events.get(machine.intent) or ["-"])[-1]
        return (
            f"{machine.name} ({machine.machine_id}) is {machine.state.value}, made at {machine.created_at:.0f}, nodes "
            f"{nodes}; record: {state}, because of {why}; last event: {told}"
        )

    # -- the journal ---------------------------------------------------------------------------------------------------

    def on_commit(self, server: SimServer, change: Change) -> None:
        now = self._now()
        if server.order() < self._last_writer:
            self.fail("two-leaders", f"{server.name} writes, and a later process has written to the same journal")
        self._last_writer = server.order()
        self.restraint.on_commit(server.host, change, self._records)
        for record in change.machines:
            before = self._records.get(record.name)
            self._records[record.name] = record
            if record.version == 1:
                self._reasons.born[record.name] = now
                self._note_taken_in(record)
            if record.version == 1 and record.attempt_at is None:
                self._new_names[record.group].append(now)
            self._note_fall(before, record, now)
        self._check_absence(change)
        for event in change.events:
            if event.machine and event.message:
                self._events[event.machine].append(f"{event.kind}: {event.message}")

    def _note_taken_in(self, record: MachineRecord) -> None:
        """A machine that is taken in may have got another name meanwhile."""
        machine = self._world.clouds[record.cloud].machines.get(record.machine_id) if record.machine_id else None
        if machine is not None and machine.is_ours:
            machine.intent, machine.is_orphan = record.name, False

    def _note_fall(self, before: MachineRecord | None, record: MachineRecord, now: float) -> None:
        if record.state in (State.FAILED, State.DELETING, State.GONE):
            if before is None or before.state in (State.REQUESTED, State.CREATING, State.BOOTING, State.RUNNING):
                code = record.error.code if record.error else ""
                self._reasons.falls[record.name] = Fall(now, code, record)
        else:
            self._reasons.falls.pop(record.name, None)

    def _check_absence(self, change: Change) -> None:
        for name, cloud in self._world.clouds.items():
            lost = [r for r in change.machines if r.cloud == name and is_lost(r)]
            if not lost:
                continue
            there = {m.intent: m for m in cloud.alive() if not m.deleting}
            wrongly = [r for r in lost if r.name in there and self._world.kubernetes.has_ready_node(there[r.name])]
            for record in wrongly:
                if there[record.name].missed < 2:
                    self.fail("absence-believed", f"{record.name} is there, and counts as gone")
            since = self._lie_since.get(name)
            if len(lost) < _MASS or since is None:
                continue
            lasted = self._now() - since
            if len(wrongly) >= _MASS and 2 * len(wrongly) > len(there) and lasted < 280:
                self.fail("mass-absence-believed", f"{len(wrongly)} of {len(there)} in {name} after {lasted:.0f} s")

    def on_loaded(self, server: SimServer, contents: Contents) -> None:
        """Everything that was acknowledged must be there."""
        stored = {record.name: record for record in contents.machines}
        if believed := self._world.journals.damaged & set(stored):
            self.fail("damage-believed", f"the journal is read with {min(believed)}, which nobody has written")
        if not self._is_destroyed:
            for name, record in self._records.items():
                found = stored.get(name)
                is_old = found is None or found.version < record.version
                if is_old and not (found is None and record.state is State.GONE):
                    kept = "is gone" if found is None else f"has version {found.version}"
                    self.fail("acknowledged-is-lost", f"{name} was written with version {record.version} and {kept}")
        now = self._now()
        for record in stored.values():
            before = self._records.get(record.name)
            if before is None or before.version != record.version:
                self._note_fall(before, record, now)
        self._records = stored
        if self._is_destroyed and contents.clouds:  # of a cloud that was taken in, what is unknown stays so
            for cloud in self._world.clouds.values():
                for machine in cloud.alive():
                    machine.is_orphan = machine.intent not in stored
        self._is_destroyed = False

    @property
    def destroyed_at(self) -> float:
        """When what was acknowledged may have been lost, the last time."""
        return self._destroyed_at

    @property
    def is_destroyed(self) -> bool:
        """Whether it may have been lost since the journal was last read."""
        return self._is_destroyed

    def on_destroyed(self) -> None:
        """The plan destroys the medium: what was acknowledged may be lost."""
        self._is_destroyed, self._destroyed_at, self._last_writer = True, self._now(), 0.0
        self.doubtful_until = self._now() + 7200

    # -- answers -------------------------------------------------------------------------------------------------------

    def on_ordered(self, intents: Sequence[str]) -> None:
        """An operator has ordered the removal of machines, and the journal says so."""
        self.restraint.on_asked(intents)
        for intent in intents:
            self._reasons.ordered.setdefault(intent, self._now())

    def on_deletion_asked(self, group: str, nodes: list[NodeRef]) -> None:
        for node in nodes:
            intents = self._intents_of(node)
            self.restraint.on_asked(intents)
            if node.fake_reason != "create-error":  # that only takes back what it was told had failed
                for intent in intents:
                    self._reasons.ordered.setdefault(intent, self._now())

    def _intents_of(self, node: NodeRef) -> set[str]:
        prefix, _, rest = node.provider_id.partition("://")
        clouds = self._world.clouds.values()
        found = {m.intent for c in clouds for m in c.all if m.provider_id == node.provider_id and m.is_ours}
        return found | {rest.partition("/")[2]} if prefix == "cloudgraft" else found

    def on_deletion_refused(self, nodes: Sequence[NodeRef], *, since: float) -> None:
        """It was refused for good, so that it excuses nothing that happens later."""
        for intent in {intent for node in nodes for intent in self._intents_of(node)}:
            if self._reasons.ordered.get(intent, -1.0) >= since:
                del self._reasons.ordered[intent]

    def on_increase(self, group: str) -> None:
        self._asked_at[group] = self._now()

    def on_increased(self, group: str, delta: int) -> None:
        since = self._asked_at[group]
        made = sum(at >= since for at in self._new_names[group])
        if made < delta:
            self.fail("answer-without-change", f"IncreaseSize({group}, {delta}) is OK, and {made} records are new")

    def on_deleted(self, nodes: Sequence[str]) -> None:
        """DeleteNodes was answered with OK."""
        for node in nodes:
            prefix, _, rest = node.partition("://")
            record = self._records.get(rest.partition("/")[2]) if prefix == "cloudgraft" else None
            if record is not None and record.state not in (State.DELETING, State.GONE):
                self.fail("answer-without-change", f"DeleteNodes is OK, and {record.name} is {record.state.value}")

    def on_groups(self, groups: Mapping[str, NodeGroup]) -> None:
        server = self._world.server
        engine = server.engine
        if engine is None or server.host is None or engine.is_config_pending:
            return
        for declared in self._world.groups:
            began = self._truly.get((server.host, declared.cloud))
            is_blocked = (
                bool(engine.workers[declared.cloud].observer.blocked) if declared.cloud in engine.workers else True
            )
            if declared.id not in groups and began is not None and not is_blocked:
                self.fail("group-missing", f"NodeGroups is OK without {declared.id}, whose cloud was listed")

    def on_owner(self, node: SimNode, group: str) -> None:
        machine = node.machine
        if group or not machine.is_ours or machine.is_orphan or machine.marks_lost or not machine.is_alive:
            return
        if self._records.get(machine.intent) is not None and machine.intent in self._reasons.ordered:
            return
        record = self._records.get(machine.intent)
        if record is not None and record.state is State.GONE and self.restraint.may_wait:
            return  # it is to be deleted, and a guard has that wait
        engine = self._world.server.engine
        if engine is None or engine.identity.cluster_id != self._world.cluster_id:
            return  # it was lost with the journal, and nobody has said yet which it was
        is_late = self._now() - self._world.clouds[node.cloud].lied_at >= 1800
        if machine.missed and (not is_late or self.restraint.is_holding()):
            return  # its cloud said for long that it was gone, and perhaps it waits to be deleted
        began = self._truly.get((self._world.server.host, node.cloud)) if self._world.server.host else None
        if began is not None and began > machine.shown_from:
            self.fail("node-denied", f"NodeGroupForNode({node.node.name}) is OK without a group")

    # -- everything at once --------------------------------------------------------------------------------------------

    def full_check(self) -> None:
        world = self._world
        now, since = self._now(), self._checked_at
        self._checked_at = now
        engine = world.server.engine
        if engine is None or not world.server.is_serving:
            return
        for group in engine.fleet.groups.values():
            counted = sum(i.state is not InstanceState.DELETING for i in group.instances())
            if counted != group.target:
                self.fail("target-is-not-list", f"{group.spec.id}: target {group.target}, listed {counted}")
        for cloud in world.clouds.values():
            if world.is_calm(cloud.name):
                self._check_cloud(cloud, engine.fleet.machines, now - since)

    def _check_cloud(self, cloud: SimCloud, records: Mapping[str, MachineRecord], passed: float) -> None:
        seen: dict[str, SimMachine] = {}
        suspects: dict[object, tuple[str, str, float]] = {}
        for machine in cloud.alive():
            if machine.deleting or machine.is_orphan or machine.marks_lost:
                continue
            record = records.get(machine.intent)
            if record is None or record.state is State.GONE:
                suspects["leak", cloud.name, machine.serial] = ("leak", self._describe(machine), _CALM)
            if machine.intent in seen:
                suspects["double", machine.intent] = ("double", self._describe(machine), _CALM)
            seen[machine.intent] = machine
        for record in records.values():
            if record.cloud == cloud.name and record.state not in (State.RUNNING, State.GONE):
                shown = seen.get(record.name)
                held = [m for m in cloud.machines.values() if not m.is_ours and _stands_for(m, record)]
                if record.group in self._world.paused:
                    continue
                if not held and not (shown is None and self._is_unprovable(cloud, record)):
                    detail = (
                        f"{record.name} is {record.state.value}/{record.presence.value} since {record.state_since:.0f}"
                    )
                    suspects["stuck", record.name, record.state] = ("stuck", detail, _STUCK)
        for key in [key for key, name in self._of_cloud.items() if name == cloud.name and key not in suspects]:
            del self._calm[key], self._of_cloud[key]
        for key, (invariant, detail, limit) in suspects.items():
            self._calm[key] += 0.0 if self.restraint.is_holding() else min(passed, 120.0)
            self._of_cloud[key] = cloud.name
            if self._calm[key] > limit:
                self.fail(invariant, detail)

    def _is_known(self, machine: SimMachine) -> bool:
        """Not one that stays in its cloud because nothing proves that it is ours."""
        record = self._records.get(machine.intent)
        is_wanted = record is not None and record.state in COUNTED
        return is_wanted or not (machine.is_orphan or machine.marks_lost)

    def _is_unprovable(self, cloud: SimCloud, record: MachineRecord) -> bool:
        return any(m.intent == record.name and m.marks_lost for m in cloud.alive())

    def _check_leader(self, host: Host) -> None:
        if self._world.is_second(host):
            self.fail("two-leaders", f"{host.name} calls a cloud, and another process leads")

    # -- the end -------------------------------------------------------------------------------------------------------

    def check_convergence(self) -> None:
        world = self._world
        if not world.server.is_serving or world.server.engine is None:
            self.fail("not-converged", f"the server does not serve: {world.server.refused or 'it does not lead'}")
            return
        fleet = world.server.engine.fleet
        for declared in world.groups:
            if declared.id not in fleet.groups:
                self.fail("not-converged", f"group {declared.id} is not served")
                continue
            cloud = world.clouds[declared.cloud]
            target = fleet.groups[declared.id].target
            wanted = min(declared.max_size, max(declared.min_size, world.demand(declared.id, self._now())))
            there = [m for m in cloud.alive() if m.group == declared.id and not m.deleting and self._is_known(m)]
            ready = [m for m in there if self._world.kubernetes.has_ready_node(m)]
            if target != wanted and not world.is_limited():
                self.fail("not-converged", f"{declared.id}: target {target}, wanted {wanted}")
            records = list(fleet.groups[declared.id].machines.values())
            live = [r for r in records if r.state is State.RUNNING]
            is_settled = len(live) == target or world.is_limited()
            if self.restraint.is_holding() and len(there) > len(live):
                continue
            if not is_settled or len(there) != len(live) or len(ready) != len(live):
                states = sorted(r.state.value for r in records)
                self.fail(
                    "not-converged", f"{declared.id}: target {target}, {len(there)} there, {len(ready)} ready; {states}"
                )


def _stands_for(machine: SimMachine, record: MachineRecord) -> bool:
    """Whether a stranger has the name or the id that a record knows: then nothing is proven, and nothing is done."""
    return machine.name == record.name or machine.machine_id == record.machine_id
