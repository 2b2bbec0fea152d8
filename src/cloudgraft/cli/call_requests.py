"""Describes the 15 calls, with examples, and builds requests from JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.nearest import nearest
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import AutoscalingOptions, Container, Pod
from cloudgraft.service.options import FLAG_DEFAULTS
from cloudgraft.wire import externalgrpc as wire
from cloudgraft.wire.kubernetes import encode_pod
from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from cloudgraft.wire.rpc import Rpc


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The description of one call."""

    meaning: str
    example: Mapping[str, object]  # a useful request; empty where the call has no fields


_NODE: Final = {"name": "node-1", "providerID": "sim://node-1"}
_POD: Final = {"spec": {"containers": [{"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]}}
CATALOGUE: Final[dict[str, Entry]] = {
    "NodeGroups": Entry(meaning="all node groups, with their limits", example={}),
    "NodeGroupForNode": Entry(meaning="the node group that a node belongs to", example={"node": _NODE}),
    "PricingNodePrice": Entry(meaning="what a node costs for some time", example={"node": _NODE}),
    "PricingPodPrice": Entry(meaning="the least that a pod could cost for some time", example={"pod": _POD}),
    "GPULabel": Entry(meaning="the label that tells a node's GPU type", example={}),
    "GetAvailableGPUTypes": Entry(meaning="the GPU types on offer", example={}),
    "Cleanup": Entry(meaning="say that the autoscaler is going away", example={}),
    "Refresh": Entry(meaning="begin a loop: the server brings itself up to date", example={}),
    "NodeGroupTargetSize": Entry(meaning="the size that a group is meant to have", example={"id": "small"}),
    "NodeGroupIncreaseSize": Entry(meaning="CHANGE: create machines", example={"id": "small", "delta": 1}),
    "NodeGroupDeleteNodes": Entry(meaning="CHANGE: delete machines", example={"id": "small", "nodes": [_NODE]}),
    "NodeGroupDecreaseTargetSize": Entry(
        meaning="CHANGE: give machines back that never came", example={"id": "small", "delta": -1}
    ),
    "NodeGroupNodes": Entry(meaning="the machines of a group, with state and error", example={"id": "small"}),
    "NodeGroupTemplateNodeInfo": Entry(meaning="what a new node of a group looks like", example={"id": "small"}),
    "NodeGroupGetOptions": Entry(meaning="how the autoscaler should treat a group", example={"id": "small"}),
}


def find_rpc(name: str) -> Rpc:
    """The call of that name in any case; raises InvalidArgumentError with the nearest one for a typo."""
    by_lower = {known.lower(): rpc for known, rpc in wire.RPCS.items()}
    if name.lower() in by_lower:
        return by_lower[name.lower()]
    near = nearest(name, wire.RPCS, cutoff=0.5, fold=str.lower)
    advice = f"did you mean {near}?" if near else "`cloudgraft call --list` shows all 15."
    raise InvalidArgumentError(f"there is no call {name!r}: {advice}")


def build_request(rpc: Rpc, text: str) -> Message:
    """The request from its protobuf JSON, completed as the autoscaler would; raises InvalidArgumentError."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"it is not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise InvalidArgumentError('it must be a JSON object, such as {"id": "small"}')
    pod = data.get("pod")
    if rpc.request is pb.PricingPodPriceRequest and isinstance(pod, dict):
        data = {**data, "pod": ""}
    # The stubs also name the class of protobuf's C library, which has the same interface.
    _check_fields(data, rpc.request.DESCRIPTOR)  # type: ignore[arg-type]
    try:
        request = json_format.ParseDict(data, rpc.request())
    except json_format.ParseError as error:
        raise InvalidArgumentError(f"it does not fit {rpc.request.DESCRIPTOR.name}: {error}") from error
    if isinstance(request, pb.PricingPodPriceRequest) and isinstance(pod, dict):
        request.pod = encode_pod(_pod(pod))
    _complete(request)
    return request


def _check_fields(data: Mapping[str, object], message: Descriptor) -> None:
    """Rejects a field that the message does not have, and suggests the nearest one."""
    known = {field.json_name: field for field in message.fields} | {field.name: field for field in message.fields}
    for name, value in data.items():
        if name not in known:
            names = [field.name for field in message.fields]
            near = nearest(name, names)
            advice = f"did you mean {near!r}?" if near else f"it has {', '.join(names) or 'no fields at all'}."
            raise InvalidArgumentError(f"there is no field {name!r} in {message.name}: {advice}")
        _check_value(value, known[name])


def _check_value(value: object, field: FieldDescriptor) -> None:
    inner = field.message_type
    # Maps and Google's own types have their own JSON form, which the parser checks.
    if inner is None or inner.GetOptions().map_entry or inner.full_name.startswith("google."):
        return
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            _check_fields(item, inner)


def _complete(request: Message) -> None:
    """Fills in what every autoscaler sends, in the fields of old and new releases."""
    if isinstance(request, pb.NodeGroupAutoscalingOptionsRequest):
        given = wire.options_from_pb(request.defaults) if request.HasField("defaults") else AutoscalingOptions()
        request.defaults.CopyFrom(wire.options_to_pb(given.over(FLAG_DEFAULTS)))
    if isinstance(request, pb.PricingPodPriceRequest):
        request.pod_bytes = request.pod_bytes or request.pod
        request.pod = request.pod or request.pod_bytes
    if isinstance(request, pb.PricingNodePriceRequest | pb.PricingPodPriceRequest):
        _complete_period(request)


def _complete_period(request: pb.PricingNodePriceRequest | pb.PricingPodPriceRequest) -> None:
    """Without a period, uses the next hour, as the autoscaler does (R82)."""
    start, end = wire.period_from_pb(request)
    if not (request.HasField("startTimestamp") or request.HasField("startTime")):
        start = datetime.now(UTC)
    if not (request.HasField("endTimestamp") or request.HasField("endTime")):
        end = start + timedelta(hours=1)
    for field in (request.startTime, request.startTimestamp):
        field.FromDatetime(start)
    for field in (request.endTime, request.endTimestamp):
        field.FromDatetime(end)


def _pod(manifest: Mapping[str, Any]) -> Pod:
    """A pod from its Kubernetes form, as `kubectl get pod -o json` prints it."""
    try:
        meta, spec = manifest.get("metadata", {}), manifest.get("spec", {})
        return Pod(
            name=meta.get("name", ""),
            namespace=meta.get("namespace", ""),
            labels=meta.get("labels", {}),
            annotations=meta.get("annotations", {}),
            node_selector=spec.get("nodeSelector", {}),
            containers=tuple(_container(each) for each in spec.get("containers", ())),
            init_containers=tuple(_container(each) for each in spec.get("initContainers", ())),
            overhead=_quantities(spec.get("overhead", {})),
        )
    except (AttributeError, TypeError) as error:
        raise InvalidArgumentError(f"the pod is not a Kubernetes pod: {error}") from error


def _container(manifest: Mapping[str, Any]) -> Container:
    resources = manifest.get("resources", {})
    return Container(
        name=manifest.get("name", ""),
        requests=_quantities(resources.get("requests", {})),
        limits=_quantities(resources.get("limits", {})),
        restart_policy=manifest.get("restartPolicy", ""),
    )


def _quantities(amounts: Mapping[str, Any]) -> dict[str, Quantity]:
    return {name: Quantity(amount) for name, amount in amounts.items()}
