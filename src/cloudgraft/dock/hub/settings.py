"""Settings of a hub, the limits that they set for each driver, and the report about a connected driver."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Self

from cloudgraft.dock.protocol.messages import DriverInfo
from cloudgraft.sdk.errors import RateLimitedError

# -- Settings and reports ----------------------------------------------------------------------------------------------


# Seconds after which a driver that is frozen, or whose network failed silently, counts as away; v0 and v1.
NOTICED_WITHIN: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSettings:
    """Times are in seconds."""

    heartbeat: float = NOTICED_WITHIN / 3  # between two heartbeats of v1, in both directions
    missed: int = 3  # missed heartbeats in a row after which a connection is dead
    handshake: float = 10.0  # until a driver must have introduced itself
    grace: float = 10.0  # for operations in flight when the hub closes
    # HTTP/2 keepalive: the only way to detect a frozen driver of v0, after the sum of the two. The second one also
    # limits how long any driver may freeze: gRPC sends pings of its own, right after a message.
    keepalive: float = NOTICED_WITHIN / 3
    keepalive_timeout: float = NOTICED_WITHIN * 2 / 3

    max_message_bytes: int = 16 * 1024 * 1024
    queue: float = 300.0  # seconds that an operation may wait to be sent: the driver is busy
    # Seconds after its deadline at which an operation without a result counts as lost: it blocks others no more.
    lost: float = 600.0
    outbox: int = 1000  # messages that wait for a driver to read
    outbox_bytes: int = 32 * 1024 * 1024
    malformed: int = 10  # malformed messages after which a driver is disconnected
    max_connections: int = 2500  # at most the dock's share of the descriptors
    max_sessions: int = 2000
    max_sessions_per_identity: int = 500
    registrations: int = 1000  # burst for one identity; after that, this many a second:
    registrations_per_second: float = 20.0
    unasked: int = 1000  # burst of unsolicited messages; after that, this many a second are read:
    unasked_per_second: float = 200.0
    tombstones: int = 10_000  # operations that were given up, and whose late results the hub still recognizes

    @classmethod
    def beating(cls, heartbeat: float) -> Self:
        """Sets v0's keepalive to three heartbeats, so that both versions time out alike."""
        return cls(heartbeat=heartbeat, keepalive=heartbeat, keepalive_timeout=2 * heartbeat)

    @property
    def silence(self) -> float:
        """Seconds of silence after which a driver of v1 is dead."""
        return self.heartbeat * self.missed


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverReport:
    """One connected driver, as `dock drivers` and the metrics show it."""

    info: DriverInfo
    identity: str
    peer: str
    session_id: str
    state: str  # "ready" or "draining"
    since: datetime  # the hub's clock
    silent_for: timedelta  # since the last message
    in_flight: int  # operations that the driver is executing
    queued: int  # operations that wait to be sent
    succeeded: int
    failed: int
    malformed: int  # malformed messages
    last_error: str = ""
    unclassified: str = ""  # the latest text of a failed create that is in no table (v0)
    queued_for: timedelta = timedelta(0)  # how long the oldest operation has been waiting to be sent


# -- Rate limits of one driver -----------------------------------------------------------------------------------------


class Bucket:
    """Token bucket: a burst, and then a number per second."""

    def __init__(self, size: int, per_second: float, clock: Callable[[], float]) -> None:
        self._size = float(size)
        self._per_second = per_second
        self._clock = clock
        self._left = float(size)
        self._at = clock()

    def take(self) -> float:
        """Takes one token; returns the seconds until one is available, 0 when there was one."""
        now = self._clock()
        self._left = min(self._size, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return (1 - self._left) / self._per_second

    @property
    def full(self) -> bool:
        """Whether the bucket has refilled completely."""
        return self._left + (self._clock() - self._at) * self._per_second >= self._size


class Limits:
    """Limits connections, in total and for each identity, and the rate of new ones."""

    def __init__(self, settings: HubSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._open: Counter[str] = Counter()
        self._arrivals: dict[str, Bucket] = {}

    @contextlib.contextmanager
    def place(self, identity: str) -> Iterator[None]:
        """Reserves one connection; raises RateLimitedError when there is none left."""
        self._arrive(identity)
        if self._open.total() >= self._settings.max_sessions:
            raise RateLimitedError(
                f"the hub has {self._settings.max_sessions} drivers, and takes no more", retry_after=30
            )
        if self._open[identity] >= self._settings.max_sessions_per_identity:
            raise RateLimitedError(f"{identity} has as many connections as one identity may have", retry_after=30)
        self._open[identity] += 1
        try:
            yield
        finally:
            self._open[identity] -= 1
            if not self._open[identity]:
                del self._open[identity]

    def _arrive(self, identity: str) -> None:
        bucket = self._arrivals.get(identity)
        if bucket is None:
            self._arrivals = {name: kept for name, kept in self._arrivals.items() if not kept.full}
            settings = self._settings
            bucket = Bucket(settings.registrations, settings.registrations_per_second, self._clock)
            self._arrivals[identity] = bucket
        seconds = bucket.take()
        if seconds:
            raise RateLimitedError(f"{identity} connects too often: wait between two tries", retry_after=seconds)
