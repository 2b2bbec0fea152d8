"""Leader election with self-fencing: a deposed leader stops before it can act.

A leader renews its lease every third of its length. It stops leading some time before the lease ends, by its own clock
and from the moment *before* it sent the last renewal. So at no time do two processes believe that they lead, whatever
hangs in between. :meth:`Leadership.is_leader` is that check. It makes no call, so a process that was stopped or
suspended and wakes up after hours gets the right answer at the first check. The other half of the proof, how long the
other replicas wait, is in :mod:`cloudgraft.store.lease.lease_row`.

    follower ──acquired──▶ elected ──on_elected──▶ leading ──▶ fenced ──on_fenced──▶ follower
                              └── lost, late, failed, stepped back, stopping ──▲
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Protocol

from cloudgraft.engine.clock import Patience, SystemTimer, Timer
from cloudgraft.sdk.errors import CloudgraftError, InternalError, InvalidArgumentError, UnavailableError
from cloudgraft.store.databases.clock import DatabaseClock
from cloudgraft.store.journal import FencedError
from cloudgraft.store.lease.lease_row import USABLE

log = logging.getLogger("cloudgraft.engine")

_NOT_LEADING: Final = -math.inf
_LOOK: Final = 0.05  # seconds between two looks of a held call
_LOST: Final = "the lease is lost, and another process may lead"
_LATE: Final = "the lease ended before it could be renewed"


class Holder(Protocol):
    """The holder of a lease."""

    @property
    def holder(self) -> str:
        """Its name, for messages."""


class LeaseLike(Protocol):
    """A lease that only one process holds at a time. Each method may raise JournalUnavailableError."""

    @property
    def seconds(self) -> float:
        """How long the lease lasts unless it is renewed."""

    @property
    def clock(self) -> DatabaseClock:
        """The offset of this host's clock from the clock of the lease's database."""

    def is_next(self) -> bool:
        """Whether this process is about to lead, in place of a leader of another rollout."""

    async def acquire(self) -> int | None:
        """Takes the lease if it is free or was ours, and returns a new epoch; None when another holds it, or may."""

    async def renew(self) -> bool:
        """Renews the lease; returns False when it is no longer ours."""

    async def release(self) -> None:
        """Releases the lease, if it is ours, so that another replica need not wait until it expires."""

    async def find_leader(self) -> Holder | None:
        """The current holder; None when none is known."""


@dataclass(frozen=True, slots=True)
class _Named:
    """A holder of whom only the name is known."""

    holder: str


class SoleLease:
    """The lease of a process that does not share its journal: it ends when another process opens the journal."""

    seconds = math.inf
    clock = DatabaseClock()

    def __init__(self, fenced_by: Callable[[], str] = lambda: "") -> None:
        """``fenced_by`` returns the name of the process that has opened the journal since; empty for none."""
        self._fenced_by = fenced_by

    def is_next(self) -> bool:
        """Never: no other process leads."""
        return False

    async def acquire(self) -> int | None:
        """Always succeeds: the lease is ours while the journal is."""
        return None if self._fenced_by() else 1

    async def renew(self) -> bool:
        """Whether the journal is still ours."""
        return not self._fenced_by()

    async def release(self) -> None:
        """Does nothing: no other process waits for the lease."""

    async def find_leader(self) -> Holder | None:
        """The process that has opened the journal."""
        return _Named(self._fenced_by()) if self._fenced_by() else None


@dataclass(frozen=True, slots=True)
class _Times:
    """Intervals derived from the length of a lease, in seconds."""

    lease: float

    def __post_init__(self) -> None:
        if not self.lease > 0:
            raise InvalidArgumentError(f"a lease of {self.lease:g} s cannot be held: give it some seconds")

    @property
    def usable(self) -> float:
        """How long a renewal is trusted; the rest is a margin for clock differences and checks that just passed."""
        return self.lease * USABLE

    @property
    def renew_every(self) -> float:
        return self.lease / 3

    @property
    def retry_every(self) -> float:
        return min(self.lease / 10, 1.0)

    @property
    def retry_as_next(self) -> float:
        """While calls are held back for this process, which is about to lead."""
        return min(self.retry_every, 0.2)

    @property
    def attempt(self) -> float:
        """The timeout of one request about the lease."""
        return min(self.lease / 3, 10.0)


class Leadership:
    """Acquires and renews the lease, and says at any moment whether this process leads."""

    def __init__(
        self,
        lease: LeaseLike,
        *,
        on_elected: Callable[[int], Coroutine[Any, Any, None]],
        on_fenced: Callable[[str], Awaitable[None]],
        on_end: Callable[[], None] = lambda: None,
        timer: Timer | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Prepares leadership; :meth:`start` starts it.

        ``on_elected`` gets the epoch, reads the journal and settles what is open. While it runs ``is_leader()`` is true
        and the lease is renewed. It is cancelled when leadership ends; when it fails another replica may try.
        ``on_fenced`` gets the reason, ends what is under way and closes connections. When it is called ``is_leader()``
        is already false, and no attempt to lead again is made before it returns. ``on_end`` is called at the moment
        leadership ends, unless the lease simply expires. ``jitter`` returns a number from 0 to 1.
        """
        self._lease = lease
        self._times = _Times(lease.seconds)
        self._on_elected = on_elected
        self._on_fenced = on_fenced
        self._on_end = on_end
        self._timer = timer or SystemTimer()
        self._patience = Patience(self._timer)
        self._jitter = jitter
        self._deadline = _NOT_LEADING  # from this time on this process does not lead, whatever the database says
        self._renew_at = _NOT_LEADING
        self._epoch: int | None = None
        self._is_settled = False
        self._has_led = False
        self._has_failed = False  # to take over: then nobody should wait for it
        self._may_hold = False  # the lease may be ours in the database
        self._trouble = "not the leader: it has not been tried yet"
        self._reason = ""  # why the last leadership ended
        self._failure: BaseException | None = None  # of on_elected
        self._gives_way = False  # releases the lease, so that another replica can lead instead
        self._is_stopping = False
        self._is_patient = False
        self._first: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    # -- state, safe to read from any thread -------------------------------------------------------------------------

    def is_leader(self) -> bool:
        """Whether this process leads at this moment. Check it before each call to a cloud and before each answer."""
        return self._timer.now() < self._deadline

    @property
    def deadline(self) -> float:
        """Until when this process leads without another renewal, by its timer; minus infinity when it does not lead."""
        return self._deadline

    @property
    def epoch(self) -> int | None:
        """The epoch of this leadership; None when this process does not lead."""
        return self._epoch if self.is_leader() else None

    @property
    def clock(self) -> DatabaseClock:
        """The offset of this host's clock from the database's."""
        return self._lease.clock

    def trouble(self) -> str:
        """Why callers should not use this process; empty when it leads and ``on_elected`` has finished."""
        deadline = self._deadline
        if deadline == _NOT_LEADING:
            return self._trouble
        if self._timer.now() >= deadline:
            return f"not the leader any more: {_LATE}"
        return "" if self._is_settled else "elected leader, and still reading the journal"

    def is_next(self) -> bool:
        """Whether this process is about to lead, in place of a leader of another rollout; see Succession."""
        return not (self._is_stopping or self._has_led or self._has_failed) and self._lease.is_next()

    # -- start and stop ----------------------------------------------------------------------------------------------

    async def start(self, *, is_patient: bool = False) -> None:
        """Starts, and returns after the first attempt: this process leads and has taken over, or another leads.

        Raises an error of ``on_elected`` that no further attempt will mend. Later errors are logged and reported by
        :meth:`trouble`. So is the first with ``is_patient``: then there is no caller to raise it to.
        """
        self._is_patient = is_patient
        self._first = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(), name="leadership")
        try:
            await self._first
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Calls ``on_fenced`` if this process led, then releases the lease, so that a successor need not wait."""
        self._is_stopping = True
        self.fence("stopping")
        self._patience.end()
        if self._task is not None:
            await self._task
        await self._release()

    def fence(self, reason: str) -> None:
        """Ends leadership at once, after the journal refused a write. Does nothing when this process does not lead."""
        if self._deadline != _NOT_LEADING:
            self._deadline = _NOT_LEADING
            self._reason = reason
            self._trouble = f"not the leader any more: {reason}"
            self._on_end()
            self._patience.end()

    async def _run(self) -> None:
        while not self._is_stopping:
            epoch = await self._acquire()
            if epoch is not None:
                await self._reign(epoch)
            self._first_is_over()
            pause = self._times.retry_as_next if self.is_next() else self._times.retry_every
            await self._patience.pause(pause * (0.75 + self._jitter() / 2))
        self._first_is_over()

    # -- becoming the leader -----------------------------------------------------------------------------------------

    async def _acquire(self) -> int | None:
        """Tries to become the leader; returns the epoch, or None."""
        sent = self._timer.now()
        self._may_hold = True
        try:
            epoch = await self._patience.answer(self._lease.acquire(), self._times.attempt)
        except Exception as error:  # noqa: BLE001 - another attempt follows any error
            self._tell(f"not the leader: the lease cannot be asked for: {_shown(error)}", logging.WARNING)
            return None
        if epoch is None:
            self._may_hold = False
            self._tell(f"not the leader: {await self._why_not()}")
            return None
        if self._is_stopping or self._timer.now() >= sent + self._times.usable:
            return None  # too late: the lease is about to expire
        self._epoch, self._is_settled, self._reason, self._failure, self._gives_way = epoch, False, "", None, False
        self._extend(sent)
        log.info("elected leader", extra={"epoch": epoch})
        return epoch

    async def _why_not(self) -> str:
        """Who leads, as far as that is known, or why this process does not take the lease."""
        try:
            leader = await self._patience.answer(self._lease.find_leader(), self._times.attempt)
        except Exception:  # noqa: BLE001 - it is only for a message
            return "another process leads"
        if leader is not None:
            return f"{leader.holder} leads"
        return self._lease.clock.trouble() or "no process leads; the lease is taken once it is certain that none does"

    def _elected(self, electing: asyncio.Task[None]) -> None:
        """Handles the end of ``on_elected``."""
        error = InternalError("it was cancelled") if electing.cancelled() else electing.exception()
        if not self.is_leader():
            return  # leadership has ended, so the result does not matter
        if error is None:
            self._is_settled = True
            self._has_led = True
            self._first_is_over()
        else:
            self._failure, self._has_failed = error, True
            log.error("cannot take over", exc_info=error, extra={"epoch": self._epoch})
            self.fence(f"taking over failed: {_shown(error)}")

    def _first_is_over(self) -> None:
        if self._first is None or self._first.done():
            return
        is_passing = isinstance(self._failure, UnavailableError) or self._is_patient or self._is_stopping
        if self._failure is None or is_passing:
            self._first.set_result(None)
        else:
            self._first.set_exception(self._failure)

    # -- being the leader --------------------------------------------------------------------------------------------

    async def _reign(self, epoch: int) -> None:
        electing = asyncio.create_task(self._on_elected(epoch), name="elected")
        electing.add_done_callback(self._elected)
        self.fence(await self._keep())
        electing.cancel()
        await asyncio.wait({electing})
        level = logging.INFO if self._is_stopping else logging.WARNING
        log.log(level, "no longer the leader: %s", self._reason, extra={"epoch": epoch})
        try:
            await self._on_fenced(self._reason)
        except Exception:
            log.exception("the clean-up after the end of leadership failed")
        if self._failure is not None or self._gives_way:
            await self._release()  # another replica may be able to lead
        if not self._is_stopping:
            self._patience.begin()

    async def _keep(self) -> str:
        """Renews the lease while that works; returns why it no longer does."""
        told = ""
        while True:
            await self._patience.pause(min(self._renew_at, self._deadline) - self._timer.now())
            sent = self._timer.now()
            if not self.is_leader():
                return self._reason or _LATE
            try:
                is_kept = await self._patience.answer(
                    self._lease.renew(), min(self._times.attempt, self._deadline - sent)
                )
            except FencedError:
                is_kept = False
            except Exception as error:  # noqa: BLE001 - there may be time for another attempt after any error
                if self.is_leader() and _shown(error) != told:  # once, not at every attempt
                    told = _shown(error)
                    log.warning("the lease could not be renewed: %s", told, extra={"epoch": self._epoch})
                self._renew_at = self._timer.now() + self._times.retry_every
                continue
            if not is_kept:
                self._may_hold = False
                return _LOST
            if self.is_leader():  # a late renewal does not restore a leadership that has ended
                self._extend(sent)
            if reason := self._lease.clock.why_step_back():
                self._gives_way = True
                return f"another replica should lead: {reason}"

    def _extend(self, sent: float) -> None:
        self._renew_at = sent + self._times.renew_every
        self._deadline = sent + self._times.usable

    async def _release(self) -> None:
        if not self._may_hold:
            return
        self._may_hold = False
        try:
            async with asyncio.timeout(self._times.attempt):
                await self._lease.release()
        except Exception as error:  # noqa: BLE001 - the lease expires by itself
            log.warning("the lease could not be released, it expires by itself: %s", _shown(error))

    def _tell(self, trouble: str, level: int = logging.INFO) -> None:
        if trouble != self._trouble and not self._is_stopping:  # once, not at every attempt
            self._trouble = trouble  # before the log line: its reader may read this from another thread
            log.log(level, trouble)


def _shown(error: BaseException) -> str:
    return error.message if isinstance(error, CloudgraftError) else str(error) or type(error).__name__


class Succeeding(Protocol):
    """What :class:`HeldCalls` asks of a Leadership."""

    def is_next(self) -> bool:
        """Whether this process is about to lead."""

    def is_leader(self) -> bool:
        """Whether it leads."""


class HeldCalls:
    """Holds calls back while this process is about to lead, so that those who made them need not try again."""

    def __init__(self, leadership: Succeeding) -> None:
        self._leadership = leadership
        self._count = 0

    async def wait(self, seconds: float) -> bool:
        """Returns when this process leads, or is no longer about to; at the latest after ``seconds``.

        True means that those who are connected should look for the leader elsewhere: this process does not lead, and
        no other call waits for that on their connections.
        """
        if seconds <= 0 or not self._leadership.is_next():
            return False
        time = asyncio.get_running_loop().time
        ends = time() + seconds
        self._count += 1
        try:
            while self._leadership.is_next() and time() < ends:  # noqa: ASYNC110 - time ends it too, not only an event
                await asyncio.sleep(_LOOK)
        finally:
            self._count -= 1
        return not self._leadership.is_leader() and not (self._count and self._leadership.is_next())
