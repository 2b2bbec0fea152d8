"""Declares the interface that both protocol versions implement on the hub's side."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Awaitable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from cloudgraft.dock.protocol.codes import Verb
from cloudgraft.dock.protocol.messages import DriverInfo, Key, Operation, Result
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError
from cloudgraft.sdk.secrecy import redacted
from cloudgraft.wire.pb import dock_pb2

_LONGEST_NAME: Final = 253
LONGEST_TEXT: Final = 2000  # characters of a driver's error that are kept


@dataclass(slots=True)  # not frozen: one is created for each operation, and frozen takes thrice as long
class Reply:
    """A driver's reply to an operation, not decoded yet: the waiting caller does that."""

    number: int
    message: Any
    content: memoryview | None = None  # a long response's field, cut out of the message
    foreign: bool = False  # reply to an operation of another hub, or of this one before its restart


@dataclass(frozen=True, slots=True)
class Bye:
    """The driver is leaving. ``at_once``: it will send no more results."""

    at_once: bool


@dataclass(frozen=True, slots=True)
class Malformed:
    """A malformed message."""

    why: str


Decoded = Reply | Bye | Malformed | None  # None: a heartbeat, without content


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """A driver's first message."""

    info: DriverInfo
    late: Sequence[Reply] = ()  # results of an earlier connection


class Dialect(ABC):
    """One version of the protocol. Returns None for messages that the version lacks. One serves all drivers."""

    protocol: ClassVar[str]
    # Whether a driver must send heartbeats, so that its silence means that it is dead.
    beats: ClassVar[bool] = False
    acknowledges: ClassVar[bool] = False  # whether results are acknowledged
    # Whether a driver knows deadlines and cancellation. One that does not works on an operation until it has answered.
    cancels: ClassVar[bool] = False

    def greeting(self) -> bytes | None:
        """The hub's first message, if the hub speaks first."""
        return None

    @abstractmethod
    def introduction(self, data: bytes) -> Introduction:
        """Returns the driver's description of itself; raises InvalidArgumentError."""

    def reject(self, error: CloudgraftError) -> bytes | None:
        """The message that rejects a driver."""
        return None

    @abstractmethod
    def numbers(self) -> Iterator[int]:
        """The operation numbers for one connection; the caller may have to skip some."""

    @abstractmethod
    def operation(self, number: int, operation: Operation, info: DriverInfo) -> bytes:
        """The operation's message. Raises UnsupportedError or InvalidArgumentError: then nothing is sent."""

    @abstractmethod
    def decode(self, data: bytes) -> Decoded:
        """Decodes a driver's message. Never raises: an invalid one is Malformed."""

    @abstractmethod
    def result(self, reply: Reply, operation: Operation) -> Result | Awaitable[Result]:
        """Decodes the reply to an operation; raises InternalError when it does not fit the operation.

        Decodes a long list in steps, so that other tasks can run.
        """

    def notification(self, message: dock_pb2.HubMessage) -> bytes | None:
        """Encodes a notification of v1. None: the version has none."""
        return None


class Tombstones:
    """Remembers the latest operations that were given up, so that their late results are recognized."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[tuple[Key, int], None] = OrderedDict()

    def add(self, key: Key, number: int) -> None:
        """Adds an operation that was given up."""
        self._kept[key, number] = None
        while len(self._kept) > self._limit:
            self._kept.popitem(last=False)

    def take(self, key: Key, number: int) -> bool:
        """Removes the operation; False when it was not given up, or its result was already seen."""
        return self._kept.pop((key, number), self) is None

    def holds(self, key: Key, number: int) -> bool:
        """Whether its result may still arrive."""
        return bool(self._kept) and (key, number) in self._kept


def free_number(numbers: Iterator[int], pending: Collection[int], tombstones: Tombstones, key: Key) -> int:
    """The next number that no operation with an outstanding result has."""
    for number in numbers:
        if number not in pending and not tombstones.holds(key, number):
            return number
    raise AssertionError("numbers never end")


def check_operation(operation: Operation) -> None:
    """Raises InvalidArgumentError for an operation without the name or id of its machine.

    Without a name no retry of a create is safe. The protocol of 2018 reads an empty id as "all" or nothing.
    """
    if operation.verb is Verb.CREATE and not (operation.spec and operation.spec.name):
        raise InvalidArgumentError("a machine needs a name: it is what makes a second try safe")
    if operation.verb is Verb.DELETE and not (operation.machine and operation.machine.machine_id):
        raise InvalidArgumentError("a machine without machine_id cannot be deleted")


def checked_key(kind: str, api_version: str) -> Key:
    """Validates the key that a driver registers; raises InvalidArgumentError. Keys appear in logs and on pages."""
    for what, value in (("kind", kind), ("api_version", api_version)):
        if not value:
            raise InvalidArgumentError(f"the driver does not send its {what}: the hub needs it to find the driver")
        if len(value) > _LONGEST_NAME or not value.isprintable() or not value.isascii() or " " in value:
            raise InvalidArgumentError(
                f"the driver's {what} must be at most {_LONGEST_NAME} printable ASCII characters without a space"
            )
    return Key(kind=kind, api_version=api_version)


def shortened(text: str) -> str:
    """Truncates a driver's error. Redacts secrets first, because half a secret would not be recognized."""
    return redacted(text[: 4 * LONGEST_TEXT])[:LONGEST_TEXT]
