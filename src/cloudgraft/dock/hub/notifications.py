"""What a hub tells a driver beside operations. Much of the same is told once: a slow reader is not told more for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from cloudgraft.dock.hub.outbox import Outbox
from cloudgraft.dock.protocol.dialect import Speech

__all__ = ["Telling"]

_MOST_ACKNOWLEDGED: Final = 100_000  # numbers that wait for a driver that does not read
_ACKNOWLEDGE_AFTER: Final = 1.0  # seconds: many at once, for nobody waits for it
_ACKNOWLEDGE_AT: Final = 100  # or so many


class Telling:
    """The words that wait in one driver's outbox."""

    def __init__(self, speech: Speech, outbox: Outbox) -> None:
        self._speech = speech
        self._outbox = outbox
        self._loop = asyncio.get_running_loop()
        self._acknowledged: list[int] = []
        self._will_acknowledge = False  # a timer runs
        self._changed: tuple[dict[str, None], dict[str, None]] = ({}, {})
        self._beats = 0
        self._beat_queued = False

    def welcome(self, session_id: str, heartbeat: float, max_message_bytes: int) -> None:
        """The driver is taken."""
        words = self._speech.welcome(session_id, heartbeat, max_message_bytes)
        self._outbox.say(lambda: words)

    def drain(self, grace: float) -> None:
        """The hub goes away."""
        words = self._speech.drain(timedelta(seconds=grace))
        self._outbox.say(lambda: words)

    def beat(self) -> None:
        """A sign of life."""
        if not self._beat_queued:
            self._beat_queued = True
            self._outbox.say(self._heartbeat)

    def acknowledge(self, numbers: Iterable[int]) -> None:
        """The results of these operations have arrived."""
        for number in numbers:
            self.acknowledge_one(number)

    def acknowledge_one(self, number: int) -> None:
        """The result of this operation has arrived. Most have: this is cheap."""
        numbers = self._acknowledged
        if not self._speech.acknowledges or len(numbers) >= _MOST_ACKNOWLEDGED:
            return
        numbers.append(number)
        if not self._will_acknowledge:
            self._will_acknowledge = True
            self._loop.call_later(_ACKNOWLEDGE_AFTER, self._time_to_acknowledge)
        if len(numbers) == _ACKNOWLEDGE_AT:
            self._outbox.say(self._acknowledgement)

    def changed(self, classes: Iterable[str], secrets: Iterable[str]) -> None:
        """These classes and secrets are other ones now."""
        queued = any(self._changed)
        self._changed[0].update(dict.fromkeys(classes))
        self._changed[1].update(dict.fromkeys(secrets))
        if not queued:
            self._outbox.say(self._changes)

    def _heartbeat(self) -> bytes | None:
        self._beat_queued = False
        self._beats += 1
        return self._speech.heartbeat(self._beats)

    def _time_to_acknowledge(self) -> None:
        self._will_acknowledge = False
        if self._acknowledged:
            self._outbox.say(self._acknowledgement)

    def _acknowledgement(self) -> bytes | None:
        numbers, self._acknowledged = self._acknowledged, []
        return self._speech.acknowledge(numbers) if numbers else None

    def _changes(self) -> bytes | None:
        (classes, secrets), self._changed = self._changed, ({}, {})
        return self._speech.changed(list(classes), list(secrets))
