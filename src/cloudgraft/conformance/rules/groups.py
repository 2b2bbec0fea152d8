"""Rules of the list of groups (R10 to R15)."""

from __future__ import annotations

from cloudgraft.conformance.rules.rule import Level, Rule

__all__ = ["RULES"]

RULES = (
    Rule(
        id="R10",
        title="Group ids are not empty, occur once, and stay the same over restarts of the server",
        level=Level.MUST,
        why="Backoff, scale-up requests, caches and metrics hang on the id: a new id is a new group without memory.",
        fix="Take the id from the configuration or the cloud, never from a counter or a random number.",
    ),
    Rule(
        id="R11",
        title="0 <= min <= max for every group",
        level=Level.MUST,
        why="Max is the only cap on what is bought and min the floor for deletion; crossed limits stop the group.",
        fix="Check the limits when the configuration is read and leave a group out whose limits make no sense.",
    ),
    Rule(
        id="R12",
        title="NodeGroups never fails and is never partial",
        level=Level.MUST,
        why="The autoscaler takes an error as an empty list: it forgets templates, timers and scale-ups under way.",
        fix="Answer the list from memory; keep a group listed while its cloud is down.",
    ),
    Rule(
        id="R13",
        title="Every listed group answers its target, its instances, its template and its options",
        level=Level.MUST,
        why="One group that fails here ends the loop for all groups.",
        fix="Leave a group that cannot be served out of the list, from one Refresh to the next.",
    ),
    Rule(
        id="R14",
        title="The debug text is only logged; groups can be neither made nor deleted over this protocol",
        level=Level.NOTE,
        why="A user who hopes for groups made on demand waits for ever.",
        fix="Put into debug what helps a reader of the autoscaler's log; make groups in the configuration.",
        unobservable="It says what the autoscaler does with an answer; no answer of the server can break it.",
    ),
    Rule(
        id="R15",
        title="A target outside min and max is allowed and is reported as it is",
        level=Level.NOTE,
        why="The autoscaler never lowers a target to max, and raises it to min only when it is told to.",
        fix="Report the true target; do not correct it to the limits behind the autoscaler's back.",
        unobservable="The protocol cannot bring a target outside its limits; only a changed configuration can.",
    ),
)
