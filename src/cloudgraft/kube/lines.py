"""Splits a stream of bytes into lines, none longer than it may be. Pure."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["Lines", "TooLongError"]


class TooLongError(Exception):
    """A line that has not ended is longer than any may be."""


class Lines:
    """Keeps the beginning of a line until its end comes."""

    def __init__(self, longest: int) -> None:
        """``longest`` is in bytes."""
        self._longest = longest
        self._begun = bytearray()

    @property
    def begun(self) -> bytes:
        """A line that has begun and not ended; empty for none."""
        return bytes(self._begun)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that end in the data. Raises TooLongError, before more than the longest line is kept."""
        *ended, rest = data.split(b"\n")
        for part in ended:
            self._add(part)
            line = bytes(self._begun)
            self._begun.clear()
            yield line
        self._add(rest)

    def _add(self, part: bytes) -> None:
        if len(self._begun) + len(part) > self._longest:
            raise TooLongError(f"a line of the answer has more than {self._longest} bytes")
        self._begun += part
