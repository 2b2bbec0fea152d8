"""Logs the calls to a provider in a test, and plans faults: the next call fails, waits or answers nonsense."""

from __future__ import annotations

import asyncio
import functools
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

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
    """The calls that were made, and the planned faults."""

    def __init__(self) -> None:
        self.calls: deque[LoggedCall] = deque(maxlen=_CALLS_KEPT)  # the latest; a server may run for months
        self._counts: Counter[str] = Counter()
        self._faults: defaultdict[str, deque[_Fault]] = defaultdict(deque)

    def count(self, method: str) -> int:
        """How often a method was called."""
        return self._counts[method]

    def add(self, method: str, args: tuple[object, ...]) -> None:
        """Records a call."""
        self.calls.append(LoggedCall(method, args))
        self._counts[method] += 1

    def fail_next(self, method: str, error: Exception) -> None:
        """Makes the next call of the method raise this error and do nothing else."""

        async def fault() -> Any:
            raise error

        self._faults[method].append(fault)

    def answer_next(self, method: str, answer: object) -> None:
        """Makes the next call of the method answer with this value, of any type, and do nothing else."""

        async def fault() -> Any:
            return answer

        self._faults[method].append(fault)

    def hold_next(self, method: str) -> asyncio.Event:
        """Makes the next call of the method wait until the returned event is set, then go on as usual."""
        event = asyncio.Event()
        self._faults[method].append(_Hold(event))
        return event

    def take(self, method: str) -> _Fault | None:
        """Takes the fault planned for this call, if any; each is used once."""
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
    """Records each call of an async method in ``self.log`` and applies the planned faults."""
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
