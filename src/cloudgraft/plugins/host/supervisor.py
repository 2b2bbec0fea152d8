"""Keeps one plugin running: starts it, checks its health, restarts it, and stops it."""

from __future__ import annotations

import asyncio
import enum
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

from cloudgraft.plugins.handshake import PluginError
from cloudgraft.plugins.host.connection import Connection, connect
from cloudgraft.plugins.host.output import OutputLog, follow_go_output
from cloudgraft.plugins.host.process import CannotStartError, Child, PluginSpec, Timing, launch
from cloudgraft.sdk.common.backoff import Backoff

# -- Health checks -----------------------------------------------------------------------------------------------------


_METHOD: Final = "/grpc.health.v1.Health/Check"
# go-plugin's plugins answer for "plugin"; others for the whole server, whose name is empty.
_SERVICES: Final = ("plugin", "")


class HealthProbe:
    """Checks one channel by gRPC's health service, or by simpler means. Remembers which of them the plugin supports."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_METHOD)
        self._services = list(_SERVICES)

    async def check(self, timeout: float) -> None:  # noqa: ASYNC109 - it is passed on to gRPC
        """Returns when the plugin is healthy; raises :class:`PluginError` that says why it is not."""
        while self._services:
            try:
                answer = await self._ask(_request(self._services[0]), timeout=timeout)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    self._services.pop(0)
                elif error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    self._services.clear()
                else:
                    raise PluginError(f"{error.code().name}: {error.details()}") from error
            else:
                _judge(answer)
                return
        await self._check_connection(timeout)

    async def _check_connection(self, timeout: float) -> None:  # noqa: ASYNC109 - as above
        try:
            async with asyncio.timeout(timeout):
                while (state := self._channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
                    await self._channel.wait_for_state_change(state)
        except TimeoutError:
            raise PluginError(f"no connection within {timeout:g} s") from None


def _request(service: str) -> bytes:
    return bytes(health_pb2.HealthCheckRequest(service=service).SerializeToString())


def _judge(answer: bytes) -> None:
    status = health_pb2.HealthCheckResponse.FromString(answer).status
    if status != health_pb2.HealthCheckResponse.SERVING:
        raise PluginError(f"it says of itself: {health_pb2.HealthCheckResponse.ServingStatus.Name(status)}")


# -- The supervisor ----------------------------------------------------------------------------------------------------


log = logging.getLogger("cloudgraft.plugins")

_BETWEEN_FIRST_TRIES = 0.1  # seconds; some plugins print their line shortly before they listen


class PluginState(enum.Enum):
    """The lifecycle states of a plugin."""

    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    BACKING_OFF = "backing off"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginStatus:
    """The status of a plugin at one moment."""

    state: PluginState = PluginState.STOPPED
    pid: int | None = None  # of the plugin itself, while there is one
    restarts: int = 0  # since the first start
    last_error: str = ""  # why it is not running, or why it last was not
    retry_in: float = 0.0  # seconds of the current backoff


class Supervisor:
    """Keeps one plugin running from :meth:`start` to :meth:`stop`.

    Each run has its own connection: call :meth:`connection` for each call, and keep none.
    """

    def __init__(
        self, spec: PluginSpec, *, timing: Timing | None = None, jitter: Callable[[], float] = random.random
    ) -> None:
        """Starts nothing yet. ``jitter`` returns numbers from 0 to 1."""
        self.spec = spec
        self.name = f"the plugin {spec.name!r}"
        self._timing = timing or Timing()
        self._backoff = Backoff(
            first=self._timing.backoff_first,
            longest=self._timing.backoff_max,
            spread=0.25,  # many plugins of one host should not move as one
            stable_after=self._timing.stable_after,
            chance=jitter,
        )
        self._log = OutputLog(spec.name)
        self._status = PluginStatus()
        self._changed = asyncio.Condition()
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] | None = None

    @property
    def status(self) -> PluginStatus:
        """The plugin's current status."""
        return self._status

    def connection(self) -> Connection:
        """Returns the connection to the current run; raises :class:`PluginError` at once while there is none."""
        if self._connection is None:
            why = f": {self._status.last_error}" if self._status.last_error else ""
            raise PluginError(f"{self.name} is {self._status.state.value}{why}")
        return self._connection

    def channel(self) -> grpc.aio.Channel:
        """Returns the channel of that connection."""
        return self.connection().channel

    async def start(self) -> None:
        """Starts the plugin and waits a limited time until its first run is ready or fails.

        A slow start continues in the background, and a failed one is retried there, so neither is an error here. A
        command that cannot be executed at all is one (:class:`CannotStartError`).
        """
        if self._task is not None:
            return
        self._first = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._supervise(), name=f"plugin {self.spec.name}")
        try:
            await asyncio.wait({self._first}, timeout=self._timing.first_run)
            if self._first.done():
                self._first.result()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Ends the plugin and all its descendants. Bounded: a process that does not end by itself is killed."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})  # unlike `await task`, this does not cancel it when we are cancelled
            self._first_run_ended(CannotStartError("it was stopped before it ran"))
            await self._set(replace(self._status, state=PluginState.STOPPED, pid=None, retry_in=0.0))

    async def wait_for(self, condition: Callable[[PluginStatus], bool]) -> PluginStatus:
        """Waits until the status fulfils the condition; returns that status."""
        async with self._changed:
            await self._changed.wait_for(lambda: condition(self._status))
            return self._status

    async def _supervise(self) -> None:
        while True:
            started = time.monotonic()
            error = await self._run_once()
            seconds = self._backoff.after(time.monotonic() - started)
            log.warning(
                "the plugin %s is started again in %.1f s: %s",
                *(self.spec.name, seconds, error.message),
                extra={"plugin": self.spec.name, "retry_in": seconds, "restarts": self._status.restarts},
            )
            status = replace(self._status, state=PluginState.BACKING_OFF, pid=None, retry_in=seconds)
            await self._set(replace(status, last_error=error.message))
            self._first_run_ended(error)
            await asyncio.sleep(seconds)
            await self._set(replace(self._status, restarts=self._status.restarts + 1))

    async def _run_once(self) -> PluginError:
        """Does one run from start to end; returns why it ended."""
        await self._set(replace(self._status, state=PluginState.STARTING, pid=None, retry_in=0.0))
        try:
            child = await launch(self.spec, self._timing, self._log)
        except PluginError as error:
            return error
        except Exception as error:  # any failure (no memory, no descriptors) may be gone at the next try
            log.exception("a plugin cannot be started", extra={"plugin": self.spec.name})
            return PluginError(f"it cannot be started: {error}")
        try:
            connection = await connect(child.handshake, child.tls, child.directory)
            try:
                return await self._use(child, connection)
            finally:
                self._connection = None
                # In this order: a call to a plugin that is gone fails, a call on a closed channel is cancelled.
                await child.stop()
                await connection.close()
        finally:
            await child.stop()

    async def _use(self, child: Child, connection: Connection) -> PluginError:
        ended = asyncio.create_task(child.wait())
        watch = asyncio.create_task(self._watch(child, connection))
        output = asyncio.create_task(follow_go_output(connection.channel, self._log))
        try:
            await asyncio.wait({ended, watch}, return_when=asyncio.FIRST_COMPLETED)
            return PluginError(f"it {ended.result()}") if ended.done() else watch.result()
        finally:
            for task in (ended, watch, output):
                task.cancel()
            await asyncio.gather(ended, watch, output, return_exceptions=True)

    async def _watch(self, child: Child, connection: Connection) -> PluginError:
        """Accepts calls once the plugin answers, and returns when it no longer does."""
        probe = HealthProbe(connection.channel)
        try:
            await self._first_answer(probe)
        except PluginError as error:
            return PluginError(
                f"it cannot be reached at {child.handshake.address} with mutual TLS ({error.message}): "
                "it must serve gRPC with the certificate of its handshake, and ask for ours"
            )
        self._connection = connection
        log.info("the plugin %s runs", self.spec.name, extra={"plugin": self.spec.name, "pid": child.pid})
        await self._set(replace(self._status, state=PluginState.RUNNING, pid=child.pid))
        self._first_run_ended(None)
        failures = 0
        while True:
            await asyncio.sleep(self._timing.health_interval)
            try:
                await probe.check(self._timing.health_timeout)
                failures = 0
            except PluginError as error:
                failures += 1
                if failures >= self._timing.health_failures:
                    return PluginError(f"it failed {failures} health checks in a row; the last: {error.message}")

    async def _first_answer(self, probe: HealthProbe) -> None:
        deadline = time.monotonic() + self._timing.connect
        while True:
            try:
                return await probe.check(max(0.01, deadline - time.monotonic()))
            except PluginError:
                if time.monotonic() + _BETWEEN_FIRST_TRIES >= deadline:
                    raise
            await asyncio.sleep(_BETWEEN_FIRST_TRIES)

    def _first_run_ended(self, error: PluginError | None) -> None:
        """Lets start() return: the plugin is ready, will be retried, or can never start."""
        if self._first is None or self._first.done():
            return
        if isinstance(error, CannotStartError):
            self._first.set_exception(CannotStartError(f"{self.name}: {error.message}"))
            self._first.exception()  # retrieved, so that asyncio does not log it: start() may have been cancelled
        else:
            self._first.set_result(None)

    async def _set(self, status: PluginStatus) -> None:
        async with self._changed:
            self._status = status
            self._changed.notify_all()
