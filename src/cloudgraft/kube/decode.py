"""From the API's JSON to our values. Only the fields we use are read, so that no release of the API breaks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import msgspec

from cloudgraft.kube.decode_contents import (
    AnyJson,
    ConfigMapJson,
    Content,
    SecretJson,
    config_map,
    custom,
    machine_class,
    named,
    secret,
)
from cloudgraft.kube.decode_meta import Meta
from cloudgraft.kube.decode_nodes import LeaseJson, NodeJson, lease, node
from cloudgraft.kube.decode_pods import LoadJson, PodJson, load, pod
from cloudgraft.kube.errors import refusal
from cloudgraft.kube.objects import WHOLE_CONTENT, Change, ChangeType, Kind, Object, V

__all__ = ["decode_change", "decode_object", "decode_page", "decode_review", "decode_version"]


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
    metadata: Meta


class _Refusal(msgspec.Struct):
    code: int = 500


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


class _ReviewStatus(msgspec.Struct):
    allowed: bool


class _Review(msgspec.Struct):
    status: _ReviewStatus


_WIRE: dict[str, Any] = {
    "nodes": NodeJson,
    "pods": PodJson,
    "pods/load": LoadJson,
    "configmaps": ConfigMapJson,
    "leases": LeaseJson,
    "secrets": AnyJson,
    "secrets/contents": SecretJson,
    "machineclasses": Content,
    WHOLE_CONTENT: Content,
}
_VIEW: dict[str, Callable[[Any], Object]] = {
    "nodes": node,
    "pods": pod,
    "pods/load": load,
    "configmaps": config_map,
    "leases": lease,
    "secrets": named,
    "secrets/contents": secret,
    "machineclasses": machine_class,
    WHOLE_CONTENT: custom,
}
# All are made here, where one thread imports us: two that make one for the same type at a time crash the interpreter.
_OBJECTS = {view: msgspec.json.Decoder(wire) for view, wire in _WIRE.items()}
_LISTS = {view: msgspec.json.Decoder(_List[wire]) for view, wire in _WIRE.items()}  # type: ignore[valid-type]  # made at run time
_EVENTS = msgspec.json.Decoder(_Event)
_BOOKMARKS = msgspec.json.Decoder(_Bookmark)
_REFUSALS = msgspec.json.Decoder(_Refusal)
_VERSIONS = msgspec.json.Decoder(_Version)
_REVIEWS = msgspec.json.Decoder(_Review)


def _view(kind: Kind[V]) -> str:
    if kind.view == WHOLE_CONTENT:
        return WHOLE_CONTENT
    return f"{kind.plural}/{kind.view}" if kind.view else kind.plural


def decode_version(data: bytes) -> str:
    """The release that an API server says it is of, such as ``v1.34.1``."""
    return _VERSIONS.decode(data).git_version


def decode_review(data: bytes) -> bool:
    """Whether what was asked about is allowed."""
    return _REVIEWS.decode(data).status.allowed


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
