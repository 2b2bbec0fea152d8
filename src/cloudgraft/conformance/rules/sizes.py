"""Rules of the target: reading it (R25 to R29), raising it (R43 to R48), lowering it (R59 to R64)."""

from __future__ import annotations

from cloudgraft.conformance.rules.rule import Level, Rule

__all__ = ["RULES"]

RULES = (
    Rule(
        id="R25",
        title="The target counts machines in creation and leaves out those whose deletion was accepted",
        level=Level.MUST,
        why="The autoscaler buys and deletes by this number; each miscount is a machine too many or too few.",
        fix="Keep the target as a number of its own, changed by the three calls that change it.",
    ),
    Rule(
        id="R26",
        title="The target is neither above nor below what will really be there",
        level=Level.MUST,
        why="Too high, pods wait for nodes that never come; too low, the same nodes are bought twice.",
        fix="Let the target and the list of instances that are not deleting agree.",
    ),
    Rule(
        id="R27",
        title="The target shows a change at once and is the same however often it is asked",
        level=Level.MUST,
        why="It is read back in the same loop; an old value there leads to a second scale-up.",
        fix="Change it before the reply to the call that changes it, and read it from there.",
    ),
    Rule(
        id="R28",
        title="NodeGroupTargetSize never fails for a listed group",
        level=Level.MUST,
        why="An error for one group ends the loop for all and resets every timer of scale-down.",
        fix="Answer from memory, also while the cloud is down.",
    ),
    Rule(
        id="R29",
        title="A tainted or drained node still counts; only DeleteNodes lowers the target",
        level=Level.SHOULD,
        why="The autoscaler subtracts its own deletions already; subtracted twice, scale-down stops above min.",
        fix="Do not look at taints, cordons or readiness of nodes to find the target.",
        unobservable="Taints never travel over this protocol; only a server that watches the cluster can break it.",
    ),
    Rule(
        id="R43",
        title="IncreaseSize refuses a delta of zero or less, and one that leads above max, and changes nothing then",
        level=Level.MUST,
        why="Max is the only limit on the bill.",
        fix="Check the delta and target + delta against max before anything else.",
    ),
    Rule(
        id="R44",
        title="IncreaseSize answers when the new target is recorded, not when the machines exist",
        level=Level.MUST,
        why="After five seconds the group is put aside for 5 to 30 minutes, and 1.36 buys the nodes again.",
        fix="Record the order, answer OK, and create the machines in the background.",
    ),
    Rule(
        id="R45",
        title="After IncreaseSize the target has grown by exactly delta, or by nothing if it failed",
        level=Level.MUST,
        why="Anything else is a machine that nobody counts, or one that is waited for in vain.",
        fix="Change the target in one step; return an error only when nothing was started.",
    ),
    Rule(
        id="R46",
        title="Two IncreaseSize calls are two increases, also when they come at once for two groups",
        level=Level.MUST,
        why="There is no key to tell a repetition: a server that guesses one loses machines that were asked for.",
        fix="Add up every call; lock by group and not the whole server.",
    ),
    Rule(
        id="R47",
        title="Machines join the cluster, with the listed providerID, within 15 minutes",
        level=Level.SHOULD,
        why="Later ones are deleted as dead, the group goes into backoff, and the machines were paid for nothing.",
        fix="Use prepared images; set maxNodeProvisionTime for groups that need longer.",
        unobservable="It needs a Kubernetes cluster that the machines join; the kit speaks only to the server.",
    ),
    Rule(
        id="R48",
        title="There is no all-or-nothing increase on the wire; ProvisioningRequests use IncreaseSize too",
        level=Level.NOTE,
        why="A request for many nodes may be filled in part.",
        fix="Nothing; report what could not be bought as failed instances (R39).",
        unobservable="The protocol has no such call, so that no server can answer it wrongly.",
    ),
    Rule(
        id="R59",
        title="DecreaseTargetSize refuses a delta of zero or more and never deletes a machine",
        level=Level.MUST,
        why="It is sent to give up requests that were not fulfilled; a deleted machine here dies with its pods.",
        fix="Lower the target only by what has no instance yet; leave the instances alone.",
    ),
    Rule(
        id="R60",
        title="The delta of DecreaseTargetSize may be larger than what is unfulfilled",
        level=Level.MUST,
        why="The autoscaler counts nodes and not instances; a server that refuses is asked again in every loop.",
        fix="Lower as far as is right (R62) and answer OK.",
    ),
    Rule(
        id="R61",
        title="From 1.36 on a scale-up that took too long is taken back whole, also when part of it arrived",
        level=Level.SHOULD,
        why="A server that follows the number blindly has fewer machines on its books than it runs.",
        fix="As for R60: stop at the number of instances that exist.",
    ),
    Rule(
        id="R62",
        title="DecreaseTargetSize stops at the number of instances that are not deleting, and answers OK",
        level=Level.MUST,
        why="An error here ends every loop from then on, for all groups: nothing is scaled any more.",
        fix="Set the target to the larger of target + delta and the number of instances that are not deleting.",
    ),
    Rule(
        id="R63",
        title="An instance is counted out once: by DecreaseTargetSize or by DeleteNodes, not by both",
        level=Level.MUST,
        why="Counted twice, the target falls below the machines that run, and they are bought again.",
        fix="Let DecreaseTargetSize stop at the instances (R62); let DeleteNodes count what it newly accepts.",
    ),
    Rule(
        id="R64",
        title="A target that cannot be met is lowered by the server, or shown as placeholders",
        level=Level.SHOULD,
        why="Before 1.36 nobody corrects a group without nodes and instances: its pods wait for ever.",
        fix="List a placeholder (R39) for each machine that is missing, or lower the target.",
    ),
)
