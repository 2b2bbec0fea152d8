"""What goes wrong with servers: crashes, disks, journals, clocks; and what people do to them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from cloudgraft.engine.groups.specs import GuardLimits
from cloudgraft.store.records import Change, PauseRecord, Scope
from tests.simulation.determinism import InlinePool
from tests.simulation.plan import Step, kind
from tests.simulation.setting import Setting

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__: list[str] = []


def _long(dice: random.Random, *choices: float) -> float:
    return float(round(dice.choice(choices) * dice.uniform(0.5, 1.5)))


@kind("crash", 5)
@dataclass(frozen=True, slots=True)
class Crash(Step):
    """Kill -9 after so many steps of the event loop; started again after a while."""

    steps: int
    down: float

    def apply(self, world: World) -> None:
        world.crash(self.steps, self.down)

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, dice.choice([0, 3, 10, 30, 100, 300]), _long(dice, 5, 60, 1200))


@kind("disk-full", journals="sqlite")
@dataclass(frozen=True, slots=True)
class DiskFull(Step):
    """Nothing can be written."""

    seconds: float

    def apply(self, world: World) -> None:
        world.server.disk.full_until = self.at + self.seconds
        world.trouble("", self.at + self.seconds)

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, _long(dice, 10, 300, 1500))


@kind("disk-fails", journals="sqlite")
@dataclass(frozen=True, slots=True)
class DiskFails(Step):
    """Commits end in an I/O error; whether they reached the disk is chance."""

    seconds: float

    def apply(self, world: World) -> None:
        world.server.disk.failing_until = self.at + self.seconds
        world.trouble("", self.at + self.seconds)

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, _long(dice, 5, 60, 300))


@kind("database-stalls")
@dataclass(frozen=True, slots=True)
class DatabaseStalls(Step):
    """Nothing is answered for a while."""

    seconds: float

    def apply(self, world: World) -> None:
        InlinePool.stalled_until = max(InlinePool.stalled_until, self.at + self.seconds)
        world.trouble("", self.at + self.seconds)

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, _long(dice, 5, 20, 60))


@kind("journal-lost", journals="sqlite")
@dataclass(frozen=True, slots=True)
class JournalLost(Step):
    """The journal's files are gone after a crash; with ``with_id``, so is the cluster id beside it."""

    down: float
    with_id: int

    def apply(self, world: World) -> None:
        world.crash(0, self.down, lambda: world.journals.lose(with_id=bool(self.with_id)))

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, _long(dice, 5, 300), int(dice.random() < 0.3))


@kind("journal-old", journals="sqlite")
@dataclass(frozen=True, slots=True)
class JournalOld(Step):
    """Somebody puts a backup in the journal's place."""

    down: float
    age: float

    def apply(self, world: World) -> None:
        world.crash(0, self.down, lambda: world.journals.restore(self.age))

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, _long(dice, 5, 300), _long(dice, 1000, 6000))


@kind("journal-foreign", journals="sqlite")
@dataclass(frozen=True, slots=True)
class JournalForeign(Step):
    """Somebody puts the journal of another cluster in its place, and the right one back after a while."""

    down: float
    seconds: float

    def apply(self, world: World) -> None:
        world.crash(0, self.down, world.journals.exchange)
        world.loop.later(self.down + self.seconds, world.journals.put_back)

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, _long(dice, 5, 60), _long(dice, 600, 2000))


@kind("journal-flip", journals="sqlite")
@dataclass(frozen=True, slots=True)
class JournalFlip(Step):
    """One bit of the journal's file is wrong after a crash."""

    down: float
    bit: int

    def apply(self, world: World) -> None:
        world.crash(0, self.down, lambda: world.journals.flip_bit(self.bit))

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, _long(dice, 5, 60), dice.randrange(10**9))


@kind("record-flip", journals="sqlite")
@dataclass(frozen=True, slots=True)
class RecordFlip(Step):
    """One bit of one machine's record is wrong after a crash."""

    down: float
    pick: int

    def apply(self, world: World) -> None:
        world.crash(0, self.down, lambda: world.journals.flip_record(self.pick))

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, _long(dice, 5, 60), dice.randrange(100))


@kind("journal-torn", journals="sqlite")
@dataclass(frozen=True, slots=True)
class JournalTorn(Step):
    """The end of the write-ahead log is missing after a crash."""

    down: float
    bytes: int

    def apply(self, world: World) -> None:
        world.crash(0, self.down, lambda: world.journals.tear(self.bytes))

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, _long(dice, 5, 60), dice.randrange(1, 20_000))


@kind("clock-jumps", 2)
@dataclass(frozen=True, slots=True)
class ClockJumps(Step):
    """Somebody sets the clock; ``down`` above zero: while the server is down."""

    by: float
    seconds: float
    down: float

    def apply(self, world: World) -> None:
        if self.down:
            world.crash(0, self.down, lambda: world.set_clock(self.by))
        else:
            world.set_clock(self.by)
        world.loop.later(self.seconds, world.set_clock, 0.0)
        world.clock_trouble(self.at + self.seconds)

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        by = dice.choice([-21600.0, -3600.0, -600.0, 600.0, 3600.0, 108000.0])
        return cls(at, by, _long(dice, 600, 4000), dice.choice([0.0, 0.0, 30.0]))


@kind("freeze")
@dataclass(frozen=True, slots=True)
class Freeze(Step):
    """The process stands still."""

    seconds: float

    def apply(self, world: World) -> None:
        host = world.server.host
        if host is not None and not host.is_dead:
            host.freeze()
            world.loop.later(self.seconds, host.thaw)
            world.trouble("", self.at + self.seconds)

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, _long(dice, 5, 60, 900))


@kind("second-autoscaler")
@dataclass(frozen=True, slots=True)
class SecondAutoscaler(Step):
    """Two autoscalers act at the same time, as during a change of leader."""

    seconds: float

    def apply(self, world: World) -> None:
        world.autoscalers[1].is_active = True
        world.loop.later(self.seconds, world.stop_second)

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, _long(dice, 60, 600, 3000))


@kind("pause")
@dataclass(frozen=True, slots=True)
class Pause(Step):
    """An operator pauses a group, and resumes it."""

    group: str
    seconds: float

    def apply(self, world: World) -> None:
        record = PauseRecord(scope=Scope.GROUP, name=self.group, since=0.0, reason="planned")
        world.operators.pauses[self.group] = self.at + self.seconds
        world.operators.operate(lambda: Change(pauses=(record,)))
        world.loop.later(self.seconds, world.operators.operate, lambda: Change(resumed=((Scope.GROUP, self.group),)))
        world.trouble("", self.at + self.seconds + 60)

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, dice.choice(setting.groups).id, _long(dice, 300, 1500))


@kind("scale", 3)
@dataclass(frozen=True, slots=True)
class Scale(Step):
    """An operator changes the size of a group by hand, some times in a row."""

    group: str
    change: str
    takes_ready: int
    times: int

    def apply(self, world: World) -> None:
        for number in range(self.times):
            order = partial(world.orders.give, self.group, self.change, delete_ready=bool(self.takes_ready))
            world.loop.later(number * 7.0, order)

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        change = dice.choice(["+1", "+2", "+4", "-1", "-2", "=0", "=2", "=5"])
        return cls(at, dice.choice(setting.groups).id, change, dice.choice([0, 0, 1]), dice.choice([1, 1, 1, 3]))

    def shorter(self) -> Step | None:
        return replace(self, times=1) if self.times > 1 else None


@kind("resize")
@dataclass(frozen=True, slots=True)
class Resize(Step):
    """The configuration changes a group's bounds."""

    group: str
    smallest: int
    largest: int

    def apply(self, world: World) -> None:
        groups = [
            replace(g, min_size=self.smallest, max_size=self.largest) if g.id == self.group else g for g in world.groups
        ]
        world.reconfigure(groups)

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        smallest = dice.randint(0, 2)
        return cls(at, dice.choice(setting.groups).id, smallest, smallest + dice.randint(1, 8))


@kind("guards")
@dataclass(frozen=True, slots=True)
class Guards(Step):
    """The configuration changes the guards."""

    machines: int
    creates: int

    def apply(self, world: World) -> None:
        guards = GuardLimits(
            max_machines=self.machines or None,
            max_creates_per_hour=self.creates or None,
            max_deletes_per_hour=world.guards.max_deletes_per_hour,
        )
        world.reconfigure(world.groups, guards)

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, dice.choice([0, 10, 14]), dice.choice([0, 8, 15]))


@kind("delete-guard")
@dataclass(frozen=True, slots=True)
class DeleteGuard(Step):
    """The configuration limits deletions that nobody ordered; below zero, it does not any more."""

    deletes: int

    def apply(self, world: World) -> None:
        limit = None if self.deletes < 0 else self.deletes
        world.reconfigure(world.groups, replace(world.guards, max_deletes_per_hour=limit))

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, dice.choice([-1, 0, 1, 3]))


@kind("observe-only")
@dataclass(frozen=True, slots=True)
class ObserveOnly(Step):
    """The configuration says `observeOnly` of a cloud, or of `all` of them, and after a while not any more."""

    cloud: str
    seconds: float

    def apply(self, world: World) -> None:
        world.operators.observe(world.clouds if self.cloud == "all" else [self.cloud], self.at + self.seconds)

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        names = [cloud.name for cloud in setting.clouds]
        return cls(at, dice.choice([*names, "all"]), _long(dice, 300, 1500, 4000))

    def shorter(self) -> Step | None:
        return replace(self, seconds=float(self.seconds // 2)) if self.seconds >= 120 else None


@kind("second-server", journals="sqlite")
@dataclass(frozen=True, slots=True)
class SecondServer(Step):
    """Somebody removes the lock file and starts a second server on the live journal."""

    seconds: float

    def apply(self, world: World) -> None:
        if world.server.is_up:
            world.start_second(self.seconds)

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, _long(dice, 60, 600))


@kind("database-away", 3, journals="postgresql")
@dataclass(frozen=True, slots=True)
class DatabaseAway(Step):
    """PostgreSQL drops every connection, and takes none for a while."""

    seconds: float

    def apply(self, world: World) -> None:
        if world.postgres is not None:
            world.postgres.away_until = self.at + self.seconds
            world.trouble("", self.at + self.seconds + 120)

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, _long(dice, 5, 20, 600))


@kind("failover", 3, journals="postgresql")
@dataclass(frozen=True, slots=True)
class Failover(Step):
    """PostgreSQL fails over to a standby that lacks the commits of the last seconds."""

    seconds: float
    away: float

    def apply(self, world: World) -> None:
        if world.postgres is not None:
            world.postgres.cut_off_standby()
            world.loop.later(self.seconds, self._happen, world)
            world.trouble("", self.at + self.seconds + self.away + 120)

    def _happen(self, world: World) -> None:
        if world.postgres is not None:
            world.postgres.fail_over()
            world.postgres.away_until = world.loop.time() + self.away
            world.judge.on_destroyed()

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, dice.choice([0.0, 2.0, 20.0, 120.0]), _long(dice, 1, 10, 60))


@kind("database-clock", 2, journals="postgresql")
@dataclass(frozen=True, slots=True)
class DatabaseClock(Step):
    """Somebody sets the clock of PostgreSQL's machine."""

    by: float
    seconds: float

    def apply(self, world: World) -> None:
        if world.postgres is not None:
            world.postgres.wall_offset = self.by
            world.loop.later(self.seconds, self._back, world)

    def _back(self, world: World) -> None:
        if world.postgres is not None:
            world.postgres.wall_offset = 0.0

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, dice.choice([-600.0, 600.0, 86400.0]), _long(dice, 600, 2000))


@kind("clock-drifts", 2)
@dataclass(frozen=True, slots=True)
class ClockDrifts(Step):
    """The clocks of a server's machine run too fast or too slow."""

    percent: float

    def apply(self, world: World) -> None:
        world.server.set_drift(self.percent / 100)

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        return cls(at, dice.choice([-5.0, -1.0, 0.0, 1.0, 5.0]))
