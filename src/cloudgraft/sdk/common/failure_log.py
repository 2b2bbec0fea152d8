"""Logs an unexpected exception of an author's code once, until it changes or the call works again.

A loop calls the code again and again: the same traceback at every turn would bury everything else.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from typing import Final

from cloudgraft.sdk.common.causes import cause
from cloudgraft.sdk.secrecy import redacted

_LONGEST: Final = 500  # characters of an exception's text


class FailureLog:
    """Remembers the latest failure of each call of one driver. Use it from one event loop."""

    def __init__(self, logger: logging.Logger) -> None:
        self._log = logger
        self._known: dict[str, object] = {}  # by call: what identifies its latest failure

    def failed(self, call: str, error: Exception, extra: Mapping[str, object]) -> None:
        """Logs the exception with its traceback, unless it is the same as last time."""
        text = redacted(str(error))[:_LONGEST]
        identity = (type(error), _place(error), cause(error))
        if self._known.get(call) == identity:
            self._log.debug("%s failed again with %s: %s", call, type(error).__name__, text, extra=extra)
            return
        self._known[call] = identity
        message = "a driver raised an unexpected exception in %s: %s: %s (logged once, until it changes)"
        self._log.error(message, call, type(error).__name__, text, exc_info=error, extra=extra)

    def worked(self, call: str, extra: Mapping[str, object]) -> None:
        """Logs that a call works again after an exception. Called after every call, so it does little."""
        if self._known and self._known.pop(call, None) is not None:
            self._log.info("the driver's %s works again", call, extra=extra)


def _place(error: Exception) -> tuple[str, int]:
    """Where it was raised. Its text may differ each time, by a time or an id."""
    frames = traceback.extract_tb(error.__traceback__)
    return (frames[-1].filename, frames[-1].lineno or 0) if frames else ("", 0)
