"""Lists every rule and trace of the contract, with its level, its reason and its remedy."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Final


class Level(enum.StrEnum):
    """How bad it is when a server breaks a rule, worst first."""

    MUST = "must"
    """The autoscaler crashes or stops, or machines are lost or bought twice."""
    SHOULD = "should"
    """It works, but badly: late, wasteful or misleading."""
    NOTE = "note"
    """Nothing breaks by itself; the author of a server does well to know it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule (R1, ...), trace (T1, ...) or rule for drivers (D1, ...)."""

    title: str
    """What holds, in one sentence."""
    _: KW_ONLY
    level: Level
    why: str
    """The harm to the cluster's user when a server breaks the rule."""
    fix: str
    """What the author of the server does about it."""
    unobservable: str = ""
    """Why nothing from outside can see it; empty when at least one check names the rule."""
    id: str = ""
    """Its key in the table."""


must = partial(Rule, level=Level.MUST)
should = partial(Rule, level=Level.SHOULD)
note = partial(Rule, level=Level.NOTE)


def with_ids(themes: Iterable[Mapping[str, Rule]]) -> dict[str, Rule]:
    """All rules, in order; each gets its key as its id."""
    rules = {id_: rule for theme in themes for id_, rule in theme.items()}
    return {id_: replace(rules[id_], id=id_) for id_ in sorted(rules, key=lambda id_: (id_[0], int(id_[1:])))}


# -- connection (R1 to R9) ---------------------------------------------------------------------------------------------


_TRANSPORT = {
    "R1": must(
        "Refresh answers well within five seconds, every time",
        why="The autoscaler calls it at the start of each loop; while it is late, no loop runs and nothing is scaled.",
        fix="Talk to the cloud in the background and let Refresh answer from memory.",
    ),
    "R2": note(
        "A failing Refresh ends the loop without harm; it is the way to report that the cloud cannot be reached",
        why="A loop that goes on with wrong data deletes nodes; one that never runs is restarted after 15 minutes.",
        fix="Return an error from Refresh while the state is too old to act on, and from nothing else.",
        unobservable="A healthy server gives Refresh no reason to fail, and what follows is the autoscaler's.",
    ),
    "R3": must(
        "Every call works before the first Refresh",
        why="A restarted autoscaler reads groups, instances and nodes first; it acts on whatever is missing then.",
        fix="Load the state when the server starts, before it listens, and not in Refresh.",
    ),
    "R4": should(
        "The list of groups, their min, max and debug text change only with a Refresh",
        why="The autoscaler keeps them until the next Refresh; a change in between makes it act on mixed values.",
        fix="Take new configuration into use in Refresh, all at once.",
    ),
    "R5": must(
        "Cleanup may be called twice or never, and deletes no machine",
        why="It is sent when the autoscaler stops, at every upgrade of it; the nodes run on and must stay.",
        fix="Answer OK and release only what the server itself holds, never machines.",
    ),
    "R6": must(
        "Every call is answered within five seconds",
        why="After five seconds the autoscaler has given up, without a retry: the loop ends or the group is put aside.",
        fix="Answer reads from memory; record a change, answer, and carry it out afterwards.",
    ),
    "R7": must(
        "A change whose call was cancelled is made once or not at all",
        why="A change that continues unseen after the deadline is bought again, or kills pods that have just returned.",
        fix="Record the change in one step that cannot be cancelled halfway; do the long work from a queue.",
    ),
    "R8": must(
        "Unimplemented is an answer only for the template, the options and the two prices",
        why="Everywhere else, and in releases before 1.29 there too, it is an error like any other and stops the loop.",
        fix="Implement the other eleven calls; answer the options with OK and nothing set.",
    ),
    "R9": must(
        "With TLS the certificate names the host of the address, and HTTP/2 is negotiated by ALPN",
        why="It verifies the host name and, from 1.33 on, refuses a server without ALPN: it never connects.",
        fix="Put the name or IP of the cloud-config's address into the certificate and offer h2 by ALPN.",
    ),
}


# -- groups (R10 to R15) -----------------------------------------------------------------------------------------------


_GROUPS = {
    "R10": must(
        "Group ids are not empty, occur once, and stay the same over restarts of the server",
        why="Backoff, scale-up requests, caches and metrics depend on the id: a new id loses all of that.",
        fix="Take the id from the configuration or the cloud, never from a counter or a random number.",
    ),
    "R11": must(
        "0 <= min <= max for every group",
        why="Max is the only cap on what is bought and min the floor for deletion; crossed limits stop the group.",
        fix="Check the limits when the configuration is read and leave a group out whose limits make no sense.",
    ),
    "R12": must(
        "NodeGroups never fails and is never partial",
        why="The autoscaler takes an error as an empty list: it forgets templates, timers and scale-ups under way.",
        fix="Answer the list from memory; keep a group listed while its cloud is down.",
    ),
    "R13": must(
        "Every listed group answers its target, its instances, its template and its options",
        why="One group that fails here ends the loop for all groups.",
        fix="Leave a group that cannot be served out of the list, from one Refresh to the next.",
    ),
    "R14": note(
        "The debug text is only logged; groups can be neither made nor deleted over this protocol",
        why="A user who expects groups to be created on demand waits forever.",
        fix="Put into debug what helps a reader of the autoscaler's log; make groups in the configuration.",
        unobservable="It says what the autoscaler does with an answer; no answer of the server can break it.",
    ),
    "R15": note(
        "A target outside min and max is allowed and is reported as it is",
        why="The autoscaler never lowers a target to max, and raises it to min only when a flag says so.",
        fix="Report the true target; do not correct it to the limits behind the autoscaler's back.",
        unobservable="The protocol cannot bring a target outside its limits; only a changed configuration can.",
    ),
}


# -- nodes (R16 to R24) and instances (R30 to R42) ---------------------------------------------------------------------


_NODES = {
    "R16": must(
        "NodeGroupForNode takes real nodes, stand-ins for listed instances, and nodes that are only planned",
        why="An error for one of the three kinds ends the scale-up or leaves machines that never joined running.",
        fix="Look up by providerID, then by name; need no label, no annotation and no Node object.",
    ),
    "R17": must(
        "A node of no group is answered with OK and no group",
        why="Control-plane nodes are asked for in every loop; an error for one of them stops every scale-up.",
        fix="Answer OK with the group unset, or with an empty id.",
    ),
    "R18": must(
        "The group answered for a node is one that NodeGroups lists",
        why="From 1.28 on an unlisted group crashes the autoscaler; before, the node is never scaled down.",
        fix="Answer from the same table that NodeGroups is made from.",
    ),
    "R19": must(
        "NodeGroupForNode knows every id that NodeGroupNodes lists: creating, failed and placeholder ones too",
        why="An instance without a group is never cleaned up; up to 1.30 it also blocks the clean-up of all groups.",
        fix="Look ids up in the list of instances, not only among machines that run.",
    ),
    "R20": must(
        "NodeGroupForNode and NodeGroupNodes agree on who belongs where",
        why="Nodes that map to no group look like a target that was never met; after 15 minutes the target is lowered.",
        fix="Serve both from one table.",
    ),
    "R21": must(
        "A node that the server does not know is never an error",
        why="One error makes the autoscaler drop the whole scale-up, because it cannot count its quota.",
        fix="Answer OK without a group for every node that you do not know.",
    ),
    "R22": should(
        "A node without providerID is found by its name",
        why="A node is without providerID until the cloud controller has seen it; meanwhile it counts as foreign.",
        fix="Know the name that each machine's node will carry, and fall back to it.",
    ),
    "R23": must(
        "Min and max in NodeGroupForNode are those of NodeGroups",
        why="Scale-down takes its floor from this answer: with min 0 here it deletes below the real min.",
        fix="Fill id, min, max and debug in both answers from one place.",
    ),
    "R24": should(
        "A node keeps its group while it is being deleted",
        why="Without a group the running deletion fails and the node gets its pods back just before it dies.",
        fix="Go on answering the group until the machine is gone.",
    ),
    "R30": must(
        "An instance's id is, byte for byte, the providerID of its node",
        why="Otherwise every node looks as if it had never joined, and its machine is deleted after 15 minutes.",
        fix="List the providerID that the kubelet or the cloud controller writes into the node, with its scheme.",
    ),
    "R31": must(
        "Instances in creation are listed; ids are unique over all groups and last as long as the instance",
        why="The autoscaler waits for a machine that is not listed; a changed id is one lost and one new machine.",
        fix="List an instance from the moment it is ordered and keep its id.",
    ),
    "R32": note(
        "Running and creating mean the same unless an error is set; no status means present",
        why="The autoscaler ignores a status that it does not know.",
        fix="Say creating until the machine runs, then running.",
    ),
    "R33": must(
        "From the accepted deletion until it is gone, an instance is listed as deleting, or no longer listed",
        why="Listed as running, it is waited for and deleted again in every loop.",
        fix="Set the state in the same step that accepts the deletion.",
    ),
    "R34": must(
        "An error comes with the state creating and a code that is not empty",
        why="On a running instance, or without a code, the autoscaler ignores it: a dead machine is paid for forever.",
        fix="Report a failed machine as creating with errorInfo and a code.",
    ),
    "R35": note(
        "The error class is 1 (out of resources: stock or quota) or 99 (anything else)",
        why="The class names the reason in events and metrics; a wrong one misleads their readers.",
        fix="Use 1 for missing stock and quota, 99 for the rest.",
    ),
    "R36": note(
        "New failed instances put the group into backoff only while a scale-up is open",
        why="A late error no longer sends the pods to another group.",
        fix="Report the failure as soon as it is known, with a new id for each failed machine.",
        unobservable="Backoff lives in the memory of the autoscaler; no answer of the server shows it.",
    ),
    "R37": note(
        "Failed instances are sent to DeleteNodes in every loop, all of a group in one call",
        why="A server that refuses the repetition never gets rid of them.",
        fix="Expect the same list again and again until it is no longer listed.",
    ),
    "R38": must(
        "Failed instances can be deleted at and below min; the target falls once and the error is gone at once",
        why="Otherwise the group stays blocked by a machine that does not exist.",
        fix="Make no min check in DeleteNodes; take the failed instance off the list or make it deleting.",
    ),
    "R39": should(
        "What cannot be bought is listed as a placeholder with an error",
        why="Then pods go to another group in the same or the next loop, and not after 15 minutes.",
        fix="List one instance with an id of your own, creating and with errorInfo, for each machine you cannot get.",
    ),
    "R40": note(
        "Placeholders without an error are fine while a slow cloud works",
        why="They count as instances that have not joined, which is what they are.",
        fix="List one placeholder for each machine that is ordered and has no id yet.",
    ),
    "R41": note(
        "The autoscaler's view of the instances may be two minutes old",
        why="It may ask to delete what went away a minute ago.",
        fix="Treat an id that was yours and is gone as deleted.",
        unobservable="It is a cache of the autoscaler; what the server owes to it is checked with R55 and R56.",
    ),
    "R42": must(
        "NodeGroupNodes never fails, and its answer stays below 4 MiB",
        why="An error ends the loop for all groups, or empties the list so that failed machines are forgotten.",
        fix="Answer from memory, also while the cloud is down; keep error messages short.",
    ),
}


# -- target (R25 to R29, R43 to R48, R59 to R64) -----------------------------------------------------------------------


_SIZES = {
    "R25": must(
        "The target counts machines in creation and leaves out those whose deletion was accepted",
        why="The autoscaler buys and deletes by this number; each miscount is a machine too many or too few.",
        fix="Keep the target as a number of its own, changed by the three calls that change it.",
    ),
    "R26": must(
        "The target is neither above nor below what will really be there",
        why="Too high, pods wait for nodes that never come; too low, the same nodes are bought twice.",
        fix="Let the target and the list of instances that are not deleting agree.",
    ),
    "R27": must(
        "The target shows a change at once and is the same however often it is asked",
        why="It is read back in the same loop; an old value there leads to a second scale-up.",
        fix="Change it before the reply to the call that changes it, and read it from there.",
    ),
    "R28": must(
        "NodeGroupTargetSize never fails for a listed group",
        why="An error for one group ends the loop for all and resets every timer of scale-down.",
        fix="Answer from memory, also while the cloud is down.",
    ),
    "R29": should(
        "A tainted or drained node still counts; only DeleteNodes lowers the target",
        why="The autoscaler subtracts its own deletions already; subtracted twice, scale-down stops above min.",
        fix="Do not look at taints, cordons or readiness of nodes to find the target.",
        unobservable="Taints never travel over this protocol; only a server that watches the cluster can break it.",
    ),
    "R43": must(
        "IncreaseSize refuses a delta of zero or less, and one that leads above max, and changes nothing then",
        why="Max is the only limit on the bill.",
        fix="Check the delta and target + delta against max before anything else.",
    ),
    "R44": must(
        "IncreaseSize answers when the new target is recorded, not when the machines exist",
        why="After five seconds the group is put aside for 5 to 30 minutes, and 1.36 buys the nodes again.",
        fix="Record the order, answer OK, and create the machines in the background.",
    ),
    "R45": must(
        "After IncreaseSize the target has grown by exactly delta, or by nothing if it failed",
        why="Anything else is a machine that is not counted, or one that never comes.",
        fix="Change the target in one step; return an error only when nothing was started.",
    ),
    "R46": must(
        "Two IncreaseSize calls are two increases, also when they come at once for two groups",
        why="There is no key that shows a repetition: a server that guesses one loses machines that were asked for.",
        fix="Add up every call; lock by group and not the whole server.",
    ),
    "R47": should(
        "Machines join the cluster, with the listed providerID, within 15 minutes",
        why="Later ones are deleted as dead, the group goes into backoff, and the cost of the machines is wasted.",
        fix="Use prepared images; set maxNodeProvisionTime for groups that need longer.",
        unobservable="It needs a Kubernetes cluster that the machines join; the kit speaks only to the server.",
    ),
    "R48": note(
        "There is no all-or-nothing increase on the wire; ProvisioningRequests use IncreaseSize too",
        why="A request for many nodes may be filled in part.",
        fix="Nothing; report what could not be bought as failed instances (R39).",
        unobservable="The protocol has no such call, so that no server can answer it wrongly.",
    ),
    "R59": must(
        "DecreaseTargetSize refuses a delta of zero or more and never deletes a machine",
        why="It is sent to give up requests that were not fulfilled; a deleted machine here dies with its pods.",
        fix="Lower the target only by what has no instance yet; leave the instances alone.",
    ),
    "R60": must(
        "The delta of DecreaseTargetSize may be larger than what is unfulfilled",
        why="The autoscaler counts nodes and not instances; a server that refuses is asked again in every loop.",
        fix="Lower as far as is right (R62) and answer OK.",
    ),
    "R61": should(
        "From 1.36 on a scale-up that took too long is taken back whole, also when part of it arrived",
        why="A server that subtracts the number unchecked counts fewer machines than it runs.",
        fix="As for R60: stop at the number of instances that exist.",
    ),
    "R62": must(
        "DecreaseTargetSize stops at the number of instances that are not deleting, and answers OK",
        why="An error here ends every loop from then on, for all groups: nothing is scaled any more.",
        fix="Set the target to the larger of target + delta and the number of instances that are not deleting.",
    ),
    "R63": must(
        "An instance lowers the target once: by DecreaseTargetSize or by DeleteNodes, not by both",
        why="Counted twice, the target falls below the machines that run, and they are bought again.",
        fix="Let DecreaseTargetSize stop at the instances (R62); let DeleteNodes count what it newly accepts.",
    ),
    "R64": should(
        "A target that cannot be met is lowered by the server, or shown as placeholders",
        why="Before 1.36 nothing corrects a group without nodes and instances: its pods wait forever.",
        fix="List a placeholder (R39) for each machine that is missing, or lower the target.",
    ),
}


# -- NodeGroupDeleteNodes (R49 to R58) ---------------------------------------------------------------------------------


_DELETION = {
    "R49": must(
        "Ten DeleteNodes calls for one group may come at once, with one node each or with many",
        why="That is how each scale-down arrives; lost updates leave machines running that are not counted.",
        fix="Serialise changes of one group, and take a list of any length.",
    ),
    "R50": must(
        "Instances that never joined are deleted by stand-ins that carry only their id",
        why="Machines that failed to join are paid for until someone finds them by hand.",
        fix="Match by providerID, else by name; need no Node object and no label.",
    ),
    "R51": should(
        "For a group that is all or nothing, all its instances are deleted in one call",
        why="If a part fails, half a group stays, which is of no use to its pods.",
        fix="Take the whole group in one call, as stand-ins without a reason.",
    ),
    "R52": must(
        "Nodes are found by providerID, else by name; with one that is not of the group nothing is deleted",
        why="A machine of another group dies by mistake, or one whose node has no providerID yet can never be deleted.",
        fix="Match the providerID, else the name; look at every node first, and act only when all of them are yours.",
    ),
    "R53": must(
        "The target falls by exactly the instances newly accepted, before the reply, and none is replaced",
        why="A cloud group that replaces lost machines buys the deleted ones again and again.",
        fix="Lower the target and mark the instances in one step; delete with the size lowered.",
    ),
    "R54": must(
        "DeleteNodes answers when the deletion is recorded, not when the machines are gone",
        why="After five seconds the autoscaler lets pods return to the node, and then it is deleted without a drain.",
        fix="Record the deletion, answer OK, and delete in the background.",
    ),
    "R55": must(
        "Deleting an instance again is OK and changes nothing",
        why="A repetition that counts again lowers the target below what runs; an error keeps the node forever.",
        fix="Remember accepted deletions until the machine is gone, and count each once.",
    ),
    "R56": must(
        "Deleting an instance that is already gone is OK; the target falls only if it still counted",
        why="An error keeps a dead node in the cluster; a second count has its replacement bought twice.",
        fix="Remember the ids that were yours, and answer OK for them.",
    ),
    "R57": should(
        "The Node object goes soon after its machine",
        why="The autoscaler does not delete it; a node without a machine confuses it and is deleted again and again.",
        fix="Run a cloud controller manager, or delete the Node object yourself.",
        unobservable="It happens in the Kubernetes API; the kit speaks only to the server.",
    ),
    "R58": must(
        "DeleteNodes does not look at min",
        why="The autoscaler has checked it already; a second check refuses to delete failed machines.",
        fix="Leave the min check out.",
    ),
}


# -- NodeGroupTemplateNodeInfo (R65 to R72) ----------------------------------------------------------------------------


_TEMPLATE = {
    "R65": must(
        "The template is a whole core/v1 Node in bytes; OK without one is no answer",
        why="OK without a node crashes the autoscaler, in every release.",
        fix="Marshal the Node without the k8s prefix, into both fields of the reply (1 and 2).",
    ),
    "R66": must(
        "Every group has a template that every release can read",
        why="Up to 1.34 one group without a template stops the scale-up of all groups, in old releases every loop.",
        fix="Describe the node of each group; write the same bytes into the old field and the new one.",
    ),
    "R67": note(
        "The template counts only until the group has had a ready node",
        why="A change of the template seems to have no effect until the autoscaler restarts.",
        fix="Keep it true to the real nodes, and restart the autoscaler after changing it.",
        unobservable="The autoscaler keeps that node in its own memory; it does not ask the server again.",
    ),
    "R68": must(
        "Allocatable has cpu, memory and pods; capacity of cpu and memory is above zero",
        why="Without pods nothing fits and the group never leaves zero; expanders divide by the capacity.",
        fix="Fill capacity and allocatable with cpu, memory, pods and what pods ask for (storage, GPUs).",
    ),
    "R69": should(
        "The template has the labels that real nodes get",
        why="Pods with a node selector or an affinity to a zone, an architecture or a type never start a node here.",
        fix="Set arch, os, zone, region, instance type and your own labels as the nodes will have them.",
    ),
    "R70": should(
        "The template has the lasting taints only, is schedulable, and has no providerID",
        why="An unschedulable template never fits a pod; a providerID makes planned nodes look like a real one.",
        fix="Leave spec.unschedulable and spec.providerID empty, and condition and deletion taints out.",
    ),
    "R71": note(
        "DaemonSet pods are added by the autoscaler; what static pods use is taken off allocatable by the server",
        why="A node that is fuller than its template makes pods wait after the scale-up.",
        fix="Subtract what static pods and the system need from allocatable.",
        unobservable="What static pods will use on a node that does not exist yet is known to its image alone.",
    ),
    "R72": note(
        "Groups are balanced only when template and real nodes agree in labels and sizes",
        why="Zones fill unevenly when the autoscaler does not see that two groups are alike.",
        fix="Keep labels and resources of the template equal to those of the nodes.",
        unobservable="It compares nodes that run in the cluster; the kit sees only the template.",
    ),
}


# -- NodeGroupGetOptions (R73 to R77) ----------------------------------------------------------------------------------


_OPTIONS = {
    "R73": should(
        "A group without options of its own answers OK with nothing set",
        why="Up to 1.28 an error, Unimplemented included, keeps nodes from being scaled down and up.",
        fix="Answer OK with an empty reply.",
    ),
    "R74": must(
        "Options that are set hold every value, with the defaults of the request where nothing is changed",
        why="What is missing is taken as zero: new machines are deleted in the next loop, idle nodes at once.",
        fix="Start from the request's defaults; up to 1.28 set none, for it cannot read the provision time.",
    ),
    "R75": must(
        "Options that are set hold every duration as the asking release reads it, and none are set from 1.35 on",
        why="Up to 1.34 a missing duration is a crash; from 1.35 on set options have starting nodes bought twice.",
        fix="Write durations as metav1.Duration (3, 4, 5) and google Duration (8, 9, 10); set none for 1.35 and later.",
    ),
    "R76": must(
        "Options are answered without error, at once, and alike within a loop",
        why="This is four calls in five; an error skips nodes, stops deletions or ends the loop.",
        fix="Answer from memory, in constant time.",
    ),
    "R77": note(
        "zeroOrMaxNodeScaling makes a group all or nothing, and such a group does not scale down any more",
        why="All releases from 1.28 to 1.37 take each node for a group of its own: more than one node stays forever.",
        fix="Leave it unset unless you scale the group down yourself.",
    ),
}


# -- GPUs and prices (R78 to R84) --------------------------------------------------------------------------------------


_PRICING = {
    "R78": should(
        "GPULabel succeeds, with an empty label if there is none",
        why="An error is not remembered: it is asked again twice for each node in each loop.",
        fix="Answer OK, with an empty label if you have no GPU nodes.",
    ),
    "R79": note(
        "A node with the GPU label and no GPU counts as not ready",
        why="A label on nodes without GPUs makes them useless to the autoscaler, one after the other.",
        fix="Set the label only on nodes of groups that have GPUs, in the template too.",
    ),
    "R80": note(
        "GetAvailableGPUTypes answers OK; only its keys are used, for metrics",
        why="Types that are missing show up in metrics as not listed.",
        fix="Answer the values that the GPU label can have as keys; an empty map is fine.",
    ),
    "R81": should(
        "A node's price is found from the labels of a planned node, without capacity or providerID",
        why="An error takes the group out of the choice of the price expander.",
        fix="Find the group by the template's labels or by the name, and price it.",
    ),
    "R82": should(
        "A pod's price is found for any whole pod, for the hour to come",
        why="An error takes the option out; one call is made for each pod and option, so slowness adds up.",
        fix="Price the pod's requests, by the hours between the two times, from memory.",
    ),
    "R83": should(
        "Node prices and pod prices come together, or both are Unimplemented",
        why="With the price expander one missing price means that nothing is ever scaled up, without a message.",
        fix="Implement both calls or neither; say in the docs that the price expander needs them.",
    ),
    "R84": should(
        "Prices are above zero, finite, and in one currency",
        why="Options are compared by the quotient of the two prices; zero or less makes the choice meaningless.",
        fix="Give every group an hourly price above zero, in the currency of all.",
    ),
}


# -- life of nodes, autoscaler and server (R85 to R90) -----------------------------------------------------------------


_LIFECYCLE = {
    "R85": note(
        "A node is tainted, cordoned and drained before DeleteNodes is sent for it",
        why="A server that drains again only makes the deletion slower.",
        fix="Delete the machine without a drain of your own.",
        unobservable="It is what the autoscaler does in the cluster before it calls the server.",
    ),
    "R86": note(
        "The server is not asked whether an instance exists; the deletion taint stands for that",
        why="While a long drain runs, one node too many is expected (up to 1.35).",
        fix="Nothing; keep deletions quick.",
        unobservable="The protocol has no such call, so that no server can answer it wrongly.",
    ),
    "R87": note(
        "More than 3 nodes and 45 % not ready stop the autoscaler; a new node has 15 minutes to become ready",
        why="One bad image in a large scale-up stops all scaling of the cluster.",
        fix="Make machines that become ready, and report those that cannot as failed (R34).",
        unobservable="Readiness is a matter of the nodes in the cluster; the kit has none.",
    ),
    "R88": must(
        "A restart of the autoscaler loses its memory; what the server accepted is carried out all the same",
        why="A deletion that waits for a second request leaves machines running that no longer count.",
        fix="Keep accepted changes in the server, and finish them without being asked again.",
    ),
    "R89": must(
        "Two autoscalers may call at once; changes of one group are made one after the other",
        why="For some seconds of a leader change both act; lost updates cost machines or lose them.",
        fix="Hold one lock per group around each change.",
    ),
    "R90": note(
        "The autoscaler does the backoff; the server need not slow it down",
        why="A server that delays or refuses calls on its own adds its backoff to the autoscaler's.",
        fix="Answer each call on its merits; keep listing failed placeholders while the cloud is out of stock.",
        unobservable="Backoff lives in the memory of the autoscaler, and the server may add to it or not.",
    ),
}


# -- traces (T1 to T10) ------------------------------------------------------------------------------------------------
# Sequences of calls as the autoscaler really sends them.


_TRACES = {
    "T1": must(
        "Scale-up: a loop reads everything, IncreaseSize by two, the target shows it, new instances are listed",
        why="This is how every scale-up arrives; a server that fails here never gives a pod a node.",
        fix="Look at the first call of the trace that went wrong, and at its rule.",
    ),
    "T2": must(
        "Registration: the node with a listed providerID belongs to the group, and nothing else changes",
        why="Otherwise the new node counts as foreign, its instance as dead, and it is deleted.",
        fix="List the instance under its providerID before and after its node has joined (R20, R30).",
    ),
    "T3": must(
        "Stock-out: failed instances are listed, deleted with stand-ins, deleted again; the target is back once",
        why="Otherwise the group stays blocked, or its target drifts with each loop.",
        fix="Accept the deletion of what failed, at once and repeatedly (R38, R39, R55).",
    ),
    "T4": must(
        "Slow start: DecreaseTargetSize (from 1.36 on), then DeleteNodes for the instances that never joined",
        why="Counted twice, they lower the target below what runs; not accepted, dead machines stay and cost money.",
        fix="Stop DecreaseTargetSize at the instances, and let DeleteNodes count them (R62, R63).",
    ),
    "T5": must(
        "Lost request: DecreaseTargetSize takes back what has no instance, and no more however often it comes",
        why="An error ends every loop from then on; a blind decrease forgets machines that run.",
        fix="Stop at the number of instances that are not deleting, and answer OK (R62).",
    ),
    "T6": must(
        "Scale-down: deletions at once, repeated, foreign and mixed; the target falls by what was meant",
        why="A scale-down that miscounts keeps machines that are not needed, or deletes machines that are.",
        fix="Serialise by group, check all nodes before the first change, count each instance once (R49 to R55).",
    ),
    "T7": must(
        "Slow cloud: changes are answered within five seconds, and a cancelled call is carried out once or not at all",
        why="A change that timed out and still succeeded is bought a second time.",
        fix="Record and answer; never wait for the cloud inside a call (R44, R54).",
    ),
    "T8": must(
        "Unknown input: foreign, fresh and planned nodes, unknown groups, options in the form of every release",
        why="The autoscaler sends all of these in ordinary loops; a crash or a wrong code stops it.",
        fix="Answer OK without a group for nodes, an error for group ids, and options that the release can read.",
    ),
    "T9": must(
        "Restart: the server keeps groups, targets, ids and states; a restarted client begins without a Refresh",
        why="A server that forgets its targets has the machines bought again, or leaves them running uncounted.",
        fix="Keep the state on disk or in the cloud, and load it before the server listens.",
    ),
    "T10": must(
        "After every call: target not negative, live instances within it, ids unique, each id in its group",
        why="A state that contradicts itself is acted upon: by deleting, or by buying.",
        fix="Change the target and the list of instances in one step.",
    ),
}


# -- all rules ---------------------------------------------------------------------------------------------------------


THEMES = (
    _TRANSPORT,
    _GROUPS,
    _NODES,
    _SIZES,
    _DELETION,
    _TEMPLATE,
    _OPTIONS,
    _PRICING,
    _LIFECYCLE,
    _TRACES,
)

RULES: Final[Mapping[str, Rule]] = with_ids(THEMES)
"""All rules by id, in order: R1 to R90, then T1 to T10."""
