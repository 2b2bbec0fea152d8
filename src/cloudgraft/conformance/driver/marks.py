"""The names and tags of the machines that a run makes: as the engine forms them, different in each run."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from cloudgraft.sdk.driver import Machine

__all__ = ["CLUSTER_ID", "LONGEST_GROUP", "Marks"]

CLUSTER_ID = "cloudgraft-cluster-id"
LONGEST_GROUP = 1024  # characters of a group's id
_CLUSTER = "conformance-kit1"  # as long as a cluster's part of a name can be
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


@dataclass(frozen=True, slots=True)
class Marks:
    """Of one run, which is a cluster of its own to the cloud."""

    cluster_id: str = field(default_factory=lambda: _random(10))

    def new_name(self, group: str = "pool") -> str:
        """As long as the engine's names get, for a group with a long id."""
        slug = re.sub(r"[^a-z0-9]+", "-", group.lower()).strip("-")[:16].rstrip("-") or "x"
        digest = hashlib.sha256(group.encode()).hexdigest()[:8]
        return f"{_CLUSTER}-{self.cluster_id}-{slug}-{digest}-{_random(8)}"

    def tags(self, name: str, group: str) -> Mapping[str, str]:
        """What the engine marks a machine with."""
        return {
            "cloudgraft-cluster": _CLUSTER,
            CLUSTER_ID: self.cluster_id,
            "cloudgraft-group": group,
            "cloudgraft-name": name,
        }

    def is_ours(self, machine: Machine) -> bool:
        """Whether this run made it, even if the driver got its name or its tags wrong."""
        values = machine.tags.values() if isinstance(machine.tags, Mapping) else ()
        return any(self.cluster_id in str(text).lower() for text in (machine.name, *values))

    @staticmethod
    def is_of_some_run(machine: Machine) -> bool:
        """Whether another run of the kit made it, perhaps one that goes on at the same time."""
        return str(machine.name).startswith(_CLUSTER)
