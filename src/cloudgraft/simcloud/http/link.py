"""Calls a simulated cloud in another process: HTTP, with one connection per thread.

The error depends on what may have been done. Nothing was sent: UnavailableError. A change was sent and the answer is
missing, late, or a 500: DeadlineError, because the outcome is unknown. A read that fails has changed nothing.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import selectors
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from cloudgraft.sdk.common.event_loop import BlockingPool
from cloudgraft.sdk.driver import Machine, Price, Shape
from cloudgraft.sdk.errors import (
    CloudgraftError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    PreconditionError,
    RateLimitedError,
    UnavailableError,
    error_from_slug,
)
from cloudgraft.simcloud.fields import Fields, is_number
from cloudgraft.simcloud.http import json_forms as forms
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.simcloud.records import Order, Page

A = TypeVar("A")
T = TypeVar("T")
_THREADS: Final = 10  # the engine's concurrent calls, and a list
_LARGEST: Final = 1 << 26  # bytes of an answer
_TICK: Final = 1e-5  # seconds: a datetime keeps only microseconds of the time that was sent


class HttpLink:
    """Calls to the process at ``options.url``."""

    def __init__(self, options: SimulatedOptions) -> None:
        self._url = options.url
        parts = urlsplit(options.url)
        self._host = parts.hostname or ""
        self._port = parts.port or 80
        self._timeout = options.timeout.total_seconds()
        self._pool = BlockingPool("simulated", threads=_THREADS)
        self._own = threading.local()
        self._lock = threading.Lock()
        self._connections: list[http.client.HTTPConnection] = []
        self._closed = False
        self._known = _KnownMachines()

    async def create(self, order: Order) -> Machine:
        """See :meth:`Link.create`."""
        body = json.dumps(forms.order_to_json(order)).encode()
        answer = await self._pool.run(self._call, "POST", "/machines", body)
        return self._understood(forms.machine_from_json, answer)

    async def delete(self, machine_id: str, client: str) -> None:
        """See :meth:`Link.delete`."""
        await self._pool.run(self._call, "DELETE", f"/machines/{quote(machine_id, safe='')}", None, client)

    async def mark(self, machine_id: str, tags: Mapping[str, str | None]) -> None:
        """See :meth:`Link.mark`."""
        body = json.dumps({"tags": dict(tags)}).encode()
        await self._pool.run(self._call, "PATCH", f"/machines/{quote(machine_id, safe='')}", body)

    async def page(self, limit: int, cursor: str) -> Page[Machine]:
        """See :meth:`Link.page`."""
        query = urlencode({"limit": limit, "cursor": cursor})
        if not cursor:
            self._known = _KnownMachines(self._known)
        understand = functools.partial(forms.page_from_json, read=self._known.read)
        return await self._pool.run(self._read, f"/machines?{query}", understand)

    async def shapes(self) -> Sequence[Shape]:
        """See :meth:`Link.shapes`."""
        return await self._pool.run(self._read, "/shapes", _many("shapes", forms.shape_from_json))

    async def prices(self) -> Sequence[Price]:
        """See :meth:`Link.prices`."""
        return await self._pool.run(self._read, "/prices", _many("prices", forms.price_from_json))

    async def close(self) -> None:
        """Closes all connections; calls that still wait for an answer fail."""
        self._pool.close()
        with self._lock:
            self._closed = True
            connections, self._connections = self._connections, []
        for connection in connections:
            _shut(connection)

    # -- in a thread of the pool ---------------------------------------------------------------------------------------

    def _read(self, path: str, understand: Callable[[object], T]) -> T:
        # In the thread too: a long page takes a while to understand.
        return self._understood(understand, self._call("GET", path))

    def _call(self, method: str, path: str, body: bytes | None = None, client: str = "") -> object:
        connection = self._connected()
        is_change = method != "GET"
        headers = {"Content-Type": "application/json"} if body else {}
        if client:
            headers[forms.CLIENT_HEADER] = client
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            data = _body(response)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._no_answer(error, is_change=is_change) from error
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise self._refusal(response.status, data, is_change=is_change)
        return self._understood(json.loads, data)

    def _connected(self) -> http.client.HTTPConnection:
        """This thread's connection, made again when the other side closed it."""
        connection: http.client.HTTPConnection | None = getattr(self._own, "connection", None)
        if connection is None:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
            connection.auto_open = 0  # one that was closed meanwhile must not open itself again
            self._own.connection = connection
            with self._lock:
                if self._closed:
                    raise UnavailableError("the driver of the simulated cloud is closed")
                self._connections.append(connection)
        if _is_stale(connection.sock):
            connection.close()
            try:
                connection.connect()
            except OSError as error:
                connection.close()
                raise UnavailableError(
                    f"no simulated cloud answers at {self._url} ({error.strerror or error}): is `cloudgraft simcloud` "
                    "running there?"
                ) from error
            self._check_open(connection)
        return connection

    def _check_open(self, connection: http.client.HTTPConnection) -> None:
        """Closes a connection that was opened while :meth:`close` closed the others."""
        with self._lock:
            if not self._closed:
                return
        connection.close()
        raise UnavailableError("the driver of the simulated cloud is closed")

    # -- errors --------------------------------------------------------------------------------------------------------

    def _no_answer(self, error: Exception, *, is_change: bool) -> CloudgraftError:
        if isinstance(error, TimeoutError):
            return DeadlineError(f"the simulated cloud at {self._url} did not answer within {self._timeout:g} s")
        message = f"the simulated cloud at {self._url} closed the connection without an answer"
        return DeadlineError(f"{message}; whether it was done is not known") if is_change else UnavailableError(message)

    def _refusal(self, status: int, data: bytes, *, is_change: bool) -> CloudgraftError:
        code, message, retry_after = _explained(data)
        # The cloud itself says when nothing was done; a 503 of something in between does not know.
        if status >= 500 and (not is_change or code == UnavailableError.slug):
            return UnavailableError(message or f"the simulated cloud answered {status}", retry_after=retry_after)
        if status >= 500:
            return DeadlineError(f"the simulated cloud answered {status}; whether it was done is not known")
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            return RateLimitedError(message or "the simulated cloud asks for fewer calls", retry_after=retry_after)
        if known := error_from_slug(code):
            return known(message, retry_after=retry_after)
        return PreconditionError(f"{self._url} answered {status}: is it really a `cloudgraft simcloud`?")

    def _understood(self, read: Callable[[A], T], data: A) -> T:
        try:
            return read(data)
        except (ValueError, RecursionError, InvalidArgumentError) as error:
            raise InternalError(
                f"the answer of {self._url} cannot be understood ({str(error)[:200]}): is it a `cloudgraft simcloud`?"
            ) from error


class _KnownMachines:
    """The machines of one list: those that look as in the list before are not parsed again.

    Of thousands of machines few change from list to list, and to check them all each time would take the thread that
    serves the autoscaler a part of its time. So would keeping what was sent: the garbage collector walks through it.
    """

    def __init__(self, before: _KnownMachines | None = None) -> None:
        self._before = {} if before is None else before._read  # noqa: SLF001 - the same class
        self._read: dict[object, Machine] = {}

    def read(self, data: object) -> Machine:
        key = data.get("machineId") if isinstance(data, dict) else None
        known = self._before.get(key) if isinstance(key, str) else None
        machine = known if known is not None and _is_same(known, data) else forms.machine_from_json(data)
        self._read[machine.machine_id] = machine
        return machine


def _is_same(known: Machine, data: Any) -> bool:
    """Whether a machine of that id is still what it was, and not another one that was given its id."""
    is_same: bool = (
        known.name == data.get("name")
        and known.provider_id == data.get("providerId")
        and known.state.value == data.get("state")
        and known.reason == data.get("reason", "")
        and known.tags == data.get("tags", {})
        and known.created_at is not None
        and is_number(created := data.get("createdAt"))
        and abs(known.created_at.timestamp() - created) < _TICK
    )
    return is_same


def _body(response: http.client.HTTPResponse) -> bytes:
    """All of it: one that ends too early raises, which a read of a part would not."""
    if response.length is None or response.length > _LARGEST:
        raise http.client.HTTPException("the answer has no length, or is too large")
    return response.read()


def _many(key: str, read: Callable[[object], T]) -> Callable[[object], list[T]]:
    def read_all(data: object) -> list[T]:
        found = Fields(data, "answer").take(key)
        if not isinstance(found, list):
            raise InvalidArgumentError(f"answer.{key} is not a list")
        return [read(item) for item in found]

    return read_all


def _explained(data: bytes) -> tuple[str, str, float | None]:
    """The code, the message and the retry-after of an error's body; empty when it is none of ours."""
    try:
        error = Fields(Fields(json.loads(data), "answer").take("error"), "error")
        code, message, wait = error.text("code"), error.text("message", longest=2000), error.take("retryAfter")
    except (ValueError, RecursionError, InvalidArgumentError):
        return "", "", None
    return code, message, float(wait) if is_number(wait) and 0 <= wait < 1e6 else None


def _is_stale(sock: socket.socket | None) -> bool:
    """Whether the other side has closed: between two calls there is nothing to read but the end.

    Another thread may close it at any moment, which counts as well.
    """
    with selectors.DefaultSelector() as selector:
        try:
            selector.register(sock, selectors.EVENT_READ)  # type: ignore[arg-type]  # None is a ValueError
            return bool(selector.select(timeout=0))
        except (ValueError, OSError):
            return True


def _shut(connection: http.client.HTTPConnection) -> None:
    """Ends a connection that another thread may be waiting on."""
    sock = connection.sock
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
    connection.close()
