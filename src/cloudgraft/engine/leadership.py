"""Leader election with self-fencing: a deposed leader stops before it can act.

A leader renews its lease every third of its length. It counts itself out some time before the lease ends, by a clock of
its own and from the moment *before* it asked for the last renewal: so at no time do two processes take themselves for
the leader, whatever hangs in between. :meth:`Leadership.is_leader` is that check. It asks nobody, so a process that was
stopped or suspended and wakes up after hours gets the right answer at the first call. The other half of the proof, how
long the others wait, is in :mod:`cloudgraft.store.lease.row`.

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
from cloudgraft.store.lease.row import USABLE

__all__ = ["Holder", "Leadership", "LeaseLike", "SoleLease"]

log = logging.getLogger("cloudgraft.engine")

_NOT_LEADING: Final = -math.inf
_LOST: Final = "the lease is lost, and another process may lead"
_LATE: Final = "the lease ended before it could be renewed"


class Holder(Protocol):
    """Who has a lease."""

    @property
    def holder(self) -> str:
        """Its name, for people."""


class LeaseLike(Protocol):
    """What only one process has at a time. Each method may raise JournalUnavailableError."""

    @property
    def seconds(self) -> float:
        """How long it lasts unless it is renewed."""

    @property
    def clock(self) -> DatabaseClock:
        """How far this host's clock is from that of the place where the lease is kept."""

    async def acquire(self) -> int | None:
        """Takes it if it is free, or was ours: a new epoch. None when another has it, or may have."""

    async def renew(self) -> bool:
        """Makes it last longer; False when it is no longer ours."""

    async def release(self) -> None:
        """Lets go of it, if it is ours, so that another need not wait for its end."""

    async def find_leader(self) -> Holder | None:
        """Who has it now; None when nobody has, as far as is known."""


@dataclass(frozen=True, slots=True)
class _Named:
    """Somebody of whom only the name is known."""

    holder: str


class SoleLease:
    """The lease of a process that shares its journal with nobody: it ends when another process opens the journal."""

    seconds = math.inf
    clock = DatabaseClock()

    def __init__(self, fenced_by: Callable[[], str] = lambda: "") -> None:
        """``fenced_by`` tells who has opened the journal meanwhile; an empty string when nobody has."""
        self._fenced_by = fenced_by

    async def acquire(self) -> int | None:
        """Ours, for as long as the journal is."""
        return None if self._fenced_by() else 1

    async def renew(self) -> bool:
        """Whether it is still ours."""
        return not self._fenced_by()

    async def release(self) -> None:
        """Nobody waits for it."""

    async def find_leader(self) -> Holder | None:
        """Whoever has opened the journal."""
        return _Named(self._fenced_by()) if self._fenced_by() else None


@dataclass(frozen=True, slots=True)
class _Times:
    """What follows from the length of a lease, in seconds."""

    lease: float

    def __post_init__(self) -> None:
        if not self.lease > 0:
            raise InvalidArgumentError(f"a lease of {self.lease:g} s cannot be held: give it some seconds")

    @property
    def usable(self) -> float:
        """For how long it is trusted; the rest is a margin for clocks that differ and checks that have just passed."""
        return self.lease * USABLE

    @property
    def renew_every(self) -> float:
        return self.lease / 3

    @property
    def retry_every(self) -> float:
        return min(self.lease / 10, 1.0)

    @property
    def attempt(self) -> float:
        """For how long one question about the lease is worth waiting."""
        return min(self.lease / 3, 10.0)


class Leadership:
    """Becomes the leader when it can, stays it while it may, and says at any moment whether it is."""

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
        """Prepares it; :meth:`start` begins.

        ``on_elected`` gets the epoch, reads the journal and settles what is open. While it runs ``is_leader()`` is true
        and the lease is renewed; it is cancelled when leadership ends, and when it fails another replica may try.
        ``on_fenced`` gets the reason, ends what is under way and closes connections; when it is called ``is_leader()``
        is false already, and no attempt to lead again is made before it returns. ``on_end`` is called at the moment in
        which a reign ends, unless the lease simply runs out. ``jitter`` gives a number from 0 to 1.
        """
        self._lease = lease
        self._times = _Times(lease.seconds)
        self._on_elected = on_elected
        self._on_fenced = on_fenced
        self._on_end = on_end
        self._timer = timer or SystemTimer()
        self._patience = Patience(self._timer)
        self._jitter = jitter
        self._deadline = _NOT_LEADING  # from here on we are not the leader, whatever the database says
        self._renew_at = _NOT_LEADING
        self._epoch: int | None = None
        self._is_settled = False
        self._may_hold = False  # the lease may be ours in the database
        self._trouble = "not the leader: it has not been tried yet"
        self._reason = ""  # why the last reign ended
        self._failure: BaseException | None = None  # of on_elected
        self._gives_way = False  # to another replica, which should lead instead
        self._is_stopping = False
        self._is_patient = False
        self._first: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    # -- what anybody may ask, from any thread -----------------------------------------------------------------------

    def is_leader(self) -> bool:
        """Whether this process leads at this very moment. Ask before each call to a cloud and before each answer."""
        return self._timer.now() < self._deadline

    @property
    def deadline(self) -> float:
        """Until when this process leads without asking anybody, by its timer; minus infinity when it does not."""
        return self._deadline

    @property
    def epoch(self) -> int | None:
        """The number of this reign; None when it does not lead."""
        return self._epoch if self.is_leader() else None

    @property
    def clock(self) -> DatabaseClock:
        """How far this host's clock is from the database's."""
        return self._lease.clock

    def trouble(self) -> str:
        """Why not to send calls here; an empty string when it leads and ``on_elected`` is through."""
        deadline = self._deadline
        if deadline == _NOT_LEADING:
            return self._trouble
        if self._timer.now() >= deadline:
            return f"not the leader any more: {_LATE}"
        return "" if self._is_settled else "elected leader, and still reading the journal"

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self, *, is_patient: bool = False) -> None:
        """Begins, and returns when the first attempt is over: it leads and is settled, or another does.

        An error of ``on_elected`` that no other attempt will mend is raised; all later ones are logged, and told by
        :meth:`trouble`. So is the first when ``is_patient``: then there is nobody to raise it to.
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
        """Ends it: ``on_fenced`` is called if it led, then the lease is let go, and a successor need not wait."""
        self._is_stopping = True
        self.fence("stopping")
        self._patience.end()
        if self._task is not None:
            await self._task
        await self._release()

    def fence(self, reason: str) -> None:
        """Ends this reign at once: for who sees the journal refuse a write. Nothing happens when it does not lead."""
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
            await self._patience.pause(self._times.retry_every * (0.75 + self._jitter() / 2))
        self._first_is_over()

    # -- becoming the leader -----------------------------------------------------------------------------------------

    async def _acquire(self) -> int | None:
        """The epoch, when it has become the leader."""
        sent = self._timer.now()
        self._may_hold = True
        try:
            epoch = await self._patience.answer(self._lease.acquire(), self._times.attempt)
        except Exception as error:  # noqa: BLE001 - whatever it is, another attempt follows
            self._tell(f"not the leader: the lease cannot be asked for: {_shown(error)}", logging.WARNING)
            return None
        if epoch is None:
            self._may_hold = False
            self._tell(f"not the leader: {await self._why_not()}")
            return None
        if self._is_stopping or self._timer.now() >= sent + self._times.usable:
            return None  # too late: what is left of it is not worth having
        self._epoch, self._is_settled, self._reason, self._failure, self._gives_way = epoch, False, "", None, False
        self._extend(sent)
        log.info("elected leader", extra={"epoch": epoch})
        return epoch

    async def _why_not(self) -> str:
        """Who leads, as far as that is known, or why the lease is left alone."""
        try:
            leader = await self._patience.answer(self._lease.find_leader(), self._times.attempt)
        except Exception:  # noqa: BLE001 - it is only for people
            return "another process leads"
        if leader is not None:
            return f"{leader.holder} leads"
        return self._lease.clock.trouble() or "no process leads; the lease is taken once it is certain that none does"

    def _elected(self, electing: asyncio.Task[None]) -> None:
        """When ``on_elected`` has ended."""
        error = InternalError("it was given up") if electing.cancelled() else electing.exception()
        if not self.is_leader():
            return  # then it does not matter how
        if error is None:
            self._is_settled = True
            self._first_is_over()
        else:
            self._failure = error
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
            log.exception("what follows the end of leadership failed")
        if self._failure is not None or self._gives_way:
            await self._release()  # another replica may be able to
        if not self._is_stopping:
            self._patience.begin()

    async def _keep(self) -> str:
        """Renews the lease for as long as it works; returns why it no longer does."""
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
            except Exception as error:  # noqa: BLE001 - whatever it is, there may be time for another attempt
                if self.is_leader() and _shown(error) != told:  # once, not at every attempt
                    told = _shown(error)
                    log.warning("the lease could not be renewed: %s", told, extra={"epoch": self._epoch})
                self._renew_at = self._timer.now() + self._times.retry_every
                continue
            if not is_kept:
                self._may_hold = False
                return _LOST
            if self.is_leader():  # what comes too late does not bring back what has ended
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
        except Exception as error:  # noqa: BLE001 - it ends by itself
            log.warning("the lease could not be let go, it ends by itself: %s", _shown(error))

    def _tell(self, trouble: str, level: int = logging.INFO) -> None:
        if trouble != self._trouble and not self._is_stopping:  # once, not at every attempt
            self._trouble = trouble  # first: who has read the log may ask another thread
            log.log(level, trouble)


def _shown(error: BaseException) -> str:
    return error.message if isinstance(error, CloudgraftError) else str(error) or type(error).__name__
