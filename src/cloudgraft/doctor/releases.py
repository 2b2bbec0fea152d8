"""Knows the autoscaler's releases: their order, their flags, and the rights that they need."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from cloudgraft.sdk.duration import parse_duration

# -- releases and their rights -----------------------------------------------------------------------------------------
# Releases are read from an image's tag and compared; some need rights that others do not.


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
        """From an image's tag: ``registry.example/cluster-autoscaler:v1.35.2``. None when the tag names none."""
        match = _TAG.search(image)
        return cls(*(int(part or 0) for part in match.groups())) if match else None

    @classmethod
    def of_version(cls, text: str) -> Release | None:
        """From a version, such as ``v1.34.4+k3s1``."""
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
# Resources in the caches of every release: its own, and those of the scheduler that it simulates.
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
    """The rights that an autoscaler needs in the whole cluster: API group, resource, verb.

    ``with_devices``: it was started with --enable-dynamic-resource-allocation. Of an unknown release only what every
    release needs.
    """
    watched = [(group, resource) for group, resources in _WATCHED.items() for resource in resources]
    if release is not None and release.is_of >= _SINCE_ATTACHMENTS:
        watched.append(("storage.k8s.io", "volumeattachments"))
    if with_devices or (release is not None and release.is_of >= _SINCE_DEVICES):
        watched += [("resource.k8s.io", resource) for resource in _DEVICES]
    return (*((group, resource, verb) for group, resource in watched for verb in _READS), *_DONE)


# -- flags -------------------------------------------------------------------------------------------------------------


# Defaults of flags; the same in every release from 1.25 to 1.37.
DEFAULTS: Final[Mapping[str, str]] = {
    "namespace": "kube-system",
    "max-node-provision-time": "15m",
    "scale-down-unneeded-time": "10m",
    "scale-down-utilization-threshold": "0.5",
}
_BOOLEANS: Final = frozenset(
    {
        "balance-similar-node-groups",
        "cluster-snapshot-parallelism",
        "cordon-node-before-terminating",
        "debugging-snapshot-enabled",
        "emit-per-nodegroup-metrics",
        "enable-dynamic-resource-allocation",
        "enable-provisioning-requests",
        "enforce-node-group-min-size",
        "force-delete-failed-nodes",
        "force-delete-unregistered-nodes",
        "force-ds",
        "frequent-loops-enabled",
        "ignore-daemonsets-utilization",
        "ignore-mirror-pods-utilization",
        "leader-elect",
        "logtostderr",
        "parallel-drain",
        "parallel-scale-up",
        "profiling",
        "record-duplicated-events",
        "regional",
        "salvo-scale-up",
        "scale-down-delay-type-local",
        "scale-down-enabled",
        "scale-down-unready-enabled",
        "scale-up-from-zero",
        "skip-nodes-with-custom-controller-pods",
        "skip-nodes-with-local-storage",
        "skip-nodes-with-system-pods",
        "write-status-configmap",
    }
)
# The first and the last minor release that knows a flag, for those that not all of 1.25 to 1.37 know.
KNOWN: Final[Mapping[str, tuple[int, int]]] = {
    "allowed-scheduler-names": (35, 37),
    "async-node-groups": (31, 37),
    "blocking-system-pod-distruption-timeout": (33, 37),
    "bypassed-scheduler-names": (29, 37),
    "capacity-buffer-controller-enabled": (34, 37),
    "capacity-buffer-pod-injection-enabled": (34, 37),
    "capacity-quotas-enabled": (36, 37),
    "check-capacity-batch-processing": (32, 37),
    "check-capacity-processor-instance": (33, 37),
    "cluster-snapshot-parallelism": (33, 37),
    "drain-priority-config": (29, 37),
    "dynamic-node-delete-delay-after-taint-enabled": (29, 37),
    "enable-csi-node-aware-scheduling": (35, 37),
    "enable-dynamic-resource-allocation": (32, 37),
    "enable-graceful-degradation": (37, 37),
    "enable-proactive-scaleup": (31, 37),
    "enable-provisioning-requests": (30, 37),
    "enforce-node-group-min-size": (26, 37),
    "fastpath-binpacking-enabled": (36, 37),
    "force-delete-failed-nodes": (31, 37),
    "force-delete-unregistered-nodes": (32, 37),
    "force-ds": (27, 37),
    "frequent-loops-enabled": (30, 37),
    "kube-api-content-type": (29, 37),
    "kube-client-burst": (27, 37),
    "kube-client-qps": (27, 37),
    "max-allocatable-difference-ratio": (27, 37),
    "max-autoprovisioned-node-group-count": (25, 32),
    "max-binpacking-time": (31, 37),
    "max-empty-bulk-delete": (25, 32),
    "max-free-difference-ratio": (27, 37),
    "max-node-startup-time": (35, 37),
    "max-startup-time": (36, 37),
    "memory-difference-ratio": (27, 37),
    "node-autoprovisioning-enabled": (25, 32),
    "node-delete-delay-after-taint": (26, 37),
    "node-deletion-batcher-interval": (26, 37),
    "node-deletion-candidate-ttl": (34, 37),
    "parallel-drain": (26, 31),
    "parallel-scale-up": (28, 37),
    "pending-pods-batching-timeout": (37, 37),
    "pod-injection-limit": (31, 37),
    "predicate-parallelism": (35, 37),
    "salvo-scale-up": (36, 37),
    "salvo-scale-up-budget": (36, 37),
    "scale-down-delay-type-local": (29, 37),
    "scale-down-simulation-timeout": (26, 37),
    "scale-down-unready-enabled": (27, 37),
    "scale-from-unschedulable": (35, 37),
    "scheduler-verbosity": (37, 37),
    "skip-nodes-with-custom-controller-pods": (27, 37),
    "startup-taint": (29, 37),
    "startup-taint-prefix": (36, 37),
    "status-taint": (29, 37),
}


@dataclass(frozen=True, slots=True)
class Flags:
    """Flags by name, without hyphens in front; one that was given several times has several values."""

    values: Mapping[str, tuple[str, ...]]

    @classmethod
    def parse(cls, words: Iterable[str]) -> Flags:
        """Reads a command line as Go's pflag does: ``--name=value``, ``--name value``, a bare ``--name`` is true."""
        found: dict[str, tuple[str, ...]] = {}
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if not word.startswith("-") or not word.strip("-"):
                continue
            name, has_value, value = word.lstrip("-").partition("=")
            name = name.replace("_", "-")
            if not has_value:
                takes_next = name not in _BOOLEANS and rest and not rest[0].startswith("-")
                value = rest.pop(0) if takes_next else "true"
            found[name] = (*found.get(name, ()), value)
        return cls(found)

    def all(self, name: str) -> Sequence[str]:
        """Every value of a flag."""
        return self.values.get(name, ())

    def text(self, name: str) -> str:
        """The value that counts, which is the last, or the default; empty when there is neither."""
        given = self.values.get(name)
        return given[-1] if given else DEFAULTS.get(name, "")

    def words(self, name: str) -> Sequence[str]:
        """A value that is a list with commas."""
        return [word.strip() for word in self.text(name).split(",") if word.strip()]

    def is_set(self, name: str) -> bool:
        """Whether it is given."""
        return name in self.values

    def is_true(self, name: str) -> bool:
        """Whether it is given, and true."""
        return self.text(name).lower() in {"true", "t", "1"}

    def is_false(self, name: str) -> bool:
        """Whether it is given, and false."""
        return self.text(name).lower() in {"false", "f", "0"}

    def duration(self, name: str) -> timedelta | None:
        """None when there is none, or when it cannot be read: the autoscaler itself says so then."""
        try:
            return parse_duration(self.text(name))
        except ValueError:
            return None

    def number(self, name: str) -> float | None:
        """None when there is none, or when it is no number."""
        try:
            return float(self.text(name))
        except ValueError:
            return None
