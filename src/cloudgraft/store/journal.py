"""Declares the journal's interface for the engine. :mod:`cloudgraft.store.sql` implements it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from cloudgraft.sdk.errors import PreconditionError, UnavailableError
from cloudgraft.store.records import Change, Contents, Event


class JournalUnavailableError(UnavailableError):
    """The journal cannot be read or written now: disk full, database away. It may be possible again later.

    ``is_ambiguous``: the write may have been committed all the same; read the journal again before going on.
    """

    def __init__(self, message: str, *, is_ambiguous: bool = False) -> None:
        super().__init__(message)
        self.is_ambiguous = is_ambiguous


class FencedError(JournalUnavailableError):
    """Another process leads now; this one may not write any more. ``holder`` names the leader, where that is known."""

    def __init__(self, message: str, *, holder: str = "") -> None:
        super().__init__(message)
        self.holder = holder


class JournalLockedError(PreconditionError):
    """Another process has the journal open; the message says which."""


class JournalBrokenError(PreconditionError):
    """The journal is damaged or of a wrong version; the message says what a person has to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """Selects events: the newest ``limit`` that match, oldest first; with ``after``, the oldest ``limit``."""

    group: str = ""
    cloud: str = ""
    machine: str = ""
    kinds: Sequence[str] = ()
    only_states: bool = False  # only lines of machines' histories
    since: float | None = None
    before: int | None = None  # only those with a smaller number, to page to older ones
    after: int | None = None  # only those with a larger number, to follow: numbers grow in the order of the commits
    limit: int = 100


class Journal(ABC):
    """Durable state of one cluster. All methods may raise JournalUnavailableError; none blocks the event loop."""

    fenced_by = ""  # the process that opened an exclusive journal after us: nothing can be written any more

    @abstractmethod
    async def open(self) -> None:
        """Opens it, creates a missing schema, and checks it. Raises JournalLockedError, JournalBrokenError."""

    @abstractmethod
    async def load(self) -> Contents:
        """Everything but the events."""

    @abstractmethod
    async def write(self, change: Change) -> None:
        """Writes all of the change or nothing. When it returns, the change survives a loss of power.

        Each machine's ``version`` must be one more than the one stored (1 for a new one), else it is a ConflictError
        and nothing is written: two writers are never mixed.
        """

    @abstractmethod
    async def events(self, query: EventQuery) -> Sequence[Event]:
        """Events, oldest first."""

    @abstractmethod
    async def purge(self, *, gone_before: float, events_before: float, limit: int = 1000) -> int:
        """Removes machines that were gone before one time and events before another, at most ``limit`` rows of each.

        A machine that is gone in the journal and still present in its cloud was released by an operator, and is kept.
        Returns the number of rows removed, so that a caller can go on while there is more.
        """

    @abstractmethod
    async def close(self) -> None:
        """Closes it. May be called twice, and without open()."""
