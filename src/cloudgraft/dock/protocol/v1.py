"""Implements the hub's side of v1: heartbeats, deadlines, cancel, and results that are resent until acknowledged."""

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

    def welcome(self, session_id: str, heartbeat: float, max_message_bytes: int) -> bytes:
        """The message that admits a driver."""
        welcome = pb.Welcome(
            session_id=session_id,
            heartbeat=duration_to_pb(timedelta(seconds=heartbeat)),
            max_message_bytes=max_message_bytes,
        )
        return pb.HubMessage(welcome=welcome).SerializeToString()

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

    def hear(self, data: bytes) -> Heard:
        """Decodes one message of the driver."""
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
        return Malformed(f"{kind or 'an empty message'} is not expected here")

    def _hear_large(self, data: memoryview) -> Heard:
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

    def heartbeat(self, number: int) -> bytes:
        """A heartbeat."""
        return pb.HubMessage(heartbeat=pb.Heartbeat(number=number)).SerializeToString()

    def cancel(self, number: int) -> bytes:
        """The message that cancels an operation whose caller has left."""
        return pb.HubMessage(cancel=pb.Cancel(id=number)).SerializeToString()

    def acknowledge(self, numbers: Sequence[int]) -> bytes:
        """The message that acknowledges these results."""
        return pb.HubMessage(acknowledge=pb.Acknowledge(ids=numbers)).SerializeToString()

    def changed(self, classes: Sequence[str], secrets: Sequence[str]) -> bytes:
        """The message that the driver's cached classes and secrets are outdated."""
        return pb.HubMessage(changed=pb.Changed(machine_classes=classes, secrets=secrets)).SerializeToString()

    def drain(self, grace: timedelta) -> bytes:
        """The message that the hub is going to close."""
        return pb.HubMessage(drain=pb.Drain(grace=duration_to_pb(grace))).SerializeToString()


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


def _parsed(data: bytes) -> pb.DriverMessage | None:
    try:
        return pb.DriverMessage.FromString(data)
    except DecodeError:
        return None
