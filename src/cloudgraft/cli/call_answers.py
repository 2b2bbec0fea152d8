"""Formats a server's answers for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Any, Final

import click
import yaml
from google.protobuf import json_format
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from rich.text import Text

from cloudgraft.cli.terminal import clean, print_table
from cloudgraft.sdk.duration import format_duration
from cloudgraft.sdk.errors import ErrorClass
from cloudgraft.sdk.types import AutoscalingOptions, InstanceState, NodeTemplate
from cloudgraft.wire import externalgrpc as wire
from cloudgraft.wire.kubernetes import decode_node
from cloudgraft.wire.pb import externalgrpc_pb2 as pb

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
