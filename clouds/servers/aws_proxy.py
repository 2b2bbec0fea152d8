"""A proxy in front of moto that adds what moto lacks, and what goes wrong when it is told to.

It checks signatures and clocks; holds client tokens as EC2 does; pages by instances; lets new instances be invisible
for a while; and on command it throttles, refuses, breaks, loses or withholds answers. It is a part of the tests, in a
thread of theirs; other processes command it by ``POST`` and ``DELETE`` to ``/_faults``, and by ``POST`` to
``/_hold`` and ``/_release``.
"""

from __future__ import annotations

import http.client
import json
import secrets
import socket
import struct
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from clouds.servers.aws_answers import Answer, Described, error_answer, instance_ids, with_state
from clouds.servers.aws_faults import Fault, Kind
from clouds.servers.aws_scaling import Scaling
from clouds.servers.aws_signature import Caller, caller_of, is_signed_by, is_stale

__all__ = ["AwsProxy", "Call", "Fault", "Kind"]

Parameters = dict[str, str]
_ALL: Final = "1000000"
_SSM: Final = "resolve:ssm:"
_HANGS: Final = 120.0  # seconds, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request that came in."""

    service: str
    action: str
    key: str
    parameters: Parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    fingerprint: str
    body: bytes
    instance_id: str


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nobody is told that a caller has hung up: many a caller is killed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class AwsProxy:
    """Listens on a port of its own, until it is closed."""

    def __init__(self, moto_port: int) -> None:
        self._moto_port = moto_port
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._released = threading.Event()
        self._secrets: dict[str, str] = {}
        self._tokens: dict[str, _Token] = {}
        self._token_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._pages: dict[str, list[str]] = {}
        self._created: dict[str, float] = {}
        self._broken: dict[str, tuple[str, str]] = {}
        self.calls: list[Call] = []
        self.parameters: dict[str, str] = {}  # of SSM: paths and the ids of images
        self.lag = timedelta(0)  # for which a new instance is in no list
        self.clock_ahead = timedelta(0)  # of the callers'
        self.scaling = Scaling(self._forward)
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="aws-proxy", daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Ends it, and what hangs."""
        self._released.set()
        self._server.shutdown()
        self._server.server_close()

    # -- commands ------------------------------------------------------------------------------------------------------

    def new_key(self) -> tuple[str, str]:
        """An access key that is accepted: its id and its secret."""
        key, secret = f"AKIA{secrets.token_hex(8).upper()}", secrets.token_urlsafe(30)
        self._secrets[key] = secret
        return key, secret

    def order(self, fault: Fault) -> None:
        """From now on this goes wrong."""
        with self._lock:
            self._faults.append(fault)

    def clear(self) -> None:
        """Nothing goes wrong any more; what hangs is let go."""
        with self._lock:
            self._faults.clear()
            self._broken.clear()
            released, self._released = self._released, threading.Event()
            self.lag = self.clock_ahead = timedelta(0)
        self.scaling.clear()
        released.set()

    def called(self, action: str) -> list[Call]:
        """The requests so far."""
        return [call for call in self.calls if call.action == action]

    def made(self, token: str) -> str | None:
        """The id of the instance that was made with this client token."""
        known = self._tokens.get(token)
        return known.instance_id if known else None

    def break_launch(self, instance_id: str, code: str, message: str) -> None:
        """EC2 could not start an instance that it had accepted. It must have been terminated before."""
        self._broken[instance_id] = (code, message)

    # -- requests ------------------------------------------------------------------------------------------------------

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                proxy._serve(self)

            def do_DELETE(self) -> None:
                proxy.clear()
                _send(self, Answer())

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        return Handler

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", "0")))
        if handler.path == "/_faults":
            data = json.loads(body)
            self.order(Fault(**{**data, "kind": Kind(data.get("kind", "error"))}))
            _send(handler, Answer())
            return
        if handler.path in ("/_hold", "/_release"):
            (self.scaling.hold if handler.path == "/_hold" else self.scaling.release)(**json.loads(body))
            _send(handler, Answer())
            return
        headers = {name.lower(): value for name, value in handler.headers.items()}
        parameters = dict(parse_qsl(body.decode(), keep_blank_values=True))
        caller = caller_of(headers)
        action = parameters.get("Action", "")
        fault = self._noted(caller, action, parameters)
        refused = self._refusal(caller, headers, body) or _refusal_of(fault, caller)
        answer = refused or self._carried_out(action, parameters, headers)
        if fault is None or refused:
            _send(handler, answer)
        elif fault.kind is Kind.HANG:
            self._released.wait(_HANGS)
            handler.close_connection = True
        else:
            _spoil(handler, answer, fault)

    def _noted(self, caller: Caller | None, action: str, parameters: Parameters) -> Fault | None:
        key = caller.key if caller else ""
        with self._lock:
            service = caller.service if caller else ""
            self.calls.append(Call(service=service, action=action, key=key, parameters=parameters))
            return next((fault for fault in self._faults if fault.is_due(action, key)), None)

    def _refusal(self, caller: Caller | None, headers: Mapping[str, str], body: bytes) -> Answer | None:
        if caller is None:
            return error_answer("ec2", 403, "MissingAuthenticationToken", "Request is missing Authentication Token")
        if is_stale(caller, datetime.now(UTC) + self.clock_ahead):
            return error_answer(caller.service, 400, "RequestExpired", "Request has expired.")
        secret = self._secrets.get(caller.key)
        if secret is None and not caller.key.startswith("ASIA"):  # a key that moto's STS has lent
            return error_answer(caller.service, 401, "AuthFailure", "AWS was not able to validate the credentials")
        if secret is not None and not is_signed_by(caller, secret, headers, body):
            return error_answer(caller.service, 403, "SignatureDoesNotMatch", f"The request: {body.decode()}")
        return None

    def _carried_out(self, action: str, parameters: Parameters, headers: Mapping[str, str]) -> Answer:
        match action:
            case "RunInstances":
                return self._run(parameters, headers)
            case "DescribeInstances":
                return self._describe(parameters, headers)
            case _ if action in Scaling.ACTIONS:
                return self.scaling.answer(action, parameters, headers)
            case _:
                return self._forward(parameters, headers)

    def _forward(self, parameters: Parameters, headers: Mapping[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self._moto_port, timeout=60.0)
        own = {name: value for name, value in headers.items() if name not in ("content-length", "connection", "host")}
        try:
            connection.request("POST", "/", urlencode(parameters), {**own, "Host": headers.get("host", "")})
            answer = connection.getresponse()
            return Answer(status=answer.status, body=answer.read(), content_type=answer.getheader("Content-Type", ""))
        finally:
            connection.close()

    # -- instances -----------------------------------------------------------------------------------------------------

    def _run(self, parameters: Parameters, headers: Mapping[str, str]) -> Answer:
        token = parameters.get("ClientToken", "")
        with self._lock:
            own = self._token_locks[token]
        with own:
            known = self._tokens.get(token)
            if known is None:
                return self._run_anew(token, parameters, headers)
            if known.fingerprint != _fingerprint(parameters):
                return error_answer(
                    "ec2", 400, "IdempotentParameterMismatch", "Arguments on this idempotent request are inconsistent"
                )
            now = self._forward(_about(known.instance_id, parameters), headers)
            return Answer(body=with_state(known.body, now.body))

    def _run_anew(self, token: str, parameters: Parameters, headers: Mapping[str, str]) -> Answer:
        image = parameters.get("ImageId", "")
        asked = dict(parameters)
        if image.startswith(_SSM):
            asked["ImageId"] = self.parameters.get(image.removeprefix(_SSM), "ami-00000000")
        answer = self._forward(asked, headers)
        if answer.is_fine:
            (instance_id,) = instance_ids(answer.body)
            self._created[instance_id] = time.monotonic()
            self._tokens[token] = _Token(
                fingerprint=_fingerprint(parameters), body=answer.body, instance_id=instance_id
            )
        return answer

    def _describe(self, parameters: Parameters, headers: Mapping[str, str]) -> Answer:
        is_by_id = any(name.startswith("InstanceId.") for name in parameters)
        asked = {name: value for name, value in parameters.items() if name not in ("MaxResults", "NextToken")}
        wants_reasons = _ask_for_terminated(asked)
        if wants_reasons and not self._broken:
            return Answer(body=Described.empty())
        answer = self._forward(asked if is_by_id else {**asked, "MaxResults": _ALL}, headers)
        if not answer.is_fine:
            return answer
        is_one_page = len(instance_ids(answer.body)) <= int(parameters.get("MaxResults", _ALL))
        if is_one_page and not (self.lag or wants_reasons or "NextToken" in parameters):
            return answer
        described = Described(answer.body)
        hidden = time.monotonic() - self.lag.total_seconds()
        ids = [one for one in described.ids() if self._created.get(one, 0.0) <= hidden]
        if wants_reasons:
            ids = [one for one in ids if one in self._broken]
            described.give_reason(self._broken)
        page, next_token = (ids, "") if is_by_id else self._page(ids, parameters)
        described.keep(page)
        return Answer(body=described.body(next_token))

    def _page(self, ids: list[str], parameters: Parameters) -> tuple[list[str], str]:
        """By instances, as EC2 does it; moto counts reservations."""
        token = parameters.get("NextToken")
        if token is not None:
            left = self._pages.pop(token)
            ids = [one for one in left if one in set(ids)]
        size = int(parameters.get("MaxResults", _ALL))
        if len(ids) <= size:
            return ids, ""
        following = secrets.token_urlsafe(12)
        self._pages[following] = ids[size:]
        return ids[:size], following


def _ask_for_terminated(asked: Parameters) -> bool:
    """Where certain reasons are asked for, asks moto for the only one that it has; whether that was so."""
    for name, value in list(asked.items()):
        if value == "state-reason-code":
            values = name.removesuffix("Name") + "Value."
            for other in [other for other in asked if other.startswith(values)]:
                del asked[other]
            asked[f"{values}1"] = "Client.UserInitiatedShutdown"
            return True
    return False


def _about(instance_id: str, parameters: Parameters) -> Parameters:
    return {"Action": "DescribeInstances", "Version": parameters["Version"], "InstanceId.1": instance_id}


def _fingerprint(parameters: Parameters) -> str:
    return urlencode(sorted(parameters.items()))


# -- answers -----------------------------------------------------------------------------------------------------------


def _refusal_of(fault: Fault | None, caller: Caller | None) -> Answer | None:
    if fault is None or fault.kind is not Kind.ERROR:
        return None
    return error_answer(caller.service if caller else "", fault.status, fault.code, fault.message, fault.headers)


def _send(handler: BaseHTTPRequestHandler, answer: Answer, *, length: int | None = None) -> None:
    handler.send_response(answer.status)
    handler.send_header("Content-Type", answer.content_type)
    handler.send_header("Content-Length", str(len(answer.body) if length is None else length))
    for name, value in answer.headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(answer.body)


def _spoil(handler: BaseHTTPRequestHandler, answer: Answer, fault: Fault) -> None:
    half = Answer(status=answer.status, body=answer.body[: len(answer.body) // 2])
    match fault.kind:
        case Kind.HTML:
            _send(handler, Answer(status=fault.status, body=fault.page, content_type="text/html"))
        case Kind.HALF:
            _send(handler, half)
        case Kind.CUT:
            _send(handler, half, length=len(answer.body))
            handler.close_connection = True
        case _:
            connection: Any = handler.connection
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.close_connection = True
            connection.close()  # with a reset
