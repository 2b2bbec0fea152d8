"""No machine stays for ever where it is: from every state, in every world, it comes to run or to be gone.

A small world is played with the very functions that the worker uses, each machine by itself: look, decide, after.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from cloudgraft.engine.groups.specs import CloudSettings, EngineSettings
from cloudgraft.engine.machines.decide import Create, Delete, Move, Situation, decide
from cloudgraft.engine.machines.observation import Looker, Observation, look
from cloudgraft.engine.machines.outcomes import Created, CreateFailed, Deleted, DeleteFailed, Outcome, after, after_call
from cloudgraft.engine.machines.states import amend, move
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Machine, MachineState
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    CloudgraftError,
    DeadlineError,
    NotFoundError,
    OutOfStockError,
    UnavailableError,
)
from cloudgraft.store.records import MachineRecord, Presence, State
from tests.engine.makers import IDENTITY, NAME, NOW, a_listing, a_machine, a_record

STEP = 10.0
STEPS = 60  # of ten seconds: longer than every deadline in a row
SETTINGS = EngineSettings(create_deadline=timedelta(minutes=2), failed_ttl=timedelta(minutes=2))
CLOUD = CloudSettings(name="sim", create_timeout=timedelta(seconds=30))

# Every state with what the cloud may hold of it then, as the engine writes them.
LIVES = [
    (State.REQUESTED, Presence.NONE),
    (State.CREATING, Presence.NONE),
    (State.CREATING, Presence.UNKNOWN),
    (State.BOOTING, Presence.PRESENT),
    (State.RUNNING, Presence.PRESENT),
    (State.FAILED, Presence.NONE),
    (State.FAILED, Presence.UNKNOWN),
    (State.FAILED, Presence.PRESENT),
    (State.DELETING, Presence.UNKNOWN),
    (State.DELETING, Presence.PRESENT),
    (State.GONE, Presence.NONE),
]
ANSWERS = ["made", "made, answer lost", "answer lost", "no", "not now", "name taken"]
MACHINES = ["none", "pending", "running", "failed", "stopped", "deleting", "two of them"]


@dataclass
class World:
    """One cloud with at most a few machines of one name."""

    answer: str
    traits: DriverTraits
    says_not_found: bool = False
    now: float = NOW
    machines: dict[str, Machine] = field(default_factory=dict)
    made: int = 0

    def make(self) -> Machine:
        self.made += 1
        at = datetime.fromtimestamp(self.now, UTC)
        machine = a_machine(f"new-{self.made}", created_at=at, state=MachineState.PENDING)
        self.machines[machine.machine_id] = machine
        return machine

    def create(self) -> Outcome:
        match self.answer:
            case "made":
                return Created(self.make())
            case "made, answer lost":
                if not self.machines or self.traits.idempotency is Idempotency.NONE:
                    self.make()
                return CreateFailed(DeadlineError("no answer"))
        errors: dict[str, CloudgraftError] = {
            "answer lost": DeadlineError("no answer"),
            "no": OutOfStockError("sold out"),
            "not now": UnavailableError("away"),
            "name taken": AlreadyExistsError("taken"),
        }
        return CreateFailed(errors[self.answer])

    def delete(self, machine_id: str) -> Outcome:
        if self.machines.pop(machine_id, None) is None and self.says_not_found:
            return DeleteFailed(machine_id, NotFoundError("what?"))
        return Deleted(machine_id)

    def pass_time(self) -> None:
        """Pending machines run, and those that are being deleted go."""
        self.now += STEP
        changed = {
            id_: replace(m, state=MachineState.RUNNING) if m.state is MachineState.PENDING else m
            for id_, m in self.machines.items()
            if m.state is not MachineState.DELETING
        }
        self.machines = changed


@dataclass
class Play:
    """One machine's life in that world, as the worker would lead it."""

    world: World
    record: MachineRecord
    observation: Observation
    is_paused: bool = False
    creates_while_open: int = 0

    def step(self) -> None:
        self.world.pass_time()
        looker = Looker(IDENTITY, self.world.traits, CLOUD)
        listing = a_listing(*self.world.machines.values(), began=self.world.now, follows=self.world.now - STEP)
        if (
            self.record.presence is not Presence.NONE
            or NAME in listing.by_name
            or self.observation.listed.machine is not None
        ):
            listed = look(self.record, self.observation, listing, looker)
            self.observation = replace(self.observation, listed=listed)
        for _ in range(10):
            at = Situation(now=self.world.now, settings=SETTINGS, is_paused=self.is_paused)
            decision = decide(self.record, self.observation, at)
            match decision:
                case Move(record):
                    self.record = record
                case Create():
                    self._create()
                case Delete(machine):
                    self._delete(machine)
                case _:
                    return
        raise AssertionError(f"it does not come to rest: {self.record}")

    def _create(self) -> None:
        sent = {"presence": Presence.UNKNOWN, "attempt_at": self.world.now, "attempts": self.record.attempts + 1}
        self.creates_while_open += self.record.presence is Presence.UNKNOWN
        if self.record.state is State.REQUESTED:
            self.record = move(self.record, State.CREATING, self.world.now, **sent)
        else:
            self.record = amend(self.record, **sent)
        outcome = self.world.create()
        self._take(outcome)

    def _delete(self, machine: Machine) -> None:
        assert machine.tags, "law 4: only what shows our marks"
        outcome = self.world.delete(machine.machine_id)
        self._take(outcome)

    def _take(self, outcome: Outcome) -> None:
        attempts, now = self.record.attempts, self.world.now
        self.observation = after_call(self.observation, outcome, attempts=attempts, settings=CLOUD, now=now)
        made = after(self.record, outcome, self.world.now)
        if made is not None:
            self.record = made.record


def _machines(kind: str) -> dict[str, Machine]:
    if kind == "none":
        return {}
    if kind == "two of them":
        return {"m-1": a_machine(), "m-2": a_machine("m-2", created_at=datetime.fromtimestamp(NOW - 9, UTC))}
    return {"m-1": a_machine(state=MachineState(kind))}


def _play(world: World, record: MachineRecord, steps: int = STEPS) -> Play:
    play = Play(world, record, Observation(since=NOW))
    for _ in range(steps):
        play.step()
    return play


@pytest.mark.parametrize("idempotency", list(Idempotency))
@pytest.mark.parametrize("list_delay", [pytest.param(0, marks=pytest.mark.thorough), 25])
@pytest.mark.parametrize(("state", "presence"), LIVES)
def test_every_life_comes_to_an_end_or_to_run(
    state: State, presence: Presence, list_delay: float, idempotency: Idempotency
) -> None:
    traits = DriverTraits(idempotency=idempotency, list_delay=timedelta(seconds=list_delay))
    for answer, machines, says_not_found in itertools.product(ANSWERS, MACHINES, (False, True)):
        world = World(answer, traits, says_not_found, machines=_machines(machines))
        record = a_record(state=state, presence=presence)
        play = _play(world, record)
        told = f"{answer}, {machines}, not found {says_not_found}: {play.record}"
        if play.record.state is State.RUNNING:
            assert list(world.machines) == [play.record.machine_id], told
        else:
            assert play.record.state is State.GONE, told
            assert not world.machines, told
        assert not play.creates_while_open, told


def test_what_the_cloud_reports_dead_after_it_ran_is_left_to_repair() -> None:
    """A machine that runs is not given up by these rules: the group decides how many may be replaced at once."""
    world = World("made", DriverTraits(), machines=_machines("failed"))
    play = _play(world, a_record(state=State.RUNNING, presence=Presence.PRESENT))
    assert play.record.state is State.RUNNING
    assert play.observation.listed.dead_since is not None


def test_only_what_lost_its_marks_stays_and_is_never_touched() -> None:
    """The one documented end without an end: an operator must give the marks back, or release it."""
    for state, presence in LIVES:
        world = World("made", DriverTraits(), machines={"m-1": a_machine(tags={})})
        _play(world, a_record(state=state, presence=presence))
        assert "m-1" in world.machines, f"{state.value}: law 4"
        assert len(world.machines) == 1, f"{state.value}: law 3"


@pytest.mark.parametrize(("state", "presence"), LIVES)
def test_a_pause_stops_calls_and_the_end_of_it_lets_all_go_on(state: State, presence: Presence) -> None:
    for machines in MACHINES:
        world = World("made", DriverTraits(), machines=_machines(machines))
        play = Play(world, a_record(state=state, presence=presence), Observation(since=NOW), is_paused=True)
        before = {id_ for id_, m in world.machines.items() if m.state is not MachineState.DELETING}
        for _ in range(STEPS):
            play.step()
        assert set(world.machines) == before, f"{machines}: a pause makes and removes nothing"
        play.is_paused = False
        for _ in range(STEPS):
            play.step()
        if play.record.state is State.RUNNING:
            assert set(world.machines) == {play.record.machine_id}, machines
        else:
            assert (play.record.state, world.machines) == (State.GONE, {}), machines


def test_where_lists_are_not_complete_a_deletion_still_ends() -> None:
    """Such a list proves nothing by itself; that the cloud has accepted the deletion does, together with it."""
    for machines, says_not_found in itertools.product(["none", "running", "failed"], (False, True)):
        world = World("made", DriverTraits(complete_list=False), says_not_found, machines=_machines(machines))
        play = _play(world, a_record(state=State.DELETING, presence=Presence.PRESENT))
        assert (play.record.state, world.machines) == (State.GONE, {}), machines
