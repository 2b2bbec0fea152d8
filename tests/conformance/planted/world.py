"""What is outside of a planted server: the machines of its cloud and what it wrote down. Both outlive a restart."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

ID_PREFIX = "planted://"
FOREVER = 600.0  # seconds; longer than any judge waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A node group as its server's author configured it."""

    id: str
    min_size: int
    max_size: int
    hourly_price: float


# One to judge, one that begins below its min, and one that is only there.
GROUPS = (
    Group(id="amber", min_size=0, max_size=18, hourly_price=0.25),
    Group(id="beryl", min_size=1, max_size=4, hourly_price=0.5),
    Group(id="coral", min_size=0, max_size=2, hourly_price=1.0),
)


@dataclass(slots=True)
class Machine:
    """A machine that was ordered; ``id`` is the providerID of its node, ``name`` the node's name."""

    id: str
    name: str
    group: str
    running_at: float
    gone_at: float | None = None  # set once its deletion is accepted
    error: str = ""  # why the cloud could not make it
    has_died: bool = False  # nobody asked for it to go
    looks: int = 0  # how often the cloud was asked for it: some clouds list a machine late

    @property
    def is_counted(self) -> bool:
        """Whether it is part of the group's target."""
        return self.gone_at is None

    @property
    def is_gone(self) -> bool:
        return self.gone_at is not None and self.gone_at <= time.monotonic()

    @property
    def is_running(self) -> bool:
        return not self.error and self.running_at <= time.monotonic()


@dataclass(slots=True)
class World:
    """The cloud, and the books of the server that uses it."""

    boot_seconds: float = 0.05  # from the order to a running machine
    delete_seconds: float = 0.05  # from the deletion to a gone machine
    machines: dict[str, Machine] = field(default_factory=dict)
    groups: tuple[Group, ...] = GROUPS
    numbers: dict[str, int] = field(default_factory=dict)  # machines ever ordered: no name is used twice
    is_out_of_stock: bool = False
    is_stalled: bool = False
    restarts: int = 0

    def order(self, group: str) -> Machine:
        """A new machine; one that the cloud refuses when it is out of stock, or never gets on with when it stalls."""
        number = self.numbers[group] = self.numbers.get(group, 0) + 1
        name, now = f"{group}-{number}", time.monotonic()
        running_at = math.inf if self.is_stalled else now + self.boot_seconds
        machine = Machine(f"{ID_PREFIX}{group}/{name}", name, group, running_at)
        if self.is_out_of_stock:
            machine.error = "OUT_OF_STOCK"
        self.machines[machine.id] = machine
        return machine

    def delete(self, machine: Machine) -> None:
        """The machine goes in a while; nothing remains of one that was never made."""
        if machine.gone_at is None:
            machine.gone_at = time.monotonic() + (0.0 if machine.error else self.delete_seconds)

    def set_stalled(self, *, is_stalled: bool) -> None:
        """The cloud stops making machines, or goes on."""
        self.is_stalled = is_stalled
        now = time.monotonic()
        for machine in self.machines.values():
            if not is_stalled and machine.running_at == math.inf:
                machine.running_at = now + self.boot_seconds

    def lose(self, instance: str) -> None:
        """A machine dies without anybody having asked for it; every id that a server made up ends with its name."""
        name = instance.rpartition("/")[2].partition("?")[0]
        lost = next(machine for machine in self.machines.values() if machine.name == name)
        lost.gone_at, lost.has_died = time.monotonic(), True

    def of(self, group: str) -> Iterator[Machine]:
        """The machines of a group that are not gone."""
        return (machine for machine in self.machines.values() if machine.group == group and not machine.is_gone)
