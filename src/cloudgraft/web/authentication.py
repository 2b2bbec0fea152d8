"""Identifies callers and their roles, and authenticates, limits and audits every request before a route sees it."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final

from fastapi import Depends, Request
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cloudgraft.certs.token_file import TokenFile, bearer_of, token_hash
from cloudgraft.sdk.common.ratelimit import RepeatLimit
from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    InternalError,
    PermissionDeniedError,
    PreconditionError,
)
from cloudgraft.web.problems import MEDIA_TYPE, problem_of

# -- Callers: identified by certificate, token or both -----------------------------------------------------------------


ANY_ROLE: Final = "*"  # of any caller on this host; without TLS and clients all programs look the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An authenticated caller. ``scope`` limits its role, for example to one cluster; empty: no limit."""

    name: str
    role: str
    scope: str = ""

    def may(self, *roles: str) -> bool:
        """Whether it has one of these roles."""
        return self.role == ANY_ROLE or self.role in roles


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRule:
    """A client of the configuration. With a certificate's name and a token, it must present both."""

    name: str
    role: str
    certificate: str = ""  # a name in its certificate
    token_file: Path | None = None
    scope: str = ""


class Gatekeeper:
    """Identifies callers. Without TLS and without clients every caller is ``local`` and may do anything.

    An index finds one of thousands of clients. Token files are checked once a second: a token that is removed from one
    is revoked after that.
    """

    def __init__(
        self,
        rules: Sequence[ClientRule] = (),
        *,
        secure: bool,
        look_every: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``secure`` says whether the listener has TLS."""
        self._secure = secure
        self._look_every = look_every
        self._clock = clock
        self._looked_at = -math.inf
        self._files: dict[ClientRule, TokenFile] = {}
        self._by_token: dict[bytes, list[ClientRule]] = {}
        self._by_certificate: dict[str, ClientRule] = {}  # clients without a token
        self._has_clients = False
        self.replace(rules)

    def replace(self, rules: Sequence[ClientRule]) -> None:
        """Applies the clients of a new configuration."""
        before = self._files
        self._files = {
            rule: before[rule] if rule in before else TokenFile(rule.token_file, owner=rule.name)
            for rule in rules
            if rule.token_file is not None
        }
        for rule in before.keys() - self._files.keys():
            before[rule].forget()
        self._by_certificate = {r.certificate: r for r in rules if r.token_file is None and r.certificate}
        self._has_clients = bool(rules)
        self._looked_at = -math.inf

    def identify(self, names: Collection[str], token: bytes) -> Caller | None:
        """Returns the caller with these certificate names and this token; None for an unknown one."""
        if not self._secure and not self._has_clients:
            return Caller(name="local", role=ANY_ROLE)
        self._look()
        # Strictest clients first: a caller that can show a token must not match a client that needs none.
        by_token = self._by_token.get(token_hash(token), ()) if token else ()
        both = (rule for rule in by_token if rule.certificate and rule.certificate in names)
        token_alone = (rule for rule in by_token if not rule.certificate)
        certificate_alone = (self._by_certificate[name] for name in names if name in self._by_certificate)
        rule = next(chain(both, token_alone, certificate_alone), None)
        return Caller(name=rule.name, role=rule.role, scope=rule.scope) if rule is not None else None

    def _look(self) -> None:
        now = self._clock()
        if now - self._looked_at < self._look_every:
            return
        self._looked_at = now
        by_token: dict[bytes, list[ClientRule]] = {}
        for rule, file in self._files.items():
            file.look()
            for hashed in file.hashes:
                by_token.setdefault(hashed, []).append(rule)
        self._by_token = by_token


# -- Audit log ---------------------------------------------------------------------------------------------------------
# One JSON object a line. Never has a request's content, which may contain secrets.


_AUDIT_LOG = logging.getLogger("cloudgraft.audit")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One request that changed something, read a secret, or was rejected."""

    caller: str  # empty: unknown caller
    role: str
    method: str
    path: str
    status: int
    request_id: str
    peer: str
    more: int = 0  # refusals of unknown callers at this peer since the last record, which have none of their own


def _now() -> datetime:
    return datetime.now(UTC)


class AuditLog:
    """Appends to a file that only its owner may read; without a file, to the log.

    A separate thread writes the file in order of arrival: a hanging disk delays only requests that are audited.
    """

    def __init__(self, path: Path | None = None, *, now: Callable[[], datetime] = _now) -> None:
        """Raises PreconditionError when the file is not writable: no server starts without its audit log."""
        self._path = path
        self._now = now
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="audit")  # starts its thread on first use
        if path is not None:
            self._append(b"")

    async def write(self, record: AuditRecord) -> None:
        """Writes a record, and returns when it is written. Cancelling the caller does not cancel the write.

        A full disk does not stop the server: the record goes to the log instead.
        """
        if self._path is None:
            _AUDIT_LOG.info("%s %s: %d", record.method, record.path, record.status, extra=asdict(record))
            return
        line = json.dumps({"time": self._now().isoformat(timespec="milliseconds"), **asdict(record)}) + "\n"
        loop = asyncio.get_running_loop()
        await asyncio.shield(loop.run_in_executor(self._writer, self._put, line.encode(), record))

    def _put(self, line: bytes, record: AuditRecord) -> None:
        try:
            self._append(line)
        except PreconditionError as error:
            fields = asdict(record)
            _AUDIT_LOG.error("%s; %s %s: %d", error.message, record.method, record.path, record.status, extra=fields)

    def _append(self, line: bytes) -> None:
        # Opened each time, so that the file may be rotated by renaming it.
        try:
            handle = os.open(str(self._path), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(handle, line)
            finally:
                os.close(handle)
        except OSError as error:
            raise PreconditionError(f"the audit log {self._path} cannot be written: {error.strerror}") from error


OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})  # paths that need no authentication
REPORT_CLIENT: Final = "report_client"  # in the state of a request: called with whether the client is known
PEER_NAMES: Final = "peer_names"  # in the state of a request: the names in the client's certificate
AUDITED: Final = "audited"  # in the state of a request: a route's own decision whether it is audited
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_REFUSALS: Final = frozenset({401, 403})
_LOG = logging.getLogger("cloudgraft.web")


class AuthenticationMiddleware:
    """Authenticates every request except health checks, limits its body, handles bugs, and writes the audit log.

    It wraps all routes, not each one: a route without a check of its own is still closed to unknown callers.
    """

    def __init__(self, app: ASGIApp, *, gatekeeper: Gatekeeper, audit: AuditLog, max_body: int) -> None:
        self._app = app
        self._gatekeeper = gatekeeper
        self._audit = audit
        self._max_body = max_body
        self._refusals = RepeatLimit()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request; passes anything but HTTP through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        caller = self._identify(scope)
        report: Callable[[bool], None] | None = scope.get("state", {}).get(REPORT_CLIENT)
        if report is not None:
            report(caller is not None)
        visit = _Visit(
            scope, receive, send, caller, audit=self._audit, refusals=self._refusals, max_body=self._max_body
        )
        try:
            if caller is None and scope["path"] not in OPEN_PATHS:
                words = "this certificate or token is unknown: see the clients in the server's configuration"
                await visit.refuse(AuthenticationError(words))
            else:
                await self._app(scope, visit.receive, visit.send)
        except Exception:  # noqa: BLE001 - a bug in one request must not end the connection without a response
            _LOG.exception("a request failed", extra={"path": scope["path"], "request_id": visit.id})
            await visit.refuse(InternalError(f"a bug; the server's log has the rest under {visit.id}"))
        finally:
            if not visit.status:
                await visit.write_down()

    def _identify(self, scope: Scope) -> Caller | None:
        headers = dict(scope["headers"])
        names = scope.get("state", {}).get(PEER_NAMES, ())
        return self._gatekeeper.identify(names, bearer_of(headers.get(b"authorization", b"")))


class _Visit:
    """One request: its id, the bytes read, the response, and its audit record."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        caller: Caller | None,
        *,
        audit: AuditLog,
        refusals: RepeatLimit,
        max_body: int,
    ) -> None:
        self.id = secrets.token_hex(8)
        self.state: dict[str, Any] = scope.setdefault("state", {})
        self.state["request_id"] = self.id
        self.state["caller"] = caller
        self.status = 0  # 0: no response, because the client disconnected
        self._scope = scope
        self._caller = caller
        self._audit = audit
        self._refusals = refusals
        self._receive = receive
        self._send = send
        self._left = max_body

    async def receive(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            # Of this class, because FastAPI treats any other one as a body that cannot be parsed.
            raise HTTPException(413, "the request is larger than this server takes")
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            await self.write_down()  # first: a client with a response can rely on the record
            message = {**message, "headers": [*message["headers"], (b"x-request-id", self.id.encode())]}
        await self._send(message)

    async def write_down(self) -> None:
        """Writes the audit record, if this request needs one."""
        is_audited = bool(self.state.get(AUDITED, self._scope["method"] not in _READING))
        if not is_audited and self.status not in _REFUSALS:
            return
        client = self._scope.get("client")
        peer = str(client[0]) if client else ""
        # Once a minute for each peer: otherwise anyone who reaches the port could fill the disk.
        more = self._refusals.admit(peer) if self._caller is None and self.status in _REFUSALS else 0
        if more is None:
            return
        record = AuditRecord(
            caller=self._caller.name if self._caller else "",
            role=self._caller.role if self._caller else "",
            method=self._scope["method"],
            path=self._scope["path"][:512],
            status=self.status,
            request_id=self.id,
            peer=peer,
            more=more,
        )
        await self._audit.write(record)

    async def refuse(self, error: CloudgraftError) -> None:
        """Responds with an error, unless a response has begun: then the connection just ends."""
        if self.status:
            return
        body = problem_of(error, request_id=self.id).model_dump_json(by_alias=True).encode()
        headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
        if error.http_status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if error.retry_after is not None:
            headers.append((b"retry-after", str(max(1, round(error.retry_after))).encode()))
        await self.send({"type": "http.response.start", "status": error.http_status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


# -- Roles of a route --------------------------------------------------------------------------------------------------


def caller_of(request: Request) -> Caller:
    """The caller of this request; authentication has happened before any route is reached."""
    caller: Caller = request.scope["state"]["caller"]
    return caller


def audited(request: Request) -> None:
    """Includes a reading request in the audit log."""
    request.scope["state"][AUDITED] = True


def unaudited(request: Request) -> None:
    """Excludes a frequent request, such as a heartbeat, from the audit log, unless it is rejected."""
    request.scope["state"][AUDITED] = False


def allowed(*roles: str) -> Any:
    """A dependency that returns the caller, if it has one of these roles.

    ``async def route(caller: Annotated[Caller, allowed("operator")])``
    """

    async def check(request: Request) -> Caller:
        caller = caller_of(request)
        if not caller.may(*roles):
            raise PermissionDeniedError(
                f"{caller.name} has the role {caller.role}; this needs {' or '.join(roles)}: see the clients in the "
                "server's configuration"
            )
        return caller

    return Depends(check)
