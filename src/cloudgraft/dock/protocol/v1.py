"""Implements v1: heartbeats, deadlines, cancel, and results that are resent until acknowledged.

Converts its messages to values and back, for the hub and for drivers, and has the hub's side of the protocol.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, TypeVar, cast

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message

from cloudgraft.dock.protocol.codes import Verb, code_from, code_of, error_of
from cloudgraft.dock.protocol.dialect import (
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
from cloudgraft.dock.protocol.messages import Answer, ClassRef, DriverInfo, Operation, Result, Status
from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.errors import CloudgraftError, InternalError, InvalidArgumentError, UnsupportedError
from cloudgraft.wire import driver as wire
from cloudgraft.wire.pb import dock_pb2 as pb
from cloudgraft.wire.pb import driver_pb2
from cloudgraft.wire.streaming_decode import LARGE, MOST_ITEMS, Turns, cut_out, entries, fields

M = TypeVar("M", bound=Message)
T = TypeVar("T")
SERVICE: Final = "cloudgraft.dock.v1.Dock"
CONNECT: Final = "Connect"  # the stream
PROTOCOL: Final = "v1"
PROTOCOL_NUMBER: Final = 1
_NO_TIME: Final = timedelta(0)
_LONGEST: Final = timedelta(days=36500)  # no caller waits longer
_FINE: Final = Status()
_ENTRIES, _MORE = 1, 2  # fields of every long response: its entries, and whether more parts follow
_MOST_CAPABILITIES: Final = 100


# -- hello -------------------------------------------------------------------------------------------------------------


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


def put_operation(message: pb.Operation, number: int, hub_id: str, operation: Operation) -> None:
    """Writes the operation into an existing message: a copy would take as long as all the rest.

    Raises InvalidArgumentError when it would be dangerous to send it.
    """
    message.id = number
    message.hub_id = hub_id
    put_duration(message.timeout, operation.timeout)
    ref = operation.class_ref
    message.machine_class, message.class_revision, message.secret_revision = ref.name, ref.revision, ref.secret_revision
    check_operation(operation)
    if operation.spec is not None:
        wire.put_spec(message.create, operation.spec)
    elif operation.machine is not None:
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
        return
    getattr(message, verb.value).SetInParent()
    if verb is not Verb.DELETE:
        long = _LONG[verb]
        long.entries(message).extend(long.to_pb(each) for each in cast("Sequence[Any]", answer))


@dataclass(frozen=True, slots=True)
class _Long:
    """A response that is a list: where its entries are, and how each is converted."""

    entries: Callable[[pb.Result], Any]
    kind: type[Message]
    to_pb: Callable[[Any], Message]
    from_pb: Callable[[Any], Any]


_LONG: Final = {
    Verb.LIST: _Long(lambda result: result.list.machines, driver_pb2.Machine, wire.machine_to_pb, wire.machine_from_pb),
    Verb.SHAPES: _Long(lambda result: result.shapes.shapes, driver_pb2.Shape, wire.shape_to_pb, wire.shape_from_pb),
    Verb.PRICES: _Long(lambda result: result.prices.prices, driver_pb2.Price, wire.price_to_pb, wire.price_from_pb),
}


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
    if message.list.next_page_token:
        raise InternalError("the driver sends a part of its list: over a stream a list is one message")
    long = _LONG[verb]
    try:
        found = await converted(long.from_pb, long.entries(message), long.kind, content)
    except DecodeError:
        raise InternalError(f"the driver's answer to {verb.value} cannot be read to its end") from None
    return Result(status=_status_from_pb(message.status), answer=found)


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
        raise InternalError(f"the driver's answer has more than {MOST_ITEMS} entries: no cloud has so many")
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


# -- durations ---------------------------------------------------------------------------------------------------------


def duration_to_pb(time: timedelta) -> Duration:
    """A duration for the other side."""
    message = Duration()
    put_duration(message, time)
    return message


def put_duration(message: Duration, time: timedelta) -> None:
    """The same, written into an existing message."""
    if not _NO_TIME <= time <= _LONGEST:
        time = max(_NO_TIME, min(time, _LONGEST))
    message.seconds = time.days * 86400 + time.seconds
    message.nanos = time.microseconds * 1000


def duration_from_pb(message: Duration) -> timedelta:
    """A duration from the other side: never negative, and never longer than a limit."""
    seconds = max(0.0, min(message.seconds + message.nanos / 1e9, _LONGEST.total_seconds()))
    return timedelta(seconds=seconds)


# -- the hub's side ----------------------------------------------------------------------------------------------------


_OPTIONAL: Final = frozenset({Verb.SHAPES, Verb.PRICES})
_LONGEST_HELLO: Final = 5 << 18  # bytes: the results that a driver keeps, one MiB, and its description
_MOST_LATE: Final = 2000  # results that are read from one hello; the driver keeps the rest, and resends it
_MOST_WORDS: Final = 1000  # fields of a hello other than results
_RESULTS: Final = pb.Hello.RESULTS_FIELD_NUMBER
_RESULT: Final = pb.DriverMessage.RESULT_FIELD_NUMBER
_LONG_ANSWERS: Final = (pb.Result.LIST_FIELD_NUMBER, pb.Result.SHAPES_FIELD_NUMBER, pb.Result.PRICES_FIELD_NUMBER)


class DialectV1(Dialect):
    """The messages of one hub process: operation numbers are unique in its life, across connections."""

    protocol = PROTOCOL
    beats = True
    acknowledges = True
    cancels = True

    def __init__(self) -> None:
        self.hub_id = secrets.token_hex(8)
        # Far from those of an earlier process: an acknowledgement names a number, but not its process.
        self._numbers = itertools.count(secrets.randbits(62) | 1)

    def introduction(self, data: bytes) -> Introduction:
        """Decodes the hello."""
        if len(data) > _LONGEST_HELLO:
            raise InvalidArgumentError(
                f"the driver's hello has {len(data)} bytes, and {_LONGEST_HELLO} are taken: it must keep fewer results"
            )
        try:
            hello, results = _hello(memoryview(data))
            late = [self._late(pb.Result.FromString(bytes(each))) for each in results]
        except DecodeError:
            raise InvalidArgumentError("the first message of a driver must be hello") from None
        return Introduction(info=info_from_pb(hello), late=late)

    def reject(self, error: CloudgraftError) -> bytes:
        """The message that rejects a driver, with the reason."""
        reject = pb.Reject(code=code_of(error).value, message=error.message)
        if error.retry_after is not None:
            reject.retry_after.CopyFrom(duration_to_pb(timedelta(seconds=error.retry_after)))
        return pb.HubMessage(reject=reject).SerializeToString()

    def numbers(self) -> Iterator[int]:
        """One sequence for all connections."""
        return self._numbers

    def operation(self, number: int, operation: Operation, info: DriverInfo) -> bytes:
        """Everything that a driver may need, except its cloud's secrets, which it fetches."""
        if operation.verb in _OPTIONAL and operation.verb.value not in info.capabilities:
            raise UnsupportedError(f"the driver of {info.key} does not know its cloud's {operation.verb.value}")
        message = pb.HubMessage()
        put_operation(message.operation, number, self.hub_id, operation)
        return message.SerializeToString()

    def decode(self, data: bytes) -> Decoded:
        """Decodes one message of the driver."""
        if len(data) > LARGE:
            return self._decode_large(memoryview(data))
        try:
            message = pb.DriverMessage.FromString(data)
        except DecodeError:
            return Malformed("it is not a DriverMessage")
        kind = message.WhichOneof("message")
        if kind == "result":
            return self._reply(message.result)
        if kind == "heartbeat":
            return None
        if kind == "bye":
            return Bye(at_once=False)
        return Malformed(f"{kind or 'an empty message'} is not expected here")

    def _decode_large(self, data: memoryview) -> Decoded:
        """Only a response to a read can be so long; the waiting caller decodes it in steps."""
        try:
            _, outer = cut_out(data, _RESULT)
            inner, content = cut_out(outer, *_LONG_ANSWERS)
            result = pb.Result.FromString(inner)
        except DecodeError:
            return Malformed(f"{len(data)} bytes are no answer to a question")
        reply = self._reply(result)
        reply.content = content
        return reply

    def _reply(self, result: pb.Result) -> Reply:
        hub_id = result.hub_id
        return Reply(result.id, result, foreign=hub_id != self.hub_id and hub_id != "")  # noqa: PLR1714 - a set costs more

    def _late(self, result: pb.Result) -> Reply:
        """Keeps only the number of a late result, because no caller waits for it."""
        return replace(self._reply(result), message=None)

    def result(self, reply: Reply, operation: Operation) -> Result | Awaitable[Result]:
        """Checks that the reply is of the requested kind."""
        return result_from_pb(reply.message, operation.verb, reply.content)

    def notification(self, message: pb.HubMessage) -> bytes:
        """Encodes it."""
        return message.SerializeToString()


def _hello(data: memoryview) -> tuple[pb.Hello, list[memoryview]]:
    """Decodes a hello with the first of its results; raises DecodeError when it is not one.

    A parser would need a hundred megabytes for a million empty results. Results come last in a hello, so
    whatever follows the last one that is read is more of them.
    """
    _, content = cut_out(data, pb.DriverMessage.HELLO_FIELD_NUMBER)
    words, results = list[memoryview](), list[memoryview]()
    for number, entry, raw in fields(content):
        if number == _RESULTS and entry is not None:
            results.append(entry)
        else:
            words.append(raw)
        if len(words) > _MOST_WORDS:
            raise DecodeError("too long for what it is")
        if len(results) == _MOST_LATE:
            break
    return pb.Hello.FromString(b"".join(words)), results
