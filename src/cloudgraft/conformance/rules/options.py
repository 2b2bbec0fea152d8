"""Rules of NodeGroupGetOptions (R73 to R77)."""

from __future__ import annotations

from cloudgraft.conformance.rules.rule import Level, Rule

__all__ = ["RULES"]

RULES = (
    Rule(
        id="R73",
        title="A group without options of its own answers OK with nothing set",
        level=Level.SHOULD,
        why="Up to 1.28 an error, Unimplemented included, keeps nodes from being scaled down and up.",
        fix="Answer OK with an empty reply.",
    ),
    Rule(
        id="R74",
        title="Options that are set hold every value, with the defaults of the request where nothing is changed",
        level=Level.MUST,
        why="What is missing is taken as zero: new machines are deleted in the next loop, idle nodes at once.",
        fix="Start from the request's defaults; up to 1.28 set none, for it cannot read the provision time.",
    ),
    Rule(
        id="R75",
        title="Options that are set hold every duration as the asking release reads it, and none are set from 1.35 on",
        level=Level.MUST,
        why="Up to 1.34 a missing duration is a crash; from 1.35 on set options have starting nodes bought twice.",
        fix="Write durations as metav1.Duration (3, 4, 5) and google Duration (8, 9, 10); set none for 1.35 and later.",
    ),
    Rule(
        id="R76",
        title="Options are answered without error, at once, and alike within a loop",
        level=Level.MUST,
        why="This is four calls in five; an error skips nodes, stops deletions or ends the loop.",
        fix="Answer from memory, in constant time.",
    ),
    Rule(
        id="R77",
        title="zeroOrMaxNodeScaling makes a group all or nothing, and such a group does not scale down any more",
        level=Level.NOTE,
        why="All releases from 1.28 to 1.37 take each node for a group of its own: more than one node stays for ever.",
        fix="Leave it unset unless you scale the group down yourself.",
    ),
)
