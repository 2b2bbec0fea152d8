"""The protocol as each release of the autoscaler knows it: a table of fields, and messages made from it.

Nothing here comes from our own .proto files: each generation of the protocol has messages of its own, in a descriptor
pool of its own, so that both sides of the wire can only agree if the table says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

# The five versions of the protocol file, and what the autoscaler's main branch is about to add.
GENERATIONS: Final = ("1.25-28", "1.29-32", "1.33", "1.34", "1.35-37", "next")

# message, field, number, type, and from which to which generation when it was not always there.
TABLE: Final = """
NodeGroup                            id                                1  string
NodeGroup                            minSize                           2  int32
NodeGroup                            maxSize                           3  int32
NodeGroup                            debug                             4  string
ExternalGrpcNode                     providerID                        1  string
ExternalGrpcNode                     name                              2  string
ExternalGrpcNode                     labels                            3  map:string
ExternalGrpcNode                     annotations                       4  map:string
NodeGroupsRequest
NodeGroupsResponse                   nodeGroups                        1  list:NodeGroup
NodeGroupForNodeRequest              node                              1  ExternalGrpcNode
NodeGroupForNodeResponse             nodeGroup                         1  NodeGroup
PricingNodePriceRequest              node                              1  ExternalGrpcNode
PricingNodePriceRequest              startTime                         2  MetaTime          1.25-28..1.34
PricingNodePriceRequest              endTime                           3  MetaTime          1.25-28..1.34
PricingNodePriceRequest              startTimestamp                    4  Timestamp         1.34..
PricingNodePriceRequest              endTimestamp                      5  Timestamp         1.34..
PricingNodePriceResponse             price                             1  double
PricingPodPriceRequest               pod                               1  Pod               1.25-28..1.34
PricingPodPriceRequest               startTime                         2  MetaTime          1.25-28..1.34
PricingPodPriceRequest               endTime                           3  MetaTime          1.25-28..1.34
PricingPodPriceRequest               pod_bytes                         4  bytes             1.34..
PricingPodPriceRequest               startTimestamp                    5  Timestamp         1.34..
PricingPodPriceRequest               endTimestamp                      6  Timestamp         1.34..
PricingPodPriceResponse              price                             1  double
GPULabelRequest
GPULabelResponse                     label                             1  string
GetAvailableGPUTypesRequest
GetAvailableGPUTypesResponse         gpuTypes                          1  map:Any
CleanupRequest
CleanupResponse
RefreshRequest
RefreshResponse
NodeGroupTargetSizeRequest           id                                1  string
NodeGroupTargetSizeResponse          targetSize                        1  int32
NodeGroupIncreaseSizeRequest         delta                             1  int32
NodeGroupIncreaseSizeRequest         id                                2  string
NodeGroupIncreaseSizeResponse
NodeGroupDeleteNodesRequest          nodes                             1  list:ExternalGrpcNode
NodeGroupDeleteNodesRequest          id                                2  string
NodeGroupDeleteNodesResponse
NodeGroupDecreaseTargetSizeRequest   delta                             1  int32
NodeGroupDecreaseTargetSizeRequest   id                                2  string
NodeGroupDecreaseTargetSizeResponse
NodeGroupNodesRequest                id                                1  string
NodeGroupNodesResponse               instances                         1  list:Instance
Instance                             id                                1  string
Instance                             status                            2  InstanceStatus
InstanceStatus                       instanceState                     1  int32
InstanceStatus                       errorInfo                         2  InstanceErrorInfo
InstanceErrorInfo                    errorCode                         1  string
InstanceErrorInfo                    errorMessage                      2  string
InstanceErrorInfo                    instanceErrorClass                3  int32
NodeGroupTemplateNodeInfoRequest     id                                1  string
NodeGroupTemplateNodeInfoResponse    nodeInfo                          1  Node              1.25-28..1.34
NodeGroupTemplateNodeInfoResponse    nodeBytes                         2  bytes             1.34..
NodeGroupAutoscalingOptions          scaleDownUtilizationThreshold     1  double
NodeGroupAutoscalingOptions          scaleDownGpuUtilizationThreshold  2  double
NodeGroupAutoscalingOptions          scaleDownUnneededTime             3  MetaDuration      1.25-28..1.34
NodeGroupAutoscalingOptions          scaleDownUnreadyTime              4  MetaDuration      1.25-28..1.34
NodeGroupAutoscalingOptions          MaxNodeProvisionTime              5  MetaDuration      1.29-32..1.34
NodeGroupAutoscalingOptions          zeroOrMaxNodeScaling              6  bool              1.33..
NodeGroupAutoscalingOptions          ignoreDaemonSetsUtilization       7  bool              1.33..
NodeGroupAutoscalingOptions          scaleDownUnneededDuration         8  Duration          1.34..
NodeGroupAutoscalingOptions          scaleDownUnreadyDuration          9  Duration          1.34..
NodeGroupAutoscalingOptions          MaxNodeProvisionDuration         10  Duration          1.34..
NodeGroupAutoscalingOptions          maxNodeStartupDuration           11  Duration          next..
NodeGroupAutoscalingOptions          allowNonAtomicScaleUpToMax       12  bool              next..
NodeGroupAutoscalingOptionsRequest   id                                1  string
NodeGroupAutoscalingOptionsRequest   defaults                          2  NodeGroupAutoscalingOptions
NodeGroupAutoscalingOptionsResponse  nodeGroupAutoscalingOptions       1  NodeGroupAutoscalingOptions
Timestamp                            seconds                           1  int64
Timestamp                            nanos                             2  int32
Duration                             seconds                           1  int64
Duration                             nanos                             2  int32
MetaTime                             seconds                           1  int64
MetaTime                             nanos                             2  int32
MetaDuration                         duration                          1  int64
Any                                  type_url                          1  string
Any                                  value                             2  bytes
Quantity                             string                            1  string
ObjectMeta                           name                              1  string
ObjectMeta                           labels                           11  map:string
ObjectMeta                           annotations                      12  map:string
Node                                 metadata                          1  ObjectMeta
Node                                 spec                              2  NodeSpec
Node                                 status                            3  NodeStatus
NodeSpec                             providerID                        3  string
NodeSpec                             unschedulable                     4  bool
NodeSpec                             taints                            5  list:Taint
Taint                                key                               1  string
Taint                                value                             2  string
Taint                                effect                            3  string
NodeStatus                           capacity                          1  map:Quantity
NodeStatus                           allocatable                       2  map:Quantity
Pod                                  metadata                          1  ObjectMeta
Pod                                  spec                              2  PodSpec
PodSpec                              containers                        2  list:Container
Container                            name                              1  string
Container                            resources                         8  ResourceRequirements
ResourceRequirements                 requests                          2  map:Quantity
"""

# What every release calls: rpc, and the message names where they do not simply follow from it.
RPCS: Final = {
    **{
        name: (f"{name}Request", f"{name}Response")
        for name in (
            *("NodeGroups", "NodeGroupForNode", "PricingNodePrice", "PricingPodPrice"),
            *("GPULabel", "GetAvailableGPUTypes", "Cleanup", "Refresh"),
            *("NodeGroupTargetSize", "NodeGroupIncreaseSize", "NodeGroupDeleteNodes", "NodeGroupDecreaseTargetSize"),
            *("NodeGroupNodes", "NodeGroupTemplateNodeInfo"),
        )
    },
    "NodeGroupGetOptions": ("NodeGroupAutoscalingOptionsRequest", "NodeGroupAutoscalingOptionsResponse"),
}


@dataclass(frozen=True)
class Release:
    """A release of the autoscaler, by the generation of the protocol that it speaks."""

    name: str
    generation: str

    def since(self, generation: str) -> bool:
        return GENERATIONS.index(self.generation) >= GENERATIONS.index(generation)

    def has(self, message: str, field: str) -> bool:
        return field in _message_class(self.generation, message).DESCRIPTOR.fields_by_name

    def message_class(self, name: str) -> type[Message]:
        return _message_class(self.generation, name)

    def new(self, message: str, **values: Any) -> Any:
        """A message of this release; a field that it does not have is an error, as in its own source."""
        return self.message_class(message)(**values)


# The patches 1.34.0 and 1.34.1 do not have the fields of 1.34.2 yet.
RELEASES: Final = tuple(
    Release(name, generation)
    for name, generation in (
        ("1.25", "1.25-28"),
        ("1.27", "1.25-28"),
        ("1.29", "1.29-32"),
        ("1.33", "1.33"),
        ("1.34.1", "1.33"),
        ("1.34.2", "1.34"),
        ("1.35", "1.35-37"),
        ("1.37", "1.35-37"),
    )
)
NEXT: Final = Release("after-1.37", "next")

_SCALARS = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "bool": FieldDescriptorProto.TYPE_BOOL,
}


def filled(message: Any) -> Any:
    """Puts something other than its default into every field, at every depth."""
    for number, field in enumerate(message.DESCRIPTOR.fields, start=1):
        if field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type.GetOptions().map_entry:
            target, value_field = getattr(message, field.name), field.message_type.fields_by_name["value"]
            if value_field.type == FieldDescriptor.TYPE_MESSAGE:
                filled(target["key"])
            else:
                target["key"] = "value"
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            filled(getattr(message, field.name).add() if field.is_repeated else getattr(message, field.name))
        else:
            setattr(message, field.name, _sample(field, number))
    return message


def _sample(field: FieldDescriptor, number: int) -> object:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return b"bytes"
    if field.type == FieldDescriptor.TYPE_BOOL:
        return True
    if field.type == FieldDescriptor.TYPE_STRING:
        return "lab" if field.name == "id" else field.name
    return float(number) if field.type == FieldDescriptor.TYPE_DOUBLE else number


@cache
def _message_class(generation: str, name: str) -> type[Message]:
    return GetMessageClass(_pool(generation).FindMessageTypeByName(f"{_package(generation)}.{name}"))


def _package(generation: str) -> str:
    return "release_" + re.sub(r"\W", "_", generation)


@cache
def _pool(generation: str) -> DescriptorPool:
    package = _package(generation)
    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    messages: dict[str, DescriptorProto] = {}
    for line in filter(str.strip, TABLE.split("\n")):
        name, *field = line.split()
        if name not in messages:
            messages[name] = file.message_type.add(name=name)
        if field and _exists(generation, field[3] if len(field) > 3 else ".."):
            _add_field(messages[name], package, *field[:3])
    pool = DescriptorPool()
    pool.Add(file)
    return pool


def _exists(generation: str, period: str) -> bool:
    first, last = period.split("..")
    place = GENERATIONS.index(generation)
    return GENERATIONS.index(first or GENERATIONS[0]) <= place <= GENERATIONS.index(last or GENERATIONS[-1])


def _add_field(message: DescriptorProto, package: str, name: str, number: str, kind: str) -> None:
    container, _, element = kind.rpartition(":")
    field = message.field.add(name=name, number=int(number), label=FieldDescriptorProto.LABEL_OPTIONAL)
    if container:
        field.label = FieldDescriptorProto.LABEL_REPEATED
    if container == "map":
        entry = message.nested_type.add(name=f"{name[0].upper()}{name[1:]}Entry")
        entry.options.map_entry = True
        _add_field(entry, package, "key", "1", "string")
        _add_field(entry, package, "value", "2", element)
        element = f"{message.name}.{entry.name}"
    if element in _SCALARS:
        field.type = _SCALARS[element]
    else:
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{package}.{element}"
