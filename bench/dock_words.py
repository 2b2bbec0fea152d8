"""What a lean client says, in each of the three protocols: v1, v0, and to the server that sends everything back.

The messages of v1 are those of a usual create and of its answer. The echo's are the latter, and are read and made by
the same steps: a client does the same work for each.
"""

from __future__ import annotations

from typing import Protocol

from cloudgraft.dock.protocol.messages import Key
from cloudgraft.dock.protocol.v0 import REGISTER_CALL, SERVICES
from cloudgraft.dock.protocol.v1 import CONNECT, SERVICE
from cloudgraft.wire.pb import dock_pb2 as v1
from cloudgraft.wire.pb import dock_v0_pb2 as v0
from cloudgraft.wire.pb import driver_pb2

TAGS = {
    "cloudgraft/owner": "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
    "cloudgraft/group": "general-purpose",
    "team": "platform",
}
_GROUP, _VERSION = "machine.example", "v1"


def key_of(driver: int) -> Key:
    """The key of the driver with that number."""
    return Key(kind=f"Bench{driver}MachineClass", api_version=f"{_GROUP}/{_VERSION}")


class Words(Protocol):
    """One protocol, as a client speaks it."""

    path: str
    server_first: bool

    def opening(self, driver: int) -> bytes:
        """What is said first, or after the server's first word."""

    def answer(self, data: bytes) -> tuple[int | None, bytes | None]:
        """The number of the operation, if it is one, and what to say to it."""


class V1Words:
    """Our own protocol."""

    path = f"/{SERVICE}/{CONNECT}"
    server_first = False

    def opening(self, driver: int) -> bytes:
        """Hello."""
        key = key_of(driver)
        hello = v1.Hello(protocol=1, kind=key.kind, api_version=key.api_version, instance_id=f"bench-{driver}")
        return v1.DriverMessage(hello=hello).SerializeToString()

    def answer(self, data: bytes) -> tuple[int | None, bytes | None]:
        """A machine for each create, a heartbeat for each heartbeat."""
        message = v1.HubMessage.FromString(data)
        kind = message.WhichOneof("message")
        if kind == "operation":
            operation = message.operation
            return operation.id, _created(operation.id, operation.hub_id, operation.create.name)
        if kind == "heartbeat":
            return None, v1.DriverMessage(heartbeat=v1.Heartbeat(number=1)).SerializeToString()
        return None, None


class V0Words:
    """The protocol of 2018."""

    path = f"/{SERVICES[0]}/{REGISTER_CALL}"
    server_first = True

    def opening(self, driver: int) -> bytes:
        """The answer to register."""
        said = v0.DriverSide.registerationResp(name="bench", group=_GROUP, kind=key_of(driver).kind, version=_VERSION)
        return v0.DriverSide(operationID=1, operationType="register", registerResp=said).SerializeToString()

    def answer(self, data: bytes) -> tuple[int | None, bytes | None]:
        """A machine for each create."""
        message = v0.MCMside.FromString(data)
        name = message.operationparams.machineName
        made = v0.DriverSide.createResp(providerID=f"bench:///{name}", nodename=name)
        answer = v0.DriverSide(operationID=message.operationID, operationType="create", createresponse=made)
        return message.operationID, answer.SerializeToString()


class EchoWords:
    """To the server that sends everything back: answers of v1 that nobody asked for."""

    path = "/bench.Echo/Echo"
    server_first = False

    def opening(self, driver: int) -> bytes:
        """A message that is not counted."""
        return self.question(0, driver)

    def question(self, number: int, driver: int) -> bytes:
        """The message with that number."""
        return _created(number, "0123456789abcdef", f"general-purpose-{driver}-{number}")

    def answer(self, data: bytes) -> tuple[int | None, bytes | None]:
        """The number of a message that came back."""
        message = v1.DriverMessage.FromString(data)
        if message.WhichOneof("message") != "result":
            return None, None
        return message.result.id, None


def _created(number: int, hub_id: str, name: str) -> bytes:
    message = v1.DriverMessage()
    result = message.result
    result.id, result.hub_id, result.machine_name = number, hub_id, name
    result.create.machine.MergeFrom(
        driver_pb2.Machine(
            name=name, machine_id=f"i-{name}", provider_id=f"bench:///{name}", state="running", tags=TAGS
        )
    )
    return message.SerializeToString()
