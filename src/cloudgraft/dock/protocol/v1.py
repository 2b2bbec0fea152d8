"""Our own protocol: heartbeats, deadlines, cancel, and results that are sent until they are acknowledged."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from google.protobuf.message import DecodeError

from cloudgraft.dock.protocol.codes import code_of
from cloudgraft.dock.protocol.conversion_v1 import PROTOCOL, info_from_pb, put_operation, result_from_pb
from cloudgraft.dock.protocol.dialect import Beat, Bye, Dialect, Heard, Introduction, Malformed, Reply
from cloudgraft.dock.protocol.messages import DriverInfo, Operation, Result, Verb
from cloudgraft.dock.protocol.streaming_decode import LARGE, cut_out, fields
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError, UnsupportedError
from cloudgraft.wire.dock import duration_to_pb
from cloudgraft.wire.pb import dock_pb2 as pb

__all__ = ["DialectV1"]

_OPTIONAL: Final = frozenset({Verb.SHAPES, Verb.PRICES})
_LONGEST_HELLO: Final = 5 << 18  # bytes: the results that a driver keeps, one MiB, and what it says of itself
_MOST_LATE: Final = 2000  # results that are looked at in one hello; the driver keeps the rest, and sends it again
_MOST_WORDS: Final = 1000  # fields of a hello that are no results
_RESULTS: Final = pb.Hello.RESULTS_FIELD_NUMBER
_RESULT: Final = pb.DriverMessage.RESULT_FIELD_NUMBER
_LONG_ANSWERS: Final = (pb.Result.LIST_FIELD_NUMBER, pb.Result.SHAPES_FIELD_NUMBER, pb.Result.PRICES_FIELD_NUMBER)


class DialectV1(Dialect):
    """The words of one hub's life: numbers of operations are used once in it, whatever the connection."""

    protocol = PROTOCOL
    beats = True
    acknowledges = True

    def __init__(self) -> None:
        self.hub_id = secrets.token_hex(8)
        # Far from those of another life: an acknowledgement names a number, and not whose it is.
        self._numbers = itertools.count(secrets.randbits(62) | 1)

    def introduction(self, data: bytes) -> Introduction:
        """Hello."""
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

    def welcome(self, session_id: str, heartbeat: float, max_message_bytes: int) -> bytes:
        """The driver is taken."""
        welcome = pb.Welcome(
            session_id=session_id,
            heartbeat=duration_to_pb(timedelta(seconds=heartbeat)),
            max_message_bytes=max_message_bytes,
        )
        return pb.HubMessage(welcome=welcome).SerializeToString()

    def reject(self, error: CloudgraftError) -> bytes:
        """The driver is not taken, and why."""
        reject = pb.Reject(code=code_of(error).value, message=error.message)
        if error.retry_after is not None:
            reject.retry_after.CopyFrom(duration_to_pb(timedelta(seconds=error.retry_after)))
        return pb.HubMessage(reject=reject).SerializeToString()

    def numbers(self) -> Iterator[int]:
        """The same ones for all connections."""
        return self._numbers

    def operation(self, number: int, operation: Operation, info: DriverInfo) -> bytes:
        """Everything a driver may need, but no secrets of its cloud: those it fetches."""
        if operation.verb in _OPTIONAL and operation.verb.value not in info.capabilities:
            raise UnsupportedError(f"the driver of {info.key} does not know its cloud's {operation.verb.value}")
        message = pb.HubMessage()
        put_operation(message.operation, number, self.hub_id, operation)
        return message.SerializeToString()

    def hear(self, data: bytes) -> Heard:
        """One message of the driver."""
        if len(data) > LARGE:
            return self._hear_large(memoryview(data))
        message = _parsed(data)
        if message is None:
            return Malformed("it is not a DriverMessage")
        kind = message.WhichOneof("message")
        if kind == "result":
            return self._reply(message.result)
        if kind == "heartbeat":
            return Beat()
        if kind == "bye":
            return Bye(at_once=False)
        return Malformed(f"{kind or 'an empty message'} makes no sense here")

    def _hear_large(self, data: memoryview) -> Heard:
        """Nothing is so long but the answer to a question; it is looked into later, little by little."""
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
        """Nobody waits for it: which one it is is all that matters, and the rest is not kept."""
        return replace(self._reply(result), message=None)

    def result(self, reply: Reply, operation: Operation) -> Result | Awaitable[Result]:
        """An answer of the kind that was asked for."""
        return result_from_pb(reply.message, operation.verb, reply.content)

    def heartbeat(self, number: int) -> bytes:
        """A sign of life."""
        return pb.HubMessage(heartbeat=pb.Heartbeat(number=number)).SerializeToString()

    def cancel(self, number: int) -> bytes:
        """Nobody waits for it any more."""
        return pb.HubMessage(cancel=pb.Cancel(id=number)).SerializeToString()

    def acknowledge(self, numbers: Sequence[int]) -> bytes:
        """Their results have arrived."""
        return pb.HubMessage(acknowledge=pb.Acknowledge(ids=numbers)).SerializeToString()

    def changed(self, classes: Sequence[str], secrets: Sequence[str]) -> bytes:
        """What the driver may have kept is no longer so."""
        return pb.HubMessage(changed=pb.Changed(machine_classes=classes, secrets=secrets)).SerializeToString()

    def drain(self, grace: timedelta) -> bytes:
        """The hub goes away."""
        return pb.HubMessage(drain=pb.Drain(grace=duration_to_pb(grace))).SerializeToString()


def _hello(data: memoryview) -> tuple[pb.Hello, list[memoryview]]:
    """What a driver says of itself, and the first of its results; raises DecodeError when it is no hello.

    A parser would make a hundred megabytes of a million results that are empty. They come last in a hello, so that
    whatever comes after the last one that is looked at is more of them.
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


def _parsed(data: bytes) -> pb.DriverMessage | None:
    try:
        return pb.DriverMessage.FromString(data)
    except DecodeError:
        return None
