"""NodeGroupForNode: real nodes, stand-ins, planned nodes, nodes of nobody."""

from __future__ import annotations

from typing import Final

from cloudgraft.conformance.check import NotJudged, Violation, check
from cloudgraft.conformance.releases import CrashError
from cloudgraft.conformance.rules.rule import Level
from cloudgraft.conformance.stage import Stage, fake, foreign
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.types import NodeRef

_REASONS: Final = ("unregistered", "create-error", "")


@check("R17", "R21", "T8", after=("groups_are_listed",))
async def foreign_nodes_belong_to_no_group(stage: Stage) -> None:
    """A node that the server does not know is answered with OK and no group, never with an error."""
    control_plane = {"node-role.kubernetes.io/control-plane": "", "kubernetes.io/os": "linux"}
    nodes = (
        foreign(),
        NodeRef(name="control-plane-0", provider_id="cloudgraft-conformance://nowhere/cp-0", labels=control_plane),
        NodeRef(name=foreign().name),
    )
    for node in nodes:
        group = (await stage.calls.group_for_node(node)).expect(f"for the unknown node {node.name!r}")
        if group.id:
            raise Violation(
                f"NodeGroupForNode says that {node.name!r} with providerID {node.provider_id!r}, which exists nowhere, "
                f"belongs to {group.id!r}"
            )


@check("R17", "R20", level=Level.SHOULD, after=("foreign_nodes_belong_to_no_group", "planned_nodes_are_no_error"))
async def labels_make_no_node_ours(stage: Stage) -> None:
    """A node that the server never made belongs to no group, even if its labels are those of a group's template."""
    for group in stage.groups:
        stranger = foreign()
        labels = {**await _template_labels(stage, group.id), "kubernetes.io/hostname": stranger.name}
        node = NodeRef(name=stranger.name, provider_id=stranger.provider_id, labels=labels)
        found = (await stage.calls.group_for_node(node)).expect(f"for the unknown node {node.name!r}")
        if found.id:
            raise Violation(
                f"NodeGroupForNode says that {node.name!r}, which this server never made, belongs to {found.id!r} "
                "because it has the labels of the template: such a node is counted but never listed"
            )


@check("R16", "R21", "T8", after=("groups_are_listed",))
async def planned_nodes_are_no_error(stage: Stage) -> None:
    """A node that the autoscaler only plans, with the template's labels, is no error and in no unknown group."""
    known = {group.id for group in stage.groups}
    for group in stage.groups:
        labels = await _template_labels(stage, group.id)
        for name in (f"template-node-for-{group.id}-1-upcoming-0", f"template-node-for-{group.id}-1234567890"):
            node = NodeRef(name=name, labels={**labels, "kubernetes.io/hostname": name})
            found = (await stage.calls.group_for_node(node)).expect(f"for the planned node {name!r}")
            if found.id and found.id not in known:
                raise Violation(
                    f"the planned node {name!r} is said to be in {found.id!r}, which NodeGroups does not list"
                )


@check("R16", "R19", "R20", "T10", after=("the_answered_group_is_the_listed_one",))
async def listed_instances_belong_to_their_group(stage: Stage) -> None:
    """Every listed instance is known by NodeGroupForNode, by the stand-ins that the autoscaler makes for it."""
    for id_ in await stage.machines(2):
        for reason in _REASONS:
            await _expect_group(stage, fake(id_, reason), f"the stand-in for the listed instance {id_!r}")
    for group, before in stage.scene.before.items():
        for listed in before.instances[:20]:
            found = (await stage.calls.group_for_node(fake(listed.id))).expect(f"for the listed instance {listed.id!r}")
            if found.id != group:
                raise Violation(
                    f"{listed.id!r} is listed in {group!r}, but NodeGroupForNode says {found.id or 'none'!r}"
                )


@check("R16", "R20", "R30", "T2", after=("the_answered_group_is_the_listed_one",))
async def registered_nodes_belong_to_their_group(stage: Stage) -> None:
    """A real node whose providerID is a listed id belongs to the group, whatever its name."""
    for id_ in await stage.machines(2):
        await _expect_group(stage, stage.real(id_), f"the node with the listed providerID {id_!r}")
        other_name = NodeRef(name="ip-10-0-0-1.internal", provider_id=id_, labels={"kubernetes.io/os": "linux"})
        await _expect_group(stage, other_name, f"the node with the listed providerID {id_!r} and another name")


@check("R18", "R23", after=("new_machines_are_listed",))
async def the_answered_group_is_the_listed_one(stage: Stage) -> None:
    """The group in the answer is one of NodeGroups, with the same min and max."""
    listed = {group.id: group for group in (await stage.calls.node_groups()).expect()}
    for id_ in await stage.machines(1):
        found = (await stage.calls.group_for_node(fake(id_))).expect()
        if not found.id:
            continue  # another check is about that
        same = listed.get(found.id)
        if same is None:
            raise Violation(f"NodeGroupForNode answers the group {found.id!r}, which NodeGroups does not list")
        if (same.min_size, same.max_size) != (found.min_size, found.max_size):
            raise Violation(
                f"NodeGroupForNode gives {found.id!r} min {found.min_size} and max {found.max_size}, NodeGroups min "
                f"{same.min_size} and max {same.max_size}"
            )


@check("R22", "T8", after=("registered_nodes_belong_to_their_group",))
async def fresh_nodes_are_found_by_name(stage: Stage) -> None:
    """A node that has no providerID yet is found by its name."""
    [id_] = await stage.machines(1)
    node = NodeRef(name=stage.node_name(id_), labels={"kubernetes.io/os": "linux"})
    found = (await stage.calls.group_for_node(node)).expect(f"for {node.name!r} without a providerID")
    if found.id == stage.group.id:
        return
    if found.id:
        raise Violation(f"the node {node.name!r} of {stage.group.id!r} is said to be in {found.id!r}")
    if not stage.config.node_name:
        raise NotJudged(f"no node named {node.name!r} is known; give nodeName in kit.yaml to say how nodes are named")
    raise Violation(f"the node {node.name!r} has no providerID yet, and is said to be in no group")


@check("R24", after=("deletion_lowers_the_target", "listed_instances_belong_to_their_group"))
async def deleted_nodes_keep_their_group(stage: Stage) -> None:
    """Just after DeleteNodes the node still belongs to its group: its Node object is still there."""
    [id_] = await stage.machines(1)
    (await stage.delete([stage.real(id_)])).expect()
    await _expect_group(stage, stage.real(id_), f"the node {id_!r}, deleted a moment ago,")


async def _expect_group(stage: Stage, node: NodeRef, what: str) -> None:
    found = (await stage.calls.group_for_node(node)).expect(f"for {what}")
    if found.id != stage.group.id:
        raise Violation(
            f"{what} should be in {stage.group.id!r}, but NodeGroupForNode answers {found.id or 'no group'!r}"
        )


async def _template_labels(stage: Stage, group: str) -> dict[str, str]:
    """The template's labels; none where there is no template that can be read, which is not the matter here."""
    answer = (await stage.calls.template(group)).value
    try:
        return {} if answer is None else dict(stage.release.read_template(answer).labels)
    except (CrashError, InvalidArgumentError):
        return {}


CHECKS: Final = (foreign_nodes_belong_to_no_group, planned_nodes_are_no_error, labels_make_no_node_ours)
CHECKS_WITH_MACHINES: Final = (
    the_answered_group_is_the_listed_one,
    listed_instances_belong_to_their_group,
    registered_nodes_belong_to_their_group,
    fresh_nodes_are_found_by_name,
)
CHECKS_AFTER_DELETION: Final = (deleted_nodes_keep_their_group,)
