"""How far a call got: whether anything was sent, and whether a connection was left half made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["Progress"]


class Progress:
    """Of one attempt. Its :meth:`note` is the ``trace`` extension of a request, which tells every step."""

    def __init__(self) -> None:
        self.was_sent = False  # at least in part
        self._half_made: Any = None  # a stream of the library's

    async def note(self, step: str, info: Mapping[str, Any]) -> None:
        """Called by the library, at the beginning and at the end of each step."""
        match step.split("."):
            case [_, "connect_tcp", "complete"]:
                self._half_made = info["return_value"]
            case [_, "start_tls", "complete"]:
                self._half_made = None
            case [_, "send_request_headers", "started"]:
                self._half_made = None
                self.was_sent = True

    async def end(self) -> None:
        """Closes what a call that was given up in the middle of the handshake leaves behind: the library does not."""
        if self._half_made is not None:
            stream, self._half_made = self._half_made, None
            await stream.aclose()
