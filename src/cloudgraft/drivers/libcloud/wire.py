"""Makes libcloud's connections for one thread, with our timeouts, CA and record of requests.

Libcloud's defaults are unsafe for a program that buys machines. Timeouts work only in some of its drivers, one
environment variable makes it repeat every POST, another writes all secrets to a file, and TLS checks are configured
once for the whole process. So every class is subclassed for each thread, and its connections are created here: with our
timeouts and our CA, without retries and without a log. They also record requests and responses, since many of
libcloud's errors have lost the status, and some cannot even be printed.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import requests

from cloudgraft.drivers.common.requests_calls import LimitedAdapter

_Library: Any = import_module("libcloud.http").LibcloudConnection  # libcloud has only partial types


@dataclass(slots=True, kw_only=True)
class Exchange:
    """One request, and its response if there was one."""

    is_change: bool  # whether it creates or deletes something
    response: requests.Response | None = None

    @property
    def is_accepted(self) -> bool:
        """Whether it is a change that the cloud has accepted."""
        return self.is_change and self.response is not None and self.response.ok


@dataclass(slots=True, kw_only=True, eq=False)
class Wire:
    """The connections of one thread, and the requests of its current call."""

    connect_timeout: timedelta
    timeout: timedelta
    ca_file: Path | None
    changes: Callable[[requests.PreparedRequest], bool]  # recognizes requests that change something
    route: str = ""  # replaces the host of every request
    exchanges: list[Exchange] = field(default_factory=list, init=False)
    _until: float = field(default=0.0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)  # another thread may close
    # Weak: libcloud creates and drops a session for every token, and its socket must close with it.
    _sessions: weakref.WeakSet[requests.Session] = field(default_factory=weakref.WeakSet, init=False)

    def begin(self, limit: timedelta) -> None:
        """Starts a call with a time limit: libcloud itself would poll for minutes."""
        self._until = time.monotonic() + limit.total_seconds()
        self.exchanges = []

    @property
    def last(self) -> Exchange | None:
        """The last request of this call."""
        return self.exchanges[-1] if self.exchanges else None

    @property
    def response(self) -> requests.Response | None:
        """The response to the last request of this call."""
        return self.exchanges[-1].response if self.exchanges else None

    @property
    def is_accepted(self) -> bool:
        """Whether the cloud has accepted a change in this call."""
        return any(exchange.is_accepted for exchange in self.exchanges)

    def close(self) -> None:
        """Closes idle connections."""
        with self._lock:
            sessions = list(self._sessions)
        for session in sessions:
            session.close()

    def connection(self, *args: Any, **kwargs: Any) -> Any:
        """Creates a connection, in place of libcloud's class."""
        made = _Library(*args, **kwargs)
        made.verify, made.ca_cert = True, str(self.ca_file) if self.ca_file is not None else None
        made.session.auth = _unchanged
        for scheme in ("https://", "http://"):
            made.session.mount(scheme, _Adapter(self))
        with self._lock:
            self._sessions.add(made.session)
        return made

    def timeouts(self) -> tuple[float, float]:
        """Returns the connect and read timeouts of a request that is sent now; raises after the call's limit."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise requests.Timeout("the time for this call is over")
        return min(self.connect_timeout.total_seconds(), left), min(self.timeout.total_seconds(), left)

    def routed(self, url: str) -> str:
        """Returns the URL to which a request is really sent."""
        if not self.route:
            return url
        parts, route = urlsplit(url), urlsplit(self.route)
        return urlunsplit((route.scheme, route.netloc, route.path.rstrip("/") + parts.path, parts.query, ""))


def _unchanged(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Keeps requests from replacing the login with an entry of ~/.netrc."""
    return request


class _Adapter(LimitedAdapter):
    """Sends the requests of a wire, each once."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(max_retries=0)
        self._wire = wire

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,  # noqa: FBT001, FBT002 - as the base class has it
        timeout: Any = None,
        verify: Any = True,  # noqa: FBT002 - as the base class has it
        cert: Any = None,
        proxies: Any = None,
    ) -> requests.Response:
        timeouts = self._wire.timeouts()
        exchange = Exchange(is_change=self._wire.changes(request))
        self._wire.exchanges.append(exchange)
        request.url = self._wire.routed(request.url or "")
        response = super().send(request, stream, timeouts, verify, cert, proxies)
        if "charset" not in response.headers.get("Content-Type", ""):
            response.encoding = "utf-8"  # requests would decode text, and so XML, as Latin-1
        exchange.response = response
        return response


def _once(**_: object) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Replaces libcloud's retries: one attempt."""
    return lambda function: function


def wired(driver: type, wire: Wire, **more: object) -> Any:
    """Derives a class of libcloud's drivers for one thread. ``more`` replaces attributes of the class."""
    connecting = {"conn_class": staticmethod(wire.connection), "retryCls": staticmethod(_once)}
    parts: dict[str, object] = {}
    for name in dir(driver):
        if name.endswith("onnectionCls"):
            connection = getattr(driver, name)
            parts[name] = type(connection.__name__, (connection,), dict(connecting))
    return type(driver.__name__, (driver,), {**parts, **more})
