"""Describes the calls of a protocol. Tables of these stand in for generated service code."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass


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


def rpc_table(service: ServiceDescriptor) -> dict[str, Rpc]:
    """The calls of a service by name, in the order of its ``.proto`` file."""
    return {
        method.name: Rpc(
            service.full_name, method.name, GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        )
        for method in service.methods
    }
