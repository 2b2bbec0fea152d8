"""Implements the hub's side of the protocol of 2018 (v0).

A machine has one id in it, the providerID. A create carries only the names of the machine and of its class: the class
tells the driver the rest. Errors are texts without codes; texts with a code as the machine controller's drivers write
it are understood. The client of 2018 handles one operation after the other.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Iterator
from typing import Final

from google.protobuf.message import DecodeError

from cloudgraft.dock.protocol.codes import Code, Verb, decode_coded, error_of
from cloudgraft.dock.protocol.dialect import (
    LONGEST_TEXT,
    Bye,
    Decoded,
    Dialect,
    Introduction,
    Malformed,
    Reply,
    check_operation,
    checked_key,
    shortened,
)
from cloudgraft.dock.protocol.messages import DriverInfo, MachineClass, Operation, Result, Secret, Status
from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.errors import InternalError, InvalidArgumentError, UnsupportedError
from cloudgraft.wire.pb import dock_v0_pb2 as pb
from cloudgraft.wire.streaming_decode import LARGE, MOST_ITEMS, Turns, cut_out, entries

SERVICES: Final = ("service.Servicegrpc", "infra.Infragrpc")  # the second name is the older one
REGISTER_CALL: Final = "Register"  # the stream
PROTOCOL: Final = "v0"
REGISTER: Final = "register"
UNREGISTER: Final = "unregister"
FIRST_NUMBER: Final = 1
LAST_NUMBER: Final = 2**31 - 1  # they are int32
NAMESPACE: Final = "default"  # of classes that have none: objects of 2018 always had one
_AT_ONCE: Final = 1  # operations; a cloud's `maxInFlight` may say more
# What drivers of 2018 send as the id of a machine that they did not create.
_NO_IDS: Final = frozenset({"", "error"})
_LIST, _ERROR = pb.DriverSide.listResp.LIST_FIELD_NUMBER, pb.DriverSide.listResp.ERROR_FIELD_NUMBER
_ANSWERS: Final = {Verb.CREATE: "createresponse", Verb.DELETE: "deleteresponse", Verb.LIST: "listresponse"}


class DialectV0(Dialect):
    """The server speaks first. No heartbeat, cancel or acknowledgement: silence means nothing here."""

    protocol = PROTOCOL

    def greeting(self) -> bytes:
        """The request to register."""
        return pb.MCMside(operationID=1, operationType=REGISTER).SerializeToString()

    def introduction(self, data: bytes) -> Introduction:
        """Reads only the payload: as in 2018, the number and the type of this reply do not matter."""
        message = _parsed(data) if len(data) <= LARGE else None
        if message is None or message.WhichOneof("response") != "registerResp":
            raise InvalidArgumentError("the first message of a driver must be the answer to register: registerResp")
        driver = message.registerResp
        if not driver.version:
            raise InvalidArgumentError("the driver does not send its version: the hub needs it to find the driver")
        api_version = f"{driver.group}/{driver.version}" if driver.group else driver.version
        return Introduction(
            info=DriverInfo(
                key=checked_key(driver.kind, api_version),
                protocol=PROTOCOL,
                name=driver.name[:100],
                max_in_flight=_AT_ONCE,
            )
        )

    def numbers(self) -> Iterator[int]:
        """Counts from 1 to the largest int32, and from 1 again."""
        yield from range(FIRST_NUMBER, LAST_NUMBER + 1)
        for _ in itertools.count():
            yield from range(1, LAST_NUMBER + 1)

    def operation(self, number: int, operation: Operation, info: DriverInfo) -> bytes:
        """Supports what 2018 had: create, delete, list."""
        if operation.verb not in _ANSWERS:
            raise UnsupportedError(f"a driver of {PROTOCOL} cannot be asked for {operation.verb.value}")
        check_operation(operation)
        message = pb.MCMside(operationID=number, operationType=operation.verb.value)
        params = message.operationparams
        params.machineClassMetaData.name = operation.class_ref.name
        params.machineClassMetaData.revision = max(0, min(operation.class_ref.revision, LAST_NUMBER))
        if operation.spec is not None:
            params.machineName = operation.spec.name
        if operation.machine is not None:
            params.machineID = operation.machine.machine_id
        return message.SerializeToString()

    def decode(self, data: bytes) -> Decoded:
        """Matches a reply by its number; its type is an echo, and ignored."""
        if len(data) > LARGE:
            return _decode_large(memoryview(data))
        message = _parsed(data)
        if message is None:
            return Malformed("it is not a DriverSide")
        if message.operationType == UNREGISTER and message.WhichOneof("response") is None:
            return Bye(at_once=True)
        if message.WhichOneof("response") == "registerResp":
            return Malformed("it registers a second time on one connection")
        return Reply(message.operationID, message)

    def result(self, reply: Reply, operation: Operation) -> Result | Awaitable[Result]:
        """Checks that the reply is of the requested kind."""
        message: pb.DriverSide = reply.message
        given, wanted = message.WhichOneof("response"), _ANSWERS[operation.verb]
        if given != wanted:
            raise InternalError(
                f"the driver answers {operation.verb.value} with {given or 'nothing'}: whether it was done is unknown"
            )
        if operation.verb is Verb.LIST:
            return _listed(message.listresponse, reply.content or memoryview(b""))
        if operation.verb is Verb.DELETE:
            return Result(status=_status(message.deleteresponse.error))
        return _created(message.createresponse, operation)


def _parsed(data: bytes) -> pb.DriverSide | None:
    try:
        return pb.DriverSide.FromString(data)
    except DecodeError:
        return None


def _decode_large(data: memoryview) -> Decoded:
    """Only a list can be so long; the waiting caller decodes it in steps."""
    try:
        rest, content = cut_out(data, pb.DriverSide.LISTRESPONSE_FIELD_NUMBER)
        message = pb.DriverSide.FromString(rest)
    except DecodeError:
        return Malformed(f"{len(data)} bytes are no list")
    return Reply(message.operationID, message, content)


def _status(error: str) -> Status:
    if not error:
        return Status()
    coded = decode_coded(error)
    if coded is None:
        return Status(code=Code.UNKNOWN, message=shortened(error), is_plain=True)
    return Status(code=coded[0], message=shortened(coded[1]))


def _created(response: pb.DriverSide.createResp, operation: Operation) -> Result:
    status = _status(response.error)
    failed = error_of(status.code, status.message, Verb.CREATE) is not None
    if response.providerID.lower() in _NO_IDS:
        if not failed:
            raise InternalError("the driver says that it created a machine, but not which: it sends no providerID")
        return Result(status=status)
    machine = Machine(
        name=operation.spec.name if operation.spec else "",
        machine_id=response.providerID,
        provider_id=response.providerID,
        addresses=(response.nodename,) if response.nodename else (),
    )
    return Result(status=status, answer=machine)


# -- classes and secrets -----------------------------------------------------------------------------------------------
# The kinds of 2018, such as AWSMachineClass, had the provider's settings and the reference to the secret in `spec`.


def class_json(machine_class: MachineClass) -> str:
    """Formats a class as an object of 2018, whatever form it was declared in. The declared fields stay beside it.

    Its secretRef leads to a secret in any case: the controller of 2018 accepted no class without one, and drivers read
    it without a check. It names an empty secret where the class has none.
    """
    declared = json.loads(machine_class.json)
    namespace = namespace_of(machine_class)
    spec = {key: value for key, value in machine_class.provider_spec.items() if key != "credentialsSecretRef"}
    form = {
        **declared,
        "apiVersion": machine_class.key.api_version,
        "kind": machine_class.key.kind,
        "metadata": {**declared.get("metadata", {}), "name": machine_class.name, "namespace": namespace},
        "spec": {**spec, "secretRef": {"name": secret_name(machine_class), "namespace": namespace}},
    }
    return json.dumps(form, sort_keys=True, separators=(",", ":"))


def secret_name(machine_class: MachineClass) -> str:
    """The name by which a driver of 2018 requests the secret of a class."""
    return machine_class.also_named or machine_class.secret or machine_class.name


def namespace_of(machine_class: MachineClass) -> str:
    """The namespace of a class and its secret, as drivers of 2018 see it."""
    return machine_class.namespace or NAMESPACE


def empty_secret(machine_class: MachineClass) -> Secret:
    """The secret of a class that has none."""
    return Secret(name=secret_name(machine_class), revision=machine_class.revision, namespace=machine_class.namespace)


# -- lists -------------------------------------------------------------------------------------------------------------


async def _listed(response: pb.DriverSide.listResp, content: memoryview) -> Result:
    """``content`` is the response's field that was cut out of a long message. Other tasks run meanwhile."""
    status, machines, turns = _status(response.error), list[Machine](), Turns()
    try:
        if status.code is Code.OK:
            for message in response.list:
                _add(machines, message)
                if turns.is_over(()):
                    await asyncio.sleep(0)
        for number, entry in entries(content, _LIST, _ERROR):
            if number == _ERROR:
                status = _status(str(entry[: 4 * LONGEST_TEXT], "utf-8", "replace"))
            elif status.code is Code.OK:
                _add(machines, pb.DriverSide.machine.FromString(bytes(entry)))
            if turns.is_over(entry):
                await asyncio.sleep(0)
    except DecodeError:
        raise InternalError("the driver's list cannot be read to its end") from None
    if status.code is not Code.OK:
        return Result(status=status)  # ignore its machines: a partial list is not a list
    return Result(status=status, answer=machines)


def _add(machines: list[Machine], message: pb.DriverSide.machine) -> None:
    if len(machines) >= MOST_ITEMS:
        raise InternalError(f"the driver lists more than {MOST_ITEMS} machines: no cloud has so many")
    machines.append(_machine(message))


def _machine(message: pb.DriverSide.machine) -> Machine:
    if not message.machineID:
        raise InternalError(f"the driver lists the machine {message.machineName!r} without an id")
    return Machine(name=message.machineName, machine_id=message.machineID, provider_id=message.machineID)
