"""Converts the Kubernetes ``Node`` and ``Pod`` messages: the few fields that a provider reads or writes.

Everything else in a message stays as it is. What was decoded carries its bytes in ``source``; encoding starts from
them and changes only what differs, so that fields unknown to us survive at every depth, while what the author
changed wins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from operator import attrgetter
from typing import TypeVar

from google.protobuf.internal.containers import MessageMap, RepeatedCompositeFieldContainer, ScalarMap
from google.protobuf.message import DecodeError, Message

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Container, NodeCondition, NodeTemplate, Pod, Taint
from cloudgraft.wire.pb import kubernetes_pb2 as pb

_M = TypeVar("_M", bound=Message)
_V = TypeVar("_V")

_FILE_MAGIC = b"k8s\x00"  # begins an object as etcd and the API server store it, not one on this wire

# The identity of list items, in the message and in our type alike.
_TAINT_IDENTITY = attrgetter("key", "effect")
_CONDITION_IDENTITY = attrgetter("type")
_CONTAINER_IDENTITY = attrgetter("name")


def decode_node(data: bytes) -> NodeTemplate:
    """The node in the bytes of a marshalled ``v1.Node``.

    No bytes are no node: the autoscaler crashes on an answer without one (R65), so that must not pass for a template.
    """
    return _node_from_pb(_parse(pb.Node(), data, "node"), data)


def decode_pod(data: bytes) -> Pod:
    """The pod in the bytes of a marshalled ``v1.Pod``."""
    return _pod_from_pb(_parse(pb.Pod(), data, "pod"), data)


def encode_node(node: NodeTemplate) -> bytes:
    """The bytes of a ``v1.Node``: never empty, and the same for equal templates in whatever order their keys are."""
    return _encoded(pb.Node(), node, node.source, "node", _node_to_pb)


def encode_pod(pod: Pod) -> bytes:
    """The bytes of a ``v1.Pod``, as deterministic as those of a node."""
    return _encoded(pb.Pod(), pod, pod.source, "pod", _pod_to_pb)


# -- both ways, for any kind of object -----------------------------------------------------------------------------


def _parse(message: _M, data: bytes, kind: str) -> _M:
    if not data:
        raise InvalidArgumentError(f"there is no {kind}: its bytes are empty")
    if data.startswith(_FILE_MAGIC):
        raise InvalidArgumentError(
            f"the {kind} begins with the prefix 'k8s\\0' of stored objects: send the plain bytes of its Marshal()"
        )
    try:
        message.ParseFromString(data)
        if _is_utf8(message):
            return message
    except DecodeError as error:
        raise InvalidArgumentError(f"the bytes are not a Kubernetes {kind}: {error}") from error
    except UnicodeDecodeError:
        pass  # this is how a map reports a bad key
    raise InvalidArgumentError(f"the bytes are not a Kubernetes {kind}: a text in them is not UTF-8")


def _is_utf8(value: object) -> bool:
    """Whether every text in a message is valid UTF-8: proto2 does not check, and returns a bad one as bytes."""
    if isinstance(value, (str, int, bytes)):
        return not isinstance(value, bytes)
    if isinstance(value, Message):
        return all(_is_utf8(inner) for _, inner in value.ListFields())
    if isinstance(value, Mapping):
        return all(_is_utf8(part) for entry in value.items() for part in entry)
    return isinstance(value, Iterable) and all(map(_is_utf8, value))


def _encoded(message: _M, value: _V, source: bytes, kind: str, write: Callable[[_M, _V], None]) -> bytes:
    if source:
        _parse(message, source, kind)
    try:
        write(message, value)
        return message.SerializeToString(deterministic=True)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"the {kind} cannot be written: {error}") from error


# -- reading -------------------------------------------------------------------------------------------------------


def _node_from_pb(node: pb.Node, source: bytes) -> NodeTemplate:
    return NodeTemplate(
        name=node.metadata.name,
        labels=_sorted(node.metadata.labels),
        annotations=_sorted(node.metadata.annotations),
        provider_id=node.spec.providerID,
        unschedulable=node.spec.unschedulable,
        taints=tuple(Taint(key=taint.key, value=taint.value, effect=taint.effect) for taint in node.spec.taints),
        capacity=_quantities(node.status.capacity, "capacity"),
        allocatable=_quantities(node.status.allocatable, "allocatable"),
        conditions=tuple(
            NodeCondition(type=each.type, status=each.status, reason=each.reason, message=each.message)
            for each in node.status.conditions
        ),
        source=source,
    )


def _pod_from_pb(pod: pb.Pod, source: bytes) -> Pod:
    return Pod(
        name=pod.metadata.name,
        namespace=pod.metadata.namespace,
        labels=_sorted(pod.metadata.labels),
        annotations=_sorted(pod.metadata.annotations),
        node_selector=_sorted(pod.spec.nodeSelector),
        containers=tuple(map(_container_from_pb, pod.spec.containers)),
        init_containers=tuple(map(_container_from_pb, pod.spec.initContainers)),
        overhead=_quantities(pod.spec.overhead, "overhead"),
        source=source,
    )


def _container_from_pb(container: pb.Container) -> Container:
    return Container(
        name=container.name,
        requests=_quantities(container.resources.requests, f"requests of container {container.name!r}"),
        limits=_quantities(container.resources.limits, f"limits of container {container.name!r}"),
        restart_policy=container.restartPolicy,
    )


def _quantities(amounts: Mapping[str, pb.Quantity], where: str) -> dict[str, Quantity]:
    return {name: _checked(_text(amount), f"{where}, {name!r}") for name, amount in sorted(amounts.items())}


def _sorted(entries: Mapping[str, str]) -> dict[str, str]:
    """The entries sorted by key: a map on the wire has no order, and people should see one."""
    return dict(sorted(entries.items()))


def _text(amount: pb.Quantity) -> str:
    """The text of a quantity. Kubernetes takes an absent one for zero, and refuses an empty one."""
    return amount.string if amount.HasField("string") else "0"


def _checked(amount: str | Quantity, where: str) -> Quantity:
    """The amount, also where an author without a type checker gave a plain text or number."""
    try:
        return amount if isinstance(amount, Quantity) else Quantity(amount)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{where}: {error}") from error


# -- writing: only what differs from the source is touched ---------------------------------------------------------


def _node_to_pb(node: pb.Node, template: NodeTemplate) -> None:
    # Present even when nothing is in them, as Kubernetes writes them; so an empty template is not "no node".
    for part in (node.metadata, node.spec, node.status):
        part.SetInParent()
    _write_meta(node.metadata, template)
    _write(node.spec, "providerID", template.provider_id)
    _write(node.spec, "unschedulable", template.unschedulable)
    _write_list(node.spec.taints, template.taints, _TAINT_IDENTITY, _taint_to_pb)
    _write_quantities(node.status.capacity, template.capacity, "capacity")
    _write_quantities(node.status.allocatable, template.allocatable, "allocatable")
    _write_list(node.status.conditions, template.conditions, _CONDITION_IDENTITY, _condition_to_pb)


def _pod_to_pb(message: pb.Pod, pod: Pod) -> None:
    for part in (message.metadata, message.spec):
        part.SetInParent()
    _write_meta(message.metadata, pod)
    _write(message.metadata, "namespace", pod.namespace)
    _write_map(message.spec.nodeSelector, pod.node_selector)
    _write_list(message.spec.containers, pod.containers, _CONTAINER_IDENTITY, _container_to_pb)
    _write_list(message.spec.initContainers, pod.init_containers, _CONTAINER_IDENTITY, _container_to_pb)
    _write_quantities(message.spec.overhead, pod.overhead, "overhead")


def _taint_to_pb(message: pb.Taint, taint: Taint) -> None:
    for field in ("key", "value", "effect"):
        _write(message, field, getattr(taint, field))


def _condition_to_pb(message: pb.NodeCondition, condition: NodeCondition) -> None:
    for field in ("type", "status", "reason", "message"):
        _write(message, field, getattr(condition, field))


def _container_to_pb(message: pb.Container, container: Container) -> None:
    _write(message, "name", container.name)
    _write(message, "restartPolicy", container.restart_policy)
    where = f"of container {container.name!r}"
    _write_quantities(message.resources.requests, container.requests, f"requests {where}")
    _write_quantities(message.resources.limits, container.limits, f"limits {where}")


def _write_meta(message: pb.ObjectMeta, value: NodeTemplate | Pod) -> None:
    _write(message, "name", value.name)
    _write_map(message.labels, value.labels)
    _write_map(message.annotations, value.annotations)


def _write(message: Message, field: str, value: str | bool) -> None:  # noqa: FBT001  a field's value, not a switch
    if getattr(message, field) == value:
        return  # absent and empty stay what they were
    if value in ("", False):
        message.ClearField(field)
    else:
        setattr(message, field, value)


def _write_map(message: ScalarMap[str, str], wanted: Mapping[str, str]) -> None:
    if dict(message) != dict(wanted):
        message.clear()
        message.update(wanted)


def _write_quantities(message: MessageMap[str, pb.Quantity], wanted: Mapping[str, Quantity], where: str) -> None:
    for name in [name for name in message if name not in wanted]:
        del message[name]
    for name, amount in wanted.items():
        text = str(_checked(amount, f"{where}, {name!r}"))
        if name not in message or _text(message[name]) != text:
            message[name].string = text


def _write_list(
    messages: RepeatedCompositeFieldContainer[_M],
    wanted: Iterable[_V],
    identity: Callable[[object], Hashable],
    write: Callable[[_M, _V], None],
) -> None:
    """Writes the items in the author's order, each over the message that had its identity before, if there is one."""
    before: dict[Hashable, deque[_M]] = {}
    for message in messages:
        kept = type(message)()
        kept.CopyFrom(message)
        before.setdefault(identity(message), deque()).append(kept)
    del messages[:]
    for item in wanted:
        message = messages.add()
        if same := before.get(identity(item)):
            message.CopyFrom(same.popleft())
        write(message, item)
