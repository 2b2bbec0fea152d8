"""AWS's answers: written, read and changed."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final
from xml.sax.saxutils import escape

__all__ = ["Answer", "Described", "error_answer", "instance_ids", "with_state"]

_NAMESPACE: Final = "http://ec2.amazonaws.com/doc/2016-11-15"  # as moto has it
_N: Final = f"{{{_NAMESPACE}}}"
_STATE: Final = re.compile(rb"<instanceState>.*?</instanceState>", re.DOTALL)
_ID: Final = re.compile(rb"<instanceId>(i-[0-9a-f]+)</instanceId>")
ET.register_namespace("", _NAMESPACE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is sent back."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "text/xml;charset=UTF-8"

    @property
    def is_fine(self) -> bool:
        """Whether the request was carried out."""
        return self.status == 200


def error_answer(
    service: str, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
) -> Answer:
    """As the service writes errors: EC2 has a form of its own."""
    what = f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
    if service == "ec2":
        text = f"<Response><Errors><Error>{what}</Error></Errors><RequestID>r-1</RequestID></Response>"
    else:
        text = f"<ErrorResponse><Error><Type>Sender</Type>{what}</Error><RequestId>r-1</RequestId></ErrorResponse>"
    return Answer(status=status, body=f'<?xml version="1.0" encoding="UTF-8"?>{text}'.encode(), headers=headers or {})


def instance_ids(body: bytes) -> list[str]:
    """Of all instances in an answer."""
    return list(dict.fromkeys(found.decode() for found in _ID.findall(body)))


def with_state(body: bytes, described: bytes) -> bytes:
    """An answer about one instance, with the state that it has in another one."""
    state = _STATE.search(described)
    return _STATE.sub(lambda _: state[0], body) if state else body


class Described:
    """The answer to DescribeInstances."""

    def __init__(self, body: bytes) -> None:
        self._root = ET.fromstring(body)
        found = self._root.find(f"{_N}reservationSet")
        if found is None:
            found = ET.SubElement(self._root, f"{_N}reservationSet")
        self._reservations = found

    @staticmethod
    def empty() -> bytes:
        """Without any instance."""
        return f'<DescribeInstancesResponse xmlns="{_NAMESPACE}"><reservationSet/></DescribeInstancesResponse>'.encode()

    def ids(self) -> list[str]:
        """Of its instances, in their order."""
        return [item.findtext(f"{_N}instanceId", "") for item in self._root.iter(f"{_N}item") if _is_instance(item)]

    def keep(self, ids: Collection[str]) -> None:
        """Takes all others out."""
        for reservation in list(self._reservations):
            instances = reservation.find(f"{_N}instancesSet")
            for item in list(instances if instances is not None else ()):
                if item.findtext(f"{_N}instanceId") not in ids and instances is not None:
                    instances.remove(item)
            if instances is None or not len(instances):
                self._reservations.remove(reservation)

    def give_reason(self, reasons: Mapping[str, tuple[str, str]]) -> None:
        """Writes why instances are in their state: a code and a message."""
        for item in self._root.iter(f"{_N}item"):
            if _is_instance(item) and (reason := reasons.get(item.findtext(f"{_N}instanceId", ""))):
                old = item.find(f"{_N}stateReason")
                if old is not None:
                    item.remove(old)
                new = ET.SubElement(item, f"{_N}stateReason")
                ET.SubElement(new, f"{_N}code").text, ET.SubElement(new, f"{_N}message").text = reason

    def body(self, next_token: str) -> bytes:
        """As it is sent."""
        old = self._root.find(f"{_N}nextToken")
        if old is not None:
            self._root.remove(old)
        if next_token:
            ET.SubElement(self._root, f"{_N}nextToken").text = next_token
        return bytes(ET.tostring(self._root, encoding="utf-8", xml_declaration=True))


def _is_instance(item: ET.Element) -> bool:
    return item.find(f"{_N}instanceId") is not None and item.find(f"{_N}instanceState") is not None
