"""Dials the hub, reconnects with backoff, and stops on request."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final

import grpc.aio
from google.protobuf.message import DecodeError

from cloudgraft.dock.runner.adapter import Docked, ids_are_provider_ids
from cloudgraft.dock.runner.connection import Dialled, End, dial, why
from cloudgraft.dock.runner.options import RunnerOptions, RunnerSettings, Speech, Tls
from cloudgraft.dock.runner.session_v0 import ByProviderId, SessionV0
from cloudgraft.dock.runner.session_v1 import SessionV1
from cloudgraft.dock.runner.state import RunnerState, Session
from cloudgraft.sdk.blocking import BlockingDriver
from cloudgraft.sdk.common.backoff import Backoff
from cloudgraft.sdk.common.event_loop import contained
from cloudgraft.sdk.driver import Driver
from cloudgraft.sdk.errors import CloudgraftError, PreconditionError
from cloudgraft.sdk.secrecy import redacted
from cloudgraft.server.signals import StopSignals

log = logging.getLogger("cloudgraft.dock")

_CLOSE: Final = 5.0  # seconds for the driver's own close()
_MOST_ASKED: Final = 300.0  # seconds; a hub that asks for more is looked for all the same


def backoff_of(settings: RunnerSettings, chance: Callable[[], float] = random.random) -> Backoff:
    """Full jitter: a hub that comes back after an outage is found by its drivers one after the other, not at once."""
    return Backoff(
        first=settings.first_wait,
        longest=settings.longest_wait,
        spread=1.0,
        stable_after=settings.stable_after,
        chance=chance,
    )


def wait_after(end: End, lasted: float, backoff: Backoff) -> float:
    """The seconds until the hub is dialled again, after a connection that lasted so long."""
    if end.was_drained:
        backoff.reset()
    return min(end.retry_after, _MOST_ASKED) + backoff.after(lasted)


class DockRunner:
    """Keeps one driver connected to one hub, from :meth:`start` to :meth:`stop`.

    Operations that run when a connection is lost continue; the next connection sends their results.
    """

    def __init__(self, driver: Driver | BlockingDriver, options: RunnerOptions) -> None:
        """``driver`` is async or blocking; a blocking one runs in threads."""
        settings = options.settings
        docked = Docked(driver, places=settings.max_in_flight)
        if settings.speech is not Speech.V1 and not ids_are_provider_ids(driver):
            docked.driver = ByProviderId(docked.driver)
        self.options = options
        self._docked = docked
        self._state = RunnerState(docked, options)
        self._backoff = backoff_of(settings)
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    @property
    def is_connected(self) -> bool:
        """Whether a hub has admitted this driver on the current connection."""
        return self._state.connected.is_set()

    @property
    def connections(self) -> int:
        """How many times a hub has admitted this driver."""
        return self._state.connections

    @property
    def session_id(self) -> str:
        """The hub's id for the connection; empty without one, and in v0."""
        return self._state.session_id

    @property
    def in_flight(self) -> int:
        """The number of running operations."""
        return len(self._state.operations)

    @property
    def unacknowledged(self) -> int:
        """The number of results that no hub has acknowledged yet."""
        return len(self._state.unacknowledged)

    async def start(self) -> None:
        """Starts the driver, and begins to connect. Retries until the hub is there."""
        if self._task is not None or self._is_stopped:
            raise PreconditionError("a runner is started once; make another one")
        await self._docked.driver.start()
        self._task = asyncio.create_task(self._stay_connected(), name=f"dock {self.options.address}")

    async def wait_connected(self) -> None:
        """Waits until a hub has admitted this driver."""
        await self._state.connected.wait()

    async def stop(self, grace: float | None = None) -> None:
        """Rejects new operations, waits at most ``grace`` seconds for running ones, and closes everything.

        Idempotent. A thread that hangs in the driver's code is left behind; it does not keep the program alive.
        """
        if self._is_stopped:
            return
        self._is_stopped = True
        state = self._state
        state.operations.refuse("the driver stops")
        if state.current is not None and self.is_connected:
            state.current.announce("the driver stops")
        try:
            if not await state.operations.idle(self.options.settings.grace if grace is None else grace):
                log.warning("%d operations are given up: the grace is over", self.in_flight)
            if state.current is not None and self.is_connected:
                await state.current.leave()
        finally:
            await self._end()

    async def _end(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._state.operations.close()
        self._state.classes.close()
        closing = asyncio.create_task(contained(self._docked.driver.close()))
        try:
            # not a timeout(): it would wait for a close() that never ends
            await asyncio.wait({closing}, timeout=_CLOSE)
        finally:
            is_closed = closing.done()
            closing.cancel()
        error = closing.exception() if is_closed else TimeoutError(f"it takes longer than {_CLOSE:g} s")
        if error is not None:
            log.warning("the driver's close() failed: %s", redacted(f"{type(error).__name__}: {error}"))

    async def _stay_connected(self) -> None:
        while True:
            end, lasted = await self._connection()
            if self._is_stopped:
                return
            wait = wait_after(end, lasted, self._backoff)
            log.warning("no connection to %s: %s; next try in %.1f s", self.options.address, end.reason, wait)
            await asyncio.sleep(wait)

    async def _connection(self) -> tuple[End, float]:
        """Runs one connection; returns why it ended, and how long it lasted."""
        dialled: Dialled | None = None
        lasted = 0.0
        try:
            dialled = dial(self.options)
            end = await self._serve(dialled)
        except CloudgraftError as error:  # a file that is unusable now
            end = End(reason=error.message)
        except grpc.aio.AioRpcError as error:
            end = End(reason=why(error, is_encrypted=self.options.tls is not None))
        except (DecodeError, asyncio.InvalidStateError, grpc.aio.UsageError) as error:
            # The stream had already ended, or its bytes were not a message.
            end = End(reason=f"the connection broke ({type(error).__name__})")
        except Exception as error:  # noqa: BLE001 - retry after any bug: a driver that stays away is worse
            log.error("unexpected: %s", redacted("".join(traceback.format_exception(error))))  # noqa: TRY400 - redacted
            end = End(reason=f"unexpected {type(error).__name__}: the log has the rest")
        finally:
            lasted = self._state.detach()
            if dialled is not None:
                await dialled.close()
        return end, lasted

    async def _serve(self, dialled: Dialled) -> End:
        is_v1 = self.options.settings.speech is Speech.V1
        session: Session = SessionV1(dialled, self._state) if is_v1 else SessionV0(dialled, self._state)
        return await session.run()


# -- One line for a driver's main() ------------------------------------------------------------------------------------


def run(
    driver: Driver | BlockingDriver,
    *,
    address: str,
    kind: str,
    api_version: str,
    tls: Tls | None = None,
    token_file: Path | str = "",
    settings: RunnerSettings | None = None,
) -> None:
    """Connects a driver to a hub, and serves it until SIGTERM or SIGINT. Blocks; for the main thread of a program.

    ``kind`` and ``api_version`` say which machine classes the driver serves. Without ``tls`` the hub must be on this
    machine. Retries for ever when the hub is away or rejects the driver.
    """
    options = RunnerOptions(
        address=address,
        kind=kind,
        api_version=api_version,
        tls=tls,
        token_file=token_file,
        settings=settings or RunnerSettings(),
    )
    _check_no_loop()
    handler = logging.StreamHandler()
    handler.setFormatter(_WithoutSecrets("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])  # unless logging is configured
    asyncio.run(run_until_told(driver, options))


class _WithoutSecrets(logging.Formatter):
    """Redacts log lines: those of a driver, and exceptions of libraries, may quote credentials."""

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


def _check_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise PreconditionError("run() blocks, and an event loop runs here: await run_until_told(driver, options) instead")


async def run_until_told(driver: Driver | BlockingDriver, options: RunnerOptions) -> None:
    """The same inside an event loop of the main thread, which is the one that receives signals."""
    if threading.current_thread() is not threading.main_thread():
        raise PreconditionError("only the main thread gets signals: in another one use DockRunner, with start and stop")
    runner = DockRunner(driver, options)
    with StopSignals() as signals:
        try:
            await runner.start()
            await signals.wait()
        except asyncio.CancelledError:
            if not signals.while_starting:
                raise
        finally:
            await runner.stop()
