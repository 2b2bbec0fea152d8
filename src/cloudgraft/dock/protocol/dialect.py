"""How a hub speaks with one driver: the protocol's version behind one face."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Awaitable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Final

from cloudgraft.dock.protocol.messages import DriverInfo, Key, Operation, Result
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError
from cloudgraft.sdk.secrecy import redacted

__all__ = [
    "LONGEST_TEXT",
    "Beat",
    "Bye",
    "Dialect",
    "Heard",
    "Introduction",
    "Malformed",
    "Reply",
    "Tombstones",
    "checked_key",
    "shortened",
]

_LONGEST_NAME: Final = 253
LONGEST_TEXT: Final = 2000  # characters of a driver's error that are kept


@dataclass(slots=True)  # not frozen: one is made for each operation, and that takes thrice as long
class Reply:
    """The end of an operation, not yet looked into: that is done by whoever waits for it."""

    number: int
    message: Any
    content: memoryview | None = None  # of the answer, where that is so long that it was cut out of the message
    foreign: bool = False  # of an operation that another hub, or this one before it was started again, has sent


@dataclass(frozen=True, slots=True)
class Beat:
    """A sign of life, and nothing to do."""


@dataclass(frozen=True, slots=True)
class Bye:
    """The driver leaves. ``at_once``: it will send no more results."""

    at_once: bool


@dataclass(frozen=True, slots=True)
class Malformed:
    """What makes no sense."""

    why: str


Heard = Reply | Beat | Bye | Malformed


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """What a driver says first."""

    info: DriverInfo
    late: Sequence[Reply] = ()  # results of an earlier connection


class Dialect(ABC):
    """One version of the protocol. What it has no words for is None. It knows no driver: one serves all."""

    protocol: ClassVar[str]
    # Whether a driver must give signs of life by itself, so that its silence means something.
    beats: ClassVar[bool] = False
    acknowledges: ClassVar[bool] = False  # whether there are words for results that have arrived

    def greeting(self) -> bytes | None:
        """What the hub says before the driver has said anything."""
        return None

    @abstractmethod
    def introduction(self, data: bytes) -> Introduction:
        """Who the driver says it is; raises InvalidArgumentError."""

    def welcome(self, session_id: str, heartbeat: float, max_message_bytes: int) -> bytes | None:
        """The driver is taken."""
        return None

    def reject(self, error: CloudgraftError) -> bytes | None:
        """The driver is not taken."""
        return None

    @abstractmethod
    def numbers(self) -> Iterator[int]:
        """The numbers of operations for one connection; some of them may have to be left out."""

    @abstractmethod
    def operation(self, number: int, operation: Operation, info: DriverInfo) -> bytes:
        """The operation as it is sent. Raises UnsupportedError or InvalidArgumentError: then nothing is sent."""

    @abstractmethod
    def hear(self, data: bytes) -> Heard:
        """What the driver says. It raises nothing: what makes no sense is malformed."""

    @abstractmethod
    def result(self, reply: Reply, operation: Operation) -> Result | Awaitable[Result]:
        """What a reply says of the operation that it answers; raises InternalError when it does not fit it.

        A list can be long: it is looked into little by little, and others have their turn meanwhile.
        """

    def heartbeat(self, number: int) -> bytes | None:
        """A sign of life."""
        return None

    def cancel(self, number: int) -> bytes | None:
        """Nobody waits for that operation any more."""
        return None

    def acknowledge(self, numbers: Sequence[int]) -> bytes | None:
        """The results of these need not be sent again."""
        return None

    def changed(self, classes: Sequence[str], secrets: Sequence[str]) -> bytes | None:
        """These are other ones now."""
        return None

    def drain(self, grace: timedelta) -> bytes | None:
        """The hub goes away."""
        return None


class Tombstones:
    """Operations that were given up: so many of the latest, so that a late result is known for what it is."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[tuple[Key, int], None] = OrderedDict()

    def add(self, key: Key, number: int) -> None:
        """Given up."""
        self._kept[key, number] = None
        while len(self._kept) > self._limit:
            self._kept.popitem(last=False)

    def take(self, key: Key, number: int) -> bool:
        """Whether this was given up, and its result was not seen since."""
        return self._kept.pop((key, number), self) is None

    def holds(self, key: Key, number: int) -> bool:
        """Whether its result may still come."""
        return bool(self._kept) and (key, number) in self._kept


def free_number(numbers: Iterator[int], pending: Collection[int], tombstones: Tombstones, key: Key) -> int:
    """The next number that is not that of an operation whose result may still come."""
    for number in numbers:
        if number not in pending and not tombstones.holds(key, number):
            return number
    raise AssertionError("numbers never end")


def checked_key(kind: str, api_version: str) -> Key:
    """The key that a driver registers for; raises InvalidArgumentError. It goes into logs and pages: no tricks."""
    for what, value in (("kind", kind), ("api_version", api_version)):
        if not value:
            raise InvalidArgumentError(f"the driver does not say its {what}: without it nobody can find it")
        if len(value) > _LONGEST_NAME or not value.isprintable() or not value.isascii() or " " in value:
            raise InvalidArgumentError(
                f"the driver's {what} must be at most {_LONGEST_NAME} printable ASCII characters without a space"
            )
    return Key(kind=kind, api_version=api_version)


def shortened(text: str) -> str:
    """A driver's error, as much of it as is kept. What is secret is hidden first: half of it is not known as such."""
    return redacted(text[: 4 * LONGEST_TEXT])[:LONGEST_TEXT]
