"""Sends batches of spans to the collector, in a thread of its own, with files that are read again when they change.

A collector that is slow or away costs spans, never a call: what is not sent yet is limited in number, and what comes
beyond that is dropped and counted.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from cloudgraft.certs.pem import Stamp, load_authority, load_tls, stamp
from cloudgraft.sdk.errors import CloudgraftError, PreconditionError
from cloudgraft.sdk.hosts import is_loopback_host
from cloudgraft.sdk.secrecy import hide, redacted

log = logging.getLogger("cloudgraft.tracing")

_WAITING: Final = 4096  # spans that are not sent yet
_BATCH: Final = 256
_EVERY_MS: Final = 1000
_TIMEOUT: Final = 10.0  # seconds for one batch, with its retries
_REPORT_EVERY: Final = 60.0  # seconds
_LONGEST_FILE: Final = 64 * 1024
_LIBRARY: Final = logging.getLogger("opentelemetry.exporter.otlp.proto.grpc.exporter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """Where the collector is, and how it is reached. Secrets stay in files."""

    endpoint: str  # host:port, or unix:/path
    is_encrypted: bool = False
    ca: Path | None = None  # None: the system's authorities
    cert: Path | None = None
    key: Path | None = None
    server_name: str = ""
    headers_file: Path | None = None  # one `Name: value` a line

    @property
    def files(self) -> Sequence[Path]:
        """The files that are read again when they change."""
        return [path for path in (self.ca, self.cert, self.key, self.headers_file) if path is not None]

    def check(self) -> None:
        """Reads the files; raises CloudgraftError if one cannot be used."""
        _metadata(self)
        _credentials(self)


class SpanCounts:
    """Counts spans by what became of them. Reports lost ones once a minute."""

    def __init__(self, on_spans: Callable[[str, int], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        """``on_spans`` is called with ``sent``, ``failed`` or ``dropped``, and a number, from any thread."""
        self._on_spans = on_spans
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting = 0
        self._lost: Counter[str] = Counter()  # since the last report
        self._reason = ""
        self._reported_at = -_REPORT_EVERY

    def admit(self) -> bool:
        """Whether there is room for one more span, which then counts as waiting."""
        with self._lock:
            has_room = self._waiting < _WAITING
            if has_room:
                self._waiting += 1
            else:
                self._lost["dropped"] += 1
        if not has_room:
            self._on_spans("dropped", 1)
        return has_room

    def ended(self, count: int, reason: str) -> None:
        """Counts a batch that was sent, or that failed for this reason."""
        with self._lock:
            self._waiting -= count
            if reason:
                self._lost["failed"] += count
                self._reason = reason
        self._on_spans("failed" if reason else "sent", count)

    def report(self, *, is_last: bool = False) -> None:
        """Logs the losses since the last report, at most once a minute, and for the last time."""
        with self._lock:
            now = self._clock()
            if not self._lost or (now - self._reported_at < _REPORT_EVERY and not is_last):
                return
            lost, self._lost, self._reported_at = self._lost, Counter(), now
            reason = self._reason
        count = lost.total()
        log.warning("%d spans of traces were lost", count, extra={**lost, "error": redacted(reason)})


class Outbox(SpanProcessor):
    """Takes ended spans and sends them in batches. Never waits."""

    def __init__(self, collector: Collector, on_spans: Callable[[str, int], None]) -> None:
        """Reads the files of ``collector``; raises CloudgraftError if one cannot be used."""
        self._counts = SpanCounts(on_spans)
        self._exporter = _Exporter(collector, self._counts)
        self._batches = BatchSpanProcessor(
            self._exporter, max_queue_size=_WAITING, schedule_delay_millis=_EVERY_MS, max_export_batch_size=_BATCH
        )

    def on_end(self, span: ReadableSpan) -> None:
        """Queues a span, or drops it if too many wait."""
        if span.context is not None and span.context.trace_flags.sampled and self._counts.admit():
            self._batches.on_end(span)

    def close(self, seconds: float) -> None:
        """Sends what waits within so many seconds, and gives up the rest."""
        # The library would wait for half a minute, and not at all for a flush: so it waits in a thread that may hang.
        ending = threading.Thread(target=self._batches.shutdown, name="last traces", daemon=True)
        ending.start()
        ending.join(seconds)
        self._exporter.give_up()
        ending.join(seconds)
        self._exporter.end()


class _Exporter(SpanExporter):
    """Sends batches, over a channel with the current files."""

    def __init__(self, collector: Collector, counts: SpanCounts) -> None:
        self._collector = collector
        self._counts = counts
        self._stamp: Stamp | None = None
        self._is_given_up = False
        self._lock = threading.Lock()
        self._library: OTLPSpanExporter | None = None
        self._reason = _LastError()
        self._renew()
        _LIBRARY.addFilter(self._reason)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Sends a batch, with a few retries."""
        reason = "the process stopped"
        if not self._is_given_up:
            reason = self._send(spans)
        self._counts.ended(len(spans), reason)
        self._counts.report()
        return SpanExportResult.FAILURE if reason else SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Ends the connection."""
        self.give_up()

    def give_up(self) -> None:
        """Ends the connection, and a call under way with it."""
        self._is_given_up = True
        with self._lock:
            library, self._library = self._library, None
        if library is not None:
            library.shutdown()

    def end(self) -> None:
        """Reports the last losses."""
        _LIBRARY.removeFilter(self._reason)
        self._counts.report(is_last=True)

    def _send(self, spans: Sequence[ReadableSpan]) -> str:
        """Returns why it failed; empty when it did not."""
        try:
            self._renew()
        except CloudgraftError as error:  # half of a rotation: the old files still serve
            log.warning("new files for the collector cannot be used, the old ones stay: %s", error.message)
        library = self._library
        if library is None:
            return "the process stopped"
        self._reason.text = ""
        try:
            is_sent = library.export(spans) is SpanExportResult.SUCCESS
        except Exception as error:  # noqa: BLE001 - a bug of the library must not end its thread
            return type(error).__name__
        return "" if is_sent else self._reason.text or "the collector did not take them"

    def _renew(self) -> None:
        """Opens a channel, if there is none yet or a file has changed."""
        now = stamp(*self._collector.files)
        if self._library is not None and now == self._stamp:
            return
        self._stamp = now
        fresh = _library_exporter(self._collector)
        with self._lock:
            old, self._library = self._library, None if self._is_given_up else fresh
        for unused in (old, fresh if self._is_given_up else None):
            if unused is not None:
                unused.shutdown()


def _library_exporter(collector: Collector) -> OTLPSpanExporter:
    options: list[tuple[str, str | int]] = []
    if is_loopback_host(collector.endpoint.rpartition(":")[0]):
        options.append(("grpc.enable_http_proxy", 0))  # gRPC would send it through a proxy of the environment
    if collector.server_name:
        options.append(("grpc.ssl_target_name_override", collector.server_name))
    has_scheme = collector.endpoint.startswith("unix:")
    scheme = "" if has_scheme else "https://" if collector.is_encrypted else "http://"
    return OTLPSpanExporter(
        endpoint=f"{scheme}{collector.endpoint}",
        insecure=not collector.is_encrypted,
        credentials=_credentials(collector),
        headers=_metadata(collector),
        timeout=_TIMEOUT,
        compression=grpc.Compression.NoCompression,
        channel_options=tuple(options),  # type: ignore[arg-type]  # its type has one option, its code takes all
    )


def _credentials(collector: Collector) -> grpc.ChannelCredentials | None:
    if not collector.is_encrypted:
        return None
    if collector.cert is not None and collector.key is not None:
        loaded = load_tls(collector.cert, collector.key, collector.ca)
        return grpc.ssl_channel_credentials(loaded.ca or _system_authorities(), loaded.key, loaded.cert)
    return grpc.ssl_channel_credentials(load_authority(collector.ca) if collector.ca else _system_authorities())


def _system_authorities() -> bytes | None:
    """The system's authorities; None for gRPC's own where there are none."""
    file = ssl.get_default_verify_paths().cafile
    return Path(file).read_bytes() if file is not None else None


def _metadata(collector: Collector) -> Sequence[tuple[str, str]]:
    """The headers of the file, whose values are secrets. No error quotes them."""
    path = collector.headers_file
    if path is None:
        return ()
    try:
        with path.open("rb") as file:
            text = file.read(_LONGEST_FILE).decode("ascii")
    except OSError as error:
        raise PreconditionError(f"cannot read the file of headers {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise PreconditionError(f"the file of headers {path} is not plain text") from None
    headers: list[tuple[str, str]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, value = (part.strip() for part in line.partition(":"))
        is_name = name and all(c.isalnum() or c in "-_." for c in name) and not name.lower().endswith("-bin")
        if not colon or not is_name or not value or not value.isprintable():
            raise PreconditionError(f"the file of headers {path} has a line that is not `Name: value`")
        headers.append((name.lower(), value))  # gRPC takes lower-case names only
        hide(value, *value.split()[1:])  # an error of a collector may quote the token of `Bearer …` alone
    return headers


class _LastError(logging.Filter):
    """Takes the library's lines about failed exports off the log: we report them once a minute, with their number."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keeps the text of the line, and drops the line."""
        self.text = record.getMessage()
        return False
