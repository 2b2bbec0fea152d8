"""Reads a cluster in one call: machines with our marks, nodes and storages."""

from __future__ import annotations

import hashlib
import json
import string
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from cloudgraft.drivers.common.label_text import LabelText
from cloudgraft.drivers.proxmox.api import Api
from cloudgraft.sdk.errors import InvalidArgumentError, UnavailableError

# -- marks -------------------------------------------------------------------------------------------------------------
# How machines are told apart: their VMIDs, and our marks on them. A machine's VMID is made from its name, so that a
# second create of the name meets the first machine: VMIDs are unique in a cluster. Marks are kept twice. A clone takes
# no tags, but it takes a description, which so carries the marks from the first moment, as JSON after a line for
# people. The last call of a create gives it the marks as tags too: only those are in the list of all machines. Tags are
# small letters, digits and a few signs: ``KEY+VALUE``, see ``LabelText``.

GENERAL: Final = "cloudgraft"  # the tag that every machine of ours has, for people
_NAME: Final = "cloudgraft-name"
_MADE: Final = "cloudgraft-made"  # when, in seconds since 1970; Proxmox does not tell it of a clone
VMID_MARK: Final = "cloudgraft-vmid"  # of the machine itself: whoever clones it, or restores a backup, copies its marks
_TEXT: Final = LabelText(letters=string.ascii_lowercase, others=".", longest=250)
_BETWEEN: Final = "+"
_JSON: Final = "cloudgraft: "  # how the line with the marks begins
_UUIDS: Final = uuid.UUID("0c0c61dc-3d0c-5b5e-8f0d-6d2a8a1f2f7a")  # a name space of our own


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Whose a machine is, and when it was made."""

    tags: Mapping[str, str]
    made: datetime | None
    vmid: int | None = None  # of the machine that they were made for; None: they are from an older release

    @classmethod
    def new(cls, tags: Mapping[str, str], vmid: int) -> Marks:
        """For a machine that is made now; raises InvalidArgumentError for what Proxmox cannot keep."""
        for key in tags:
            if key in (GENERAL, _MADE, VMID_MARK):
                raise InvalidArgumentError(f"the mark {key!r} is the driver's own")
        marks = cls(tags=dict(tags), made=datetime.fromtimestamp(int(time.time()), UTC), vmid=vmid)
        marks.as_tags()
        return marks

    @property
    def name(self) -> str:
        """The machine's name by its marks; empty when they do not have it."""
        return self.tags.get(_NAME, "")

    def is_of(self, vmid: int) -> bool:
        """Whether they may be this machine's own, and are not known to have come with a copy."""
        return self.vmid is None or self.vmid == vmid

    def is_made_for(self, vmid: int, first: int, last: int) -> bool:
        """Whether they are this machine's own for certain. Those of an older release tell it by their name alone."""
        return (vmid_of(self.name, first, last) if self.vmid is None else self.vmid) == vmid

    def as_tags(self) -> str:
        """As Proxmox's tags."""
        pairs = dict(self.tags)
        if self.made is not None:
            pairs[_MADE] = str(int(self.made.timestamp()))
        if self.vmid is not None:
            pairs[VMID_MARK] = str(self.vmid)
        tags = [
            f"{_TEXT.encode(key, f'the key {key!r} of a mark')}{_BETWEEN}{_TEXT.encode(value, f'the mark {key!r}')}"
            for key, value in pairs.items()
        ]
        return ";".join(sorted([GENERAL, *tags]))

    def as_description(self) -> str:
        """As a machine's notes."""
        made = int(self.made.timestamp()) if self.made is not None else None
        data = json.dumps({"marks": dict(self.tags), "made": made, "vmid": self.vmid}, sort_keys=True)
        return f"Made and deleted by cloudgraft, which knows it by the next line.\n\n{_JSON}{data}"


def from_tags(text: str) -> Marks | None:
    """The marks of a machine in a list; None when it has none of ours."""
    tags = text.replace(",", ";").split(";")
    if GENERAL not in tags:
        return None
    pairs = {}
    for tag in tags:
        key, between, value = tag.partition(_BETWEEN)
        if between:
            pairs[_TEXT.decode(key)] = _TEXT.decode(value)
    made, vmid = _time(pairs.pop(_MADE, None)), _number(pairs.pop(VMID_MARK, None))
    return Marks(made=made, vmid=vmid, tags=pairs)


def other_tags(text: str) -> list[str]:
    """The tags of a machine that are not our marks."""
    tags = [tag for tag in text.replace(",", ";").split(";") if tag]
    return [tag for tag in tags if not _TEXT.decode(tag.partition(_BETWEEN)[0]).startswith(GENERAL)]


def without_marks(text: str) -> str:
    """A machine's notes without the line that has our marks."""
    return "\n".join(line for line in text.split("\n") if not line.startswith(_JSON))


def from_description(text: str) -> Marks | None:
    """The marks in a machine's notes; None when they have none, or when somebody has made others of them."""
    line = next((line for line in text.splitlines() if line.startswith(_JSON)), "")
    try:
        data = json.loads(line.removeprefix(_JSON))
        tags = {str(key): str(value) for key, value in data["marks"].items()}
        return Marks(tags=tags, made=_time(data["made"]), vmid=_number(data.get("vmid")))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def vmid_of(name: str, first: int, last: int) -> int:
    """The one VMID that a machine of this name may have."""
    digest = hashlib.sha256(name.encode("utf-8", "replace")).digest()
    return first + int.from_bytes(digest[:16], "big") % (last - first + 1)


def uuid_of(name: str) -> str:
    """The UUID that a machine of this name is given, where its providerID is made of it."""
    return str(uuid.uuid5(_UUIDS, name))


def _number(text: object) -> int | None:
    return int(str(text)) if str(text).isdecimal() else None


def _time(seconds: object) -> datetime | None:
    try:
        return datetime.fromtimestamp(int(str(seconds)), UTC)
    except (ValueError, OverflowError, OSError):
        return None


# -- inventory ---------------------------------------------------------------------------------------------------------
# The list of machines and their tags and locks is as every node knows it at once. Names and states are what each node
# tells every few seconds: a new machine has neither yet, and one whose node is away loses both after some minutes.


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """A virtual machine, a template, or a container."""

    vmid: int
    node: str
    name: str  # empty: not known yet, or it has none
    status: str  # running, stopped, or unknown
    lock: str
    pool: str
    marks: Marks | None
    is_template: bool
    is_container: bool
    cpus: int
    memory: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A host. What it has is None when we may not see it."""

    name: str
    is_online: bool
    is_in_maintenance: bool
    cpus: int | None
    memory: int | None
    used: int  # of its memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """A storage, as one node has it."""

    is_shared: bool
    free: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything that we may see."""

    guests: Mapping[int, Guest]
    nodes: Mapping[str, Node]
    storages: Mapping[tuple[str, str], Storage]  # by node and name

    def is_shared(self, storage: str) -> bool:
        """Whether all nodes have the same in it, as far as we may see it."""
        return any(one.is_shared for (_, name), one in self.storages.items() if name == storage)

    def node_of(self, name: str) -> str:
        """How a node is, for a message."""
        node = self.nodes.get(name)
        return "not known" if node is None else "online" if node.is_online else "offline"


def read_inventory(api: Api, what: str) -> Inventory:
    """Asks the cluster; raises UnavailableError rather than leave out what was not understood."""
    entries = api.get("cluster/resources", what)
    try:
        kinds: dict[str, list[dict[str, Any]]] = {}
        for entry in entries:
            kinds.setdefault(entry["type"], []).append(entry)
        guests = [_guest(entry) for entry in (*kinds.get("qemu", ()), *kinds.get("lxc", ()))]
        return Inventory(
            guests={guest.vmid: guest for guest in guests},
            nodes={entry["node"]: _node(entry) for entry in kinds.get("node", ())},
            storages={(entry["node"], entry["storage"]): _storage(entry) for entry in kinds.get("storage", ())},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnavailableError(f"{what}: the list makes no sense: {type(error).__name__} {error}") from None


def _guest(entry: Mapping[str, Any]) -> Guest:
    marks = from_tags(str(entry.get("tags") or ""))
    return Guest(
        vmid=int(entry["vmid"]),
        node=str(entry["node"]),
        name="" if entry.get("name") == f"VM {entry['vmid']}" else str(entry.get("name") or ""),
        status=str(entry.get("status") or "unknown"),
        lock=str(entry.get("lock") or ""),
        pool=str(entry.get("pool") or ""),
        marks=marks if marks is not None and marks.is_of(int(entry["vmid"])) else None,
        is_template=bool(int(entry.get("template") or 0)),
        is_container=entry["type"] == "lxc",
        cpus=int(entry.get("maxcpu") or 0),
        memory=int(entry.get("maxmem") or 0),
    )


def _node(entry: Mapping[str, Any]) -> Node:
    return Node(
        name=str(entry["node"]),
        is_online=entry.get("status") == "online",
        is_in_maintenance=entry.get("hastate") == "maintenance",
        cpus=int(entry["maxcpu"]) if entry.get("maxcpu") else None,
        memory=int(entry["maxmem"]) if entry.get("maxmem") else None,
        used=int(entry.get("mem") or 0),
    )


def _storage(entry: Mapping[str, Any]) -> Storage:
    is_known = entry.get("status") == "available" and entry.get("maxdisk")
    return Storage(
        is_shared=bool(int(entry.get("shared") or 0)),
        free=int(entry["maxdisk"]) - int(entry.get("disk") or 0) if is_known else None,
    )
