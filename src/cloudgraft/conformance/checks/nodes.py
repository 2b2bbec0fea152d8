"""Checks NodeGroupForNode and NodeGroupNodes: the group of each node, and the listed machines."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from cloudgraft.conformance.calls import Listed
from cloudgraft.conformance.check import NotJudged, Violation, server_checks
from cloudgraft.conformance.rules import Level
from cloudgraft.conformance.stage import Stage, fake, foreign
from cloudgraft.sdk.types import InstanceState, NodeRef

FOR_NODE_CHECKS: Final = server_checks()
CHECKS_WITH_MACHINES: Final = server_checks()
CHECKS_AFTER_DELETION: Final = server_checks()
INSTANCES_CHECKS: Final = server_checks()
CHECKS_OF_PLACEHOLDERS: Final = server_checks()

# -- NodeGroupForNode --------------------------------------------------------------------------------------------------


_REASONS: Final = ("unregistered", "create-error", "")


@FOR_NODE_CHECKS.check("R17", "R21", "T8", after=("groups_are_listed",))
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


@FOR_NODE_CHECKS.check("R16", "R21", "T8", after=("groups_are_listed",))
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


@FOR_NODE_CHECKS.check(
    "R17", "R20", level=Level.SHOULD, after=("foreign_nodes_belong_to_no_group", "planned_nodes_are_no_error")
)
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


@CHECKS_WITH_MACHINES.check("R18", "R23", after=("new_machines_are_listed",))
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


@CHECKS_WITH_MACHINES.check("R16", "R19", "R20", "T10", after=("the_answered_group_is_the_listed_one",))
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


@CHECKS_WITH_MACHINES.check("R16", "R20", "R30", "T2", after=("the_answered_group_is_the_listed_one",))
async def registered_nodes_belong_to_their_group(stage: Stage) -> None:
    """A real node whose providerID is a listed id belongs to the group, whatever its name."""
    for id_ in await stage.machines(2):
        await _expect_group(stage, stage.real(id_), f"the node with the listed providerID {id_!r}")
        other_name = NodeRef(name="ip-10-0-0-1.internal", provider_id=id_, labels={"kubernetes.io/os": "linux"})
        await _expect_group(stage, other_name, f"the node with the listed providerID {id_!r} and another name")


@CHECKS_WITH_MACHINES.check("R22", "T8", after=("registered_nodes_belong_to_their_group",))
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


@CHECKS_AFTER_DELETION.check("R24", after=("deletion_lowers_the_target", "listed_instances_belong_to_their_group"))
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
    template = await stage.template(group)
    return {} if template is None else dict(template.labels)


# -- NodeGroupNodes ----------------------------------------------------------------------------------------------------


_SOON: Final = timedelta(seconds=15)  # longer than a queue may take, shorter than a boot
_STATES: Final = frozenset(state.value for state in InstanceState)


@INSTANCES_CHECKS.check("R31", "T10", after=("every_group_lists_its_instances",))
async def ids_are_unique(stage: Stage) -> None:
    """Every instance has an id, and no two instances of all groups have the same."""
    ids = [listed.id for group in stage.groups for listed in await stage.instances(group.id)]
    if "" in ids:
        raise Violation("an instance has an empty id")
    if doubles := {id_ for id_ in ids if ids.count(id_) > 1}:
        raise Violation(f"listed more than once: {sorted(doubles)}")


@INSTANCES_CHECKS.check("R32", "R34", after=("every_group_lists_its_instances",))
async def states_are_known(stage: Stage) -> None:
    """Every instance is unspecified (0), running (1), creating (2) or deleting (3)."""
    for group in stage.groups:
        for listed in await stage.instances(group.id):
            if listed.state not in _STATES:
                raise Violation(f"the instance {listed.id!r} has the state {listed.state}, which no autoscaler knows")


@INSTANCES_CHECKS.check("R31", "R40", "T1", after=("increase_answers_in_time",))
async def new_machines_are_listed(stage: Stage) -> None:
    """Machines that were asked for are listed while they are being made, each with an id of its own."""
    before = stage.scene.before[stage.group.id]
    wanted = await stage.target() - before.target
    found = 0

    async def are_there() -> bool:
        nonlocal found
        found = len(await stage.own_live())
        return found >= wanted

    if not await stage.until(are_there, stage.config.patience.boot):
        limit = stage.config.patience.boot.total_seconds()
        raise Violation(
            f"the target grew by {wanted}, but within {limit:g} s only {found} new instances without an error were "
            f"listed (beside {len(before.ids)} that were there before)"
        )


@INSTANCES_CHECKS.check("R34", "R35", after=("new_machines_are_listed",))
async def errors_are_told_while_creating(stage: Stage) -> None:
    """An error comes only with the state creating, with a code, and with class 1 or 99."""
    for group in stage.groups:
        for listed in await stage.instances(group.id):
            if not listed.has_error:
                continue
            if not listed.is_creating:
                raise Violation(
                    f"the instance {listed.id!r} has the error {listed.code!r} and the state {listed.state}: the "
                    "autoscaler sees an error only with the state creating (2), and never deletes or replaces this one"
                )
            if not listed.code:
                raise Violation(f"the error of {listed.id!r} has an empty errorCode, which means that there is none")
            if listed.error_class not in (1, 99):
                raise Violation(
                    f"the error of {listed.id!r} has the class {listed.error_class}, and only 1 and 99 exist"
                )


@INSTANCES_CHECKS.check("R31", "R64", level=Level.SHOULD, after=("new_machines_are_listed",))
async def machines_in_creation_are_listed(stage: Stage) -> None:
    """A machine is listed soon after IncreaseSize, and not only once it runs."""
    await stage.make_room(1)
    known = {listed.id for listed in await stage.instances()}
    (await stage.increase(1)).expect("by 1")
    new: list[Listed] = []

    async def is_listed() -> bool:
        new[:] = [listed for listed in await stage.instances() if listed.id not in known]
        return bool(new)

    if await stage.until(is_listed, _SOON) or not await stage.until(is_listed, stage.config.patience.boot):
        return
    if not new[0].is_creating:
        raise Violation(
            f"{new[0].id!r} was asked for, was not listed for {_SOON.total_seconds():g} s, and then was in state "
            f"{new[0].state} at once: machines that never come up are never cleaned away"
        )


@INSTANCES_CHECKS.check("R26", "T10", after=("new_machines_are_listed", "ids_are_unique"))
async def live_instances_are_within_the_target(stage: Stage) -> None:
    """No more instances count than the target says, and the target is not negative."""
    for group, before in stage.scene.before.items():
        target, live = await stage.target(group), await stage.live(group)
        if target < 0:
            raise Violation(f"the target of {group!r} is {target}")
        outside = max(0, sum(not listed.is_deleting for listed in before.instances) - before.target)
        if len(live) > target + outside:
            raise Violation(
                f"{len(live)} instances of {group!r} are listed and not deleting, but its target is {target}"
            )


@INSTANCES_CHECKS.check("T1", "R34", after=("new_machines_are_listed", "errors_are_told_while_creating"))
async def new_machines_have_no_error(stage: Stage) -> None:
    """A machine that was just asked for is creating or running, without an error."""
    own = set(await stage.machines(1))
    for listed in await stage.instances():
        if listed.id in own and (listed.has_error or listed.is_deleting):
            raise Violation(f"the new instance {listed.id!r} is in state {listed.state} with the error {listed.code!r}")


@INSTANCES_CHECKS.check("R30", "R31", "T10", after=("new_machines_are_listed", "ids_are_unique"))
async def ids_do_not_change(stage: Stage) -> None:
    """A machine that is there is listed under the same id each time, over a Refresh too."""
    first = [listed.id for listed in await stage.live() if not listed.is_creating]
    for _ in range(3):
        now = {listed.id for listed in await stage.instances()}
        if changed := [id_ for id_ in first if id_ not in now]:
            raise Violation(f"{changed} were there and not deleted, and the next list has other ids: {sorted(now)}")
        (await stage.calls.refresh()).expect()


@INSTANCES_CHECKS.check("R30", after=("new_machines_are_listed", "ids_are_unique"))
async def ids_are_provider_ids(stage: Stage) -> None:
    """The ids of machines that are there have the form of a providerID."""
    pattern = re.compile(stage.config.provider_id)
    ids = await stage.machines(1)
    if not all(map(pattern.search, ids)):  # placeholders may look otherwise until the machine exists
        ids = await stage.booted(1)
    if wrong := [id_ for id_ in ids if not pattern.search(id_)]:
        raise Violation(
            f"the instance {wrong[0]!r} does not look like the providerID of a node ({stage.config.provider_id}); if "
            "nodes of this cloud do carry such ids, say so with providerID in kit.yaml"
        )


@CHECKS_OF_PLACEHOLDERS.check(
    "R19", "R31", "T10", after=("ids_do_not_change", "listed_instances_belong_to_their_group")
)
async def placeholders_stay_known(stage: Stage) -> None:
    """An id under which a machine was listed while it was made stays known after it got another one."""
    [placeholder] = (await stage.grow(1))[:1]

    async def is_made() -> bool:
        return not any(listed.is_creating and listed.id == placeholder for listed in await stage.instances())

    await stage.until(is_made, stage.config.patience.boot)
    if placeholder in {listed.id for listed in await stage.instances()}:
        return  # it was the final one
    found = (await stage.calls.group_for_node(fake(placeholder))).expect(f"for {placeholder!r}, listed a moment ago")
    if found.id != stage.group.id:
        raise Violation(
            f"{placeholder!r} was listed while the machine was made and is now said to be in "
            f"{found.id or 'no group'!r}: the autoscaler, which remembers it for two minutes, cannot clean it away"
        )
