"""Mistakes in TemplateNodeInfo."""

from __future__ import annotations

from dataclasses import replace

import grpc

from cloudgraft.sdk.types import NodeTemplate
from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from cloudgraft.wire.pb import kubernetes_pb2
from tests.conformance.planted.fault import fault
from tests.conformance.planted.sound import Refusal, SoundServer
from tests.conformance.planted.world import Group

_Asked = pb.NodeGroupTemplateNodeInfoRequest
_Answer = pb.NodeGroupTemplateNodeInfoResponse


@fault("R65", check="new_releases_find_the_template")
class TemplateInTheOldFieldOnly(SoundServer):
    """TemplateNodeInfo fills nodeInfo only: autoscalers from 1.35 on read nothing, and crash."""

    async def template(self, request: _Asked) -> _Answer:
        return _Answer(nodeInfo=(await super().template(request)).nodeInfo)


@fault("R65", check="old_releases_find_the_template")
class TemplateInTheNewFieldOnly(SoundServer):
    """TemplateNodeInfo fills nodeBytes only: autoscalers up to 1.34.1 read nothing, and crash."""

    async def template(self, request: _Asked) -> _Answer:
        return _Answer(nodeBytes=(await super().template(request)).nodeBytes)


@fault("R65", check="templates_are_not_empty")
class TemplateIsEmpty(SoundServer):
    """TemplateNodeInfo answers OK without a node, which crashes every autoscaler."""

    async def template(self, request: _Asked) -> _Answer:
        self.group(request.id)
        return _Answer()


@fault("R65", check="templates_are_nodes")
class TemplateAsStored(SoundServer):
    """TemplateNodeInfo sends the node as etcd stores it, with the prefix that marks such objects."""

    async def template(self, request: _Asked) -> _Answer:
        node = b"k8s\x00" + (await super().template(request)).nodeBytes
        return _Answer(nodeInfo=node, nodeBytes=node)


@fault("R65", "R68", check="templates_are_nodes")
class TemplateWithABadQuantity(SoundServer):
    """TemplateNodeInfo gives the memory as "16 GB", which is no quantity."""

    async def template(self, request: _Asked) -> _Answer:
        node = kubernetes_pb2.Node.FromString((await super().template(request)).nodeBytes)
        node.status.allocatable["memory"].string = "16 GB"
        data = node.SerializeToString()
        return _Answer(nodeInfo=data, nodeBytes=data)


@fault("R66", check="both_template_fields_say_the_same")
class TemplateFieldsDiffer(SoundServer):
    """TemplateNodeInfo fills the old field and the new one with two different nodes."""

    async def template(self, request: _Asked) -> _Answer:
        answer = await super().template(request)
        node = kubernetes_pb2.Node.FromString(answer.nodeInfo)
        node.metadata.labels["pool"] = "another"
        return _Answer(nodeInfo=node.SerializeToString(), nodeBytes=answer.nodeBytes)


@fault("R69", "R66", check="templates_stay_the_same")
class TemplateWavers(SoundServer):
    """TemplateNodeInfo puts something into the labels that is new each time."""

    asked = 0

    def node_template(self, group: Group) -> NodeTemplate:
        self.asked += 1
        template = super().node_template(group)
        return replace(template, labels={**template.labels, "asked": str(self.asked)})


@fault("R66", "R13", check="templates_do_not_fail")
class OneGroupHasNoTemplate(SoundServer):
    """TemplateNodeInfo fails for one group, which up to 1.34 stops all scale-ups."""

    async def template(self, request: _Asked) -> _Answer:
        if request.id == self.world.groups[2].id:
            raise Refusal("no machine of this group was ever seen", grpc.StatusCode.NOT_FOUND)
        return await super().template(request)


@fault("R66", check="every_group_has_a_template")
class TemplatesAreUnimplemented(SoundServer):
    """TemplateNodeInfo answers code 12 for every group, so that none can be scaled up from zero."""

    async def template(self, request: _Asked) -> _Answer:
        self.group(request.id)
        raise Refusal("no templates", grpc.StatusCode.UNIMPLEMENTED)


class _Bent(SoundServer):
    """Changes the template before it is written into both fields."""

    def bend(self, template: NodeTemplate) -> NodeTemplate:
        return template

    def node_template(self, group: Group) -> NodeTemplate:
        return self.bend(super().node_template(group))


@fault("R68", check="templates_have_resources")
class TemplateWithoutPods(_Bent):
    """The template allows no pods, so nothing ever fits."""

    def bend(self, template: NodeTemplate) -> NodeTemplate:
        return replace(template, allocatable={k: v for k, v in template.allocatable.items() if k != "pods"})


@fault("R68", check="templates_have_resources")
class TemplateWithoutCpu(_Bent):
    """The template's capacity has no cpu, by which quotas and expanders divide."""

    def bend(self, template: NodeTemplate) -> NodeTemplate:
        return replace(template, capacity={k: v for k, v in template.capacity.items() if k != "cpu"})


@fault("R68", check="templates_have_resources")
class TemplateWithCapacityOnly(_Bent):
    """The template says what the machine has, and not what is allocatable."""

    def bend(self, template: NodeTemplate) -> NodeTemplate:
        return replace(template, allocatable={})


@fault("R70", check="templates_are_schedulable")
class TemplateIsUnschedulable(_Bent):
    """The template is a cordoned node, on which nothing is placed."""

    def bend(self, template: NodeTemplate) -> NodeTemplate:
        return replace(template, unschedulable=True)


@fault("R70", check="templates_have_lasting_taints_only")
class TemplateIsARealNode(_Bent):
    """The template carries the providerID of the node that it was copied from."""

    def bend(self, template: NodeTemplate) -> NodeTemplate:
        return replace(template, provider_id="planted://amber/amber-1")


@fault("R69", check="templates_have_labels")
class TemplateWithoutLabels(_Bent):
    """The template has none of the labels that real nodes get, so pods that select by them never fit."""

    def bend(self, template: NodeTemplate) -> NodeTemplate:
        return replace(template, labels={})


@fault("R65", check="templates_are_nodes")
class TemplateIsNotANode(SoundServer):
    """TemplateNodeInfo sends the node as JSON."""

    async def template(self, request: _Asked) -> _Answer:
        self.group(request.id)
        return _Answer(nodeInfo=b'{"kind": "Node"}', nodeBytes=b'{"kind": "Node"}')
