"""What a node group may say about its servers: its ``machine:`` section."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cloudgraft.sdk.errors import InvalidArgumentError

__all__ = ["AUTO", "NONE", "BootVolume", "MachineSettings", "check_metadata", "settings_of"]

AUTO: Final = "auto"  # Nova's word: the project's only network, or one that is made for it
NONE: Final = "none"  # Nova's word: no network at all
LONGEST_METADATA: Final = 255  # characters, of a key and of a value
_METADATA_KEY: Final = re.compile(r"[A-Za-z0-9:._ -]{1,255}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BootVolume:
    """A volume that is made from the image, and that the server boots from."""

    size: int  # GiB
    type: str = ""  # empty: the cloud's default
    delete_on_termination: bool = True  # False: it stays when the server is deleted, and is yours to remove

    def __post_init__(self) -> None:
        """Refuses what can never work."""
        if self.size < 1:
            raise InvalidArgumentError("bootVolume.size must be at least 1 (GiB)")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """The servers of one group. What has a name in OpenStack may be said by its name or by its id."""

    shape: str  # the flavour
    image: str
    networks: Sequence[str] = ()  # in this order; empty or [auto]: the only one; [none]: none at all
    security_groups: Sequence[str] = ()  # empty: the project's default
    key_pair: str = ""
    zone: str = ""  # the availability zone
    server_group: str = ""  # such as one with the policy anti-affinity
    boot_volume: BootVolume | None = None  # None: from the image, on the flavour's own disk
    config_drive: bool = False  # user data also on a small disk, for networks without a metadata service
    metadata: Mapping[str, str] = field(default_factory=dict)  # beside our marks

    def __post_init__(self) -> None:
        """Refuses what can never work."""
        for key, value in {"shape": self.shape, "image": self.image}.items():
            if not value:
                raise InvalidArgumentError(f"{key} must not be empty")
        if len(self.networks) > 1 and {AUTO, NONE} & set(self.networks):
            raise InvalidArgumentError("networks: the words auto and none stand alone, or not at all")
        if "" in (*self.networks, *self.security_groups):
            raise InvalidArgumentError("networks and securityGroups must not have empty names")
        check_metadata(self.metadata, "metadata")


def check_metadata(entries: Mapping[str, str], what: str) -> None:
    """Raises InvalidArgumentError for what Nova would refuse, or would break on: nothing is cut."""
    for key, value in entries.items():
        if not _METADATA_KEY.fullmatch(key):
            raise InvalidArgumentError(f"{what}: {key[:80]!r} is no key for Nova: letters, digits, and : . _ -")
        if len(value) > LONGEST_METADATA:
            raise InvalidArgumentError(
                f"{what}: the value of {key!r} has {len(value)} characters; Nova keeps {LONGEST_METADATA} at most"
            )
        if any(not 0 < ord(letter) <= 0xFFFF for letter in value):  # its database has three bytes for each
            raise InvalidArgumentError(f"{what}: the value of {key!r} has a character that Nova cannot keep")


def settings_of(given: Mapping[str, object]) -> MachineSettings:
    """A group's `machine:` section. Raises InvalidArgumentError: it may come from a journal, unchecked."""
    known = {
        "shape", "image", "networks", "securityGroups", "keyPair", "zone", "serverGroup", "bootVolume", "configDrive",
        "metadata",
    }  # fmt: skip
    if strange := sorted(set(given) - known):
        raise InvalidArgumentError(f"machine.{strange[0]} is not known; there is: {', '.join(sorted(known))}")
    try:
        return MachineSettings(
            shape=_text(given, "shape"),
            image=_text(given, "image"),
            networks=_texts(given, "networks"),
            security_groups=_texts(given, "securityGroups"),
            key_pair=_text(given, "keyPair"),
            zone=_text(given, "zone"),
            server_group=_text(given, "serverGroup"),
            boot_volume=_volume(given.get("bootVolume")),
            config_drive=_switch(given, "configDrive"),
            metadata={key: _text(_mapping(given, "metadata"), key) for key in _mapping(given, "metadata")},
        )
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"machine: {error.message}") from None


def _volume(given: object) -> BootVolume | None:
    if given is None:
        return None
    fields = _mapping({"bootVolume": given}, "bootVolume")
    size = fields.get("size")
    if not isinstance(size, int) or isinstance(size, bool):
        raise InvalidArgumentError("bootVolume.size must be a number of GiB")
    return BootVolume(
        size=size,
        type=_text(fields, "type"),
        delete_on_termination=_switch(fields, "deleteOnTermination", otherwise=True),
    )


def _text(given: Mapping[str, object], key: str) -> str:
    value = given.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidArgumentError(f"{key} must be a text")
    return value or ""


def _texts(given: Mapping[str, object], key: str) -> tuple[str, ...]:
    value = given.get(key) or ()
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
        raise InvalidArgumentError(f"{key} must be a list of texts")
    return tuple(value)


def _mapping(given: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = given.get(key) or {}
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(f"{key} must be a mapping")
    return value


def _switch(given: Mapping[str, object], key: str, *, otherwise: bool = False) -> bool:
    value = given.get(key)
    if value is not None and not isinstance(value, bool):
        raise InvalidArgumentError(f"{key} must be true or false")
    return otherwise if value is None else value
