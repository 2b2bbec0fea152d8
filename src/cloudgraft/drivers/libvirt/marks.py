"""Whose a domain is: what cloudgraft writes into its metadata, and what it reads there.

A domain's uuid is made from its machine's name. So the name is a key twice over: libvirt refuses a second domain of
that name, and to define the same one again changes nothing but itself. Such a uuid is of version 5, while libvirt makes
those of version 4: most domains of others are told apart by their id alone.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from xml.etree import ElementTree as ET

from cloudgraft.sdk.driver import Machine, MachineSpec

__all__ = ["NAMESPACE", "Marks", "may_be_ours", "provider_id", "uuid_of"]

NAMESPACE: Final = "urn:cloudgraft:libvirt:machine:1"  # of our element in a domain
_NAMES: Final = uuid.UUID("7d2f8c0e-51c7-5d5b-9a53-3c1f2b0c7a11")  # never change it: every machine's id depends on it
_VERSION: Final = 5


def uuid_of(name: str) -> str:
    """The id of the machine with this name."""
    return str(uuid.uuid5(_NAMES, name))


def may_be_ours(domain_id: str) -> bool:
    """Whether a domain with this id is worth a look at its metadata."""
    return uuid.UUID(domain_id).version == _VERSION


def provider_id(domain_id: str) -> str:
    """What the node of this machine carries."""
    return f"libvirt:///{domain_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What a domain carries of us."""

    name: str  # the domain's own may be changed by hand
    pool: str  # where its volumes are: the configuration may name another one by now
    since: datetime
    tags: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: MachineSpec, pool: str) -> Marks:
        """For a machine that is made now."""
        return cls(name=spec.name, pool=pool, since=datetime.now(UTC), tags=dict(spec.tags))

    def element(self) -> ET.Element:
        """For a domain's ``<metadata>``. Tags are JSON in plain ASCII: XML would not keep every character."""
        attributes = {"name": self.name, "pool": self.pool, "since": self.since.isoformat()}
        element = ET.Element(f"{{{NAMESPACE}}}machine", attributes)
        element.text = json.dumps(dict(self.tags))
        return element

    @classmethod
    def read(cls, text: str, domain_id: str) -> Marks | None:
        """From what libvirt gives back; None when it is not what we wrote: then nothing proves to be ours.

        Marks of another name than the id is made from were copied by hand: they are of the machine that they were
        copied from, and whoever went by them would remove that one's disks (law 4).
        """
        try:
            element = ET.fromstring(text)  # noqa: S314 - libvirt has parsed it, and writes it out without entities
            tags = json.loads(element.text or "{}")
            since = datetime.fromisoformat(element.attrib["since"])
            marks = cls(name=element.attrib["name"], pool=element.attrib["pool"], since=since, tags=tags)
        except (ET.ParseError, KeyError, ValueError):
            return None
        is_sound = isinstance(tags, dict) and all(isinstance(value, str) for value in tags.values())
        return marks if is_sound and uuid_of(marks.name) == domain_id and since.tzinfo is not None else None

    def are_of(self, machine: Machine) -> bool:
        """Whether they are still those by which this machine proved to be ours, where it says which."""
        return not machine.tags or machine.tags == self.tags
