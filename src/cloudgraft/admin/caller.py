"""Names the client of the admin call under way, by its certificate."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

_CALLER: Final[ContextVar[str]] = ContextVar("caller", default="")


def set_caller(name: str) -> None:
    """Notes the client for the rest of this task, and for the tasks that it starts."""
    _CALLER.set(name)


def caller() -> str:
    """The name in the client's certificate; empty for a call over the socket, which needs none."""
    return _CALLER.get()
