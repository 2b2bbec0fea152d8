"""Lines out of a stream of bytes from a program that nobody can trust to end them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

__all__ = ["LineSplitter", "lines_of"]

LINE_LIMIT = 16 * 1024  # bytes; a line with a certificate in it has about 1,500
_CUT = " […]"


class LineSplitter:
    """Takes bytes as they come, gives whole lines. What is too long is cut, and the rest of that line dropped."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._rest = b""
        self._dropping = False

    def feed(self, data: bytes) -> Iterator[str]:
        """The lines that ``data`` completes."""
        *ended, open_end = (self._rest + data).split(b"\n")
        self._rest = open_end
        for line in ended:
            if self._dropping:
                self._dropping = False
                continue
            yield self._text(line)
        if len(self._rest) > self._limit:
            if not self._dropping:
                yield self._text(self._rest)
            self._dropping = True
            self._rest = b""

    def flush(self) -> Iterator[str]:
        """The last line, when it was not ended."""
        if self._rest and not self._dropping:
            yield self._text(self._rest)
        self._rest = b""

    def _text(self, line: bytes) -> str:
        text = line[: self._limit].decode("utf-8", "replace").rstrip("\r")
        # Escape sequences would paint on the terminal of whoever reads the log.
        clean = "".join(char if char.isprintable() or char == "\t" else repr(char)[1:-1] for char in text)
        return clean + _CUT if len(line) > self._limit else clean


async def lines_of(stream: asyncio.StreamReader, limit: int = LINE_LIMIT) -> AsyncIterator[str]:
    """Every line of the stream until its end; never more than ``limit`` and one chunk in memory."""
    splitter = LineSplitter(limit)
    while data := await stream.read(8192):
        for line in splitter.feed(data):
            yield line
    for line in splitter.flush():
        yield line
