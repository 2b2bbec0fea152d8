"""The engine's rig with a dock between engine and cloud, and a hub whose one driver is in this process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from cloudgraft.dock.bridge import DockDriver, DockOptions
from cloudgraft.dock.codes import Code, code_of, error_of, retry_after_of
from cloudgraft.dock.messages import Answer, ClassRef, DriverInfo, Key, MachineClass, Operation, Secret, Verb
from cloudgraft.sdk.driver import Driver, DriverTraits
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, NotFoundError, UnavailableError
from cloudgraft.simcloud.driver import SimulatedDriver
from tests.engine.rig import Rig, running

KEY = Key(kind="AcmeMachineClass", api_version="machine.example/v1")
CLASS = "small"
OPTIONS = DockOptions(kind=KEY.kind, api_version=KEY.api_version, machine_class=CLASS, list_delay=timedelta(0))


class OneClass:
    """A store with one machine class, which may be taken away."""

    def __init__(self) -> None:
        self.is_there = True

    def get(self, name: str, key: Key) -> MachineClass:
        self.ref(name, key)
        template = {"instanceType": "m1", "capacity": {"cpu": 2, "memory": "4Gi"}, "zone": "a"}
        text = json.dumps({"kind": key.kind, "metadata": {"name": name}, "nodeTemplate": template})
        return MachineClass(name=name, key=key, revision=3, node_template=template, json=text)

    def secret(self, machine_class: MachineClass) -> Secret | None:
        return None

    def on_changed(self, callback: Callable[[Key, Sequence[str], Sequence[str]], None]) -> None:
        """It never does."""

    def ref(self, name: str, key: Key) -> ClassRef:
        if not self.is_there or (name, key) != (CLASS, KEY):
            raise NotFoundError(f"there is no machine class {name} of {key}")
        return ClassRef(name=name, revision=3, secret_revision=1)

    def check_create(self, name: str, key: Key) -> None:
        self.ref(name, key)


class MemoryHub:
    """A hub with one driver. Errors cross it as codes, as they would over a wire.

    ``is_here`` says whether the driver is connected. ``codes`` are answered instead of asking it. ``cut`` ends the
    connection in the middle of the next operations of a verb: "before" the driver did it, or "after".
    """

    def __init__(self, driver: Driver, *, traits: DriverTraits | None) -> None:
        self.driver = driver
        self.traits = traits
        self.is_here = True
        self.codes: dict[Verb, Code] = {}
        self.cut: dict[Verb, str] = {}
        self.operations: list[Operation] = []

    def info(self, key: Key) -> DriverInfo | None:
        is_known = self.is_here and key == KEY
        return DriverInfo(key=key, protocol="v1", traits=self.traits) if is_known else None

    async def call(self, key: Key, operation: Operation) -> Answer:
        if self.info(key) is None:
            raise UnavailableError(f"no driver for {key} is connected: nothing was done")
        self.operations.append(operation)
        how = self.cut.pop(operation.verb, "")
        if how == "before":
            raise DeadlineError("the connection ended in mid-operation")
        if operation.verb in self.codes:
            error = error_of(self.codes[operation.verb], "as the test wants it", operation.verb)
            if error is not None:
                raise error
        answer = await self._done(operation)
        if how == "after":
            raise DeadlineError("the connection ended in mid-operation")
        return answer

    async def _done(self, operation: Operation) -> Answer:
        try:
            return await self._asked(operation)
        except CloudgraftError as error:
            said = error_of(code_of(error), error.message, operation.verb, retry_after_of(error))
            raise said or error from error

    async def _asked(self, operation: Operation) -> Answer:
        match operation:
            case Operation(verb=Verb.CREATE, spec=spec) if spec is not None:
                return await self.driver.create(spec)
            case Operation(verb=Verb.DELETE, machine=machine) if machine is not None:
                await self.driver.delete(machine)
                return None
            case Operation(verb=Verb.LIST):
                return await self.driver.list()
            case Operation(verb=Verb.SHAPES):
                return await self.driver.shapes()
            case _:
                return await self.driver.prices()


@dataclass
class DockRig(Rig):
    """The cloud "sim" of the engine is a driver that has dialled in; behind it is the simulated cloud."""

    dock_options: DockOptions = OPTIONS
    declares: bool = True  # False: as a driver of 2018, it declares nothing
    hub: MemoryHub = field(init=False)
    classes: OneClass = field(default_factory=OneClass)

    def __post_init__(self) -> None:
        super().__post_init__()
        behind = SimulatedDriver.of(self.cloud, waits=False)
        self.hub = MemoryHub(behind, traits=behind.traits if self.declares else None)

    def driver(self) -> Driver:
        return DockDriver(self.dock_options, self.hub, self.classes)


@asynccontextmanager
async def docked(rig: DockRig) -> AsyncIterator[DockRig]:
    """Started here, closed at the end."""
    async with running(rig):
        yield rig


__all__ = ["CLASS", "KEY", "OPTIONS", "DockRig", "MemoryHub", "OneClass", "docked"]
