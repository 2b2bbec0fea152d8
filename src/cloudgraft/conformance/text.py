"""Messages as one line of text each, short enough for a report."""

from __future__ import annotations

from typing import Final

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from cloudgraft.wire.pb import externalgrpc_pb2 as pb

__all__ = ["shortened", "shown"]

_LONGEST: Final = 600
_NUMBERS: Final = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_DOUBLE)


def shown(message: Message) -> str:
    """A message as text; encoded nodes and pods only by their size."""
    copy = type(message)()
    copy.CopyFrom(message)
    sizes = [f"{name}: {len(value)} bytes" for name in _encoded(copy) if (value := getattr(copy, name))]
    for name in _encoded(copy):
        copy.ClearField(name)
    rest = text_format.MessageToString(copy, as_one_line=True, as_utf8=True).strip()
    return shortened(", ".join([*sizes, *([rest] if rest else [])]) or _zeros(copy) or "(empty)")


def _zeros(message: Message) -> str:
    """Numbers that are 0 are not on the wire, and are an answer all the same: a target of 0."""
    fields = message.DESCRIPTOR.fields
    return " ".join(f"{field.name}: 0" for field in fields if field.cpp_type in _NUMBERS and not field.is_repeated)


def shortened(text: str) -> str:
    """At most some hundred characters of a text."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"


def _encoded(message: Message) -> tuple[str, ...]:
    if isinstance(message, pb.NodeGroupTemplateNodeInfoResponse):
        return ("nodeInfo", "nodeBytes")
    return ("pod", "pod_bytes") if isinstance(message, pb.PricingPodPriceRequest) else ()
