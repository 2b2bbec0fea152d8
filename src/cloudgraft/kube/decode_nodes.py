"""Nodes and their leases, from the API's JSON."""

from __future__ import annotations

from datetime import datetime

import msgspec

from cloudgraft.kube.decode_meta import Meta, amounts, common, labels, seconds
from cloudgraft.kube.objects import Lease, Node
from cloudgraft.sdk.types import Taint

__all__ = ["LeaseJson", "NodeJson", "lease", "node"]


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
    """A node, by what decisions are made from."""
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


def lease(wire: LeaseJson) -> Lease:
    """When it was renewed last."""
    return Lease(**common(wire.metadata), renewed_at=seconds(wire.spec.renew_time))
