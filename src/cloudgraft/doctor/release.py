"""Releases of the autoscaler: told by an image's tag, compared, and what some of them need that others do not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["NEWEST", "OLDEST", "Release", "needed_rights"]

_TAG: Final = re.compile(r":v?(\d+)\.(\d+)(?:\.(\d+))?(?:[-+.][\w.+-]*)?(?:@sha256:[0-9a-f]+)?$")
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True, slots=True, order=True)
class Release:
    """A release, such as 1.35.2; without a patch it counts as the first of its minor."""

    major: int
    minor: int
    patch: int = 0

    @classmethod
    def of_image(cls, image: str) -> Release | None:
        """Of an image's tag: ``registry.example/cluster-autoscaler:v1.35.2``. None when the tag tells none."""
        match = _TAG.search(image)
        return cls(*(int(part or 0) for part in match.groups())) if match else None

    @classmethod
    def of_version(cls, text: str) -> Release | None:
        """Of a version, such as ``v1.34.4+k3s1``."""
        match = _VERSION.match(text)
        return cls(*(int(part or 0) for part in match.groups())) if match else None

    @property
    def is_of(self) -> tuple[int, int]:
        """Its minor release."""
        return self.major, self.minor

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


OLDEST: Final = (1, 25)
NEWEST: Final = (1, 37)

_READS: Final = ("list", "watch")
# What the caches of every release hold: its own, and those of the scheduler that it simulates.
_WATCHED: Final = {
    "": (
        "namespaces",
        "nodes",
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
        "replicationcontrollers",
        "services",
    ),
    "apps": ("daemonsets", "replicasets", "statefulsets"),
    "batch": ("jobs",),
    "policy": ("poddisruptionbudgets",),
    "storage.k8s.io": ("csidrivers", "csinodes", "csistoragecapacities", "storageclasses"),
}
_DONE: Final = (("", "nodes", "update"), ("", "pods/eviction", "create"), ("", "events", "create"))
_DEVICES: Final = ("deviceclasses", "resourceclaims", "resourceslices")
_SINCE_ATTACHMENTS: Final = (1, 32)
_SINCE_DEVICES: Final = (1, 35)  # before that only with a flag, which came with 1.32


def needed_rights(release: Release | None, *, with_devices: bool) -> tuple[tuple[str, str, str], ...]:
    """What an autoscaler must be allowed to do in the whole cluster: group of the API, resource, verb.

    ``with_devices``: it was started with --enable-dynamic-resource-allocation. Of an unknown release only what every
    release needs.
    """
    watched = [(group, resource) for group, resources in _WATCHED.items() for resource in resources]
    if release is not None and release.is_of >= _SINCE_ATTACHMENTS:
        watched.append(("storage.k8s.io", "volumeattachments"))
    if with_devices or (release is not None and release.is_of >= _SINCE_DEVICES):
        watched += [("resource.k8s.io", resource) for resource in _DEVICES]
    return (*((group, resource, verb) for group, resource in watched for verb in _READS), *_DONE)
