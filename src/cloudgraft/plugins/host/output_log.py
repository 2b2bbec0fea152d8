"""Writes what a plugin prints into our log, at a limited rate.

A plugin that prints without end must cost the server neither its time nor its disk. Lines above the rate are dropped
and counted, and the plugin is read slowly meanwhile: a pipe that is full slows the plugin down, and nobody else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from cloudgraft.plugins.host.lines import printable
from cloudgraft.sdk.ratelimit import LogLimit
from cloudgraft.sdk.secrecy import redacted

__all__ = ["OutputLog"]

log = logging.getLogger("cloudgraft.plugins")

_LINES: Final = 50  # a second, on average; twenty seconds' worth at once
_BYTES: Final = 16 * 1024  # likewise
_LONGEST: Final = 4096  # characters of one line
_REPORT_EVERY: Final = 10.0  # seconds
_PAUSE: Final = 0.01  # seconds between two reads of a plugin that prints too much: at most 800 KiB a second


class OutputLog:
    """The log of one plugin. It outlives a run of the plugin: a restart does not refill the rate."""

    def __init__(self, plugin: str, *, limit: LogLimit | None = None, report_every: float = _REPORT_EVERY) -> None:
        self._plugin = plugin
        self._limit = limit or LogLimit(lines_per_second=_LINES, bytes_per_second=_BYTES)
        self._report_every = report_every
        self._report: asyncio.TimerHandle | None = None

    async def write(self, stream: str, lines: Sequence[bytes]) -> None:
        """Logs the lines of one read; returns after a pause that others get the event loop for."""
        for index, line in enumerate(lines):
            if line and not self._limit.admit(min(len(line), _LONGEST)):
                rest = lines[index + 1 :]
                self._limit.drop(len(rest), sum(map(len, rest)))
                self._report_later()
                await asyncio.sleep(_PAUSE)
                return
            if line:
                log.info("%s", _shown(line), extra={"plugin": self._plugin, "stream": stream})
        await asyncio.sleep(0)  # a stream that has more to read would not wait

    def report(self) -> None:
        """Says how much was dropped since the last report, if anything was."""
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
    """Without secrets before it is cut: half of one is not known as such."""
    text = redacted(printable(line))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} […]"
