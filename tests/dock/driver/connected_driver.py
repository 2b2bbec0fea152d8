"""A real hub behind a real port, with a driver of this process that has really dialled in."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from cloudgraft.dock.access import CallerAccess, CallerIdentity, Context
from cloudgraft.dock.classes.store import MachineClasses
from cloudgraft.dock.driver import DockDriver, DockOptions
from cloudgraft.dock.hub.engine_service import EngineService
from cloudgraft.dock.hub.hub import Hub, HubSettings
from cloudgraft.dock.hub.listener import DockListener
from cloudgraft.dock.protocol.messages import ClassRef, Key, MachineClass, Secret
from cloudgraft.dock.runner import DockRunner, RunnerOptions, RunnerSettings, Speech
from cloudgraft.sdk.driver import Driver, DriverTraits, Machine, MachineSpec, Price, Shape
from cloudgraft.sdk.errors import NotFoundError
from tests.conditions import until
from tests.engine.scripted_cloud import Cloud

KEY = Key(kind="AcmeMachineClass", api_version="machine.example/v1")
CLASS = "small"
CONNECT = "from cloudgraft.cli.dock_connect import command; command()"
CALM = HubSettings(heartbeat=30.0)


class OneClass(MachineClasses):
    """A store with one machine class, which may be taken away."""

    def __init__(self) -> None:
        super().__init__([])
        self.is_there = True

    def get(self, name: str, key: Key) -> MachineClass:
        self.ref(name, key)
        template = {"instanceType": "m1", "capacity": {"cpu": 2, "memory": "4Gi"}, "zone": "a"}
        spec = {"shape": "small"}
        whole = {"kind": key.kind, "metadata": {"name": name}, "providerSpec": spec, "nodeTemplate": template}
        return MachineClass(
            name=name, key=key, revision=3, provider_spec=spec, node_template=template, json=json.dumps(whole)
        )

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


ANYBODY = CallerIdentity(name="somebody", registers=None, uses=None)


class TokenAccess(CallerAccess):
    """Knows callers that send the right token, if there is one."""

    def __init__(self) -> None:
        super().__init__(secure=False)
        self.token = ""
        self.caller = ANYBODY

    def identify(self, context: Context) -> CallerIdentity | None:
        said = dict(context.invocation_metadata() or ()).get("authorization", "")
        return self.caller if not self.token or said == f"Bearer {self.token}" else None


class ConnectedDriver:
    """The hub, its port, and the runners that were started."""

    def __init__(self) -> None:
        self.classes = OneClass()
        self.drivers, self.engines = TokenAccess(), TokenAccess()
        self.hub = Hub(access=self.drivers, classes=self.classes, settings=CALM)
        self.engine_service = EngineService(self.hub, self.classes, self.engines)
        handlers = [*self.hub.handlers(), self.engine_service.handler()]
        self.listener = DockListener(handlers, listen="127.0.0.1:0", tls=None, settings=CALM, access=self.drivers)
        self.runners: list[DockRunner] = []

    async def __aenter__(self) -> Self:
        await self.listener.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.listener.close, 0)
            stack.push_async_callback(self.hub.close, 0)
            for runner in self.runners:
                stack.push_async_callback(runner.stop, 0)

    async def dial_in(self, driver: Driver, *, speech: Speech = Speech.V1) -> DockRunner:
        """Returns when the hub has it."""
        settings = RunnerSettings(speech=speech, first_wait=0.01, longest_wait=0.05)
        options = RunnerOptions(
            address=self.listener.address, kind=KEY.kind, api_version=KEY.api_version, settings=settings
        )
        runner = DockRunner(driver, options)
        self.runners.append(runner)
        await runner.start()
        await until(lambda: self.hub.info(KEY) is not None, what="the driver is connected")
        return runner

    def cloud(self, **changes: Any) -> DockDriver:
        """A cloud of an engine in this process."""
        return DockDriver(dock_options(**changes), self.hub, self.classes)

    def remote_cloud(self, **changes: Any) -> DockDriver:
        """A cloud of an engine elsewhere."""
        return DockDriver(dock_options(address=self.listener.address, **changes))


def dock_options(**changes: Any) -> DockOptions:
    least: dict[str, Any] = {"kind": KEY.kind, "api_version": KEY.api_version, "machine_class": CLASS}
    return DockOptions(**{**least, "list_delay": timedelta(0), **changes})


class Slow(Cloud):
    """Makes the machine, and answers when it is let."""

    def __init__(self, traits: DriverTraits | None = None) -> None:
        super().__init__(traits)
        self.may_answer = asyncio.Event()
        self.specs: list[MachineSpec] = []
        self.error: Exception | None = None

    async def create(self, spec: MachineSpec) -> Machine:
        if self.error is not None:
            raise self.error
        self.specs.append(spec)
        machine = await super().create(spec)
        await self.may_answer.wait()
        return machine


class Docked(Driver):
    """A driver as an engine sees it through a dock, with the dock and the driver's program within it."""

    def __init__(self, behind: Driver | None = None, *, elsewhere: bool = False) -> None:
        self._behind = behind
        self._elsewhere = elsewhere
        self._harbour: ConnectedDriver | None = None
        self._cloud: DockDriver | None = None

    @property
    def cloud(self) -> DockDriver:
        assert self._cloud is not None
        return self._cloud

    async def start(self) -> None:
        if self._harbour is None:
            self._harbour = await ConnectedDriver().__aenter__()
            await self.dial_in(self._harbour)
            self._cloud = self._harbour.remote_cloud() if self._elsewhere else self._harbour.cloud()
        await self.cloud.start()
        self.traits = self.cloud.traits

    async def close(self) -> None:
        if self._cloud is not None:
            await self._cloud.close()
        connected, self._harbour = self._harbour, None
        if connected is not None:
            async with asyncio.timeout(20):
                await connected.__aexit__(None, None, None)

    async def dial_in(self, connected: ConnectedDriver) -> None:
        assert self._behind is not None
        await connected.dial_in(self._behind)

    async def create(self, spec: Any) -> Any:
        return await self.cloud.create(spec)

    async def delete(self, machine: Any) -> None:
        await self.cloud.delete(machine)

    async def list(self) -> Sequence[Any]:
        return await self.cloud.list()

    async def shapes(self) -> Sequence[Shape]:
        return await self.cloud.shapes()

    async def prices(self) -> Sequence[Price]:
        return await self.cloud.prices()


class DockedProgram(Docked):
    """The same with the simulated driver as a process of its own, which can be killed: `cloudgraft dock connect`."""

    def __init__(self, directory: Path, **options: object) -> None:
        super().__init__()
        self._directory = directory
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    async def dial_in(self, connected: ConnectedDriver) -> None:
        file = self._directory / f"driver-{connected.listener.address.rpartition(':')[2]}.yaml"
        said = {"address": connected.listener.address, "kind": KEY.kind, "apiVersion": KEY.api_version}
        file.write_text(json.dumps({**said, "driver": "simulated", "options": self._options}))
        self._launch(file)
        await until(lambda: connected.hub.info(KEY) is not None, what="the program has dialled in", seconds=60)

    def _launch(self, file: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CONNECT, "-c", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def close(self) -> None:
        self.kill()
        await super().close()
