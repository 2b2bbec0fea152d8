"""Which parameters the calls take, as the public API schema tells; what it does not tell is refused, as there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from clouds.servers.proxmox_fake.refusals import RefusedError

__all__ = ["check"]

_VMID: Final = r"[1-9][0-9]{2,8}"
_TAG: Final = r"[a-z0-9_][a-z0-9_\-+.]*"
_BOOLEAN: Final = r"[01]"
_WORD: Final = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_DNS: Final = (
    r"(?=.{1,253}$)([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?\.)*[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
)
_ANY: Final = r"[\s\S]*"
_DRIVES: Final = {
    **{f"ide{n}": _ANY for n in range(4)},
    **{f"sata{n}": _ANY for n in range(6)},
    **{f"scsi{n}": _ANY for n in range(31)},
    **{f"virtio{n}": _ANY for n in range(16)},
}
_SMBIOS: Final = r"(uuid=[a-fA-F0-9]{8}(-[a-fA-F0-9]{4}){3}-[a-fA-F0-9]{12})?,?([a-z]+=[^,]*,?)*"
_NET: Final = (
    r"(virtio|e1000|e1000e|rtl8139|vmxnet3)(=[0-9A-Fa-f:]{17})?(,bridge=[A-Za-z0-9._-]+)?(,firewall=[01])?(,tag=\d+)?"
)
_CONFIG: Final = {
    "name": _DNS,
    "description": _ANY,
    "tags": rf"[;, ]*({_TAG}([;, ]+{_TAG})*)?[;, ]*",
    "cores": r"[1-9]\d*",
    "sockets": r"[1-9]\d*",
    "memory": r"[1-9]\d+",
    "balloon": r"\d+",
    "boot": _ANY,
    "smbios1": _SMBIOS,
    "onboot": _BOOLEAN,
    "protection": _BOOLEAN,
    "agent": _ANY,
    "delete": _ANY,
    "digest": r"[0-9a-f]{0,40}",
    **{f"net{n}": _NET for n in range(32)},
    **_DRIVES,
}
_CLONE: Final = {
    "newid": _VMID,
    "name": _DNS,
    "description": _ANY,
    "pool": _WORD,
    "snapname": _WORD,
    "storage": _WORD,
    "format": "raw|qcow2|vmdk",
    "full": _BOOLEAN,
    "target": _WORD,
    "bwlimit": r"\d+",
}
_KNOWN: Final[Mapping[str, tuple[Mapping[str, str], tuple[str, ...]]]] = {
    "clone": (_CLONE, ("newid",)),
    "config": ({**_CONFIG, "background_delay": r"\d+"}, ()),
    "resize": ({"disk": "|".join(_DRIVES), "size": r"\+?\d+(\.\d+)?[KMGT]?", "digest": _ANY}, ("disk", "size")),
    "start": ({"timeout": r"\d+"}, ()),
    "stop": ({"timeout": r"\d+", "overrule-shutdown": _BOOLEAN}, ()),
    "destroy": ({"purge": _BOOLEAN, "destroy-unreferenced-disks": _BOOLEAN}, ()),
    "upload": ({"content": "iso|vztmpl|import", "filename": r".{1,255}"}, ("content", "filename")),
    "free": ({"delay": r"\d+"}, ()),
}


def check(call: str, given: Mapping[str, str]) -> None:
    """Raises RefusedError for parameters that the call does not take."""
    known, needed = _KNOWN[call]
    errors = {
        key: "property is not defined in schema and the schema does not allow additional properties"
        for key in given
        if key not in known
    }
    errors |= {key: "property is missing and it is not optional" for key in needed if key not in given}
    errors |= {
        key: "invalid format - value does not look valid"
        for key, value in given.items()
        if key in known and not re.fullmatch(known[key], value, re.IGNORECASE)
    }
    if errors:
        raise RefusedError(400, "Parameter verification failed.", errors)
