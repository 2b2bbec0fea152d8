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
from cloudgraft.drivers.proxmox.options import ProxmoxOptions
from cloudgraft.sdk.errors import InvalidArgumentError, UnavailableError

# -- marks -------------------------------------------------------------------------------------------------------------
# VMIDs and marks identify machines. A machine's VMID is derived from its name, so that a second create of the name
# finds the first machine: VMIDs are unique in a cluster. Marks are stored twice. A clone accepts no tags, but a
# description: it holds the marks from the first moment, as JSON after a line for people. The last call of a create sets
# them as tags too, because only tags are in the list of all machines. A tag is ``KEY+VALUE``, of small letters, digits
# and a few signs: see ``LabelText``.

GENERAL: Final = "cloudgraft"  # the tag that every machine of ours has, for people
_NAME: Final = "cloudgraft-name"
_MADE: Final = "cloudgraft-made"  # when, in seconds since 1970; Proxmox does not know it of a clone
VMID_MARK: Final = "cloudgraft-vmid"  # of the machine itself: a copy of it has its marks too
_TEXT: Final = LabelText(letters=string.ascii_lowercase, others=".", longest=250)
_BETWEEN: Final = "+"
_JSON: Final = "cloudgraft: "  # how the line with the marks begins
_UUIDS: Final = uuid.UUID("0c0c61dc-3d0c-5b5e-8f0d-6d2a8a1f2f7a")  # a name space of our own


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The ownership marks of a machine, and when it was created."""

    tags: Mapping[str, str]
    made: datetime | None
    vmid: int | None = None  # of the machine that they were created for; None: they are from an older release

    @classmethod
    def new(cls, tags: Mapping[str, str], vmid: int) -> Marks:
        """Creates the marks of a new machine; raises InvalidArgumentError for marks that Proxmox cannot store."""
        for key in tags:
            if key in (GENERAL, _MADE, VMID_MARK):
                raise InvalidArgumentError(f"the mark {key!r} is the driver's own")
        marks = cls(tags=dict(tags), made=datetime.fromtimestamp(int(time.time()), UTC), vmid=vmid)
        marks.as_tags()
        return marks

    @property
    def name(self) -> str:
        """The machine's name in its marks; empty when they have none."""
        return self.tags.get(_NAME, "")

    def is_of(self, vmid: int) -> bool:
        """Returns whether they may be this machine's own. If not, it is a copy of another machine."""
        return self.vmid is None or self.vmid == vmid

    def is_made_for(self, vmid: int, options: ProxmoxOptions) -> bool:
        """Returns whether they are certainly this machine's own. Marks of older releases show it only by their name."""
        own = vmid_of(self.name, options.first_vmid, options.last_vmid) if self.vmid is None else self.vmid
        return own == vmid

    def as_tags(self) -> str:
        """Encodes them as Proxmox's tags."""
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
        """Encodes them as a machine's notes."""
        made = int(self.made.timestamp()) if self.made is not None else None
        data = json.dumps({"marks": dict(self.tags), "made": made, "vmid": self.vmid}, sort_keys=True)
        return f"Made and deleted by cloudgraft, which knows it by the next line.\n\n{_JSON}{data}"


def from_tags(text: str) -> Marks | None:
    """Decodes the marks of a machine in a list; None when it has none."""
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
    """Returns the tags of a machine that are not our marks."""
    tags = [tag for tag in text.replace(",", ";").split(";") if tag]
    return [tag for tag in tags if not _TEXT.decode(tag.partition(_BETWEEN)[0]).startswith(GENERAL)]


def without_marks(text: str) -> str:
    """Returns a machine's notes without the line with our marks."""
    return "\n".join(line for line in text.split("\n") if not line.startswith(_JSON))


def from_description(text: str) -> Marks | None:
    """Decodes the marks in a machine's notes; None when it has none, or when somebody has changed them."""
    line = next((line for line in text.splitlines() if line.startswith(_JSON)), "")
    try:
        data = json.loads(line.removeprefix(_JSON))
        tags = {str(key): str(value) for key, value in data["marks"].items()}
        return Marks(tags=tags, made=_time(data["made"]), vmid=_number(data.get("vmid")))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def vmid_of(name: str, first: int, last: int) -> int:
    """Returns the only VMID that a machine with this name may have."""
    digest = hashlib.sha256(name.encode("utf-8", "replace")).digest()
    return first + int.from_bytes(digest[:16], "big") % (last - first + 1)


def uuid_of(name: str) -> str:
    """Returns the UUID of a machine with this name, where its providerID holds it."""
    return str(uuid.uuid5(_UUIDS, name))


def _number(text: object) -> int | None:
    return int(str(text)) if str(text).isdecimal() else None


def _time(seconds: object) -> datetime | None:
    try:
        return datetime.fromtimestamp(int(str(seconds)), UTC)
    except (ValueError, OverflowError, OSError):
        return None


# -- inventory ---------------------------------------------------------------------------------------------------------
# Every node knows the current machines, tags and locks. Names and states come from each node every few seconds: a new
# machine has neither yet, and a machine whose node is unavailable loses both after some minutes.


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
    """A host. Its CPUs and memory are None when our user may not see them."""

    name: str
    is_online: bool
    is_in_maintenance: bool
    cpus: int | None
    memory: int | None
    used: int  # of its memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """A storage of one node."""

    is_shared: bool
    free: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything that our user may see."""

    guests: Mapping[int, Guest]
    nodes: Mapping[str, Node]
    storages: Mapping[tuple[str, str], Storage]  # by node and name

    def is_shared(self, storage: str) -> bool:
        """Returns whether all nodes share its content, as far as our user may see it."""
        return any(one.is_shared for (_, name), one in self.storages.items() if name == storage)

    def node_of(self, name: str) -> str:
        """Describes the state of a node for a message."""
        node = self.nodes.get(name)
        return "not known" if node is None else "online" if node.is_online else "offline"


def read_inventory(api: Api, what: str) -> Inventory:
    """Reads the cluster; raises UnavailableError for an invalid entry, and never leaves it out."""
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
