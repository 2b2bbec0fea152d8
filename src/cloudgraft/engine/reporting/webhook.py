"""Sends events to a webhook: each as JSON in a POST, in its own thread, so that the engine never waits for it.

An event that cannot be sent is retried with exponential backoff, and dropped after a while. Events that come faster
than they can be sent wait in a queue, which drops the oldest. Both drops are counted.
"""

from __future__ import annotations

import http.client
import json
import logging
import re
import ssl
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cloudgraft.engine.new_records import level_of
from cloudgraft.engine.reporting.report_json import iso
from cloudgraft.sdk.common.backoff import pause_after
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.hosts import is_loopback_host
from cloudgraft.store.records import Event

log = logging.getLogger("cloudgraft.webhook")

_AGAIN: Final = frozenset({408, 425, 429})  # and 5xx: the receiver may accept it later
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # a valid header name
_FORM: Final = "the webhook's URL must be of the form https://host/path"
_END: Final = 2.0  # seconds that close() waits for the thread


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """The target, the events to send, and the retries. Secrets stay in files, which are read for every attempt."""

    url: str = field(repr=False)  # services hand out URLs that are secrets themselves
    token_file: Path | None = None  # sent as a Bearer token
    headers_file: Path | None = None  # one `Name: value` a line
    level: int = logging.WARNING  # events below are not sent,
    kinds: Collection[str] = ()  # unless they are of these kinds
    timeout: float = 10.0  # seconds, of each step of an attempt
    attempts: int = 6
    first_pause: float = 1.0  # seconds, doubled each time
    longest_pause: float = 60.0
    queue: int = 1000
    ca: Path | None = None  # the CA of the receiver's certificate; None: the system's CAs


class _RefusedError(Exception):
    """The receiver will never accept this event."""


@dataclass(frozen=True, slots=True)
class _Target:
    """The parts of a URL."""

    host: str
    port: int | None
    path: str
    is_encrypted: bool

    @classmethod
    def parse(cls, url: str) -> _Target:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise InvalidArgumentError(_FORM) from None
        if parts.scheme not in ("http", "https") or not parts.hostname or not _is_sendable(url) or " " in url:
            raise InvalidArgumentError(_FORM)
        if parts.scheme == "http" and not is_loopback_host(parts.hostname):
            raise InvalidArgumentError("the webhook's URL must be https unless it is on this host")
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(parts.hostname, port, path, parts.scheme == "https")


@dataclass(slots=True, eq=False, repr=False)
class Webhook:
    """Sends events; subscribe :meth:`tell` to the writer."""

    settings: WebhookSettings
    cluster: str
    pause: Callable[[float], None] | None = None  # how to wait before an attempt; for tests
    results: Counter[str] = field(default_factory=lambda: Counter({"sent": 0, "failed": 0, "dropped": 0}))
    _target: _Target = field(init=False)
    _queue: deque[Event] = field(init=False, default_factory=deque)
    _changed: threading.Condition = field(init=False, default_factory=threading.Condition)
    _is_ending: bool = field(init=False, default=False)
    _thread: threading.Thread | None = field(init=False, default=None)
    _trouble: str = field(init=False, default="")  # logged once, not for every event

    def __post_init__(self) -> None:
        """Refuses a URL that would send events, and a token, unencrypted."""
        self._target = _Target.parse(self.settings.url)

    def tell(self, event: Event) -> None:
        """Queues an event, if the settings select it. Never waits."""
        if level_of(event) < self.settings.level and event.kind not in self.settings.kinds:
            return
        with self._changed:
            if len(self._queue) >= self.settings.queue:
                self._queue.popleft()
                self.results["dropped"] += 1
            self._queue.append(event)
            self._changed.notify()

    def start(self) -> None:
        """Begins to send."""
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops after one attempt for each queued event, within a short time."""
        with self._changed:
            self._is_ending = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_END)
            self._thread = None

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._is_ending:
                    self._changed.wait()
                if not self._queue:
                    return
                event = self._queue.popleft()
            try:
                is_sent = self._deliver(event)
            except Exception as error:  # noqa: BLE001 - a bug must not end the thread, and its text may be secret
                self._note(type(error).__name__)
                is_sent = False
            self.results["sent" if is_sent else "failed"] += 1

    def _deliver(self, event: Event) -> bool:
        """Sends an event with retries; returns whether it arrived."""
        body = json.dumps(self.written(event), default=str).encode()
        for attempt in range(1, self.settings.attempts + 1):
            try:
                self._post(body)
            except _RefusedError as error:
                self._note(str(error))
                return False
            except (OSError, http.client.HTTPException) as error:
                self._note(str(error) or type(error).__name__)
            else:
                self._note("")
                return True
            if attempt < self.settings.attempts:
                self._wait(attempt)
            if self._is_ending:
                break
        return False

    def _post(self, body: bytes) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": "cloudgraft", **self._secrets()}
        connection = self._connection()
        try:
            connection.request("POST", self._target.path, body=body, headers=headers)
            status = connection.getresponse().status
        finally:
            connection.close()
        if status < 300:
            return
        if status in _AGAIN or status >= 500:
            raise http.client.HTTPException(f"it answered with status {status}")
        raise _RefusedError(f"it answered with status {status}")

    def _connection(self) -> http.client.HTTPConnection:
        target, seconds = self._target, self.settings.timeout
        if not target.is_encrypted:
            return http.client.HTTPConnection(target.host, target.port, timeout=seconds)
        context = ssl.create_default_context(cafile=str(self.settings.ca) if self.settings.ca else None)
        return http.client.HTTPSConnection(target.host, target.port, timeout=seconds, context=context)

    def _secrets(self) -> Mapping[str, str]:
        """The headers of the two files. Errors do not quote their contents."""
        headers: dict[str, str] = {}
        if self.settings.headers_file is not None:
            for line in _lines(self.settings.headers_file):
                name, colon, value = line.partition(":")
                if not colon or not _HEADER.fullmatch(name.strip()) or not _is_sendable(value):
                    raise _RefusedError(f"{self.settings.headers_file} has a line that is not `Name: value`")
                headers[name.strip()] = value.strip()
        if self.settings.token_file is not None:
            token = "".join(_lines(self.settings.token_file))
            if not token or not _is_sendable(token):
                raise _RefusedError(f"{self.settings.token_file} does not hold a token")
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def written(self, event: Event) -> dict[str, object]:
        """The JSON of an event."""
        return {
            "cluster": self.cluster,
            "at": iso(event.at),
            "kind": event.kind,
            "level": logging.getLevelName(level_of(event)).lower(),
            "message": event.message,
            "cloud": event.cloud,
            "group": event.group,
            "machine": event.machine,
            "state": event.state.value if event.state is not None else "",
            "data": dict(event.data),
        }

    def _wait(self, attempt: int) -> None:
        settings = self.settings
        seconds = pause_after(attempt, first=settings.first_pause, longest=settings.longest_pause, spread=0.5)
        if self.pause is not None:
            self.pause(seconds)
            return
        end = time.monotonic() + seconds
        with self._changed:
            while not self._is_ending and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)

    def _note(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            log.warning("the webhook does not accept events", extra={"error": trouble})
        elif self._trouble and not trouble:
            log.info("the webhook accepts events again")
        self._trouble = trouble


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        raise _RefusedError(f"{path} is not text") from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def _is_sendable(text: str) -> bool:
    """Whether the text may be a header value. http.client would refuse it too, but with the value in its error."""
    return text.isascii() and text.isprintable()
