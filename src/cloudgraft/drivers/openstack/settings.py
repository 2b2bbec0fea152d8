"""Defines the ``machine:`` section of node groups in OpenStack."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cloudgraft.sdk.flaws import Flaws

AUTO: Final = "auto"  # Nova's word: the project's only network, or one that is made for it
NONE: Final = "none"  # Nova's word: no network at all
LONGEST_METADATA: Final = 255  # characters, of a key and of a value
_METADATA_KEY: Final = re.compile(r"[A-Za-z0-9:._ -]{1,255}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BootVolume:
    """A volume that is made from the image, and that the server boots from."""

    size: int  # in GiB
    type: str = ""  # the volume type, by its name; empty: the cloud's default
    delete_on_termination: bool = True  # no: it stays when the server is deleted, and is yours to remove

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        flaws = Flaws()
        flaws.expect(self.size >= 1, "size", "must be at least 1 (GiB)")
        flaws.raise_any()


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """The servers of one group. What has a name in OpenStack may be said by its name or by its id."""

    shape: str  # the flavour, by its name or its id
    image: str  # by its name, which only one image may have, or its id
    networks: Sequence[str] = ()  # by name or id, in this order; empty or [auto]: the only one; [none]: none at all
    security_groups: Sequence[str] = ()  # by name or id; empty: the project's default
    key_pair: str = ""  # the name of an SSH key that the project has; empty: none
    zone: str = ""  # the availability zone; empty: as the cloud chooses
    server_group: str = ""  # by its name or its id, such as one with the policy anti-affinity; empty: none
    boot_volume: BootVolume | None = None  # a volume to boot from; without it, the flavour's own disk
    config_drive: bool = False  # user data also on a small disk, for networks without a metadata service
    metadata: Mapping[str, str] = field(default_factory=dict)  # of the server, beside our marks

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        flaws = Flaws()
        for key, value in {"shape": self.shape, "image": self.image}.items():
            flaws.expect(value, key, "must not be empty")
        stands_alone = len(self.networks) < 2 or not {AUTO, NONE} & set(self.networks)
        flaws.expect(stands_alone, "networks", "the words auto and none stand alone, or not at all")
        for key, names in {"networks": self.networks, "securityGroups": self.security_groups}.items():
            flaws.expect("" not in names, key, "must not have empty names")
        check_metadata(flaws, "metadata", self.metadata)
        flaws.raise_any()


def check_metadata(flaws: Flaws, what: str, entries: Mapping[str, str]) -> None:
    """Notes what Nova would refuse, or would break on: nothing is cut."""
    for key, value in entries.items():
        shown = repr(key[:80])
        is_key = _METADATA_KEY.fullmatch(key)
        flaws.expect(is_key, what, f"{shown} is no key for Nova: letters, digits, and : . _ -")
        told = f"the value of {shown} has {len(value)} characters; Nova keeps {LONGEST_METADATA} at most"
        flaws.expect(len(value) <= LONGEST_METADATA, what, told)
        can_be_kept = all(0 < ord(letter) <= 0xFFFF for letter in value)  # its database has three bytes for each
        flaws.expect(can_be_kept, what, f"the value of {shown} has a character that Nova cannot keep")
