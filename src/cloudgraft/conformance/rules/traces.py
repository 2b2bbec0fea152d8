"""Traces: sequences of calls as the autoscaler really sends them (T1 to T10)."""

from __future__ import annotations

from cloudgraft.conformance.rules.rule import Level, Rule

__all__ = ["RULES"]

RULES = (
    Rule(
        id="T1",
        title="Scale-up: a loop reads everything, IncreaseSize by two, the target shows it, new instances are listed",
        level=Level.MUST,
        why="This is how every scale-up arrives; a server that stumbles here never gives a pod a node.",
        fix="Look at the first call of the trace that went wrong, and at its rule.",
    ),
    Rule(
        id="T2",
        title="Registration: the node with a listed providerID belongs to the group, and nothing else changes",
        level=Level.MUST,
        why="Otherwise the new node counts as foreign, its instance as dead, and it is deleted.",
        fix="List the instance under its providerID before and after its node has joined (R20, R30).",
    ),
    Rule(
        id="T3",
        title="Stock-out: failed instances are listed, deleted with stand-ins, deleted again; the target is back once",
        level=Level.MUST,
        why="Otherwise the group stays blocked, or its target drifts with each loop.",
        fix="Accept the deletion of what failed, at once and repeatedly (R38, R39, R55).",
    ),
    Rule(
        id="T4",
        title="Slow start: DecreaseTargetSize (from 1.36 on), then DeleteNodes for the instances that never joined",
        level=Level.MUST,
        why="Counted twice, the target falls below what runs; not accepted, dead machines stay and are paid.",
        fix="Stop DecreaseTargetSize at the instances, and let DeleteNodes count them (R62, R63).",
    ),
    Rule(
        id="T5",
        title="Lost request: DecreaseTargetSize takes back what has no instance, and no more however often it comes",
        level=Level.MUST,
        why="An error ends every loop from then on; a blind decrease forgets machines that run.",
        fix="Stop at the number of instances that are not deleting, and answer OK (R62).",
    ),
    Rule(
        id="T6",
        title="Scale-down: deletions at once, repeated, foreign and mixed; the target falls by what was meant",
        level=Level.MUST,
        why="Scale-down that miscounts either keeps machines that cost or kills machines that work.",
        fix="Serialise by group, check all nodes before the first change, count each instance once (R49 to R55).",
    ),
    Rule(
        id="T7",
        title="Slow cloud: changes are answered within five seconds, and a call given up is done once or not at all",
        level=Level.MUST,
        why="A timeout that in truth succeeded is bought a second time.",
        fix="Record and answer; never wait for the cloud inside a call (R44, R54).",
    ),
    Rule(
        id="T8",
        title="Unknown input: foreign, fresh and planned nodes, unknown groups, options in the form of every release",
        level=Level.MUST,
        why="The autoscaler sends all of these in ordinary loops; a crash or a wrong code stops it.",
        fix="Answer OK without a group for nodes, an error for group ids, and options that the release can read.",
    ),
    Rule(
        id="T9",
        title="Restart: groups, targets, ids and states survive the server's; the client's begins without a Refresh",
        level=Level.MUST,
        why="A server that forgets its targets has the machines bought again, or leaves them running uncounted.",
        fix="Keep the state on disk or in the cloud, and load it before the server listens.",
    ),
    Rule(
        id="T10",
        title="After every call: target not negative, live instances within it, ids unique, each id in its group",
        level=Level.MUST,
        why="A state that contradicts itself is acted upon: by deleting, or by buying.",
        fix="Change the target and the list of instances in one step.",
    ),
)
