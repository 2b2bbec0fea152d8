"""Decodes the API's JSON into our values. Reads only the fields we use, so that no release of the API breaks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from sys import intern
from typing import Any, Generic, TypeVar, cast

import msgspec

from cloudgraft.kube.errors import refusal
from cloudgraft.kube.objects import (
    WHOLE_CONTENT,
    Change,
    ChangeType,
    ConfigMapObject,
    ContainerRef,
    CustomObject,
    Kind,
    Lease,
    MachineClassObject,
    Node,
    Object,
    Pod,
    PodLoad,
    SecretObject,
    V,
)
from cloudgraft.sdk.pod_requests import pod_requests
from cloudgraft.sdk.quantity import InvalidQuantityError, Quantity
from cloudgraft.sdk.types import Container, Taint
from cloudgraft.sdk.types import Pod as PricedPod

# -- Common parts ------------------------------------------------------------------------------------------------------
# Metadata of all kinds, amounts and times.


class Meta(msgspec.Struct, rename="camel"):
    """The metadata of every object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None


def seconds(moment: datetime | None) -> float:
    """Seconds since the epoch; 0 for no time."""
    return 0.0 if moment is None else moment.timestamp()


@lru_cache(maxsize=4096)
def _amount(text: str) -> Quantity | None:
    """Cached: thousands of nodes are of a few types, and share a few amounts. None: invalid."""
    try:
        return Quantity(text)
    except InvalidQuantityError:
        return None


@lru_cache(maxsize=1 << 14)
def _kept_once(text: str) -> str:
    """Shares label values: most are on thousands of nodes. Not interned, which is permanent in some Python releases."""
    return text


def amounts(wire: Mapping[str, str] | Mapping[str, str | int] | None) -> dict[str, Quantity]:
    """Quantities by resource; omits invalid ones."""
    found = ((intern(name), _amount(str(text))) for name, text in (wire or {}).items())
    return {name: amount for name, amount in found if amount is not None}


def common(meta: Meta) -> dict[str, Any]:
    """The fields of every object."""
    return {
        "name": meta.name,
        "namespace": meta.namespace,
        "uid": meta.uid,
        "deleting": meta.deletion_timestamp is not None,
        "version": meta.resource_version,
    }


def labels(meta: Meta) -> dict[str, str]:
    """The labels of an object of a frequent kind."""
    return {intern(key): _kept_once(value) for key, value in (meta.labels or {}).items()}


# -- Objects with content ----------------------------------------------------------------------------------------------
# ConfigMaps, Secrets, and foreign kinds.


class ConfigMapJson(msgspec.Struct):
    """A ConfigMap."""

    metadata: Meta
    data: dict[str, str] | None = None


class AnyJson(msgspec.Struct):
    """An object of which only the name is read."""

    metadata: Meta


class SecretJson(msgspec.Struct):
    """A Secret."""

    metadata: Meta
    data: dict[str, bytes] | None = None  # base64 on the wire


Content = dict[str, Any]


def machine_class(wire: Content) -> MachineClassObject:
    """The whole object."""
    # Items of a list may lack their kind.
    content = {**wire, "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass"}
    metadata = msgspec.convert(wire.get("metadata"), Meta)
    # Omit the parts that change by themselves: the rest differs only if the class does.
    kept = {key: value for key, value in wire["metadata"].items() if key not in {"managedFields", "resourceVersion"}}
    return MachineClassObject(**common(metadata), content={**content, "metadata": kept})


class _NotedMeta(Meta):
    annotations: dict[str, str] | None = None


msgspec.json.Decoder(_NotedMeta)  # built by one thread, as below


def custom(wire: Content) -> CustomObject:
    """The whole object."""
    metadata = msgspec.convert(wire.get("metadata"), _NotedMeta)
    return CustomObject(
        **common(metadata),
        labels=metadata.labels or {},
        annotations=metadata.annotations or {},
        created_at=seconds(metadata.creation_timestamp),
        content=wire,
    )


# -- Nodes and leases --------------------------------------------------------------------------------------------------


class _Taint(msgspec.Struct):
    key: str
    effect: str
    value: str = ""


class _Condition(msgspec.Struct, rename="camel"):
    type: str
    status: str
    last_transition_time: datetime | None = None


class _Address(msgspec.Struct):
    address: str = ""


class _NodeInfo(msgspec.Struct):
    machine_id: str = msgspec.field(name="machineID", default="")
    system_uuid: str = msgspec.field(name="systemUUID", default="")


class _NodeSpec(msgspec.Struct):
    provider_id: str = msgspec.field(name="providerID", default="")
    taints: list[_Taint] | None = None
    unschedulable: bool = False


class _NodeStatus(msgspec.Struct, rename="camel"):
    conditions: list[_Condition] | None = None
    addresses: list[_Address] | None = None
    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None
    node_info: _NodeInfo = msgspec.field(default_factory=_NodeInfo)


class NodeJson(msgspec.Struct):
    """A node."""

    metadata: Meta
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


class _LeaseSpec(msgspec.Struct, rename="camel"):
    renew_time: datetime | None = None


class LeaseJson(msgspec.Struct):
    """A lease."""

    metadata: Meta
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)


def node(wire: NodeJson) -> Node:
    """The fields of a node that decisions use."""
    status = wire.status
    ready = next((condition for condition in status.conditions or () if condition.type == "Ready"), None)
    return Node(
        **common(wire.metadata),
        provider_id=wire.spec.provider_id,
        labels=labels(wire.metadata),
        taints=tuple(Taint(key=t.key, value=t.value, effect=t.effect) for t in wire.spec.taints or ()),
        ready=ready is not None and ready.status == "True",
        ready_since=seconds(ready.last_transition_time) if ready else 0.0,
        unschedulable=wire.spec.unschedulable,
        created_at=seconds(wire.metadata.creation_timestamp),
        addresses=tuple(entry.address for entry in status.addresses or ()),
        machine_id=status.node_info.machine_id,
        system_uuid=status.node_info.system_uuid,
        capacity=amounts(status.capacity),
        allocatable=amounts(status.allocatable),
    )


# -- Pods --------------------------------------------------------------------------------------------------------------
# As they are displayed, and with the resources that they use on their nodes.


class _Requirements(msgspec.Struct):
    requests: dict[str, str | int] | None = None


class _Container(msgspec.Struct, rename="camel"):
    name: str = ""
    image: str = ""
    restart_policy: str = ""
    resources: _Requirements = msgspec.field(default_factory=_Requirements)


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    host_network: bool = False
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    overhead: dict[str, str | int] | None = None


class _PodStatus(msgspec.Struct):
    phase: str = ""


class PodJson(msgspec.Struct):
    """A pod."""

    metadata: Meta
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


def _containers(wire: list[_Container] | None) -> tuple[ContainerRef, ...]:
    return tuple(ContainerRef(name=c.name, image=c.image, is_sidecar=c.restart_policy == "Always") for c in wire or ())


def pod(wire: PodJson) -> Pod:
    """Its node and its containers."""
    return Pod(
        **common(wire.metadata),
        node=wire.spec.node_name,
        phase=wire.status.phase or "Pending",
        host_network=wire.spec.host_network,
        containers=_containers(wire.spec.containers),
        init_containers=_containers(wire.spec.init_containers),
    )


def _asking(wire: list[_Container] | None) -> tuple[Container, ...]:
    return tuple(
        Container(requests=amounts(container.resources.requests), restart_policy=container.restart_policy)
        for container in wire or ()
    )


def load(wire: PodJson) -> PodLoad:
    """The resources that it uses on its node."""
    spec = wire.spec
    priced = PricedPod(
        containers=_asking(spec.containers),
        init_containers=_asking(spec.init_containers),
        overhead=amounts(spec.overhead),
    )
    return PodLoad(
        **common(wire.metadata),
        node=spec.node_name,
        phase=wire.status.phase or "Pending",
        labels=labels(wire.metadata),
        requests=pod_requests(priced),
    )


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


_W = TypeVar("_W")


class _List(msgspec.Struct, Generic[_W]):
    items: list[_W] | None
    metadata: _ListMeta


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Refusal(msgspec.Struct):
    code: int = 500


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


class _ReviewStatus(msgspec.Struct):
    allowed: bool


class _Review(msgspec.Struct):
    status: _ReviewStatus


# By view: what is read of the JSON, and the value that is made of it.
_VIEWS: dict[str, tuple[Any, Callable[[Any], Object]]] = {
    "nodes": (NodeJson, node),
    "pods": (PodJson, pod),
    "pods/load": (PodJson, load),
    "configmaps": (ConfigMapJson, lambda wire: ConfigMapObject(**common(wire.metadata), data=wire.data or {})),
    "leases": (LeaseJson, lambda wire: Lease(**common(wire.metadata), renewed_at=seconds(wire.spec.renew_time))),
    "secrets": (AnyJson, lambda wire: Object(**common(wire.metadata))),
    "secrets/contents": (SecretJson, lambda wire: SecretObject(**common(wire.metadata), data=wire.data or {})),
    "machineclasses": (Content, machine_class),
    WHOLE_CONTENT: (Content, custom),
}
# Build all decoders at import, in one thread: two threads that build one for the same type crash the interpreter.
_OBJECTS = {view: msgspec.json.Decoder(wire) for view, (wire, _) in _VIEWS.items()}
_LISTS = {view: msgspec.json.Decoder(_List[wire]) for view, (wire, _) in _VIEWS.items()}  # type: ignore[valid-type]  # made at run time
_EVENTS = msgspec.json.Decoder(_Event)
_BOOKMARKS = msgspec.json.Decoder(AnyJson)
_REFUSALS = msgspec.json.Decoder(_Refusal)
_VERSIONS = msgspec.json.Decoder(_Version)
_REVIEWS = msgspec.json.Decoder(_Review)


def _view(kind: Kind[V]) -> str:
    if kind.view == WHOLE_CONTENT:
        return WHOLE_CONTENT
    return f"{kind.plural}/{kind.view}" if kind.view else kind.plural


def decode_version(data: bytes) -> str:
    """The release of an API server, such as ``v1.34.1``."""
    return _VERSIONS.decode(data).git_version


def decode_review(data: bytes) -> bool:
    """Whether the reviewed action is allowed."""
    return _REVIEWS.decode(data).status.allowed


def decode_object(kind: Kind[V], data: bytes | msgspec.Raw) -> V:
    """One object. Raises msgspec.DecodeError for anything else."""
    view = _view(kind)
    return cast("V", _VIEWS[view][1](_OBJECTS[view].decode(data)))


def decode_page(kind: Kind[V], data: bytes) -> tuple[list[V], str, str]:
    """One page of a list: its objects, the version of the list, and the token of the next page, if any."""
    view = _view(kind)
    page, make = _LISTS[view].decode(data), _VIEWS[view][1]
    items = [cast("V", make(item)) for item in page.items or ()]
    return items, page.metadata.resource_version, page.metadata.continue_


def decode_change(kind: Kind[V], line: bytes | str) -> Change[V]:
    """One line of a watch. Raises the error that a line reports."""
    event = _EVENTS.decode(line)
    if event.type == "ERROR":
        raise refusal(f"cannot go on watching {kind.plural}", _REFUSALS.decode(event.object).code, bytes(event.object))
    change = ChangeType(event.type)
    version = _BOOKMARKS.decode(event.object).metadata.resource_version
    if change is ChangeType.BOOKMARK:  # its object has only a version
        return Change(type=change, object=None, version=version)
    return Change(type=change, object=decode_object(kind, event.object), version=version)
