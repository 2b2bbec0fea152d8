"""Says whether the deletion of a machine had a true reason. Only the simulation knows the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cloudgraft.engine.groups.specs import EngineSettings
from cloudgraft.engine.machines.states import is_lost
from cloudgraft.store.records import MachineRecord, State
from tests.simulation.cloud import SimCloud, SimMachine

if TYPE_CHECKING:
    from tests.simulation.world import World

PACE: Final = 0.9  # the engine's clock runs a tenth too fast while it catches up


@dataclass(slots=True)
class Fall:
    """When and why a machine's record came to be unwanted."""

    at: float
    code: str
    record: MachineRecord


class DeletionReasons:
    """Keeps what was ordered and what the engine recorded, and compares it with the truth."""

    def __init__(
        self, world: World, settings: EngineSettings, on_wrong_double: Callable[[SimMachine, SimMachine], None]
    ) -> None:
        """``on_wrong_double`` gets a machine in use that is deleted as a double, and the one that is kept."""
        self.falls: dict[str, Fall] = {}  # by intent
        self.ordered: dict[str, float] = {}  # by intent: when the autoscaler ordered its deletion
        self.born: dict[str, float] = {}  # by intent: when a record was first written
        self._world = world
        self._settings = settings
        self._on_wrong_double = on_wrong_double

    def of(self, cloud: SimCloud, machine: SimMachine) -> str:
        """Why it may be deleted, as far as that is true; empty when it may not."""
        if machine.intent in self.ordered:
            return "the autoscaler ordered it"
        if self._is_surplus(cloud, machine):
            return "it is a double"
        if machine.dead_since is not None:
            return self._true_death(machine)
        if self._is_called_failed(machine):
            return "its cloud called it failed, and no node spoke against that"
        now, nodes = self._world.loop.time(), self._world.kubernetes.nodes_of(machine)
        if any(n.unready_since is not None for n in nodes):
            lasted = max(now - (n.unready_since or now) for n in nodes)
            if lasted >= self._settings.repair.not_ready_after.total_seconds() - 120:
                return "its node was not ready for long"
        fall = self.falls.get(machine.intent)
        return self._true_fall(cloud, machine, fall) if fall is not None else ""

    def _true_death(self, machine: SimMachine) -> str:
        fall = self.falls.get(machine.intent)
        if fall is not None and is_lost(fall.record):
            return "it came back dead"
        until = fall.at if fall is not None else self._world.loop.time()
        return "it is dead" if until - (machine.dead_since or 0.0) >= self._patience(machine) else ""

    def _is_called_failed(self, machine: SimMachine) -> bool:
        """By lists that lie. Its node, which is ready in truth, must speak against that."""
        since, lasted = machine.called_failed_since, 0.0
        if since is not None:
            lasted = self._world.loop.time() - since
        is_ready = self._world.kubernetes.has_ready_node(machine)
        return since is not None and not is_ready and lasted >= self._patience(machine)

    def _patience(self, machine: SimMachine) -> float:
        """For how long it must be dead. Before a list ever showed it running, it has failed to boot: not at all."""
        return self._settings.repair.after.total_seconds() - 120 if machine.was_shown_running else 0.0

    def _is_surplus(self, cloud: SimCloud, machine: SimMachine) -> bool:
        """Whether there is another machine for its intent, and this one is not the one that must be kept."""
        others = [
            m
            for m in cloud.machines.values()
            if m is not machine and m.intent == machine.intent and m.owner in ("ours", "clone") and not m.deleting
        ]
        nodes = self._world.kubernetes.nodes_of
        if not others or not self._world.kubernetes.has_ready_node(machine) or any(map(nodes, others)):
            return bool(others)
        if machine.intent not in self.falls:  # of an intent that was given up, all machines go, if that was right
            self._on_wrong_double(machine, others[0])
        return False

    def _true_fall(self, cloud: SimCloud, machine: SimMachine, fall: Fall) -> str:
        settings, record = self._settings, fall.record
        if machine.created_at >= fall.at - 1:
            return "it came after it was given up"
        if record.state is State.DELETING and fall.code == "":
            return ""
        if fall.code == "join_deadline":
            ran = machine.ran_since if machine.ran_since is not None else fall.at
            waited = self._world.kubernetes.seen_for(ran, fall.at)
            is_late = machine.joined_at is None or machine.joined_at > fall.at - 60
            return "it did not join" if is_late and waited >= PACE * settings.join_deadline.total_seconds() - 30 else ""
        if fall.code == "deadline":
            return self._true_deadline(machine, fall)
        if fall.code == "vanished" and machine.missed >= 2:
            return "two lists said that it was gone"
        return ""

    def _true_deadline(self, machine: SimMachine, fall: Fall) -> str:
        if machine.missed >= 2 and not self._was_visible(machine, fall.at):
            return "lists said for long that it was not made"
        is_slow = machine.ran_since is None or machine.ran_since > fall.at - 1
        waited = fall.at - self.born.get(machine.intent, machine.created_at)
        is_due = waited > PACE * self._settings.create_deadline.total_seconds() - 60
        return "it did not run in time" if is_slow and is_due else ""

    def _was_visible(self, machine: SimMachine, at: float) -> bool:
        """Whether a node under the machine's own name had told for a while that it was there."""
        is_seen = self._world.kubernetes.seen_for(at - 60, at) >= 60
        return (
            machine.intent in machine.node_names
            and is_seen
            and machine.joined_at is not None
            and machine.joined_at < at - 60
        )
