"""Calls Proxmox's API through proxmoxer: authentication, requests, and the tasks that they start."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Any, Final

import requests
from proxmoxer.backends.https import JsonSerializer, ProxmoxHTTPApiTokenAuth, ProxmoxHTTPAuthBase, ProxmoxHttpSession
from proxmoxer.core import ProxmoxResource

from cloudgraft.drivers.common.requests_calls import error_of_request, limit_answers
from cloudgraft.drivers.common.secrets import SecretFile
from cloudgraft.drivers.proxmox.errors import error_of_answer, error_of_task
from cloudgraft.drivers.proxmox.options import ProxmoxOptions
from cloudgraft.sdk.common.backoff import Backoff
from cloudgraft.sdk.errors import AuthenticationError, DeadlineError, InternalError, UnavailableError
from cloudgraft.sdk.secrecy import hide, unhide

# -- login -------------------------------------------------------------------------------------------------------------
# A request authenticates with an API token, or with a ticket that a user gets for a password. A ticket is valid for two
# hours. A new one is fetched after one hour, and when a node refuses it.

_RENEWED: Final = 3600.0  # seconds after which a new ticket is fetched


class Login:
    """The credentials for all threads and all nodes of a cluster."""

    def __init__(self, options: ProxmoxOptions) -> None:
        path = options.token_file or options.password_file or Path()  # the options have exactly one of them
        self._secret = SecretFile(path=path, option="tokenFile" if options.token_file else "passwordFile")
        self._options = options
        self._lock = threading.Lock()
        self._ticket: _Ticket | None = None

    def check(self) -> None:
        """Checks that there is a secret."""
        self._secret.read()

    def auth(self, base_url: str, network: dict[str, Any]) -> ProxmoxHTTPAuthBase:
        """Returns the authentication of a request; fetches a ticket if needed. ``network`` holds request options."""
        if self._options.token_file is not None:
            user, _, token = self._options.user.partition("!")
            return ProxmoxHTTPApiTokenAuth(
                user, token, self._secret.read(), timeout=network["timeout"], verify_ssl=network["verify"]
            )
        with self._lock:
            secret = self._secret.read()
            ticket = self._ticket
            if ticket is None or ticket.secret != secret or time.monotonic() - ticket.born > _RENEWED:
                ticket = self._fetched(base_url, network, secret)
                self._replace(ticket)
            return _TicketAuth(ticket, network)

    def refused(self, auth: ProxmoxHTTPAuthBase) -> bool:
        """Handles a refusal by a node; returns True when a new ticket may help."""
        if not isinstance(auth, _TicketAuth) or auth.ticket.is_fresh:
            return False
        with self._lock:
            if self._ticket is auth.ticket:
                self._replace(None)
        return True

    def _fetched(self, base_url: str, network: dict[str, Any], password: str) -> _Ticket:
        what = f"login of {self._options.user}"
        try:
            with requests.Session() as session:
                limit_answers(session)
                response = session.post(
                    f"{base_url}/access/ticket",
                    data={"username": self._options.user, "password": password},
                    allow_redirects=False,
                    **network,
                )
        except requests.RequestException as error:
            raise error_of_request(error, what, is_change=False) from None
        if response.status_code != 200:
            raise error_of_answer(what, response, is_change=False)
        try:
            data = response.json()["data"]
            if data.get("NeedTFA"):
                raise AuthenticationError(f"{what}: it needs a second factor; take an API token, which needs none")
            ticket = _Ticket(str(data["ticket"]), str(data["CSRFPreventionToken"]), password)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UnavailableError(f"{what}: what was answered is no ticket") from None
        hide(ticket.cookie, ticket.csrf)
        return ticket

    def _replace(self, ticket: _Ticket | None) -> None:
        if self._ticket is not None:
            unhide(self._ticket.cookie, self._ticket.csrf)
        self._ticket = ticket


@dataclass(slots=True, eq=False)
class _Ticket:
    cookie: str = field(repr=False)
    csrf: str = field(repr=False)
    secret: str = field(repr=False)  # that it was fetched with
    born: float = field(default_factory=time.monotonic)
    is_fresh: bool = True  # not used yet


class _TicketAuth(ProxmoxHTTPAuthBase):  # type: ignore[misc]  # proxmoxer has no types
    def __init__(self, ticket: _Ticket, network: dict[str, Any]) -> None:
        super().__init__(timeout=network["timeout"], verify_ssl=network["verify"])
        self.ticket = ticket

    def get_cookies(self) -> Any:
        cookies = requests.cookies.RequestsCookieJar()
        cookies["PVEAuthCookie"] = self.ticket.cookie
        return cookies

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if request.headers is None:
            raise InternalError("a request without headers")
        if request.method != "GET":
            request.headers["CSRFPreventionToken"] = self.ticket.csrf
        return request


# -- requests ----------------------------------------------------------------------------------------------------------
# Each request is sent once. A response is checked before proxmoxer reads it, since proxmoxer keeps neither its headers
# nor whether it was JSON. When nothing was done because a node is unavailable, the next address is tried.

_NO_COOKIES: Final = DefaultCookiePolicy(allowed_domains=[])  # a server's cookie would replace our ticket

log: Final = logging.getLogger("cloudgraft.drivers")


class Api:
    """One cluster. Calls may be made by several threads at once."""

    def __init__(self, options: ProxmoxOptions) -> None:
        self._bases = [f"{url.rstrip('/')}/api2/json" for url in (options.url, *options.fallback_urls)]
        self._first = 0  # index of the address that answered last
        verify: bool | str = not options.insecure
        if options.ca_file is not None:
            verify = str(options.ca_file)
        self._network: dict[str, Any] = {
            "timeout": (options.connect_timeout.total_seconds(), options.timeout.total_seconds()),
            "verify": verify,
        }
        self._login = Login(options)
        self._own = threading.local()
        self._lock = threading.Lock()
        self._sessions: list[requests.Session] = []

    def start(self) -> None:
        """Checks that there is a secret; makes no call."""
        self._login.check()

    def close(self) -> None:
        """Closes the connections."""
        with self._lock:
            for session in self._sessions:
                session.close()

    def get(self, path: str, what: str, **query: object) -> Any:
        """Reads something."""
        return self._call("get", path, what, query)

    def config(self, node: str, vmid: int, what: str) -> Mapping[str, Any]:
        """Reads the configuration of a machine."""
        found: Mapping[str, Any] = self.get(f"nodes/{node}/qemu/{vmid}/config", what)
        return found

    def post(self, path: str, what: str, **data: object) -> Any:
        """Changes something, or raises; DeadlineError when the outcome is unknown."""
        return self._call("post", path, what, data)

    def put(self, path: str, what: str, **data: object) -> Any:
        """Like post(), for the few changes that use PUT."""
        return self._call("put", path, what, data)

    def delete(self, path: str, what: str, **query: object) -> Any:
        """Deletes something."""
        return self._call("delete", path, what, query)

    def upload(self, path: str, what: str, name: str, content: bytes) -> Any:
        """Stores an ISO image."""
        return self._call("post", path, what, {"content": "iso"}, file=(name, content))

    def finish(self, answer: object, what: str, clock: Clock) -> None:
        """Waits for the task of a change, if it started one; raises the error of a failed task."""
        if not isinstance(answer, str) or not answer.startswith("UPID:"):
            return  # done at once, without a task
        path = f"nodes/{answer.split(':')[1]}/tasks/{answer}/status"
        clock.rest()
        while True:
            status: object = None
            with contextlib.suppress(UnavailableError):  # the node may answer later: its task continues
                status = self.get(path, what)
            if isinstance(status, dict) and status.get("status") == "stopped":
                _check(what, str(status.get("exitstatus", "")))
                return
            clock.pause(what)

    def _call(
        self, verb: str, path: str, what: str, data: Mapping[str, object], file: tuple[str, bytes] | None = None
    ) -> Any:
        request = _Request(verb, path, what, data, file)
        first = self._first
        for step in range(len(self._bases)):
            index = (first + step) % len(self._bases)
            try:
                answer = self._call_at(self._bases[index], request)
            except UnavailableError as error:
                if step + 1 == len(self._bases):
                    raise
                log.debug("another node is asked", extra={"error": error.message})
                continue
            self._first = index
            return answer
        raise AssertionError("there is always one address")

    def _call_at(self, base: str, request: _Request) -> Any:
        auth = self._login.auth(base, self._network)
        try:
            return self._sent(base, request, auth)
        except AuthenticationError:  # nothing was done, so it may be repeated
            if not self._login.refused(auth):
                raise
        return self._sent(base, request, self._login.auth(base, self._network))

    def _sent(self, base: str, request: _Request, auth: Any) -> Any:
        session = self._session()
        session.auth = auth
        self._own.what = request.what
        resource = ProxmoxResource(base_url=base, session=session, serializer=JsonSerializer())
        try:
            answer = getattr(resource(request.path), request.verb)(**request.given())
        except requests.RequestException as error:
            raise error_of_request(error, request.what, is_change=request.verb != "get") from None
        if hasattr(auth, "ticket"):
            auth.ticket.is_fresh = False
        return answer

    def _session(self) -> ProxmoxHttpSession:
        """Returns the session of this thread: sessions are not thread-safe."""
        session: ProxmoxHttpSession | None = getattr(self._own, "session", None)
        if session is None:
            session = self._own.session = ProxmoxHttpSession()
            session.cookies.set_policy(_NO_COOKIES)
            limit_answers(session)
            session.hooks["response"].append(self._check_response)
            with self._lock:
                self._sessions.append(session)
        return session

    def _check_response(self, response: requests.Response, *_args: object, **_more: object) -> None:
        """Raises our own errors unless the response is a complete one of Proxmox."""
        what, is_change = self._own.what, response.request.method != "GET"
        if not 200 <= response.status_code < 300:
            raise error_of_answer(what, response, is_change=is_change)
        try:
            is_whole = "data" in json.loads(response.content)
        except (ValueError, TypeError):
            is_whole = False
        if not is_whole:
            raise (DeadlineError if is_change else UnavailableError)(f"{what}: what was answered is not Proxmox's JSON")


@dataclass(frozen=True, slots=True)
class _Request:
    verb: str
    path: str
    what: str  # it is for, in messages
    data: Mapping[str, object]
    file: tuple[str, bytes] | None  # its name and content

    def given(self) -> dict[str, object]:
        """Returns the parameters. The file is a new object: one that an earlier try has read is at its end."""
        return {**self.data, "filename": _File(*self.file)} if self.file is not None else {**self.data}


class _File(io.BytesIO):
    """A file in memory, with the name to store it under."""

    def __init__(self, name: str, content: bytes) -> None:
        super().__init__(content)
        self.name = name


# -- tasks -------------------------------------------------------------------------------------------------------------
# Long operations are tasks on a node. :meth:`Api.finish` polls them until they end.

_FIRST_PAUSE: Final = 0.05  # seconds
_LONGEST_PAUSE: Final = 1.0


class Clock:
    """A deadline with growing pauses."""

    def __init__(self, longest: timedelta) -> None:
        self.until = time.monotonic() + longest.total_seconds()
        self._backoff = Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE, factor=1.5)

    def pause(self, what: str) -> None:
        """Waits a little longer each time; raises DeadlineError when no time is left."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise DeadlineError(f"{what}: it takes too long, and goes on; what becomes of it is not known")
        time.sleep(min(self._backoff.next(), left))

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() >= self.until

    def rest(self) -> None:
        """Starts again with short pauses: the next operation may be quick."""
        self._backoff.reset()


def _check(what: str, end: str) -> None:
    if end != "OK" and not end.startswith("WARNINGS"):
        if end in ("", "unexpected status"):  # the node was switched off midway
            raise DeadlineError(f"{what}: its task has ended, and nobody knows how")
        raise error_of_task(what, end)
