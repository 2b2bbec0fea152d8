"""A trap at every thing that a driver's library asks of its cloud, so that a call is cut in two there as well."""

from __future__ import annotations

import enum
import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.crash.points import Trap, When

__all__ = ["DRIVERS", "Finer", "set_traps"]

_REMOTE: Final = {  # what libvirt changes on the host
    "virConnect": ("defineXML", "defineXMLFlags"),
    "virDomain": ("create", "createWithFlags", "destroy", "destroyFlags", "undefineFlags"),
    "virStoragePool": ("createXML", "createXMLFrom"),
    "virStorageVol": ("upload", "delete"),
    "virStream": ("send", "sendAll", "finish"),
}


class Finer(enum.Enum):
    """What the process is doing, beside what every driver does."""

    REQUEST = "request"  # one of those that a call is made of


def set_traps(driver: str, trap: Trap) -> None:
    """From now on each request of this driver's library passes the trap, before and after."""
    for owner, name in DRIVERS[driver]():
        setattr(owner, name, _trapped(getattr(owner, name), trap))


def _botocore() -> list[tuple[Any, str]]:
    return [(importlib.import_module("botocore.httpsession").URLLib3Session, "send")]


def _requests() -> list[tuple[Any, str]]:
    return [(importlib.import_module("requests").adapters.HTTPAdapter, "send")]


def _libvirt() -> list[tuple[Any, str]]:
    library = importlib.import_module("libvirt")
    return [(getattr(library, owner), name) for owner, names in _REMOTE.items() for name in names]


DRIVERS: Final[Mapping[str, Callable[[], list[tuple[Any, str]]]]] = {
    "ec2": _botocore,
    "hetzner": _requests,
    "libvirt": _libvirt,
    "openstack": _requests,
    "proxmox": _requests,
}


def _trapped(call: Callable[..., Any], trap: Trap) -> Callable[..., Any]:
    @functools.wraps(call)
    def trapped(*args: Any, **kwargs: Any) -> Any:
        trap.at(Finer.REQUEST, When.BEFORE)
        try:
            return call(*args, **kwargs)
        finally:
            trap.at(Finer.REQUEST, When.AFTER)

    return trapped
