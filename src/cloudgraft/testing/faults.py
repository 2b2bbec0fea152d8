"""A call log and one-shot faults for a provider in a test: the next call fails, waits or answers nonsense."""

from __future__ import annotations

import asyncio
import functools
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

__all__ = ["CallLog", "LoggedCall", "recorded"]

P = ParamSpec("P")
T = TypeVar("T")
_CALLS_KEPT = 10_000
_Fault = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """One call that was made: the method's name and its arguments."""

    method: str
    args: tuple[object, ...]


class CallLog:
    """What was called, and what is to go wrong next."""

    def __init__(self) -> None:
        self.calls: deque[LoggedCall] = deque(maxlen=_CALLS_KEPT)  # the latest; a server may run for months
        self._counts: Counter[str] = Counter()
        self._faults: defaultdict[str, deque[_Fault]] = defaultdict(deque)

    def count(self, method: str) -> int:
        """How often a method was called."""
        return self._counts[method]

    def add(self, method: str, args: tuple[object, ...]) -> None:
        """Writes a call down."""
        self.calls.append(LoggedCall(method, args))
        self._counts[method] += 1

    def fail_next(self, method: str, error: Exception) -> None:
        """The next call of the method raises this error and does nothing else."""

        async def fault() -> Any:
            raise error

        self._faults[method].append(fault)

    def answer_next(self, method: str, answer: object) -> None:
        """The next call of the method answers with this, whatever it is, and does nothing else."""

        async def fault() -> Any:
            return answer

        self._faults[method].append(fault)

    def hold_next(self, method: str) -> asyncio.Event:
        """The next call of the method waits until the event that is returned is set, then goes on as usual."""
        event = asyncio.Event()
        self._faults[method].append(_Hold(event))
        return event

    def take(self, method: str) -> _Fault | None:
        """The fault planned for this call, if any; it is gone after that."""
        planned = self._faults.get(method)
        return planned.popleft() if planned else None


class _Hold:
    """A fault that only delays."""

    def __init__(self, event: asyncio.Event) -> None:
        self.event = event

    async def __call__(self) -> None:
        await self.event.wait()


class _HasLog(Protocol):
    log: CallLog


Self = TypeVar("Self", bound=_HasLog)


def recorded(
    method: Callable[Concatenate[Self, P], Awaitable[T]],
) -> Callable[Concatenate[Self, P], Coroutine[Any, Any, T]]:
    """Writes each call of an async method into ``self.log`` and lets the planned faults happen."""
    name = getattr(method, "__name__", "")

    @functools.wraps(method)
    async def wrapper(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.log.add(name, args)
        fault = self.log.take(name)
        if isinstance(fault, _Hold):
            await fault()
        elif fault is not None:
            answer: T = await fault()
            return answer
        return await method(self, *args, **kwargs)

    return wrapper
