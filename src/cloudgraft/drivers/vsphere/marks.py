"""Names and marks: how a virtual machine is known to be the one that was asked for, and nobody else's.

A machine's name is its virtual machine's name, which is unique in the folder. Its marks are in extraConfig, put there
by the very call that makes it. Its id is the instance UUID, which is worked out from the name before the virtual
machine exists. Whoever clones one of ours by hand copies the marks along, but not the instance UUID: so only where both
agree is it the machine that was made here.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cloudgraft.drivers.vsphere.options import MARKS
from cloudgraft.sdk.driver import MachineSpec
from cloudgraft.sdk.errors import InvalidArgumentError

__all__ = ["NAME_KEY", "TAGS_KEY", "Marks", "check_name", "instance_uuid", "marks_for", "marks_in"]

NAME_KEY: Final = f"{MARKS}name"
TAGS_KEY: Final = f"{MARKS}tags"
_SPACE: Final = uuid.UUID("6d0c2f3e-53f2-5d5b-9c53-0b1d6f5e3a77")  # of our names; any would do, but never another
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")  # 80 characters; vCenter rewrites some others
_LONGEST: Final = 60_000  # characters of one value in extraConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What a virtual machine says of itself."""

    name: str
    tags: Mapping[str, str] = field(default_factory=dict)


def check_name(name: str) -> None:
    """Raises InvalidArgumentError for a name that vCenter would refuse, or write in another way."""
    if not _PLAIN.fullmatch(name):
        raise InvalidArgumentError(
            f"{name!r} is no name for a virtual machine: at most 80 letters, digits, dots, dashes and underscores"
        )


def instance_uuid(name: str) -> str:
    """The instance UUID of the machine of that name, in the form in which vCenter writes it."""
    return str(uuid.uuid5(_SPACE, name))


def marks_for(spec: MachineSpec) -> dict[str, str]:
    """The marks, as advanced settings."""
    tags = json.dumps(dict(spec.tags), sort_keys=True)
    if len(tags) > _LONGEST:
        raise InvalidArgumentError(f"the tags of {spec.name} are too long: at most {_LONGEST} characters as JSON")
    return {NAME_KEY: spec.name, TAGS_KEY: tags}


def marks_in(settings: Mapping[str, str]) -> Marks | None:
    """The marks among the advanced settings of a virtual machine; None when it has none that can be read."""
    name, written = settings.get(NAME_KEY), settings.get(TAGS_KEY)
    if not name or written is None:
        return None
    try:
        tags = json.loads(written)
    except ValueError:
        return None
    if not isinstance(tags, dict) or not all(isinstance(value, str) for value in tags.values()):
        return None
    return Marks(name=name, tags=tags)
