"""Remote clusters for the real Liqo definitions: API servers of their own, each with something to share."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from lightkube.models.core_v1 import NodeSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node

from e2e.control_plane import ControlPlane
from e2e.kubectl import kubectl
from e2e.kubernetes import connected

__all__ = ["GATEWAYS", "SLICES", "RemoteCluster", "count", "left_over", "prepare"]

SLICES: Final = "resourceslices.authentication.liqo.io"  # in full: Kubernetes has ResourceSlices too
GATEWAYS: Final = "gatewayservers.networking.liqo.io"
_SHARES: Final = {"cpu": "16", "memory": "64Gi", "pods": "110"}
# Every kind of which a peering or a node makes objects, on either side.
_KINDS: Final = (
    SLICES,
    "identities.authentication.liqo.io",
    "tenants.authentication.liqo.io",
    "virtualnodes.offloading.liqo.io",
    "quotas.offloading.liqo.io",
    "configurations.networking.liqo.io",
    GATEWAYS,
    "gatewayclients.networking.liqo.io",
    "publickeies.networking.liqo.io",
    "connections.networking.liqo.io",
)
_FOREIGN: Final = "foreignclusters.core.liqo.io"  # these Liqo keeps, with an unknown role
_TENANT: Final = "liqo.io/tenant-namespace=true"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteCluster:
    """One of them. ``kubeconfig`` can be used anywhere: it has everything in itself."""

    id: str
    plane: ControlPlane
    kubeconfig: Path
    network: str


def prepare(plane: ControlPlane, cluster: str, directory: Path, *, network: str) -> RemoteCluster:
    """Gives it a node, of which others may have a part."""
    with connected(plane.kubeconfig, "default") as found:
        found.client.create(Node(metadata=ObjectMeta(name=f"{cluster}-1")))
        ready: dict[str, Any] = {"type": "Ready", "status": "True", "reason": "Said", "message": "by the scenario"}
        status = {"capacity": _SHARES, "allocatable": _SHARES, "conditions": [ready]}
        found.client.patch(Node.Status, f"{cluster}-1", {"status": status})
        found.client.patch(Node, f"{cluster}-1", {"spec": NodeSpec(taints=[]).to_dict()})
    return RemoteCluster(id=cluster, plane=plane, kubeconfig=_portable(plane, directory / cluster), network=network)


def _portable(plane: ControlPlane, stem: Path) -> Path:
    document = yaml.safe_load(plane.kubeconfig.read_text("utf-8"))
    inside = document["clusters"][0]["cluster"]
    authority = Path(inside.pop("certificate-authority")).read_bytes()
    inside["certificate-authority-data"] = base64.b64encode(authority).decode()
    path = stem.with_suffix(".kubeconfig")
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document), "utf-8")
    return path


def count(plane: ControlPlane, kind: str) -> int:
    """How many objects of a kind there are, in all namespaces."""
    return len(kubectl(plane, "get", kind, "--all-namespaces", "-o", "name").split())


def left_over(planes: Sequence[ControlPlane]) -> list[str]:
    """What there is of Liqo's objects, and of the namespaces for peers."""
    found: list[str] = []
    for plane in planes:
        found += kubectl(plane, "get", ",".join(_KINDS), "--all-namespaces", "-o", "name").split()
        found += kubectl(plane, "get", "namespaces", "-l", _TENANT, "-o", "name").split()
        roles = kubectl(plane, "get", _FOREIGN, "-o", "jsonpath={range .items[*]}{.metadata.name}={.status.role} {end}")
        found += [role for role in roles.split() if not role.endswith("=Unknown")]
    return found
