"""The one table of all findings. The reference page is made from it, and no finding is made without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cloudgraft.doctor.catalog import autoscaler, cluster, flags, server, tls
from cloudgraft.doctor.findings import Entry, Finding

__all__ = ["ENTRIES", "SECTIONS", "found"]

SECTIONS: Final[Mapping[str, tuple[Entry, ...]]] = {
    "The configuration and the running server": server.ENTRIES,
    "Certificates and the connection": tls.ENTRIES,
    "The autoscaler as it is deployed": autoscaler.ENTRIES,
    "The autoscaler's flags": flags.ENTRIES,
    "The cluster": cluster.ENTRIES,
}
ENTRIES: Final[Mapping[str, Entry]] = {entry.id: entry for section in SECTIONS.values() for entry in section}


def found(id_: str, *, where: str, what: str, fix: str = "") -> Finding:
    """A finding of that kind; ``fix`` is what mends this very case, where that can be said."""
    entry = ENTRIES[id_]
    return Finding(entry=entry, where=where, what=what, fix=fix or entry.fix)
