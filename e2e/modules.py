"""What is built from which Go module and version: the one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = [
    "AUTOSCALERS",
    "AUTOSCALER_MODULE",
    "CONTROL_PLANES",
    "ETCD_MODULE",
    "HELM_MODULE",
    "HELM_VERSION",
    "KUBERNETES_MODULE",
    "NEWEST_CONTROL_PLANE",
    "NEWEST_RELEASE",
    "ControlPlaneVersion",
    "Release",
    "minor",
]

AUTOSCALER_MODULE: Final = "k8s.io/autoscaler/cluster-autoscaler"
KUBERNETES_MODULE: Final = "k8s.io/kubernetes"
ETCD_MODULE: Final = "go.etcd.io/etcd/server/v3"
HELM_MODULE: Final = "helm.sh/helm/v3"
HELM_VERSION: Final = "v3.22.0"


def minor(name: str) -> tuple[int, int]:
    """``1.37``, ``1.36.2`` and ``1.36-dev`` as numbers that can be compared."""
    major, _, rest = name.partition(".")
    return int(major), int(rest.split(".")[0].split("-")[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A Cluster Autoscaler. It has no tags as a Go module: a release is named by the pseudo-version of its commit."""

    name: str  # as in --release
    patch: str  # for people
    version: str
    other_apis: str = ""
    oldest_kubernetes: str = ""  # on which it runs at all; empty: on every control plane here

    @property
    def apis(self) -> str:
        """The version of the nested module ``apis``: of the same commit, unless only an older one was published."""
        return self.other_apis or self.version

    def runs_on(self, control_plane: str) -> bool:
        """Whether it gets to its first loop there, whatever its provider does."""
        return not self.oldest_kubernetes or minor(control_plane) >= minor(self.oldest_kubernetes)

    def is_at_least(self, name: str) -> bool:
        """Whether this is that minor release or a later one."""
        return minor(self.name) >= minor(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlaneVersion:
    """A Kubernetes control plane with its etcd."""

    name: str  # as in --control-plane
    kubernetes: str
    etcd: str

    @property
    def staging(self) -> str:
        """The version of the modules that live in the tree of Kubernetes itself: v1.34.4 has v0.34.4."""
        return self.kubernetes.replace("v1.", "v0.", 1)


_DEVICES: Final = "1.34"  # Kubernetes has resource.k8s.io/v1 since then; without it these wait for ever
_APIS: Final = "v0.0.0-20240627115740-d52e4b9665d7"
AUTOSCALERS: Final = {
    release.name: release
    for release in (
        Release(name="1.25", patch="1.25.0", version="v0.0.0-20220902140806-e8d3e9b1d986"),
        Release(name="1.26", patch="1.26.4", version="v0.0.0-20230726125619-4256b234be90"),
        Release(name="1.27", patch="1.27.3", version="v0.0.0-20230726094419-ea4976f31c79"),
        Release(name="1.28", patch="1.28.2", version="v0.0.0-20231205124312-4c3ee59647e8"),
        Release(name="1.29", patch="1.29.4", version="v0.0.0-20240715152710-043b0c187eab"),
        Release(name="1.30", patch="1.30.1", version="v0.0.0-20240528100613-7d1f87fcfd64", other_apis=_APIS),
        Release(name="1.31", patch="1.31.1", version="v0.0.0-20241016053703-cda090fd9985"),
        Release(name="1.32", patch="1.32.1", version="v0.0.0-20250314154347-68fefc9fee70"),
        Release(name="1.33", patch="1.33.0", version="v0.0.0-20250613073258-1959f5f61f6c", other_apis=_APIS),
        Release(name="1.34", patch="1.34.3", version="v0.0.0-20260123184929-7a1c0e21cc0c"),
        Release(name="1.35", patch="1.35.0", version="v0.0.0-20260205183032-25fc5c74f6b0", oldest_kubernetes=_DEVICES),
        Release(
            name="1.36-dev",
            patch="the tree of 2026-04-01, before 1.36",
            version="v0.0.0-20260401120615-2ceb540e2a0b",
            oldest_kubernetes=_DEVICES,
        ),
        Release(name="1.36", patch="1.36.1", version="v0.0.0-20260722070747-35e8a280425c", oldest_kubernetes=_DEVICES),
        Release(
            name="1.37",
            patch="1.37, as its branch was cut",
            version="v0.0.0-20260730100515-c0e41acd9bec",
            oldest_kubernetes=_DEVICES,
        ),
    )
}
NEWEST_RELEASE: Final = "1.37"

CONTROL_PLANES: Final = {
    version.name: version
    for version in (
        ControlPlaneVersion(name="1.31", kubernetes="v1.31.4", etcd="v3.6.16"),
        ControlPlaneVersion(name="1.34", kubernetes="v1.34.4", etcd="v3.6.16"),
        ControlPlaneVersion(name="1.36", kubernetes="v1.36.3", etcd="v3.6.16"),
    )
}
NEWEST_CONTROL_PLANE: Final = "1.36"
