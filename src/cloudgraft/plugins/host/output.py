"""Reads a plugin's output, from its pipes or from go-plugin's stream: finds the handshake, and logs the rest."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Final

import grpc.aio
from google.protobuf.message import DecodeError

from cloudgraft.plugins.handshake import Handshake, HandshakeError, is_plugin_line, parse_line
from cloudgraft.sdk.common.ratelimit import LogLimit
from cloudgraft.sdk.secrecy import redacted
from cloudgraft.wire.streaming_decode import fields

# -- Line splitting ----------------------------------------------------------------------------------------------------


LINE_LIMIT: Final = 16 * 1024  # bytes; a line with a certificate in it has about 1,500
_CHUNK: Final = 8192
_CUT: Final = " […]"


class LineSplitter:
    """Splits a byte stream into lines. A line above the limit is cut to one byte above it, which marks it as cut."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._rest = b""
        self._dropping = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yields the lines that ``data`` completes."""
        *ended, open_end = (self._rest + data).split(b"\n")
        self._rest = open_end
        for line in ended:
            if self._dropping:
                self._dropping = False
                continue
            yield line[: self._limit + 1]
        if len(self._rest) > self._limit:
            if not self._dropping:
                yield self._rest[: self._limit + 1]
            self._dropping = True
            self._rest = b""

    def flush(self) -> Iterator[bytes]:
        """Yields the last line when it has no newline."""
        if self._rest and not self._dropping:
            yield self._rest
        self._rest = b""


def printable(line: bytes, limit: int = LINE_LIMIT) -> str:
    """Decodes a line of at most ``limit`` bytes, without control characters that would affect a terminal."""
    text = line[:limit].decode("utf-8", "replace").rstrip("\r")
    clean = "".join(char if char.isprintable() or char == "\t" else repr(char)[1:-1] for char in text)
    return clean + _CUT if len(line) > limit else clean


async def batches_of(stream: asyncio.StreamReader, limit: int = LINE_LIMIT) -> AsyncIterator[list[bytes]]:
    """Yields the lines of each read of the stream; holds at most ``limit`` bytes and one chunk in memory."""
    splitter = LineSplitter(limit)
    while data := await stream.read(_CHUNK):
        yield list(splitter.feed(data))
    yield list(splitter.flush())


# -- Rate-limited log --------------------------------------------------------------------------------------------------
# A plugin that prints without end must not use up the server's time or disk. Lines above the rate are dropped and
# counted, and the plugin is read slowly meanwhile: a full pipe slows down the plugin, and nothing else.


log = logging.getLogger("cloudgraft.plugins")

_LINES: Final = 50  # a second, on average; twenty seconds' worth at once
_BYTES: Final = 16 * 1024  # likewise
_LONGEST: Final = 4096  # characters of one line
_REPORT_EVERY: Final = 10.0  # seconds
_PAUSE: Final = 0.01  # seconds between two reads of a plugin that prints too much: at most 800 KiB a second


class OutputLog:
    """The log of one plugin. It outlives a run of the plugin: a restart does not reset the rate limit."""

    def __init__(self, plugin: str, *, limit: LogLimit | None = None, report_every: float = _REPORT_EVERY) -> None:
        self._plugin = plugin
        self._limit = limit or LogLimit(lines_per_second=_LINES, bytes_per_second=_BYTES)
        self._report_every = report_every
        self._report: asyncio.TimerHandle | None = None

    async def write(self, stream: str, lines: Sequence[bytes]) -> None:
        """Logs the lines of one read; returns after a pause in which other tasks run."""
        for index, line in enumerate(lines):
            if line and not self._limit.admit(min(len(line), _LONGEST)):
                rest = lines[index + 1 :]
                self._limit.drop(len(rest), sum(map(len, rest)))
                self._report_later()
                await asyncio.sleep(_PAUSE)
                return
            if line:
                log.info("%s", _shown(line), extra={"plugin": self._plugin, "stream": stream})
        await asyncio.sleep(0)  # reading a stream with buffered data never yields to other tasks

    def report(self) -> None:
        """Logs how much was dropped since the last report, if anything was."""
        if self._report is not None:
            self._report.cancel()
            self._report = None
        dropped = self._limit.dropped(is_last=True)
        if dropped is not None:
            log.warning(
                "the plugin %s prints too much: %s were dropped; the limit is %d lines and %d bytes a second",
                *(self._plugin, dropped, _LINES, _BYTES),
                extra={"plugin": self._plugin, "dropped_lines": dropped.lines, "dropped_bytes": dropped.size},
            )

    def _report_later(self) -> None:
        if self._report is None:
            self._report = asyncio.get_running_loop().call_later(self._report_every, self.report)


def _shown(line: bytes) -> str:
    """Redacts secrets before it cuts the line: half a secret would not be recognized."""
    text = redacted(printable(line))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} […]"


# -- stdout and stderr -------------------------------------------------------------------------------------------------


_NOISE_LIMIT = 64 * 1024  # characters on stdout before the handshake
_QUOTED_LINES = 5
_QUOTED_CHARACTERS = 200


class Output:
    """Reads stdout and stderr of one process to their end, so that it never blocks on a full pipe."""

    def __init__(self, log: OutputLog) -> None:
        self._log = log
        self._handshake: asyncio.Future[Handshake] = asyncio.get_running_loop().create_future()
        self._first_stdout: list[bytes] = []
        self._noise = 0
        self._last_stderr: deque[bytes] = deque(maxlen=_QUOTED_LINES)
        self._tasks: list[asyncio.Task[None]] = []
        self.stdout_closed = asyncio.Event()

    def follow(self, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader) -> None:
        """Starts reading."""
        self._tasks = [asyncio.create_task(self._read_stdout(stdout)), asyncio.create_task(self._read_stderr(stderr))]

    async def handshake(self) -> Handshake:
        """Waits for the plugin's line; raises :class:`HandshakeError` for an invalid one."""
        return await asyncio.shield(self._handshake)

    @property
    def has_handshake(self) -> bool:
        """True once a handshake line was found, valid or not."""
        return self._handshake.done()

    async def read_rest(self, seconds: float) -> None:
        """Reads the remaining output of a process that has ended, for at most ``seconds``."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def end(self, seconds: float) -> None:
        """Reads the remaining output, then stops reading."""
        await self.read_rest(seconds)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._handshake.cancel()
        self._log.report()

    def evidence(self) -> str:
        """Quotes stdout and stderr for an error message."""
        return self._quote("stdout", self._first_stdout) + self._quote("stderr", self._last_stderr)

    def last_words(self) -> str:
        """Quotes the last lines of stderr for an error message."""
        return self._quote("stderr", self._last_stderr)

    def _quote(self, stream: str, lines: Iterable[bytes]) -> str:
        quoted = " / ".join(printable(line)[:_QUOTED_CHARACTERS] for line in lines)
        return f"; its {stream} said: {quoted}" if quoted else ""

    async def _read_stdout(self, stream: asyncio.StreamReader) -> None:
        async for lines in batches_of(stream):
            seen = 0
            while seen < len(lines) and not self._handshake.done():
                self._look_at(lines[seen])
                seen += 1
            await self._log.write("stdout", [*self._not_handshake(lines[:seen]), *lines[seen:]])
        self.stdout_closed.set()

    def _not_handshake(self, lines: list[bytes]) -> list[bytes]:
        """Returns the lines without the handshake, which the log does not need."""
        return [line for line in lines if not is_plugin_line(printable(line))]

    def _look_at(self, raw: bytes) -> None:
        line = printable(raw)
        if is_plugin_line(line):
            try:
                self._handshake.set_result(parse_line(line))
            except HandshakeError as error:
                self._refuse(f"{error.message} (it printed {line[:_QUOTED_CHARACTERS]!r})")
            return
        self._noise += len(line) + 1
        if line and len(self._first_stdout) < _QUOTED_LINES:
            self._first_stdout.append(raw)
        if self._noise > _NOISE_LIMIT:
            self._refuse(f"it prints and prints, but no handshake{self.evidence()}")

    def _refuse(self, reason: str) -> None:
        self._handshake.set_exception(HandshakeError(reason))
        self._handshake.exception()  # retrieved, so that asyncio does not log it when there is no waiter

    async def _read_stderr(self, stream: asyncio.StreamReader) -> None:
        async for lines in batches_of(stream):
            self._last_stderr.extend(lines[-_QUOTED_LINES:])
            await self._log.write("stderr", lines)


# -- go-plugin's output stream -----------------------------------------------------------------------------------------
# It comes over gRPC after the handshake. The host must read it: otherwise a plugin that prints blocks.


_METHOD: Final = "/plugin.GRPCStdio/StreamStdio"
_CHANNEL, _DATA = 1, 2  # numbers of fields
_PIECE: Final = 8192  # bytes that are processed before other tasks run
_STREAMS: Final = {1: "stdout", 2: "stderr"}


async def follow_go_output(channel: grpc.aio.Channel, log: OutputLog) -> None:
    """Logs the stream until it ends. Returns at once for a plugin without such a stream."""
    splitters = {stream: LineSplitter() for stream in _STREAMS.values()}
    method: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(_METHOD)
    call = method(b"")
    try:
        async for message in call:
            stream, data = _decode(message)
            for start in range(0, len(data), _PIECE):
                await log.write(stream, list(splitters[stream].feed(data[start : start + _PIECE])))
    except (grpc.aio.AioRpcError, DecodeError):  # not made with go-plugin, or gone
        return
    finally:
        call.cancel()


def _decode(message: bytes) -> tuple[str, bytes]:
    """Decodes stream and data of go-plugin's ``StdioData`` by hand: it has only two fields."""
    stream, data = "stdout", b""
    for number, content, raw in fields(memoryview(message)):
        if number == _CHANNEL:
            stream = _STREAMS.get(raw[-1], stream)
        elif number == _DATA and content is not None:
            data = bytes(content)
    return stream, data
