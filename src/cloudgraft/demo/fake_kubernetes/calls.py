"""Describes one call to the server, and the server's refusals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Request:
    """A call that was made."""

    method: str
    plural: str
    name: str
    query: dict[str, str]
    at: float  # on the monotonic clock
    namespace: str = ""  # empty: all of them
    group: str = ""  # of the API
    subresource: str = ""
    user: str = ""  # empty: unknown to the server

    @property
    def is_watch(self) -> bool:
        """Whether it is a watch, which runs until it is ended."""
        return self.query.get("watch") in {"true", "1"}

    @property
    def verb(self) -> str:
        """As rights call it."""
        if self.method == "GET":
            return "watch" if self.is_watch else "get" if self.name else "list"
        return {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[self.method]


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
