"""Converts the messages of v1 to values and back, for the hub and for drivers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar, cast

from google.protobuf.message import DecodeError, Message

from cloudgraft.dock.protocol.codes import code_from, error_of
from cloudgraft.dock.protocol.dialect import checked_key, shortened
from cloudgraft.dock.protocol.messages import (
    Answer,
    ClassRef,
    DriverInfo,
    MachineClass,
    Operation,
    Result,
    Secret,
    Status,
    Verb,
)
from cloudgraft.dock.protocol.streaming_decode import MOST_ITEMS, Turns, entries
from cloudgraft.sdk.driver import Machine, Price, Shape
from cloudgraft.sdk.errors import InternalError, InvalidArgumentError
from cloudgraft.wire import driver as wire
from cloudgraft.wire.dock import duration_from_pb, duration_to_pb, put_duration
from cloudgraft.wire.pb import dock_pb2 as pb
from cloudgraft.wire.pb import driver_pb2

M = TypeVar("M", bound=Message)
T = TypeVar("T")
PROTOCOL: Final = "v1"
PROTOCOL_NUMBER: Final = 1
_FINE: Final = Status()
_ENTRIES, _MORE = 1, 2  # fields of every long response: its entries, and whether more parts follow
_MOST_CAPABILITIES: Final = 100


# -- hello -------------------------------------------------------------------------------------------------------------


def hello_to_pb(info: DriverInfo, results: Sequence[pb.Result] = ()) -> pb.Hello:
    """A driver's hello, with the results that no hub has acknowledged."""
    return pb.Hello(
        protocol=PROTOCOL_NUMBER,
        kind=info.key.kind,
        api_version=info.key.api_version,
        name=info.name,
        version=info.version,
        instance_id=info.instance_id,
        max_in_flight=info.max_in_flight,
        capabilities=sorted(info.capabilities),
        traits=wire.traits_to_pb(info.traits) if info.traits is not None else None,
        results=results,
    )


def info_from_pb(hello: pb.Hello) -> DriverInfo:
    """Returns the driver's description of itself; raises InvalidArgumentError."""
    if hello.protocol != PROTOCOL_NUMBER:
        raise InvalidArgumentError(f"the driver speaks protocol {hello.protocol}; this hub speaks {PROTOCOL_NUMBER}")
    try:
        traits = wire.traits_from_pb(hello.traits) if hello.HasField("traits") else None
    except InternalError as error:  # for the hub this is a driver that it must reject, not an internal error
        raise InvalidArgumentError(error.message) from error
    return DriverInfo(
        key=checked_key(hello.kind, hello.api_version),
        protocol=PROTOCOL,
        name=hello.name[:100],
        version=hello.version[:100],
        instance_id=hello.instance_id[:200],
        max_in_flight=hello.max_in_flight,
        capabilities=frozenset(hello.capabilities[:_MOST_CAPABILITIES]),
        traits=traits,
    )


# -- operations --------------------------------------------------------------------------------------------------------


def operation_to_pb(number: int, hub_id: str, operation: Operation) -> pb.Operation:
    """Builds the operation's message; raises InvalidArgumentError when it would be dangerous to send it."""
    message = pb.Operation()
    put_operation(message, number, hub_id, operation)
    return message


def put_operation(message: pb.Operation, number: int, hub_id: str, operation: Operation) -> None:
    """Writes the operation into an existing message: a copy would take as long as all the rest."""
    message.id = number
    message.hub_id = hub_id
    put_duration(message.timeout, operation.timeout)
    ref = operation.class_ref
    message.machine_class, message.class_revision, message.secret_revision = ref.name, ref.revision, ref.secret_revision
    if operation.verb is Verb.CREATE:
        if operation.spec is None or not operation.spec.name:
            raise InvalidArgumentError("a machine needs a name: it is what makes a second try safe")
        wire.put_spec(message.create, operation.spec)
    elif operation.verb is Verb.DELETE:
        if operation.machine is None or not operation.machine.machine_id:
            raise InvalidArgumentError("a machine without machine_id cannot be deleted")
        message.delete.machine.MergeFrom(wire.machine_to_pb(operation.machine))
    else:
        getattr(message, operation.verb.value).SetInParent()


def operation_from_pb(message: pb.Operation) -> Operation:
    """Returns the operation; raises InvalidArgumentError when it is invalid for this driver."""
    call = message.WhichOneof("call")
    if call is None:
        raise InvalidArgumentError("this operation is of a kind that this driver does not know")
    try:
        machine = wire.machine_from_pb(message.delete.machine) if call == "delete" else None
    except InternalError as error:
        raise InvalidArgumentError(error.message) from error
    return Operation(
        verb=Verb(call),
        class_ref=ClassRef(
            name=message.machine_class, revision=message.class_revision, secret_revision=message.secret_revision
        ),
        timeout=duration_from_pb(message.timeout),
        spec=wire.spec_from_pb(message.create) if call == "create" else None,
        machine=machine,
    )


# -- results -----------------------------------------------------------------------------------------------------------


def result_to_pb(number: int, hub_id: str, operation: Operation, result: Result) -> pb.Result:
    """Builds the message of an operation's result."""
    message = pb.Result(id=number, hub_id=hub_id, status=_status_to_pb(result.status))
    if operation.spec is not None:
        message.machine_name = operation.spec.name
    if error_of(result.status.code, result.status.message, operation.verb) is None:
        _put_answer(message, operation.verb, result.answer)
    return message


def _put_answer(message: pb.Result, verb: Verb, answer: Answer) -> None:
    if verb is Verb.CREATE:
        if isinstance(answer, Machine):
            message.create.machine.CopyFrom(wire.machine_to_pb(answer))
    elif verb is Verb.DELETE:
        message.delete.SetInParent()
    elif verb is Verb.LIST:
        message.list.SetInParent()
        message.list.machines.extend(wire.machine_to_pb(each) for each in cast("Sequence[Machine]", answer))
    elif verb is Verb.SHAPES:
        message.shapes.SetInParent()
        message.shapes.shapes.extend(wire.shape_to_pb(each) for each in cast("Sequence[Shape]", answer))
    else:
        message.prices.SetInParent()
        message.prices.prices.extend(wire.price_to_pb(each) for each in cast("Sequence[Price]", answer))


def result_from_pb(message: pb.Result, verb: Verb, content: memoryview | None = None) -> Result | Awaitable[Result]:
    """Returns the result of an operation; raises InternalError when it does not answer that operation.

    Converts long content in steps, so that other tasks can run. ``content`` is the field that was cut out of a long
    message.
    """
    status = _status_from_pb(message.status)
    given = message.WhichOneof("answer")
    if status is not _FINE and error_of(status.code, status.message, verb) is not None:
        # Keep a machine that comes with an error: the outcome is unknown then.
        with_machine = given == "create" and message.create.machine.machine_id
        return Result(status=status, answer=wire.machine_from_pb(message.create.machine) if with_machine else None)
    if given != verb.value:
        raise InternalError(
            f"the driver answers {verb.value} with {given or 'nothing'}: whether it was done is unknown"
        )
    if verb is Verb.CREATE:
        return Result(status=status, answer=wire.machine_from_pb(message.create.machine))
    if verb is Verb.DELETE:
        return Result(status=status)
    return _long_result(message, verb, content or memoryview(b""))


async def _long_result(message: pb.Result, verb: Verb, content: memoryview) -> Result:
    status = _status_from_pb(message.status)
    try:
        if verb is Verb.SHAPES:
            shapes = await converted(wire.shape_from_pb, message.shapes.shapes, driver_pb2.Shape, content)
            return Result(status=status, answer=shapes)
        if verb is Verb.PRICES:
            prices = await converted(wire.price_from_pb, message.prices.prices, driver_pb2.Price, content)
            return Result(status=status, answer=prices)
        if message.list.next_page_token:
            raise InternalError("the driver sends a part of its list: over a stream a list is one message")
        machines = await converted(wire.machine_from_pb, message.list.machines, driver_pb2.Machine, content)
        return Result(status=status, answer=machines)
    except DecodeError:
        raise InternalError(f"the driver's answer to {verb.value} cannot be read to its end") from None


async def converted(convert: Callable[[M], T], parsed: Iterable[M], kind: type[M], content: memoryview) -> list[T]:
    """Converts the entries of a short message, or those that were cut out of a long one, in steps.

    Raises InternalError for an invalid entry, and DecodeError.
    """
    found: list[T] = []
    turns = Turns()
    for message in parsed:
        _add(found, convert(message))
        if turns.is_over(()):
            await asyncio.sleep(0)
    for number, entry in entries(content, _ENTRIES, _MORE):
        if number != _MORE:
            _add(found, convert(kind.FromString(bytes(entry))))
        elif entry:
            raise DecodeError("a part only")
        if turns.is_over(entry):
            await asyncio.sleep(0)
    return found


def _add(found: list[T], one: T) -> None:
    if len(found) >= MOST_ITEMS:
        raise InternalError(f"the driver's answer has more than {MOST_ITEMS} entries: nobody can have so many")
    found.append(one)


def _status_to_pb(status: Status) -> pb.Status:
    message = pb.Status(code=status.code.value, message=status.message)
    if status.retry_after is not None:
        message.retry_after.CopyFrom(duration_to_pb(status.retry_after))
    return message


def _status_from_pb(message: pb.Status) -> Status:
    if not message.code and not message.message:
        return _FINE
    return Status(
        code=code_from(message.code),
        message=shortened(message.message),
        retry_after=duration_from_pb(message.retry_after) if message.HasField("retry_after") else None,
    )


# -- classes and secrets -----------------------------------------------------------------------------------------------


def class_to_pb(machine_class: MachineClass) -> pb.MachineClass:
    """A class for a driver: the whole object."""
    return pb.MachineClass(name=machine_class.name, revision=machine_class.revision, json=machine_class.json)


def secret_to_pb(secret: Secret) -> pb.Secret:
    """A secret for a driver."""
    return pb.Secret(revision=secret.revision, data=secret.data)


def secret_from_pb(message: pb.Secret, name: str) -> Secret:
    """A secret as a driver gets it."""
    return Secret(name=name, revision=message.revision, data=dict(message.data))
