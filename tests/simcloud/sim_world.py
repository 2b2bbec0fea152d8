"""A simulated cloud in the hands of a test: its time stands still until it is told to pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudgraft.sdk.driver import MachineSpec
from cloudgraft.simcloud.chaos import Chaos
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.options import MachineSettings, SimulatedOptions
from cloudgraft.simcloud.records import Order

START = 1_800_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


class World:
    """A cloud and its clock."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.options = SimulatedOptions(**options)
        self.cloud = self.open()

    def open(self) -> SimulatedCloud:
        """The cloud of the same ledger, as after a restart."""
        return SimulatedCloud(self.options, clock=self.clock)

    def chaos(self, **chaos: object) -> None:
        """By the keys of JSON, as over HTTP."""
        self.cloud.set_chaos(Chaos.from_json(chaos))

    def create(self, name: str = "m-1", shape: str = "small", **order: Any) -> str:
        """Makes a machine; its id."""
        machine, _ = self.cloud.create(an_order(name, shape, **order))
        return machine.machine_id

    def states(self) -> dict[str, str]:
        """What is there: name -> state."""
        return {machine.name: machine.state.value for machine in self.cloud.machines()}

    def listed(self) -> dict[str, str]:
        """What a list shows, by name, in one page."""
        return {machine.name: machine.state.value for machine in self.cloud.page(1000).machines}


def an_order(name: str = "m-1", shape: str = "small", **order: Any) -> Order:
    return Order(name=name, settings=MachineSettings(shape=shape), **{"token": name, **order})


def a_spec(name: str = "m-1", shape: str = "small", *, tags: Mapping[str, str] | None = None) -> MachineSpec:
    return MachineSpec(name=name, group="small", settings={"shape": shape}, tags=tags or {})
