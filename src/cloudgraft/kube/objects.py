"""Defines values for the parts of Kubernetes objects that we read.

An object in the API has hundreds of fields; these hold the few that decisions need, so that thousands of them are
cheap to keep. Writes use a *manifest*: the JSON of the API, as a mapping.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Taint

Manifest = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Object:
    """The common part of every object. ``uid`` distinguishes it from an earlier one of the same name."""

    name: str
    namespace: str = ""
    uid: str = ""
    deleting: bool = False  # its deletion was requested, and finalizers still block it
    # The resourceVersion, so that a change can name the one that it is based on. Not part of the object's content.
    version: str = field(default="", compare=False)

    @property
    def key(self) -> str:
        """Unique among the objects of its kind."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node(Object):
    """A node. ``ready`` is its Ready condition; without one it is not ready. Times are since the epoch."""

    provider_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    ready: bool = False
    unschedulable: bool = False
    created_at: float = 0.0
    ready_since: float = 0.0  # when its Ready condition last changed; 0 without one
    addresses: tuple[str, ...] = ()  # IP addresses and host names
    machine_id: str = ""  # of its system: /etc/machine-id
    system_uuid: str = ""  # of its hardware, from the firmware
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    allocatable: Mapping[str, Quantity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRef:
    """A container of a pod. A sidecar is an init container that runs for the pod's whole life."""

    name: str
    image: str = ""
    is_sidecar: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod(Object):
    """A pod; ``node`` is empty until it is bound."""

    node: str = ""
    phase: str = "Pending"
    host_network: bool = False
    containers: tuple[ContainerRef, ...] = ()
    init_containers: tuple[ContainerRef, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLoad(Object):
    """The resources that a pod uses on its node: ``requests`` as the scheduler sums them, without the pod itself."""

    node: str = ""
    phase: str = "Pending"
    labels: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, Quantity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapObject(Object):
    """A ConfigMap with its texts."""

    data: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease(Object):
    """A lease; a node's has the node's name, in the namespace ``kube-node-lease``."""

    renewed_at: float = 0.0  # seconds since the epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineClassObject(Object):
    """A machine class of the machine controller manager: the whole object, because its driver defines the content."""

    content: Manifest = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretObject(Object):
    """A Secret with its data."""

    data: Mapping[str, bytes] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomObject(Object):
    """An object of any foreign kind, with all of its JSON. Its content may be secret."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    created_at: float = 0.0  # since the epoch
    content: Manifest = field(default_factory=dict, repr=False)


V_co = TypeVar("V_co", bound=Object, covariant=True)
V = TypeVar("V", bound=Object)


WHOLE_CONTENT: Final = "content"  # the view of a kind whose whole content is read


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[V_co]):
    """A kind of objects: its path in the API, and a selector."""

    base: str  # "api/v1", "apis/<group>/<version>"
    plural: str
    field_selector: str = ""
    label_selector: str = ""
    namespace: str = ""  # list and watch only this one, unless a call names another
    view: str = ""  # one of several views; empty: the only one

    @property
    def group(self) -> str:
        """The group of the API; empty for the core."""
        return self.base.split("/")[1] if self.base.startswith("apis/") else ""


NODES: Kind[Node] = Kind(base="api/v1", plural="nodes")
BOUND_PODS: Kind[Pod] = Kind(base="api/v1", plural="pods", field_selector="spec.nodeName!=")
POD_LOADS: Kind[PodLoad] = Kind(base="api/v1", plural="pods", field_selector="spec.nodeName!=", view="load")
CONFIG_MAPS: Kind[ConfigMapObject] = Kind(base="api/v1", plural="configmaps")
LEASES: Kind[Lease] = Kind(base="apis/coordination.k8s.io/v1", plural="leases")
SECRETS: Kind[Object] = Kind(base="api/v1", plural="secrets")  # without their data
SECRET_CONTENTS: Kind[SecretObject] = Kind(base="api/v1", plural="secrets", view="contents")
MACHINE_CLASSES: Kind[MachineClassObject] = Kind(base="apis/machine.sapcloud.io/v1alpha1", plural="machineclasses")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[V]):
    """All objects of a kind at one moment; a watch from ``version`` continues there."""

    items: tuple[V, ...]
    version: str


class ChangeType(enum.Enum):
    """The type of a watch event. A BOOKMARK only advances the version."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Generic[V]):
    """One event of a watch. ``object`` is None in a bookmark."""

    type: ChangeType
    object: V | None
    version: str


class PatchStyle(enum.Enum):
    """The way a patch is applied, by its media type."""

    STRATEGIC = "application/strategic-merge-patch+json"  # lists such as conditions are merged by their key
    MERGE = "application/merge-patch+json"  # lists are replaced
    JSON = "application/json-patch+json"  # a list of operations, with tests


def custom_kind(base: str, plural: str, *, label_selector: str = "", field_selector: str = "") -> Kind[CustomObject]:
    """A kind whose whole content is read, such as ``custom_kind("apis/example.org/v1", "things")``."""
    return Kind(
        base=base, plural=plural, label_selector=label_selector, field_selector=field_selector, view=WHOLE_CONTENT
    )
