"""Caches answers, and refreshes old ones in the background."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from cloudgraft.sdk.contain import contained
from cloudgraft.sdk.errors import CloudgraftError, UnsupportedError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True)
class _Answer(Generic[V]):
    value: V | UnsupportedError  # "not supported" is an answer too
    asked_at: float


class Memo(Generic[K, V]):
    """Caches the answers to questions of one kind.

    - First request: the caller waits; others with the same key wait for the same answer.
    - Older than ``fresh_for``: the caller gets the old answer, and a refresh runs in the background. An old answer is
      better than an error; the maximum age is decided elsewhere.

    Keeps at most ``size`` answers; drops the least recently used first.
    """

    def __init__(self, *, fresh_for: float, size: int, clock: Callable[[], float]) -> None:
        self._fresh_for = fresh_for
        self._size = size
        self._clock = clock
        self._answers: OrderedDict[K, _Answer[V]] = OrderedDict()
        self._asking: dict[K, asyncio.Task[_Answer[V]]] = {}

    def knows(self, key: K) -> bool:
        """Whether there is an answer."""
        return key in self._answers

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """The answer for this key; ``ask`` gets a new one."""
        answer = self._answers.get(key)
        if answer is not None:
            self._answers.move_to_end(key)
            if self._clock() - answer.asked_at > self._fresh_for:
                _ = self._begin(key, ask)
            return _unwrap(answer)
        # Shielded: one caller's deadline must not cancel the request of the others.
        return _unwrap(await asyncio.shield(self._begin(key, ask)))

    def close(self) -> None:
        """Cancels requests under way."""
        for task in self._asking.values():
            task.cancel()

    def _begin(self, key: K, ask: Callable[[], Awaitable[V]]) -> asyncio.Task[_Answer[V]]:
        task = self._asking.get(key)
        if task is None:
            task = asyncio.create_task(self._fetch(key, ask))
            self._asking[key] = task
            task.add_done_callback(lambda done: self._end(key, done))
        return task

    def _end(self, key: K, task: asyncio.Task[_Answer[V]]) -> None:
        self._asking.pop(key, None)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not complain when no caller waits

    async def _fetch(self, key: K, ask: Callable[[], Awaitable[V]]) -> _Answer[V]:
        asked_at = self._clock()
        try:
            answer: _Answer[V] = _Answer(await contained(ask()), asked_at)
        except UnsupportedError as error:
            answer = _Answer(error, asked_at)
        self._answers[key] = answer
        self._answers.move_to_end(key)
        while len(self._answers) > self._size:
            self._answers.popitem(last=False)
        return answer


def _unwrap(answer: _Answer[V]) -> V:
    if isinstance(answer.value, CloudgraftError):
        raise UnsupportedError(answer.value.message)
    return answer.value
