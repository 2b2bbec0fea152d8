"""Calls Hetzner's API through its own Python client.

The driver uses only the client's requests. By default the client repeats requests after a timeout or a conflict, even a
create, which would hide an unknown outcome. So it gets a session that sends each request once and raises our errors,
which the client passes on. The client's models are not used: creating one changes the process-wide filters of
``warnings``, which threads must not do, and reading an incomplete one makes further calls.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

import requests
from hcloud import APIException, Client

from cloudgraft.drivers.common.requests_calls import error_of_request, limit_answers
from cloudgraft.drivers.common.secrets import SecretFile
from cloudgraft.drivers.hetzner.errors import error_of_answer
from cloudgraft.drivers.hetzner.options import HetznerOptions
from cloudgraft.sdk.errors import DeadlineError, InternalError, PreconditionError, UnavailableError

Json = dict[str, Any]
_SHORTEST_TOKEN: Final = 16  # characters


class Api:
    """One project. Calls may be made by several threads at once."""

    def __init__(self, options: HetznerOptions) -> None:
        self._endpoint = options.endpoint.rstrip("/")
        self._timeout = (options.connect_timeout.total_seconds(), options.timeout.total_seconds())
        self._token = SecretFile(path=options.token_file, option="tokenFile", shortest=_SHORTEST_TOKEN)
        self._sessions = _ThreadSessions()
        self._lock = threading.Lock()
        self._made: tuple[str, Client] | None = None  # the client and its token

    def start(self) -> None:
        """Checks that there is a token; makes no call."""
        self._client()

    def close(self) -> None:
        """Closes idle connections."""
        self._sessions.close()

    def get(self, path: str, what: str, **query: object) -> Json:
        """Reads something."""
        return self._call("GET", path, what, params=query)

    def post(self, path: str, what: str, body: Mapping[str, object]) -> Json:
        """Creates something, or raises; DeadlineError when the outcome is unknown."""
        return self._call("POST", path, what, json=body)

    def put(self, path: str, what: str, body: Mapping[str, object]) -> Json:
        """Changes something, or raises; DeadlineError when the outcome is unknown."""
        return self._call("PUT", path, what, json=body)

    def delete(self, path: str, what: str) -> Json:
        """Deletes something; raises NotFoundError when it does not exist."""
        return self._call("DELETE", path, what)

    def _call(self, method: str, path: str, what: str, **more: object) -> Json:
        try:
            answer = self._client().request(method, path, what=what, **more)
        except APIException as error:  # a response that is not JSON; the session raises all other errors
            why = f"{what}: the response is not JSON: {error.message}"
            raise (UnavailableError if method == "GET" else DeadlineError)(why) from None
        if not isinstance(answer, dict):
            raise InternalError(f"{what}: the response is not a JSON object")
        return answer

    def _client(self) -> Client:
        """Returns the client; creates a new one when the token in the file changes."""
        with self._lock:
            token = self._token.read()
            if self._made is None or self._made[0] != token:
                self._made = token, self._new_client(token)
            return self._made[1]

    def _new_client(self, token: str) -> Client:
        client = Client(token, self._endpoint, application_name="cloudgraft", timeout=self._timeout)
        base = client._client  # noqa: SLF001 - there is no public way to turn retries off
        if not isinstance(getattr(base, "_session", None), requests.Session):
            raise PreconditionError("this release of hcloud is not supported: its retries cannot be turned off")
        base._session = self._sessions  # type: ignore[assignment]  # noqa: SLF001 - it only ever calls request()
        return client


class _ThreadSessions:
    """Replaces a session of requests: one for each thread, since sessions are not thread-safe."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._lock = threading.Lock()
        self._all: list[requests.Session] = []

    def request(self, method: str, url: str, *, what: str, **more: Any) -> requests.Response:
        """Sends the request once; raises our own errors unless it succeeds."""
        is_change = method != "GET"
        try:
            response = self._session().request(method, url, allow_redirects=False, **more)
        except requests.RequestException as error:
            raise error_of_request(error, what, is_change=is_change) from None
        if not 200 <= response.status_code < 300:
            status, headers, body = response.status_code, response.headers, response.content
            raise error_of_answer(what, status, headers, body, is_change=is_change)
        return response

    def close(self) -> None:
        with self._lock:
            for session in self._all:
                session.close()

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._own, "session", None)
        if session is None:
            session = self._own.session = requests.Session()
            session.auth = _unchanged
            limit_answers(session)
            with self._lock:
                self._all.append(session)
        return session


def _unchanged(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Keeps requests from replacing the token with an entry of ~/.netrc."""
    return request
