"""Converts the messages of `cloudgraft call`: requests from JSON, answers to tables, YAML and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click
import yaml
from google.protobuf import json_format
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from rich.text import Text

from cloudgraft.cli.terminal import clean, print_table
from cloudgraft.sdk.common.nearest import nearest
from cloudgraft.sdk.duration import format_duration
from cloudgraft.sdk.errors import ErrorClass, InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import AutoscalingOptions, Container, InstanceState, NodeTemplate, Pod
from cloudgraft.service.options import FLAG_DEFAULTS
from cloudgraft.wire import externalgrpc as wire
from cloudgraft.wire.kubernetes import decode_node, encode_pod
from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from cloudgraft.wire.rpc import Rpc

# -- requests ----------------------------------------------------------------------------------------------------------


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


# -- answers -----------------------------------------------------------------------------------------------------------


_ERROR_CLASSES: Final[dict[int, str]] = {ErrorClass.OUT_OF_RESOURCES: "out of resources", ErrorClass.OTHER: "other"}
_STATES: Final = {state.value: state.name.lower() for state in InstanceState}


def _print(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table without colours."""
    print_table(headings, [[Text(clean(str(value))) for value in row] for row in rows])


# -- for programs ------------------------------------------------------------------------------------------------------


def to_json(answer: Message) -> str:
    """The answer in protobuf JSON with every field; a template's node is decoded beside its bytes."""
    if isinstance(answer, pb.GetAvailableGPUTypesResponse):
        # Only the names matter, and the values may have unknown types.
        answer = pb.GetAvailableGPUTypesResponse(gpuTypes={name: AnyMessage() for name in answer.gpuTypes})
    data = json_format.MessageToDict(answer, always_print_fields_with_no_presence=True)
    if isinstance(answer, pb.NodeGroupTemplateNodeInfoResponse) and (answer.nodeBytes or answer.nodeInfo):
        data["node"] = _node(wire.template_from_pb(answer))
    return json.dumps(data, indent=2)


# -- for people --------------------------------------------------------------------------------------------------------


def to_people(answer: Message) -> None:  # noqa: PLR0911 - one line per kind of answer is the clearest form
    """Prints the answer as a table, as YAML or as a sentence."""
    match answer:
        case pb.NodeGroupsResponse():
            return _groups(answer.nodeGroups)
        case pb.NodeGroupForNodeResponse():
            return _groups([answer.nodeGroup]) if answer.nodeGroup.id else click.echo("no group manages this node")
        case pb.NodeGroupNodesResponse():
            return _instances(answer.instances)
        case pb.NodeGroupTemplateNodeInfoResponse():
            return _template(answer)
        case pb.NodeGroupAutoscalingOptionsResponse():
            return _options(answer)
        case pb.GetAvailableGPUTypesResponse():
            return _print(["GPU TYPE"], [[name] for name in sorted(answer.gpuTypes)])
        case pb.NodeGroupTargetSizeResponse():
            return _print(["TARGET SIZE"], [[answer.targetSize]])
        case pb.PricingNodePriceResponse() | pb.PricingPodPriceResponse():
            return _print(["PRICE"], [[answer.price]])
        case pb.GPULabelResponse():
            return _print(["GPU LABEL"], [[answer.label or "(empty: there are no GPUs)"]])
        case _:
            return click.echo("OK")


def notes(answer: Message) -> list[str]:
    """Notes on how some releases of the autoscaler read the answer, where that differs from what it says."""
    if isinstance(answer, pb.NodeGroupNodesResponse):
        return _notes_on_instances(answer)
    return _notes_on_template(answer) if isinstance(answer, pb.NodeGroupTemplateNodeInfoResponse) else []


def _notes_on_instances(answer: pb.NodeGroupNodesResponse) -> list[str]:
    unseen = [each.id for each in answer.instances if each.status.errorInfo.errorCode and not _is_creating(each)]
    message = "the autoscaler sees an error only of an instance that is being created; it does not see that of "
    return [message + ", ".join(unseen)] if unseen else []


def _notes_on_template(answer: pb.NodeGroupTemplateNodeInfoResponse) -> list[str]:
    if not answer.nodeInfo and not answer.nodeBytes:
        return ["the answer has no node: the autoscaler crashes on that (answer UNIMPLEMENTED instead)"]
    if not answer.nodeBytes:
        return ["only nodeInfo is filled: autoscalers from 1.35 on see no node in this and crash"]
    if not answer.nodeInfo:
        return ["only nodeBytes is filled: autoscalers up to 1.34.1 see no node in this and crash"]
    if decode_node(answer.nodeInfo) != decode_node(answer.nodeBytes):
        return ["nodeInfo and nodeBytes differ: old and new autoscalers see different nodes; nodeBytes is shown"]
    return []


def _is_creating(instance: pb.Instance) -> bool:
    return instance.status.instanceState == pb.InstanceStatus.instanceCreating


def _groups(groups: Iterable[pb.NodeGroup]) -> None:
    _print(["ID", "MIN", "MAX", "DEBUG"], [[g.id, g.minSize, g.maxSize, g.debug] for g in groups])


def _instances(instances: Iterable[pb.Instance]) -> None:
    # As sent: a user may look for fields that the autoscaler does not see (see notes()).
    rows = []
    for each in instances:
        state, error = each.status.instanceState, each.status.errorInfo
        kind = _ERROR_CLASSES.get(error.instanceErrorClass, str(error.instanceErrorClass)) if error.errorCode else ""
        rows.append([each.id, _STATES.get(state, str(state)), error.errorCode, kind, error.errorMessage])
    _print(["ID", "STATE", "ERROR", "CLASS", "MESSAGE"], rows)


def _template(answer: pb.NodeGroupTemplateNodeInfoResponse) -> None:
    if answer.nodeBytes or answer.nodeInfo:
        click.echo(yaml.safe_dump(_node(wire.template_from_pb(answer)), sort_keys=False), nl=False)
    else:
        click.echo("no node")


def _options(answer: pb.NodeGroupAutoscalingOptionsResponse) -> None:
    if not answer.HasField("nodeGroupAutoscalingOptions"):
        click.echo("no options of its own: the autoscaler's flags hold for this group")
        return
    options = wire.options_from_pb(answer.nodeGroupAutoscalingOptions)
    names = [field.name for field in fields(AutoscalingOptions) if field.name != "source"]
    _print(["OPTION", "VALUE"], [[name.replace("_", "-"), _value(getattr(options, name))] for name in names])


def _value(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, timedelta):
        return format_duration(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _node(template: NodeTemplate) -> dict[str, Any]:
    """The template as a Kubernetes manifest; empty parts are left out."""
    spec = {
        "providerID": template.provider_id,
        "unschedulable": template.unschedulable,
        "taints": [_filled({"key": t.key, "value": t.value, "effect": t.effect}) for t in template.taints],
    }
    status = {
        "capacity": {name: str(amount) for name, amount in sorted(template.capacity.items())},
        "allocatable": {name: str(amount) for name, amount in sorted(template.allocatable.items())},
        "conditions": [
            _filled({"type": c.type, "status": c.status, "reason": c.reason, "message": c.message})
            for c in template.conditions
        ],
    }
    metadata = {
        "name": template.name,
        "labels": dict(sorted(template.labels.items())),
        "annotations": dict(sorted(template.annotations.items())),
    }
    parts = {"metadata": _filled(metadata), "spec": _filled(spec), "status": _filled(status)}
    return {"apiVersion": "v1", "kind": "Node", **parts}


def _filled(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if value}
