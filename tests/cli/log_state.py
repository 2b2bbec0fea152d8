"""Puts the log back as it was: `logs.configure` changes it for the whole process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_CHANGED = ("", "cloudgraft", "cloudgraft.service")


@contextmanager
def log_as_before() -> Iterator[None]:
    """After the block."""
    root = logging.getLogger()
    handlers, levels = root.handlers, {name: logging.getLogger(name).level for name in _CHANGED}
    try:
        yield
    finally:
        root.handlers = handlers
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
