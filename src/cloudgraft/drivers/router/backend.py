"""Manages one cloud of a router: its driver, whether it is reachable, and what it refused lately."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from typing import Final, TypeVar

from cloudgraft.sdk.common.causes import cause
from cloudgraft.sdk.common.event_loop import contained, within
from cloudgraft.sdk.common.failure_log import FailureLog
from cloudgraft.sdk.driver import (
    Driver,
    DriverTraits,
    Idempotency,
    Machine,
    MachineSpec,
    Ownership,
    PartialList,
    Price,
    ProviderIdBy,
    Shape,
)
from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    DeadlineError,
    ErrorClass,
    InternalError,
    OutOfStockError,
    PermissionDeniedError,
    PreconditionError,
    QuotaExceededError,
    RateLimitedError,
    Retry,
    UnavailableError,
    UnsupportedError,
    error_from_slug,
)
from cloudgraft.sdk.list_budget import ListBudget, current_budget

# -- refusals ----------------------------------------------------------------------------------------------------------
# After which refusals the next backend is asked, and which error to raise when all refuse. The router asks another
# cloud only after an error that proves that nothing was done (law 3). Of those:
#
# - out of stock, quota exceeded, unavailable, credentials or permission refused, wrong state: ask the next backend;
# - a rate limit or a conflict is temporary: the engine retries, and no more expensive cloud is used;
# - an invalid request, or a name that is taken: a person has to look, and the next cloud would hide it.

_LONGEST_HINT: Final = 3600.0  # seconds: the cap for a cloud's retry-after, as in the engine
_PASSED_ON: Final = (
    OutOfStockError,
    QuotaExceededError,
    UnavailableError,
    AuthenticationError,
    PermissionDeniedError,
    PreconditionError,
)


def may_pass_on(error: CloudgraftError) -> bool:
    """Returns whether to ask the next backend. An author's own class may declare that the outcome is unknown."""
    return isinstance(error, _PASSED_ON) and not error.leaves_open


def hinted(error: CloudgraftError) -> float | None:
    """Returns the retry-after of a cloud in seconds, capped; None when it is not a valid time.

    Drivers are written by others, and a header may contain anything.
    """
    seconds: object = error.retry_after
    if not isinstance(seconds, int | float) or not seconds >= 0:  # excludes NaN
        return None
    return min(seconds, _LONGEST_HINT)


def located(error: CloudgraftError, cloud: str) -> CloudgraftError:
    """Returns the same error with the name of its cloud."""
    found = _class_of(error)(f"{cloud}: {error.message}", retry_after=hinted(error))
    return found.as_final() if error.is_final else found


def put_off(error: CloudgraftError, seconds: float) -> CloudgraftError:
    """Returns the same error for a call that was not made, because the cloud's retry-after is not over.

    The message says so, because its text may be about another machine.
    """
    return _class_of(error)(f"the pause that it asked for is not over: {error.message}", retry_after=seconds)


def refused_by_all(refusals: Mapping[str, CloudgraftError]) -> CloudgraftError:
    """Combines all refusals into one error: with the most helpful class, and every reason in the text.

    If any cloud is out of stock or quota, the error is of that class, so that the autoscaler tries another group at
    once. Otherwise temporary errors come before those that a person must fix.
    """
    message = "; ".join(f"{cloud}: {error.message}" for cloud, error in refusals.items())
    errors = list(refusals.values())
    waits = [wait for error in errors if (wait := hinted(error)) is not None]
    wait = min(waits, default=None)
    if any(error.error_class is ErrorClass.OUT_OF_RESOURCES for error in errors):
        is_quota = all(isinstance(error, QuotaExceededError) for error in errors)
        return (QuotaExceededError if is_quota else OutOfStockError)(message, retry_after=wait)
    if any(isinstance(error, UnavailableError) for error in errors):
        return UnavailableError(message, retry_after=wait)
    return _class_of(errors[0])(message, retry_after=wait)


def _class_of(error: CloudgraftError) -> type[CloudgraftError]:
    """Returns our class for an error: an author's own class may need more arguments than a message.

    An unknown outcome stays unknown, whatever the author's class.
    """
    found = error_from_slug(error.slug) or InternalError
    return found if error.retry is not Retry.SETTLE_FIRST or found.retry is Retry.SETTLE_FIRST else DeadlineError


# -- traits ------------------------------------------------------------------------------------------------------------
# Derives the traits of a router from those of its backends.

_CREATE: Final = timedelta(minutes=2)  # the engine's default for drivers without create_timeout


def create_limit(traits: DriverTraits) -> timedelta:
    """Returns how long one backend may take for a create."""
    return traits.create_timeout or _CREATE


@lru_cache(maxsize=64)
def combined(backends: tuple[DriverTraits, ...], listed: tuple[DriverTraits, ...] = ()) -> DriverTraits:
    """Returns the weakest traits of all.

    ``listed`` are those that have listed their machines since the start; none: all. Only they decide what lists prove:
    a backend that was never reached shows nothing and gets no orders, and a remote driver that was never reached
    declares that its lists prove nothing for a day, which must not hold for the others (law 6).

    A create is never idempotent: a token or a unique name in one cloud does not keep another cloud from creating a
    second machine. The engine therefore waits until a call that it gave up must be over, and checks lists, before it
    calls again. Where the clouds prove ownership in different ways, the name is what all of them keep.
    """
    limits = [traits.user_data_limit for traits in backends if traits.user_data_limit is not None]
    templates = {traits.provider_id for traits in backends}
    seen = listed or backends
    owned = {traits.ownership for traits in seen}
    return DriverTraits(
        ownership=owned.pop() if len(owned) == 1 else Ownership.NAME,
        idempotency=Idempotency.NONE,
        list_delay=max(traits.list_delay for traits in seen),
        complete_list=all(traits.complete_list for traits in seen),
        provider_id=templates.pop() if len(templates) == 1 else "",
        provider_id_by=backends[0].provider_id_by,
        user_data_limit=min(limits, default=None),
        catalog_lasts=min(traits.catalog_lasts for traits in backends),
        create_timeout=sum((create_limit(traits) for traits in backends), timedelta(0)),
    )


def check_alike(backends: Mapping[str, DriverTraits]) -> None:
    """Raises PreconditionError when the backends write providerIDs in different ways."""
    (first, one), *others = backends.items()
    for name, other in others:
        if other.provider_id_by is not one.provider_id_by:
            raise PreconditionError(
                f"the providerID of nodes is set by {_word(one)} in cloud {first} and by {_word(other)} in cloud "
                f"{name}: one group needs one way for all of its nodes. Set providerIDBy of one of these clouds, "
                "if its driver has that option, or give each a group of its own"
            )
        if one.provider_id_by is ProviderIdBy.KUBELET and other.provider_id != one.provider_id:
            raise PreconditionError(
                f"kubelets are told their providerID before it is known in which cloud they run: it is "
                f"{one.provider_id or 'not known beforehand'!r} in cloud {first} and "
                f"{other.provider_id or 'not known beforehand'!r} in cloud {name}. Give each a group of its own"
            )


def _word(traits: DriverTraits) -> str:
    return {
        ProviderIdBy.KUBELET: "the kubelet",
        ProviderIdBy.CLOUD_CONTROLLER: "a cloud controller manager",
        ProviderIdBy.CLOUDGRAFT: "cloudgraft",
    }[traits.provider_id_by]


# -- one cloud ---------------------------------------------------------------------------------------------------------

log = logging.getLogger("cloudgraft.drivers.router")

T = TypeVar("T")
_SHORTEST_LIST: Final = 5.0  # seconds for a list of a cloud that did not answer the last time


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """Another cloud of the configuration, for a router to use."""

    make: Callable[[], Driver]
    takes: frozenset[str] = frozenset()  # of `labels` and `taints`: those that its driver sets on nodes itself


class Backend:
    """Makes the calls of one cloud, and remembers their results."""

    def __init__(
        self, name: str, cloud: Cloud, *, list_timeout: timedelta, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self.takes = cloud.takes
        self.driver = cloud.make()
        self.away = ""  # why its latest list failed
        # The last shapes and prices that it reported. None: not reported yet; empty: it does not report any.
        self.known_shapes: Mapping[str, Shape] | None = None
        self.known_prices: Mapping[str, Price] | None = None
        self._list_timeout = list_timeout.total_seconds()
        self._clock = clock
        self._took: float | None = None  # seconds of the latest successful list
        self._refused: dict[str, float] = {}  # by shape: asked after the others until then
        # By call: until when its retry-after lasts, and the error. The engine does not know it, because the router's
        # own list works as long as one of its clouds does.
        self._left_alone: dict[str, tuple[float, CloudgraftError]] = {}
        self._failures = FailureLog(log)
        self._starting = asyncio.Lock()
        self._is_started = False

    @property
    def prefix(self) -> str:
        """The prefix of its machines' ids."""
        return f"{self.name}/"

    @property
    def is_started(self) -> bool:
        """Whether its driver has started, so that its traits are final."""
        return self._is_started

    @property
    def has_listed(self) -> bool:
        """Whether it has listed its machines since the start."""
        return self._took is not None

    def is_cooling(self, shape: str) -> bool:
        """Returns whether it refused this shape lately."""
        return self._refused.get(shape, 0.0) > self._clock()

    def cool_down(self, shape: str, seconds: float) -> None:
        """Records that it refused this shape or did not answer; 0 seconds: it succeeded."""
        self._refused[shape] = self._clock() + seconds

    async def start(self) -> None:
        """Starts its driver, unless that is done. Any later call may start the driver of an unavailable cloud."""
        async with self._starting:
            if not self._is_started:
                await self._limited("start", self._list_timeout, self.driver.start)
                self._is_started = True

    async def close(self) -> None:
        """Closes its driver; a failure is only logged."""
        try:
            await contained(self.driver.close())
        except Exception as error:  # noqa: BLE001 - the others must still be closed
            log.warning("a backend did not close", extra={"cloud": self.name, "error": type(error).__name__})

    async def create(self, spec: MachineSpec) -> Machine:
        """Orders a machine; when the cloud does not answer in time, the outcome is unknown.

        A cloud that sent a rate limit gets no call for any machine before its retry-after is over.
        """
        if (refusal := self._still("create")) is not None:
            raise refusal
        await self.start()
        seconds = create_limit(self.driver.traits).total_seconds()
        try:
            return self.shown(await self._limited("create", seconds, lambda: self.driver.create(spec)))
        except RateLimitedError as error:
            self._leave_alone("create", error)
            raise

    async def delete(self, machine: Machine) -> None:
        """Deletes a machine that this backend listed."""
        await self.start()
        await self.driver.delete(self._inner(machine))

    async def mark(self, machine: Machine, tags: Mapping[str, str | None]) -> None:
        """Marks a machine that this backend listed."""
        await self.start()
        await self.driver.mark(self._inner(machine), tags)

    async def list(self) -> Sequence[Machine] | CloudgraftError:
        """Returns all its machines with its own ids; or the error, also while its retry-after lasts."""
        if (refusal := self._still("list")) is not None:
            return refusal
        began = self._clock()
        try:
            await self.start()
            machines = _checked(self.name, await self._budgeted("list", self.driver.list))
        except CloudgraftError as error:
            if not self.away:
                log.warning("a backend is unavailable", extra={"cloud": self.name, "error": error.message})
            self.away = error.message
            self._leave_alone("list", error)
            return error
        if self.away:
            log.info("a backend answers again", extra={"cloud": self.name})
        self.away, self._took = "", self._clock() - began
        return machines

    def complete_for(self, machines: Sequence[Machine]) -> Sequence[str]:
        """Returns the scope for which this list is complete, in the router's ids."""
        if isinstance(machines, PartialList):
            return [f"{self.prefix}{beginning}" for beginning in machines.complete_for]
        return [self.prefix]

    async def shapes(self) -> Mapping[str, Shape]:
        """Returns its shapes, or the last ones when it is unavailable. Raises when it never reported any."""
        self.known_shapes = await self._asked("shapes", self.driver.shapes, lambda s: s.name, self.known_shapes)
        return self.known_shapes

    async def prices(self) -> Mapping[str, Price]:
        """Returns its prices in the same way."""
        self.known_prices = await self._asked("prices", self.driver.prices, lambda p: p.shape, self.known_prices)
        return self.known_prices

    def shown(self, machine: Machine) -> Machine:
        """Returns the machine with the router's id, which starts with its cloud."""
        if not machine.machine_id:
            raise _no_machines(self.name, "a machine without a machine_id")
        return replace(machine, machine_id=f"{self.prefix}{machine.machine_id}")

    def _inner(self, machine: Machine) -> Machine:
        """Returns the machine with the id that it has in its cloud."""
        return replace(machine, machine_id=machine.machine_id.removeprefix(self.prefix))

    async def _asked(
        self,
        verb: str,
        call: Callable[[], Awaitable[Sequence[T]]],
        key: Callable[[T], str],
        known: Mapping[str, T] | None,
    ) -> Mapping[str, T]:
        try:
            await self.start()
            answer = await self._budgeted(verb, call)
        except UnsupportedError:
            return {}
        except CloudgraftError as error:
            if known is not None:
                return known
            raise UnavailableError(f"cloud {self.name} has not told yet what it offers: {error.message}") from error
        return {key(one): one for one in answer}

    def _leave_alone(self, verb: str, error: CloudgraftError) -> None:
        # Without its traceback: that would keep a list that was too long in memory.
        self._left_alone[verb] = (self._clock() + (hinted(error) or 0.0), error.with_traceback(None))

    def _still(self, verb: str) -> CloudgraftError | None:
        """Returns the error of a retry-after that is not over yet."""
        if verb not in self._left_alone:
            return None
        until, error = self._left_alone[verb]
        seconds = until - self._clock()
        return put_off(error, seconds) if seconds > 0 else None

    def _list_seconds(self) -> float:
        """Returns the timeout of a list: short after a failure, so that the cloud does not delay the others again."""
        if not self.away or self._took is None:
            return self._list_timeout
        return min(self._list_timeout, max(_SHORTEST_LIST, 2 * self._took))

    async def _budgeted(self, verb: str, call: Callable[[], Awaitable[Sequence[T]]]) -> Sequence[T]:
        """Reads a list within its own budget: one backend's endless list must not use up that of the others."""
        whole, seconds = current_budget(), self._list_seconds()
        budget = ListBudget(machines=whole.machines, size=whole.size, seconds=seconds)
        return await budget.limited(self._limited(verb, seconds, call))

    async def _limited(self, verb: str, seconds: float, call: Callable[[], Awaitable[T]]) -> T:
        """Returns the call's result, or raises a CloudgraftError: an unknown outcome must never look like a refusal."""

        def failed(error: Exception) -> CloudgraftError:
            self._failures.failed(verb, error, {"cloud": self.name, "call": verb})
            return InternalError(
                f"the driver of cloud {self.name} failed in {verb} with {cause(error)}; the log has the details"
            )

        late = f"cloud {self.name} did not answer {verb} within {seconds:g} s"
        result = await within(seconds, call, late=lambda: DeadlineError(late), failed=failed)
        self._failures.worked(verb, {"cloud": self.name, "call": verb})
        return result


def _checked(cloud: str, answer: object) -> Sequence[Machine]:
    """Validates a cloud's list: an invalid one must not break the lists of the others (law 6)."""
    if not isinstance(answer, Sequence):
        raise _no_machines(cloud, type(answer).__name__)
    for one in answer:
        if not isinstance(one, Machine) or not one.machine_id:
            what = "a machine without a machine_id" if isinstance(one, Machine) else type(one).__name__
            raise _no_machines(cloud, what)
    return answer


def _no_machines(cloud: str, what: str) -> InternalError:
    return InternalError(f"the driver of cloud {cloud} answered with {what}")
