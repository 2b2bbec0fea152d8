"""Checks NodeGroups and NodeGroupTemplateNodeInfo: every group answers, and has a usable template."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final
from uuid import uuid4

from cloudgraft.conformance.check import NotJudged, Violation, server_checks
from cloudgraft.conformance.releases import AGES, CrashError, Release
from cloudgraft.conformance.rules import Level
from cloudgraft.conformance.stage import Stage, foreign
from cloudgraft.sdk.errors import InvalidArgumentError, StatusCode
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import NodeGroup, NodeTemplate
from cloudgraft.wire.pb import externalgrpc_pb2 as pb

CHECKS: Final = server_checks()
TEMPLATE_CHECKS: Final = server_checks()

# -- NodeGroups --------------------------------------------------------------------------------------------------------


@CHECKS.check("R12")
async def groups_are_listed(stage: Stage) -> None:
    """NodeGroups succeeds and lists all groups, every time."""
    for _ in range(3):
        listed = (await stage.calls.node_groups()).expect()
        missing = {group.id for group in stage.groups} - {group.id for group in listed}
        if missing:
            raise Violation(f"NodeGroups left out {sorted(missing)}, which it listed a moment before")


@CHECKS.check("R10", "T10", after=("groups_are_listed",))
async def group_ids_are_usable(stage: Stage) -> None:
    """Every group has an id, and no two have the same."""
    ids = [group.id for group in (await stage.calls.node_groups()).expect()]
    if "" in ids:
        raise Violation(f"a group has an empty id: {ids}")
    if doubles := {id_ for id_ in ids if ids.count(id_) > 1}:
        raise Violation(f"more than one group has the id {sorted(doubles)}")


@CHECKS.check("R11", after=("groups_are_listed",))
async def group_sizes_make_sense(stage: Stage) -> None:
    """0 <= min <= max for every group."""
    for group in stage.groups:
        if not 0 <= group.min_size <= group.max_size:
            raise Violation(f"group {group.id!r} has min {group.min_size} and max {group.max_size}")


@CHECKS.check("R4", "R10", "T10", after=("groups_are_listed",))
async def groups_stay_the_same(stage: Stage) -> None:
    """Ids, order, min, max and debug text do not change between two Refreshes."""
    (await stage.calls.refresh()).expect()
    first = (await stage.calls.node_groups()).expect()
    for _ in range(3):
        again = (await stage.calls.node_groups()).expect()
        if again != first:
            raise Violation(f"NodeGroups first gave {_shown(first)} and then, without a Refresh, {_shown(again)}")
    (await stage.calls.refresh()).expect()
    after = [group.id for group in (await stage.calls.node_groups()).expect()]
    if after != [group.id for group in first]:
        raise Violation(f"after a Refresh the groups are {after} and no longer {[group.id for group in first]}")


@CHECKS.check("R13", "R28", after=("groups_are_listed",))
async def every_group_has_a_target(stage: Stage) -> None:
    """NodeGroupTargetSize succeeds for every listed group."""
    for group in stage.groups:
        (await stage.calls.target(group.id)).expect(f"of {group.id!r}, which is listed")


@CHECKS.check("R13", "R42", after=("groups_are_listed",))
async def every_group_lists_its_instances(stage: Stage) -> None:
    """NodeGroupNodes succeeds for every listed group, in less than 4 MiB."""
    for group in stage.groups:
        (await stage.calls.instances(group.id)).expect(f"of {group.id!r}, which is listed")


@CHECKS.check("T8", after=("groups_are_listed",))
async def unknown_groups_are_refused(stage: Stage) -> None:
    """Every call for a group that does not exist is an error."""
    unknown = f"no-such-group-{uuid4().hex[:8]}"
    what = "the id of a group that does not exist"
    (await stage.calls.target(unknown)).expect_refusal(what)
    (await stage.calls.instances(unknown)).expect_refusal(what)
    (await stage.calls.template(unknown)).expect_refusal(what)
    (await stage.calls.increase(unknown, 1)).expect_refusal(what)
    (await stage.calls.decrease(unknown, -1)).expect_refusal(what)
    (await stage.calls.delete(unknown, [foreign()])).expect_refusal(what)


def _shown(groups: tuple[NodeGroup, ...]) -> str:
    return str([(group.id, group.min_size, group.max_size, group.debug) for group in groups])


# -- NodeGroupTemplateNodeInfo -----------------------------------------------------------------------------------------


_OLD: Final = Release(33)
_NEW: Final = Release(35)
_NEEDED: Final = ("cpu", "memory", "pods")
_STRIPPED: Final = (
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/network-unavailable",
    "node.cloudprovider.kubernetes.io/uninitialized",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
)


@TEMPLATE_CHECKS.check("R13", "R66", after=("groups_are_listed",))
async def templates_do_not_fail(stage: Stage) -> None:
    """NodeGroupTemplateNodeInfo succeeds for every group; code 12 is an answer only to 1.35 and later."""
    for group in stage.groups:
        answer = await stage.calls.template(group.id)
        if answer.status is StatusCode.UNIMPLEMENTED and stage.release.is_at_least("1.35"):
            continue
        answer.expect(f"of {group.id!r}: one group without a template stops the others too")


@TEMPLATE_CHECKS.check("R66", level=Level.SHOULD, after=("templates_do_not_fail",))
async def every_group_has_a_template(stage: Stage) -> None:
    """No group answers code 12: without a template it cannot grow from zero, and up to 1.34 no group can grow."""
    for group in stage.groups:
        answer = await stage.calls.template(group.id)
        if answer.status is StatusCode.UNIMPLEMENTED:
            raise Violation(f"the group {group.id!r} has no template: {answer.outcome}")


@TEMPLATE_CHECKS.check("R65", after=("templates_do_not_fail",))
async def templates_are_not_empty(stage: Stage) -> None:
    """An answer OK has a node in it: without one every release crashes (B5)."""
    async for group, answer in _answers(stage):
        if not answer.nodeInfo and not answer.nodeBytes:
            raise Violation(
                f"the template of {group.id!r} is answered OK without a node: every autoscaler crashes on it"
            )


@TEMPLATE_CHECKS.check("R65", "R66", after=("templates_are_not_empty",))
async def old_releases_find_the_template(stage: Stage) -> None:
    """The template is in field 1 (nodeInfo), which 1.25 to 1.34.1 read; without it they crash."""
    await _expect_field(stage, _OLD, "nodeInfo (1)", "1.25 to 1.34.1")


@TEMPLATE_CHECKS.check("R65", "R66", after=("templates_are_not_empty",))
async def new_releases_find_the_template(stage: Stage) -> None:
    """The template is in field 2 (nodeBytes), the only one that 1.35 and later read; without it they crash."""
    await _expect_field(stage, _NEW, "nodeBytes (2)", "1.35 and later")


@TEMPLATE_CHECKS.check("R65", after=("old_releases_find_the_template", "new_releases_find_the_template"))
async def templates_are_nodes(stage: Stage) -> None:
    """The bytes are a core/v1 Node, marshalled, without the prefix of stored objects, with quantities that parse."""
    async for group, answer in _answers(stage):
        for release in AGES:
            try:
                release.read_template(answer)
            except (InvalidArgumentError, CrashError) as error:
                raise Violation(f"the template of {group.id!r}, as {release} reads it: {error}") from error


@TEMPLATE_CHECKS.check("R66", after=("templates_are_nodes",))
async def both_template_fields_say_the_same(stage: Stage) -> None:
    """Old and new releases read the same template."""
    async for group, answer in _answers(stage):
        if _OLD.read_template(answer) != _NEW.read_template(answer):
            raise Violation(f"nodeInfo (1) and nodeBytes (2) of {group.id!r} are two different nodes")


@TEMPLATE_CHECKS.check("R68", after=("templates_are_nodes",))
async def templates_have_resources(stage: Stage) -> None:
    """Allocatable has cpu, memory and pods above zero, capacity cpu and memory: else no pod ever fits."""
    async for group, template in _templates(stage):
        for name in _NEEDED:
            if not _amount(template.allocatable.get(name)) > 0:
                raise Violation(
                    f"the template of {group.id!r} has no {name} in status.allocatable: no pod will ever fit"
                )
        for name in _NEEDED[:2]:
            if not _amount(template.capacity.get(name)) > 0:
                raise Violation(f"the template of {group.id!r} has no {name} in status.capacity")
            if _amount(template.allocatable[name]) > _amount(template.capacity[name]):
                raise Violation(f"the template of {group.id!r} allows more {name} than its capacity")


@TEMPLATE_CHECKS.check("R69", after=("templates_are_nodes",))
async def templates_have_labels(stage: Stage) -> None:
    """The template has at least the labels that every kubelet sets: kubernetes.io/arch and kubernetes.io/os."""
    async for group, template in _templates(stage):
        for label in ("kubernetes.io/arch", "kubernetes.io/os"):
            if not template.labels.get(label):
                raise Violation(f"the template of {group.id!r} has no label {label}: pods that ask for it never fit")


@TEMPLATE_CHECKS.check("R70", level=Level.MUST, after=("templates_are_nodes",))
async def templates_are_schedulable(stage: Stage) -> None:
    """The template is not marked as unschedulable: else nothing is ever placed on it."""
    async for group, template in _templates(stage):
        if template.unschedulable:
            raise Violation(f"the template of {group.id!r} has spec.unschedulable: true")


@TEMPLATE_CHECKS.check("R70", after=("templates_are_nodes",))
async def templates_have_lasting_taints_only(stage: Stage) -> None:
    """The template has no taint that comes and goes, and no providerID."""
    async for group, template in _templates(stage):
        passing = [taint.key for taint in template.taints if taint.key in _STRIPPED]
        if passing:
            raise Violation(f"the template of {group.id!r} has the taint {passing[0]}, which no running node keeps")
        if template.provider_id:
            raise Violation(
                f"the template of {group.id!r} has the providerID {template.provider_id!r}: planned nodes "
                "would be taken for that machine"
            )


@TEMPLATE_CHECKS.check("R66", "R69", after=("templates_are_nodes",))
async def templates_stay_the_same(stage: Stage) -> None:
    """The same group gives the same template again."""
    async for group, template in _templates(stage):
        again = stage.release.read_template((await stage.calls.template(group.id)).expect())
        if again != template:
            raise Violation(f"two calls in a row gave two different templates of {group.id!r}")


async def _answers(stage: Stage) -> AsyncIterator[tuple[NodeGroup, pb.NodeGroupTemplateNodeInfoResponse]]:
    """The answers of all groups that have a template."""
    found = False
    for group in stage.groups:
        answer = await stage.calls.template(group.id)
        if answer.status is not StatusCode.UNIMPLEMENTED:
            found = True
            yield group, answer.expect(f"of {group.id!r}")
    if not found:
        raise NotJudged("no group has a template: NodeGroupTemplateNodeInfo answers code 12")


async def _templates(stage: Stage) -> AsyncIterator[tuple[NodeGroup, NodeTemplate]]:
    async for group, answer in _answers(stage):
        yield group, stage.release.read_template(answer)


async def _expect_field(stage: Stage, release: Release, field: str, readers: str) -> None:
    async for group, answer in _answers(stage):
        if not release.template_bytes(answer):
            raise Violation(
                f"the template of {group.id!r} is not in {field}, the only field that {readers} read: they crash"
            )


def _amount(quantity: Quantity | None) -> float:
    return 0.0 if quantity is None else float(quantity.value)
