"""Describes one call to the server, the server's refusals, and planned faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# -- requests and faults -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """A call that was made."""

    method: str
    plural: str
    name: str
    query: dict[str, str]
    at: float  # on the monotonic clock
    watch_generation: int  # of the server when this came
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


@dataclass
class Fault:
    """An answer that is given instead of the right one, to the next calls that match."""

    matches: Callable[[Request], bool]
    code: int
    body: bytes
    headers: dict[str, str]
    times: int


# -- refusals ----------------------------------------------------------------------------------------------------------


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
