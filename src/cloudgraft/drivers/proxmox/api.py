"""Calls of Proxmox's API, through proxmoxer.

Each request is made once. An answer is judged before proxmoxer reads it, since that keeps neither its headers nor
whether it was JSON at all. When nothing was done because a node is away, the next address is tried.
"""

from __future__ import annotations

import io
import json
import logging
import threading
from http.cookiejar import DefaultCookiePolicy
from typing import Any, Final

import requests
from proxmoxer.backends.https import JsonSerializer, ProxmoxHttpSession
from proxmoxer.core import ProxmoxResource

from cloudgraft.drivers.common.requests_failures import error_of_request
from cloudgraft.drivers.common.requests_limits import limit_answers
from cloudgraft.drivers.proxmox.errors import error_of_answer
from cloudgraft.drivers.proxmox.login import Login
from cloudgraft.drivers.proxmox.options import ProxmoxOptions
from cloudgraft.sdk.errors import AuthenticationError, DeadlineError, UnavailableError

__all__ = ["Api", "Json"]

Json = dict[str, Any]
_NO_COOKIES: Final = DefaultCookiePolicy(allowed_domains=[])  # what a server sets would take our ticket's place

log: Final = logging.getLogger("cloudgraft.drivers")


class Api:
    """One cluster. Calls may be made by several threads at once."""

    def __init__(self, options: ProxmoxOptions) -> None:
        self._bases = [f"{url.rstrip('/')}/api2/json" for url in (options.url, *options.fallback_urls)]
        self._first = 0  # of the addresses, the one that answered last
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
        """Looks whether there is a secret; no call is made."""
        self._login.check()

    def close(self) -> None:
        """Closes the connections."""
        with self._lock:
            for session in self._sessions:
                session.close()

    def get(self, path: str, what: str, **query: object) -> Any:
        """Reads something."""
        return self._call("get", path, what, query)

    def post(self, path: str, what: str, **data: object) -> Any:
        """Changes something, or raises; DeadlineError when nobody knows whether it was done."""
        return self._call("post", path, what, data)

    def put(self, path: str, what: str, **data: object) -> Any:
        """The same, for the few things that are changed so."""
        return self._call("put", path, what, data)

    def delete(self, path: str, what: str, **query: object) -> Any:
        """Deletes something."""
        return self._call("delete", path, what, query)

    def upload(self, path: str, what: str, name: str, content: bytes) -> Any:
        """Stores an ISO image."""
        return self._call("post", path, what, {"content": "iso"}, file=(name, content))

    def _call(
        self, verb: str, path: str, what: str, data: dict[str, object], file: tuple[str, bytes] | None = None
    ) -> Any:
        first = self._first
        for step in range(len(self._bases)):
            index = (first + step) % len(self._bases)
            try:
                answer = self._call_at(self._bases[index], verb, path, what, data, file)
            except UnavailableError as error:
                if step + 1 == len(self._bases):
                    raise
                log.debug("another node is asked", extra={"error": error.message})
                continue
            self._first = index
            return answer
        raise AssertionError("there is always one address")

    def _call_at(
        self, base: str, verb: str, path: str, what: str, data: dict[str, object], file: tuple[str, bytes] | None
    ) -> Any:
        auth = self._login.auth(base, self._network)
        try:
            return self._sent(base, verb, path, what, data, file, auth)
        except AuthenticationError:  # then nothing was done, and it may be done again
            if not self._login.refused(auth):
                raise
        return self._sent(base, verb, path, what, data, file, self._login.auth(base, self._network))

    def _sent(
        self,
        base: str,
        verb: str,
        path: str,
        what: str,
        data: dict[str, object],
        file: tuple[str, bytes] | None,
        auth: Any,
    ) -> Any:
        session = self._session()
        session.auth = auth
        self._own.what = what
        resource = ProxmoxResource(base_url=base, session=session, serializer=JsonSerializer())
        given = {**data, "filename": _File(*file)} if file is not None else dict(data)
        try:
            answer = getattr(resource(path), verb)(**given)
        except requests.RequestException as error:
            raise error_of_request(error, what, is_change=verb != "get") from None
        if hasattr(auth, "ticket"):
            auth.ticket.is_fresh = False
        return answer

    def _session(self) -> ProxmoxHttpSession:
        """One for each thread, since they are not made to be shared."""
        session: ProxmoxHttpSession | None = getattr(self._own, "session", None)
        if session is None:
            session = self._own.session = ProxmoxHttpSession()
            session.cookies.set_policy(_NO_COOKIES)
            limit_answers(session)
            session.hooks["response"].append(self._judge)
            with self._lock:
                self._sessions.append(session)
        return session

    def _judge(self, response: requests.Response, *_args: object, **_more: object) -> None:
        """Raises our own errors for whatever is not a whole answer of Proxmox's."""
        what, is_change = self._own.what, response.request.method != "GET"
        if not 200 <= response.status_code < 300:
            raise error_of_answer(
                what,
                response.status_code,
                response.reason or "",
                response.headers,
                response.content,
                is_change=is_change,
            )
        try:
            is_whole = "data" in json.loads(response.content)
        except (ValueError, TypeError):
            is_whole = False
        if not is_whole:
            raise (DeadlineError if is_change else UnavailableError)(f"{what}: what was answered is not Proxmox's JSON")


class _File(io.BytesIO):
    """A file in memory, with the name that it is to be stored under."""

    def __init__(self, name: str, content: bytes) -> None:
        super().__init__(content)
        self.name = name
