"""Rules of NodeGroupDeleteNodes (R49 to R58)."""

from __future__ import annotations

from cloudgraft.conformance.rules.rule import Level, Rule

__all__ = ["RULES"]

RULES = (
    Rule(
        id="R49",
        title="Ten DeleteNodes calls for one group may come at once, with one node each or with many",
        level=Level.MUST,
        why="That is how each scale-down arrives; lost updates leave machines running that nobody counts.",
        fix="Serialise changes of one group, and take a list of any length.",
    ),
    Rule(
        id="R50",
        title="Instances that never joined are deleted by stand-ins that carry only their id",
        level=Level.MUST,
        why="Machines that failed to join are paid for until someone finds them by hand.",
        fix="Match by providerID, else by name; need no Node object and no label.",
    ),
    Rule(
        id="R51",
        title="For a group that is all or nothing, all its instances are deleted in one call",
        level=Level.SHOULD,
        why="If a part fails, half a group stays, which is of no use to its pods.",
        fix="Take the whole group in one call, as stand-ins without a reason.",
    ),
    Rule(
        id="R52",
        title="Nodes are found by providerID, else by name; with one that is not of the group nothing is deleted",
        level=Level.MUST,
        why="A machine of another group dies by mistake, or one whose node has no providerID yet can never be deleted.",
        fix="Match the providerID, else the name; look at every node first, and act only when all of them are yours.",
    ),
    Rule(
        id="R53",
        title="The target falls by exactly the instances newly accepted, before the reply, and none is replaced",
        level=Level.MUST,
        why="A cloud group that heals itself buys back what was just deleted, for ever.",
        fix="Lower the target and mark the instances in one step; delete with the size lowered.",
    ),
    Rule(
        id="R54",
        title="DeleteNodes answers when the deletion is recorded, not when the machines are gone",
        level=Level.MUST,
        why="After five seconds the node is given back to its pods, and then it dies with them, undrained.",
        fix="Record the deletion, answer OK, and delete in the background.",
    ),
    Rule(
        id="R55",
        title="Deleting an instance again is OK and changes nothing",
        level=Level.MUST,
        why="A repetition that counts again lowers the target below what runs; an error keeps the node for ever.",
        fix="Remember accepted deletions until the machine is gone, and count each once.",
    ),
    Rule(
        id="R56",
        title="Deleting an instance that is already gone is OK; the target falls only if it still counted",
        level=Level.MUST,
        why="An error keeps a dead node in the cluster; a second count has its replacement bought twice.",
        fix="Remember the ids that were yours, and answer OK for them.",
    ),
    Rule(
        id="R57",
        title="The Node object goes soon after its machine",
        level=Level.SHOULD,
        why="The autoscaler does not delete it; a node without a machine confuses it and is deleted again and again.",
        fix="Run a cloud controller manager, or delete the Node object yourself.",
        unobservable="It happens in the Kubernetes API; the kit speaks only to the server.",
    ),
    Rule(
        id="R58",
        title="DeleteNodes does not look at min",
        level=Level.MUST,
        why="The autoscaler has looked already; a second look refuses failed machines that must go.",
        fix="Leave the min check out.",
    ),
)
