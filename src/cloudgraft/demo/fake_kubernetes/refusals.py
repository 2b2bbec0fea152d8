"""What the server says no with."""

from __future__ import annotations

from typing import Any

__all__ = ["Json", "RefusedError", "missing"]

Json = dict[str, Any]


class RefusedError(Exception):
    """An answer other than success, as the API's own ``Status``."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": code,
            "reason": reason,
            "message": message,
        }


def missing(resource: str, name: str) -> RefusedError:
    """There is no object of that name."""
    return RefusedError(404, "NotFound", f'{resource} "{name}" not found')
