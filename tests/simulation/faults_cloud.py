"""What goes wrong with clouds, their machines, and the nodes of those."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from cloudgraft.sdk.driver import MachineState, Ownership
from tests.simulation.cloud import Fault, SimCloud, SimMachine
from tests.simulation.plan import Step, kind
from tests.simulation.setting import Setting

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__: list[str] = []


@dataclass(frozen=True, slots=True)
class CallFault(Step):
    """A verb of a cloud misbehaves for a while, for a share of its calls."""

    cloud: str
    seconds: float
    odds: float
    param: float

    verb: ClassVar[str] = ""
    mode: ClassVar[str] = ""
    params: ClassVar[tuple[float, float]] = (0.0, 0.0)
    longest: ClassVar[float] = 3000.0

    def apply(self, world: World) -> None:
        fault = Fault(self.verb, self.mode, self.at + self.seconds, self.odds, self.param)
        world.clouds[self.cloud].faults.append(fault)
        world.trouble(self.cloud, self.at + self.seconds)

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(
            at,
            dice.choice(setting.clouds).name,
            float(round(min(cls.longest, dice.choice([30, 120, 600, 3000]) * dice.uniform(0.5, 1.5)))),
            dice.choice([1.0, 1.0, 0.5]),
            float(round(dice.uniform(*cls.params))),
        )

    def shorter(self) -> Step | None:
        return replace(self, seconds=float(self.seconds // 2)) if self.seconds >= 30 else None


def _call_fault(name: str, verb: str, mode: str, params: tuple[float, float] = (0, 0), weight: float = 1.0) -> None:
    made = type(name, (CallFault,), {"verb": verb, "mode": mode, "params": params, "__slots__": ()})
    kind(name, weight)(made)


_call_fault("lists-fail", "list", "fail", weight=2)
_call_fault("lists-hang", "list", "hang", (5, 120))
_call_fault("lists-empty", "list", "empty")
_call_fault("lists-half", "list", "half", (0, 1000))
_call_fault("lists-some", "list", "some", (0, 1000))
_call_fault("lists-old", "list", "old", (60, 1200))
_call_fault("lists-slander", "list", "slander", (0, 1000))
_call_fault("lists-nonsense", "list", "nonsense")
_call_fault("creates-fail", "create", "before")
_call_fault("creates-lost", "create", "after", weight=2)
_call_fault("creates-late", "create", "late", (5, 58), weight=2)
_call_fault("creates-twice", "create", "twice")
_call_fault("creates-stock", "create", "stock")
_call_fault("creates-rate", "create", "rate")
_call_fault("creates-nonsense", "create", "nonsense")
_call_fault("deletes-fail", "delete", "before")
_call_fault("deletes-lost", "delete", "after")
_call_fault("deletes-late", "delete", "late", (5, 58))
_call_fault("deletes-ignored", "delete", "ignored")


@dataclass(frozen=True, slots=True)
class MachineFault(Step):
    """Something happens to one machine of ours; ``pick`` says to which."""

    cloud: str
    pick: int

    def apply(self, world: World) -> None:
        cloud = world.clouds[self.cloud]
        found = sorted((m for m in cloud.alive() if not m.deleting), key=lambda m: m.serial)
        if found:
            machine = found[self.pick % len(found)]
            world.trace("plan", f"{self.kind} {machine.name}")
            self.happen(world, cloud, machine)

    def happen(self, world: World, cloud: SimCloud, machine: SimMachine) -> None:
        raise NotImplementedError

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, dice.choice(setting.clouds).name, dice.randrange(100))


@kind("machine-stopped")
class MachineStopped(MachineFault):
    """Somebody stops it."""

    __slots__ = ()

    def happen(self, world: World, cloud: SimCloud, machine: SimMachine) -> None:
        cloud.stop(machine)


@kind("machine-rebooted")
class MachineRebooted(MachineFault):
    """Somebody stops it, and starts it again a minute later."""

    __slots__ = ()

    def happen(self, world: World, cloud: SimCloud, machine: SimMachine) -> None:
        cloud.stop(machine)
        world.loop.later(100, cloud.start, machine)


@kind("machine-failed")
class MachineFailed(MachineFault):
    """It dies."""

    __slots__ = ()

    def happen(self, world: World, cloud: SimCloud, machine: SimMachine) -> None:
        cloud.stop(machine, MachineState.FAILED)


@kind("machine-deleted", 2)
class MachineDeleted(MachineFault):
    """Somebody deletes it."""

    __slots__ = ()

    def happen(self, world: World, cloud: SimCloud, machine: SimMachine) -> None:
        cloud.remove(machine)


@kind("machine-renamed")
class MachineRenamed(MachineFault):
    """Somebody gives it another name; its tags stay."""

    __slots__ = ()

    def happen(self, world: World, cloud: SimCloud, machine: SimMachine) -> None:
        machine.name = f"renamed-{cloud.name}-{machine.serial}"
        if cloud.traits.ownership is Ownership.NAME:
            machine.marks_lost_at = cloud.now()


@kind("tags-lost")
class TagsLost(MachineFault):
    """Somebody removes its marks."""

    __slots__ = ()

    def happen(self, world: World, cloud: SimCloud, machine: SimMachine) -> None:
        if machine.tags:
            machine.tags.clear()
            machine.marks_lost_at = cloud.now()


@kind("tags-copied")
class TagsCopied(MachineFault):
    """Somebody clones it, marks and all."""

    __slots__ = ()

    def happen(self, world: World, cloud: SimCloud, machine: SimMachine) -> None:
        cloud.make(machine.name, machine.tags, "clone", group=machine.group)


def _name_for_stranger(cloud: SimCloud, machine: SimMachine) -> str:
    """Where the name is the proof of ownership, a machine with a name of ours is ours."""
    return f"stranger-{machine.serial}" if cloud.traits.ownership is Ownership.NAME else machine.name


@kind("name-taken", 2)
class NameTaken(MachineFault):
    """A stranger is made under the name of one of ours."""

    __slots__ = ()

    def happen(self, world: World, cloud: SimCloud, machine: SimMachine) -> None:
        cloud.make(_name_for_stranger(cloud, machine), {"owner": "somebody"}, "foreign")


@kind("recreated", 3)
class Recreated(MachineFault):
    """Somebody deletes it, and makes one of their own under its name and, where ids are reused, its id."""

    __slots__ = ()

    def happen(self, world: World, cloud: SimCloud, machine: SimMachine) -> None:
        cloud.remove(machine)
        id_ = machine.machine_id if cloud.traits.reuses_ids else ""

        def again() -> None:
            if id_ not in cloud.machines:
                cloud.make(_name_for_stranger(cloud, machine), {"owner": "somebody"}, "foreign", machine_id=id_)

        world.loop.later(200 + self.pick * 10, again)


@dataclass(frozen=True, slots=True)
class NodeFault(Step):
    """Machines that are made in this time have nodes that misbehave."""

    cloud: str
    seconds: float
    param: float

    params: ClassVar[tuple[float, float]] = (0.0, 0.0)

    def apply(self, world: World) -> None:
        cloud, until = world.clouds[self.cloud], self.at + self.seconds

        def fault(machine: SimMachine) -> None:
            if cloud.now() < until and machine.is_ours:
                self.change(machine)

        cloud.join_fault = fault

    def change(self, machine: SimMachine) -> None:
        raise NotImplementedError

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        param = float(round(dice.uniform(*cls.params)))
        return cls(at, dice.choice(setting.clouds).name, float(round(dice.uniform(300, 5000))), param)


@kind("nodes-late")
class NodesLate(NodeFault):
    """They join late."""

    __slots__ = ()
    params = (300, 2000)

    def change(self, machine: SimMachine) -> None:
        machine.joins_after = self.param


@kind("nodes-never")
class NodesNever(NodeFault):
    """They never join."""

    __slots__ = ()

    def change(self, machine: SimMachine) -> None:
        machine.joins_after = 1e9


@kind("nodes-twice")
class NodesTwice(NodeFault):
    """They register twice."""

    __slots__ = ()

    def change(self, machine: SimMachine) -> None:
        machine.node_names = (machine.name, f"{machine.name}-again")


@kind("nodes-renamed")
class NodesRenamed(NodeFault):
    """They register under another name."""

    __slots__ = ()

    def change(self, machine: SimMachine) -> None:
        machine.node_names = (f"node-of-{machine.name}",)


@kind("nodes-unready")
@dataclass(frozen=True, slots=True)
class NodesUnready(Step):
    """Some nodes are not ready for a while."""

    count: int
    seconds: float

    def apply(self, world: World) -> None:
        ready = sorted(name for name, node in world.kubernetes.nodes.items() if node.is_ready)
        for name in ready[: self.count]:
            world.kubernetes.set_ready(name, is_ready=False)
            world.loop.later(self.seconds, self._back, world, name)

    def _back(self, world: World, name: str) -> None:
        node = world.kubernetes.nodes.get(name)
        if node is not None and node.machine.is_alive and node.machine.state is MachineState.RUNNING:
            world.kubernetes.set_ready(name, is_ready=True)

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, dice.choice([1, 2, 100]), float(round(dice.choice([60, 900, 2400]) * dice.uniform(0.5, 1.5))))


@kind("kubernetes-away", 2)
@dataclass(frozen=True, slots=True)
class KubernetesAway(Step):
    """The API server cannot be reached."""

    seconds: float

    def apply(self, world: World) -> None:
        world.kubernetes.go_away(self.at + self.seconds)
        world.loop.later(self.seconds, world.kubernetes.changed)

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, float(round(dice.choice([60, 900, 4000]) * dice.uniform(0.5, 1.5))))


@kind("foreigners", 2)
@dataclass(frozen=True, slots=True)
class Foreigners(Step):
    """Another cluster of the same name has machines in the same cloud."""

    cloud: str
    count: int

    def apply(self, world: World) -> None:
        for _ in range(self.count):
            world.make_foreign(self.cloud)

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, dice.choice(setting.clouds).name, dice.randint(1, 3))


@kind("adopted", 2)
@dataclass(frozen=True, slots=True)
class Adopted(Step):
    """An operator adopts a machine made by hand; after a while somebody makes another under its name and id."""

    group: str
    seconds: float

    def apply(self, world: World) -> None:
        cloud = world.clouds[next(g.cloud for g in world.groups if g.id == self.group)]
        machine = cloud.make(f"made-by-hand-{int(self.at)}", {}, "somebody")
        world.loop.later(300, world.operators.adopt, cloud, machine, self.group)
        world.loop.later(300 + self.seconds, self._recreate, world, cloud, machine)

    def _recreate(self, world: World, cloud: SimCloud, machine: SimMachine) -> None:
        cloud.remove(machine)

        def again() -> None:
            if machine.machine_id not in cloud.machines:
                cloud.make(machine.name, {"owner": "somebody"}, "foreign", machine_id=machine.machine_id)

        world.loop.later(400, again)

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, dice.choice(setting.groups).id, float(round(dice.uniform(300, 3000))))
