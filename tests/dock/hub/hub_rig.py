"""A hub behind a real port, and what it asks of others, in memory."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import grpc.aio

from cloudgraft.dock.access import CallerAccess, CallerIdentity, Context
from cloudgraft.dock.classes.store import MachineClasses, OnChanged
from cloudgraft.dock.hub.hub import Hub, HubSettings
from cloudgraft.dock.hub.service import server_options
from cloudgraft.dock.protocol.codes import Verb
from cloudgraft.dock.protocol.messages import ClassRef, Key, MachineClass, Operation, Secret
from cloudgraft.sdk.driver import Machine, MachineSpec
from cloudgraft.sdk.errors import NotFoundError

ACME = Key(kind="AcmeMachineClass", api_version="machine.example/v1")
OTHER = Key(kind="OtherMachineClass", api_version="machine.example/v1")
CLASS = ClassRef(name="small", revision=3, secret_revision=5)
# Long where a test must not depend on it, short where it waits for it.
CALM = HubSettings(heartbeat=30.0)
# How each protocol notices that a driver is gone without a word: v0 by HTTP/2's pings, v1 by our heartbeats.
QUICK = {
    "v0": HubSettings(heartbeat=30.0, keepalive=1.0, keepalive_timeout=2.0),
    "v1": HubSettings(heartbeat=1.0, keepalive=60.0, keepalive_timeout=60.0),
}


def create(name: str = "m-1", *, seconds: float = 30.0, user_data: str = "", at_once: int = 1) -> Operation:
    spec = MachineSpec(name=name, group="g", user_data=user_data)
    timeout = timedelta(seconds=seconds)
    return Operation(verb=Verb.CREATE, class_ref=CLASS, timeout=timeout, spec=spec, max_in_flight=at_once)


def delete(machine_id: str = "acme:///m-1", *, seconds: float = 30.0) -> Operation:
    machine = Machine(name="m-1", machine_id=machine_id, provider_id=machine_id)
    return Operation(verb=Verb.DELETE, class_ref=CLASS, timeout=timedelta(seconds=seconds), machine=machine)


def listing(*, seconds: float = 30.0) -> Operation:
    return Operation(verb=Verb.LIST, class_ref=CLASS, timeout=timedelta(seconds=seconds))


class SomeAccess(CallerAccess):
    """Callers say who they are. What they may is decided here."""

    def __init__(self) -> None:
        super().__init__(secure=False)
        self.strangers: set[str] = set()
        self.keys: dict[str, set[Key]] = {}
        self.callbacks: list[Callable[[CallerIdentity], None]] = []

    def identify(self, context: Context) -> CallerIdentity | None:
        said = dict(context.invocation_metadata() or ()).get("x-identity", "local")
        name = said if isinstance(said, str) else said.decode()
        keys = self.keys.get(name)
        registers = None if keys is None else frozenset(keys)
        return None if name in self.strangers else CallerIdentity(name=name, registers=registers)

    def on_removed(self, callback: Callable[[CallerIdentity], None]) -> None:
        self.callbacks.append(callback)

    def remove(self, name: str) -> None:
        self.strangers.add(name)
        for callback in self.callbacks:
            callback(CallerIdentity(name=name))


class SomeClasses(MachineClasses):
    """Classes and secrets as the test puts them here."""

    def __init__(self) -> None:
        super().__init__([])
        self.given: dict[tuple[str, Key], MachineClass] = {}
        self.secrets: dict[str, Secret] = {}
        self.callbacks: list[OnChanged] = []

    def add(
        self, name: str, key: Key, *, secret: str = "", json: str = "{}", spec: Mapping[str, object] | None = None
    ) -> None:
        self.given[name, key] = MachineClass(
            name=name, key=key, revision=3, provider_spec=spec or {}, secret=secret, namespace="default", json=json
        )

    def get(self, name: str, key: Key) -> MachineClass:
        try:
            return self.given[name, key]
        except KeyError:
            raise NotFoundError(f"no class {name}") from None

    def secret(self, machine_class: MachineClass) -> Secret | None:
        return self.secrets.get(machine_class.secret)

    def ref(self, name: str, key: Key) -> ClassRef:
        return ClassRef(name=name, revision=self.get(name, key).revision)

    def on_changed(self, callback: OnChanged) -> None:
        self.callbacks.append(callback)


@dataclass(slots=True, kw_only=True)
class Rig:
    hub: Hub
    access: SomeAccess
    classes: SomeClasses
    port: int
    notified: list[Key]  # keys that the hub's listener was called with

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@contextlib.asynccontextmanager
async def rigged(
    settings: HubSettings = CALM, *, clock: Callable[[], float] = time.monotonic, store: MachineClasses | None = None
) -> AsyncIterator[Rig]:
    """``store`` instead of the classes in memory."""
    access, classes, notified = SomeAccess(), SomeClasses(), list[Key]()
    hub = Hub(access=access, classes=store or classes, settings=settings, clock=clock)
    hub.listen(notified.append)
    server = grpc.aio.server(options=server_options(settings))
    server.add_generic_rpc_handlers(tuple(hub.handlers()))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield Rig(hub=hub, access=access, classes=classes, port=port, notified=notified)
    finally:
        await hub.close(0)
        await server.stop(0)
