"""Describes one call of a protocol. Tables of these stand in for generated service code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from google.protobuf.message import Message


@dataclass(frozen=True, slots=True)
class Rpc:
    """A unary call: its name, and the messages that it takes and gives."""

    service: str
    name: str
    request: type[Message]
    response: type[Message]

    @property
    def path(self) -> str:
        """Where it is found on the wire."""
        return f"/{self.service}/{self.name}"


def rpc_table(service: str, calls: Iterable[tuple[str, type[Message], type[Message]]]) -> dict[str, Rpc]:
    """The calls of a service by name."""
    return {name: Rpc(service, name, request, response) for name, request, response in calls}
