"""From the API's JSON to our values. Only the fields we use are read, so that no release of the API breaks it."""

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

__all__ = ["decode_change", "decode_object", "decode_page", "decode_review", "decode_version"]


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None


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


class _Node(msgspec.Struct):
    metadata: _Meta
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


class _Container(msgspec.Struct, rename="camel"):
    name: str
    image: str = ""
    restart_policy: str = ""


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    host_network: bool = False
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None


class _PodStatus(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _Requirements(msgspec.Struct):
    requests: dict[str, str | int] | None = None


class _LoadContainer(msgspec.Struct, rename="camel"):
    restart_policy: str = ""
    resources: _Requirements = msgspec.field(default_factory=_Requirements)


class _LoadSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    containers: list[_LoadContainer] | None = None
    init_containers: list[_LoadContainer] | None = None
    overhead: dict[str, str | int] | None = None


class _Load(msgspec.Struct):
    metadata: _Meta
    spec: _LoadSpec = msgspec.field(default_factory=_LoadSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _ConfigMap(msgspec.Struct):
    metadata: _Meta
    data: dict[str, str] | None = None


class _LeaseSpec(msgspec.Struct, rename="camel"):
    renew_time: datetime | None = None


class _Lease(msgspec.Struct):
    metadata: _Meta
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)


class _Any(msgspec.Struct):
    metadata: _Meta


class _Secret(msgspec.Struct):
    metadata: _Meta
    data: dict[str, bytes] | None = None  # base64 on the wire


_Content = dict[str, Any]


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


class _Bookmark(msgspec.Struct):
    metadata: _Meta


class _Refusal(msgspec.Struct):
    code: int = 500


def _seconds(moment: datetime | None) -> float:
    return 0.0 if moment is None else moment.timestamp()


@lru_cache(maxsize=4096)
def _amount(text: str) -> Quantity | None:
    """Most nodes are of a few types, so that thousands of them share a few amounts. None: not one at all."""
    try:
        return Quantity(text)
    except InvalidQuantityError:
        return None


@lru_cache(maxsize=1 << 14)
def _kept_once(text: str) -> str:
    """Values of labels: most are on thousands of nodes. Not interned, which is for good in some releases of Python."""
    return text


def _amounts(wire: Mapping[str, str] | Mapping[str, str | int] | None) -> dict[str, Quantity]:
    found = ((intern(name), _amount(str(text))) for name, text in (wire or {}).items())
    return {name: amount for name, amount in found if amount is not None}


def _meta(meta: _Meta) -> dict[str, Any]:
    """What every object has."""
    return {
        "name": meta.name,
        "namespace": meta.namespace,
        "uid": meta.uid,
        "deleting": meta.deletion_timestamp is not None,
        "version": meta.resource_version,
    }


def _node(wire: _Node) -> Node:
    status = wire.status
    ready = next((condition for condition in status.conditions or () if condition.type == "Ready"), None)
    return Node(
        **_meta(wire.metadata),
        provider_id=wire.spec.provider_id,
        labels={intern(key): _kept_once(value) for key, value in (wire.metadata.labels or {}).items()},
        taints=tuple(Taint(key=t.key, value=t.value, effect=t.effect) for t in wire.spec.taints or ()),
        ready=ready is not None and ready.status == "True",
        ready_since=_seconds(ready.last_transition_time) if ready else 0.0,
        unschedulable=wire.spec.unschedulable,
        created_at=_seconds(wire.metadata.creation_timestamp),
        addresses=tuple(entry.address for entry in status.addresses or ()),
        machine_id=status.node_info.machine_id,
        system_uuid=status.node_info.system_uuid,
        capacity=_amounts(status.capacity),
        allocatable=_amounts(status.allocatable),
    )


def _containers(wire: list[_Container] | None) -> tuple[ContainerRef, ...]:
    return tuple(ContainerRef(name=c.name, image=c.image, is_sidecar=c.restart_policy == "Always") for c in wire or ())


def _pod(wire: _Pod) -> Pod:
    return Pod(
        **_meta(wire.metadata),
        node=wire.spec.node_name,
        phase=wire.status.phase or "Pending",
        host_network=wire.spec.host_network,
        containers=_containers(wire.spec.containers),
        init_containers=_containers(wire.spec.init_containers),
    )


def _asking(wire: list[_LoadContainer] | None) -> tuple[Container, ...]:
    return tuple(
        Container(requests=_amounts(container.resources.requests), restart_policy=container.restart_policy)
        for container in wire or ()
    )


def _load(wire: _Load) -> PodLoad:
    spec = wire.spec
    priced = PricedPod(
        containers=_asking(spec.containers),
        init_containers=_asking(spec.init_containers),
        overhead=_amounts(spec.overhead),
    )
    return PodLoad(
        **_meta(wire.metadata),
        node=spec.node_name,
        phase=wire.status.phase or "Pending",
        labels={intern(key): _kept_once(value) for key, value in (wire.metadata.labels or {}).items()},
        requests=pod_requests(priced),
    )


def _config_map(wire: _ConfigMap) -> ConfigMapObject:
    return ConfigMapObject(**_meta(wire.metadata), data=wire.data or {})


def _lease(wire: _Lease) -> Lease:
    return Lease(**_meta(wire.metadata), renewed_at=_seconds(wire.spec.renew_time))


def _any(wire: _Any) -> Object:
    return Object(**_meta(wire.metadata))


def _secret(wire: _Secret) -> SecretObject:
    return SecretObject(**_meta(wire.metadata), data=wire.data or {})


def _machine_class(wire: _Content) -> MachineClassObject:
    # Items of a list need not say what they are.
    content = {**wire, "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass"}
    metadata = msgspec.convert(wire.get("metadata"), _Meta)
    # Left out are the parts that change by themselves: what remains differs only if the class does.
    kept = {key: value for key, value in wire["metadata"].items() if key not in {"managedFields", "resourceVersion"}}
    return MachineClassObject(**_meta(metadata), content={**content, "metadata": kept})


class _NotedMeta(_Meta):
    annotations: dict[str, str] | None = None


def _custom(wire: _Content) -> CustomObject:
    metadata = msgspec.convert(wire.get("metadata"), _NotedMeta)
    return CustomObject(
        **_meta(metadata),
        labels=metadata.labels or {},
        annotations=metadata.annotations or {},
        created_at=_seconds(metadata.creation_timestamp),
        content=wire,
    )


_WIRE: dict[str, Any] = {
    "nodes": _Node,
    "pods": _Pod,
    "pods/load": _Load,
    "configmaps": _ConfigMap,
    "leases": _Lease,
    "secrets": _Any,
    "secrets/contents": _Secret,
    "machineclasses": _Content,
    WHOLE_CONTENT: _Content,
}
_VIEW: dict[str, Callable[[Any], Object]] = {
    "nodes": _node,
    "pods": _pod,
    "pods/load": _load,
    "configmaps": _config_map,
    "leases": _lease,
    "secrets": _any,
    "secrets/contents": _secret,
    "machineclasses": _machine_class,
    WHOLE_CONTENT: _custom,
}
_OBJECTS = {view: msgspec.json.Decoder(wire) for view, wire in _WIRE.items()}
_LISTS = {view: msgspec.json.Decoder(_List[wire]) for view, wire in _WIRE.items()}  # type: ignore[valid-type]  # made at run time
_EVENTS = msgspec.json.Decoder(_Event)
_BOOKMARKS = msgspec.json.Decoder(_Bookmark)
_REFUSALS = msgspec.json.Decoder(_Refusal)


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


class _ReviewStatus(msgspec.Struct):
    allowed: bool


class _Review(msgspec.Struct):
    status: _ReviewStatus


def _view(kind: Kind[V]) -> str:
    if kind.view == WHOLE_CONTENT:
        return WHOLE_CONTENT
    return f"{kind.plural}/{kind.view}" if kind.view else kind.plural


def decode_version(data: bytes) -> str:
    """The release that an API server says it is of, such as ``v1.34.1``."""
    return msgspec.json.decode(data, type=_Version).git_version


def decode_review(data: bytes) -> bool:
    """Whether what was asked about is allowed."""
    return msgspec.json.decode(data, type=_Review).status.allowed


def decode_object(kind: Kind[V], data: bytes | msgspec.Raw) -> V:
    """One object. Raises msgspec.DecodeError when it is none."""
    view = _view(kind)
    return cast("V", _VIEW[view](_OBJECTS[view].decode(data)))


def decode_page(kind: Kind[V], data: bytes) -> tuple[list[V], str, str]:
    """One page of a list: its objects, the version of the list, and the token of the next page, or nothing."""
    page = _LISTS[_view(kind)].decode(data)
    view = _VIEW[_view(kind)]
    items = [cast("V", view(item)) for item in page.items or ()]
    return items, page.metadata.resource_version, page.metadata.continue_


def decode_change(kind: Kind[V], line: bytes | str) -> Change[V]:
    """One line of a watch. A line that tells an error is raised as that error."""
    event = _EVENTS.decode(line)
    if event.type == "ERROR":
        raise refusal(f"cannot go on watching {kind.plural}", _REFUSALS.decode(event.object).code, bytes(event.object))
    change = ChangeType(event.type)
    version = _BOOKMARKS.decode(event.object).metadata.resource_version
    if change is ChangeType.BOOKMARK:  # its object is a stump that has only a version
        return Change(type=change, object=None, version=version)
    return Change(type=change, object=decode_object(kind, event.object), version=version)
