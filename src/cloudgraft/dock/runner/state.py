"""Runs one connection of either version, and holds the state that outlives it: operations, classes, results."""

from __future__ import annotations

import asyncio
import enum
import logging
import secrets
from abc import abstractmethod
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError

from cloudgraft.dock.runner.adapter import Docked
from cloudgraft.dock.runner.classes import Classes, Source
from cloudgraft.dock.runner.connection import Dialled, End, Outbox, first_of
from cloudgraft.dock.runner.options import RunnerOptions
from cloudgraft.dock.runner.work import OperationRunner
from cloudgraft.wire.pb import dock_pb2 as pb

# -- Unacknowledged results --------------------------------------------------------------------------------------------
# The next connection sends them again.


log = logging.getLogger("cloudgraft.dock")


class ResultPriority(enum.IntEnum):
    """Decides which results are dropped first when there are too many."""

    DELETED = 0  # a list shows it as well
    NOT_CREATED = 1
    CREATED = 2  # a machine that costs money


@dataclass(frozen=True, slots=True)
class _Kept:
    result: pb.Result
    priority: ResultPriority
    size: int


class UnacknowledgedResults:
    """Keeps results of creates and deletes, in order, up to a number and a size.

    Results of reads are not kept: an old list is worse than none.
    """

    def __init__(self, *, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._kept: dict[tuple[str, int], _Kept] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, result: pb.Result, priority: ResultPriority) -> None:
        """Keeps the result until it is acknowledged, or results of higher priority need its place."""
        self._drop((result.hub_id, result.id))
        self._kept[result.hub_id, result.id] = _Kept(result, priority, size := result.ByteSize())
        self._bytes += size
        while len(self._kept) > self._most or (self._bytes > self._most_bytes and len(self._kept) > 1):
            least = min(self._kept, key=lambda one: self._kept[one].priority)  # the oldest of the lowest priority
            log.warning("a result that no hub has acknowledged is given up: there are too many", extra={"id": least[1]})
            self._drop(least)

    def find(self, hub_id: str, number: int) -> pb.Result | None:
        """The kept result of that operation, if any."""
        kept = self._kept.get((hub_id, number))
        return None if kept is None else kept.result

    def acknowledge(self, numbers: Iterable[int]) -> None:
        """Drops acknowledged results. If two hub processes used the same number, drops the older: it was sent first."""
        for number in numbers:
            found = next((key for key in self._kept if key[1] == number), None)
            if found is not None:
                self._drop(found)

    def waiting(self) -> Sequence[pb.Result]:
        """All kept results, the oldest first."""
        return [kept.result for kept in self._kept.values()]

    def _drop(self, key: tuple[str, int]) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._bytes -= kept.size


# -- State that outlives a connection ----------------------------------------------------------------------------------


class RunnerState:
    """What every connection shares, and the current connection."""

    def __init__(self, docked: Docked, options: RunnerOptions) -> None:
        settings = options.settings
        self.docked = docked
        self.options = options
        self.instance_id = settings.instance_id or secrets.token_hex(8)
        self.unacknowledged = UnacknowledgedResults(most=settings.kept_results, most_bytes=settings.kept_bytes)
        self.classes = Classes(docked.use)
        self.operations = OperationRunner(docked.driver, self.classes, places=settings.max_in_flight)
        self.current: Session | None = None
        self.session_id = ""
        self.since: float | None = None  # the event loop's time; None: no hub has admitted this driver
        self.connected = asyncio.Event()
        self.connections = 0

    def attach(self, session: Session) -> None:
        """Makes this the connection that sends results."""
        self.current = session

    def welcomed(self, session_id: str) -> None:
        """Records that the hub has admitted the driver: classes can be fetched."""
        self.classes.source = self.current
        self.session_id = session_id
        self.since = asyncio.get_running_loop().time()
        self.connections += 1
        self.connected.set()
        log.info("connected to %s: serving %s", self.options.address, self.options.key)

    def detach(self) -> float:
        """Ends the connection; returns the seconds that it lasted."""
        since, self.since = self.since, None
        self.current = self.classes.source = None
        self.session_id = ""
        self.connected.clear()
        self.operations.abandon()
        return 0.0 if since is None else asyncio.get_running_loop().time() - since


# -- One connection ----------------------------------------------------------------------------------------------------


_FAREWELL: Final = 2.0  # seconds to wait for the hub's half-close


class Session(Source):
    """One connection: what both versions of the protocol do alike."""

    def __init__(self, dialled: Dialled, state: RunnerState, path: str) -> None:
        """``path`` is the call that opens the stream of operations."""
        self._dialled = dialled
        self._state = state
        self._stream = dialled.stream(path)
        self._outbox = Outbox(self._stream)
        self._heard = 0.0  # the event loop's time of the hub's latest message
        self._is_over = asyncio.Event()

    @abstractmethod
    async def run(self) -> End:
        """Runs until the connection ends; raises AioRpcError when gRPC ended it."""

    @abstractmethod
    def announce(self, reason: str) -> None:
        """Announces that the driver is leaving."""

    @abstractmethod
    def _take(self, data: bytes) -> None:
        """Handles one message of the hub; raises DecodeError when it is none."""

    async def leave(self) -> None:
        """Half-closes after all queued messages, and gives the hub a moment to end the stream."""
        self._outbox.end()
        try:
            async with asyncio.timeout(_FAREWELL):
                await self._is_over.wait()
        except TimeoutError:
            log.debug("the hub did not close the stream")

    async def _serve(self, patience: float, *others: Coroutine[Any, Any, End]) -> End:
        """Reads and writes until one of them, or of ``others``, ends. A write may block for ``patience`` seconds."""
        self._heard = asyncio.get_running_loop().time()
        try:
            return await first_of(self._read(), self._outbox.write(), self._outbox.watch(patience), *others)
        finally:
            self._is_over.set()

    async def _read(self) -> End:
        while True:
            await self._outbox.room()
            data = await self._stream.read()
            if not isinstance(data, bytes):  # the end of the stream
                return End(reason="the hub ended the connection")
            self._heard = asyncio.get_running_loop().time()
            try:
                self._take(data)
            except DecodeError:
                log.warning("the hub sent something that is no message")
