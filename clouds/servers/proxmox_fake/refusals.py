"""Answers that say no."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["RefusedError", "TaskError", "no_right"]


class RefusedError(Exception):
    """A sentence, which goes into the first line of the answer, and words about single parameters."""

    def __init__(self, status: int, message: str, errors: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.errors = errors


class TaskError(Exception):
    """What a task says last when it fails."""


def no_right(path: str, right: str) -> RefusedError:
    """As Proxmox says it."""
    return RefusedError(403, f"Permission check failed ({path}, {right})")
