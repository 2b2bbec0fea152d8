"""Splits a stream of bytes into lines, from a program that nobody can trust to end them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Final

__all__ = ["LINE_LIMIT", "LineSplitter", "batches_of", "printable"]

LINE_LIMIT: Final = 16 * 1024  # bytes; a line with a certificate in it has about 1,500
_CHUNK: Final = 8192
_CUT: Final = " […]"


class LineSplitter:
    """Takes bytes as they come, gives whole lines. A line above the limit comes with one byte too many, as a sign."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._rest = b""
        self._dropping = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that ``data`` completes."""
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
        """The last line, when it was not ended."""
        if self._rest and not self._dropping:
            yield self._rest
        self._rest = b""


def printable(line: bytes, limit: int = LINE_LIMIT) -> str:
    """A line as text of at most ``limit`` bytes, without what would paint on the terminal of a reader of the log."""
    text = line[:limit].decode("utf-8", "replace").rstrip("\r")
    clean = "".join(char if char.isprintable() or char == "\t" else repr(char)[1:-1] for char in text)
    return clean + _CUT if len(line) > limit else clean


async def batches_of(stream: asyncio.StreamReader, limit: int = LINE_LIMIT) -> AsyncIterator[list[bytes]]:
    """All lines of the stream, those of one read at a time; never more than ``limit`` and one chunk in memory."""
    splitter = LineSplitter(limit)
    while data := await stream.read(_CHUNK):
        yield list(splitter.feed(data))
    yield list(splitter.flush())
