"""Drivers that do exactly what a test says: streams of messages, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from cloudgraft.dock.protocol.messages import Key
from cloudgraft.wire.pb import dock_pb2 as v1
from cloudgraft.wire.pb import dock_v0_pb2 as v0
from cloudgraft.wire.pb import driver_pb2
from tests.dock.hub.hub_rig import ACME, Rig

OutT = TypeVar("OutT", bound=Message)
InT = TypeVar("InT", bound=Message)
LIMIT = 20.0  # seconds for what must happen

OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
)


class RawDriver(Generic[OutT, InT]):
    """One stream on one connection."""

    path: str
    incoming: type[InT]

    def __init__(self, rig: Rig | str, *, identity: str = "local", path: str = "") -> None:
        address = rig if isinstance(rig, str) else rig.address
        self.channel = grpc.aio.insecure_channel(address, options=OPTIONS)
        self.metadata = (("x-identity", identity),)
        open_stream: Any = self.channel.stream_stream(path or self.path)
        self.stream: Any = open_stream(metadata=self.metadata)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stream.cancel()
        await self.channel.close()

    async def send(self, message: OutT) -> None:
        await self.send_bytes(message.SerializeToString())

    async def send_bytes(self, data: bytes) -> None:
        async with asyncio.timeout(LIMIT):
            await self.stream.write(data)

    async def receive(self) -> InT:
        """The next message."""
        async with asyncio.timeout(LIMIT):
            data = await self.stream.read()
        assert data is not grpc.aio.EOF, "the hub has ended the stream"
        return self.incoming.FromString(data)

    async def end(self) -> tuple[grpc.StatusCode, str]:
        """How the stream ended; waits for it, and reads over what comes before."""
        async with asyncio.timeout(LIMIT):
            with contextlib.suppress(grpc.aio.AioRpcError):
                while await self.stream.read() is not grpc.aio.EOF:
                    pass
            return await self.stream.code(), await self.stream.details()

    async def unary(self, path: str, request: Message, response: type[Message]) -> Any:
        call: Any = self.channel.unary_unary(path, type(request).SerializeToString, response.FromString)
        return await call(request, metadata=self.metadata, timeout=LIMIT)


class RawV0(RawDriver[v0.DriverSide, v0.MCMside]):
    path = "/service.Servicegrpc/Register"
    incoming = v0.MCMside

    async def register(self, key: Key = ACME) -> None:
        """Answers the hub's first word."""
        first = await self.receive()
        assert (first.operationID, first.operationType, first.HasField("operationparams")) == (1, "register", False)
        await self.send(registration(key))

    async def created(self, number: int, provider_id: str = "acme:///m-1", *, node: str = "", error: str = "") -> None:
        response = v0.DriverSide.createResp(providerID=provider_id, nodename=node, error=error)
        await self.send(v0.DriverSide(operationID=number, operationType="create", createresponse=response))

    async def deleted(self, number: int, *, error: str = "") -> None:
        response = v0.DriverSide.deleteResp(error=error)
        await self.send(v0.DriverSide(operationID=number, operationType="delete", deleteresponse=response))

    async def listed(self, number: int, *machines: tuple[str, str], error: str = "") -> None:
        found = [v0.DriverSide.machine(machineID=machine_id, machineName=name) for machine_id, name in machines]
        response = v0.DriverSide.listResp(list=found, error=error)
        await self.send(v0.DriverSide(operationID=number, operationType="list", listresponse=response))


def registration(key: Key = ACME) -> v0.DriverSide:
    group, _, version = key.api_version.rpartition("/")
    said = v0.DriverSide.registerationResp(name="externalDriver", group=group, kind=key.kind, version=version)
    return v0.DriverSide(operationID=1, operationType="register", registerResp=said)


class RawV1(RawDriver[v1.DriverMessage, v1.HubMessage]):
    path = "/cloudgraft.dock.v1.Dock/Connect"
    incoming = v1.HubMessage

    async def connect(self, key: Key = ACME, *, instance: str = "i-1", **more: Any) -> v1.Welcome:
        await self.send(hello(key, instance=instance, **more))
        answer = await self.receive()
        assert answer.WhichOneof("message") == "welcome", answer
        return answer.welcome

    async def operation(self) -> v1.Operation:
        """The next operation; heartbeats and acknowledgements before it are read over."""
        return (await self.word("operation")).operation

    async def word(self, kind: str) -> v1.HubMessage:
        """The next message of that kind."""
        while (message := await self.receive()).WhichOneof("message") != kind:
            pass
        return message

    async def beat(self) -> None:
        await self.send(v1.DriverMessage(heartbeat=v1.Heartbeat(number=1)))

    async def created(self, operation: v1.Operation, machine_id: str = "42") -> None:
        await self.send(v1.DriverMessage(result=creation(operation, machine_id)))

    async def listed(self, operation: v1.Operation, *machines: driver_pb2.Machine) -> None:
        answer = driver_pb2.ListResponse(machines=machines)
        await self.send(v1.DriverMessage(result=v1.Result(id=operation.id, hub_id=operation.hub_id, list=answer)))


def hello(key: Key = ACME, *, instance: str = "i-1", **more: Any) -> v1.DriverMessage:
    said = v1.Hello(protocol=1, kind=key.kind, api_version=key.api_version, instance_id=instance, **more)
    return v1.DriverMessage(hello=said)


def creation(operation: v1.Operation, machine_id: str = "42") -> v1.Result:
    machine = driver_pb2.Machine(name=operation.create.name, machine_id=machine_id, provider_id=f"acme:///{machine_id}")
    return v1.Result(
        id=operation.id,
        hub_id=operation.hub_id,
        status=v1.Status(code=0),
        create=driver_pb2.CreateResponse(machine=machine),
        machine_name=operation.create.name,
    )
