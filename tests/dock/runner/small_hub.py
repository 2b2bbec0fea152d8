"""A hub in the hands of a test: it speaks both protocols over a real port, and does only what it is told."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Self

import grpc
import grpc.aio

from cloudgraft.dock.protocol.codes import Verb
from cloudgraft.dock.protocol.messages import ClassRef, Operation
from cloudgraft.dock.protocol.v0 import REGISTER_CALL, SERVICES
from cloudgraft.dock.protocol.v1 import CONNECT, SERVICE, put_operation
from cloudgraft.sdk.driver import Machine, MachineSpec
from cloudgraft.wire.pb import dock_pb2 as v1
from cloudgraft.wire.pb import dock_v0_pb2 as v0
from tests.own_port import OWN_PORT

Context = grpc.aio.ServicerContext[Any, Any]
PATIENCE = 20.0


class Visit:
    """One connection of a driver, v1."""

    def __init__(self, context: Context, hello: v1.Hello, hub_id: str) -> None:
        self.context = context
        self.hello = hello
        self.hub_id = hub_id
        self.heard: asyncio.Queue[v1.DriverMessage] = asyncio.Queue()
        self.beats = 0
        self.hung_up = asyncio.Event()  # set it to end the connection
        self.over = asyncio.Event()
        self.numbers = itertools.count(1)
        self._lock = asyncio.Lock()

    async def say(self, **message: Any) -> None:
        async with self._lock:
            await self.context.write(v1.HubMessage(**message).SerializeToString())

    async def ask(self, operation: Operation, number: int | None = None) -> int:
        """Sends an operation; its number."""
        chosen = next(self.numbers) if number is None else number
        message = v1.Operation()
        put_operation(message, chosen, self.hub_id, operation)
        await self.say(operation=message)
        return chosen

    async def result(self, *, acknowledged: bool = True) -> v1.Result:
        """The next result."""
        async with asyncio.timeout(PATIENCE):
            message = await self.heard.get()
        assert message.WhichOneof("message") == "result", message
        if acknowledged:
            await self.say(acknowledge=v1.Acknowledge(ids=[message.result.id]))
        return message.result

    async def read(self) -> None:
        """Takes what the driver says, until it says no more."""
        while isinstance(data := await self.context.read(), bytes):
            message = v1.DriverMessage.FromString(data)
            if message.WhichOneof("message") == "heartbeat":
                self.beats += 1
            else:
                self.heard.put_nowait(message)


class SmallHub:
    """Listens on a port of its own, or on one that it had before."""

    def __init__(
        self, *, heartbeat: float = 10.0, beats: bool = True, hub_id: str = "hub-1", most: int = 0, reads: bool = True
    ) -> None:
        self.heartbeat = heartbeat
        self.beats = beats
        self.hub_id = hub_id
        self.most = most
        self.reads = reads
        self.reject: v1.Reject | None = None
        self.classes: dict[str, tuple[int, dict[str, object]]] = {}
        self.secrets: dict[str, tuple[int, dict[str, bytes]]] = {}  # by class
        self.fetched: list[str] = []
        self.metadata: list[Mapping[str, Any]] = []
        self.hellos: list[v1.Hello] = []
        self.visits: asyncio.Queue[Visit] = asyncio.Queue()
        self.registered: asyncio.Queue[OldVisit] = asyncio.Queue()
        self.port = 0
        self._server: grpc.aio.Server | None = None

    async def start(self, credentials: grpc.ServerCredentials | None = None) -> Self:
        server = grpc.aio.server(options=OWN_PORT)
        server.add_generic_rpc_handlers(tuple(self._handlers()))
        if credentials is None:
            self.port = await opened(server, self.port)
        else:
            self.port = server.add_secure_port(self.address, credentials)
        await server.start()
        self._server = server
        return self

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def visit(self) -> Visit:
        """The next driver that was welcomed."""
        async with asyncio.timeout(PATIENCE):
            return await self.visits.get()

    async def old_visit(self) -> OldVisit:
        """The next driver that registered as in 2018."""
        async with asyncio.timeout(PATIENCE):
            return await self.registered.get()

    def _handlers(self) -> list[grpc.GenericRpcHandler]:
        unary: Callable[..., grpc.RpcMethodHandler[Any, Any]] = grpc.unary_unary_rpc_method_handler
        own = {
            CONNECT: grpc.stream_stream_rpc_method_handler(self._connect),
            "GetMachineClass": unary(self._class, v1.GetMachineClassRequest.FromString),
            "GetSecret": unary(self._secret, v1.GetSecretRequest.FromString),
        }
        old = {
            REGISTER_CALL: grpc.stream_stream_rpc_method_handler(self._register),
            "GetMachineClass": unary(self._old_class, v0.MachineClassMeta.FromString),
            "GetSecret": unary(self._old_secret, v0.SecretMeta.FromString),
        }
        services = {SERVICE: own, **dict.fromkeys(SERVICES, old)}
        return [grpc.method_handlers_generic_handler(name, methods) for name, methods in services.items()]

    async def _connect(self, _: object, context: Context) -> None:
        self.metadata.append(dict(context.invocation_metadata() or ()))
        first = await context.read()
        assert isinstance(first, bytes)
        hello = v1.DriverMessage.FromString(first).hello
        self.hellos.append(hello)
        if self.reject is not None:
            await context.write(v1.HubMessage(reject=self.reject).SerializeToString())
            return
        visit = Visit(context, hello, self.hub_id)
        welcome = v1.Welcome(session_id=f"s-{len(self.hellos)}", max_message_bytes=self.most)
        welcome.heartbeat.FromTimedelta(timedelta(seconds=self.heartbeat))
        await visit.say(welcome=welcome)
        self.visits.put_nowait(visit)
        reading = visit.read() if self.reads else visit.hung_up.wait()
        tasks = [asyncio.create_task(part) for part in (self._beat(visit), reading, visit.hung_up.wait())]
        try:
            await asyncio.wait(tasks[1:], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            visit.over.set()

    async def _beat(self, visit: Visit) -> None:
        while self.beats:
            await visit.say(heartbeat=v1.Heartbeat(number=1))
            await asyncio.sleep(self.heartbeat)

    async def _class(self, request: v1.GetMachineClassRequest, context: Context) -> bytes:
        self.fetched.append(f"class {request.name}")
        if request.name not in self.classes:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no class {request.name}")
        revision, whole = self.classes[request.name]
        return v1.MachineClass(name=request.name, revision=revision, json=json.dumps(whole)).SerializeToString()

    async def _secret(self, request: v1.GetSecretRequest, context: Context) -> bytes:
        self.fetched.append(f"secret of {request.machine_class}")
        revision, data = self.secrets[request.machine_class]
        return v1.Secret(revision=revision, data=data).SerializeToString()

    # -- as in 2018 ----------------------------------------------------------------------------------------------------

    async def _register(self, _: object, context: Context) -> None:
        await context.write(v0.MCMside(operationID=1, operationType="register").SerializeToString())
        first = await context.read()
        assert isinstance(first, bytes)
        visit = OldVisit(context, v0.DriverSide.FromString(first))
        self.registered.put_nowait(visit)
        tasks = [asyncio.create_task(part) for part in (visit.read(), visit.hung_up.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _old_class(self, request: v0.MachineClassMeta, context: Context) -> bytes:
        self.fetched.append(f"class {request.name}")
        if request.name not in self.classes:
            return v0.MachineClass(error="not there").SerializeToString()
        return v0.MachineClass(data=json.dumps(self.classes[request.name][1])).SerializeToString()

    async def _old_secret(self, request: v0.SecretMeta, context: Context) -> bytes:
        self.fetched.append(f"secret {request.secretName}")
        data = {key: base64.b64encode(value).decode() for key, value in self.secrets[request.secretName][1].items()}
        return v0.Secret(data=json.dumps({"kind": "Secret", "data": data})).SerializeToString()


class OldVisit:
    """One connection of a driver of 2018."""

    def __init__(self, context: Context, first: v0.DriverSide) -> None:
        self.context = context
        self.first = first
        self.heard: asyncio.Queue[v0.DriverSide] = asyncio.Queue()
        self.hung_up = asyncio.Event()
        self.numbers = itertools.count(1)

    async def read(self) -> None:
        while isinstance(data := await self.context.read(), bytes):
            self.heard.put_nowait(v0.DriverSide.FromString(data))

    async def ask(self, verb: str, *, class_name: str = "", machine_id: str = "", name: str = "") -> v0.DriverSide:
        """Sends an operation and waits for the next message, which should be its answer."""
        message = v0.MCMside(operationID=next(self.numbers), operationType=verb)
        message.operationparams.machineClassMetaData.name = class_name
        message.operationparams.machineClassMetaData.revision = 1
        message.operationparams.machineID = machine_id
        message.operationparams.machineName = name
        await self.context.write(message.SerializeToString())
        async with asyncio.timeout(PATIENCE):
            answer = await self.heard.get()
        assert (answer.operationID, answer.operationType) == (message.operationID, verb)
        return answer


async def opened(server: grpc.aio.Server, port: int) -> int:
    """Opens the port. One that another hub had before may be anybody's for a moment: it is asked for again."""
    deadline = time.monotonic() + 30.0
    while True:
        try:
            return server.add_insecure_port(f"127.0.0.1:{port}")
        except RuntimeError:
            if not port or time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.05)


@asynccontextmanager
async def small_hub(**options: Any) -> AsyncIterator[SmallHub]:
    hub = await SmallHub(**options).start()
    try:
        yield hub
    finally:
        await hub.stop()


# -- what is asked -----------------------------------------------------------------------------------------------------


def create(
    name: str, *, seconds: float = 30.0, ref: ClassRef | None = None, settings: Mapping[str, object] | None = None
) -> Operation:
    spec = MachineSpec(name=name, group="g", settings=settings or {}, tags={"cluster": "c"})
    return _operation(Verb.CREATE, seconds, ref, spec=spec)


def delete(machine: Machine, *, seconds: float = 30.0, ref: ClassRef | None = None) -> Operation:
    return _operation(Verb.DELETE, seconds, ref, machine=machine)


def read(verb: Verb = Verb.LIST, *, seconds: float = 30.0, ref: ClassRef | None = None) -> Operation:
    return _operation(verb, seconds, ref)


def _operation(verb: Verb, seconds: float, ref: ClassRef | None, **about: Any) -> Operation:
    return Operation(verb=verb, class_ref=ref or ClassRef(name=""), timeout=timedelta(seconds=seconds), **about)
