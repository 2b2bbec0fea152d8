"""Rules of the life of nodes, of the autoscaler and of the server (R85 to R90)."""

from __future__ import annotations

from cloudgraft.conformance.rules.rule import Level, Rule

__all__ = ["RULES"]

RULES = (
    Rule(
        id="R85",
        title="A node is tainted, cordoned and drained before DeleteNodes is sent for it",
        level=Level.NOTE,
        why="A server that drains again only makes the deletion slower.",
        fix="Delete the machine without a drain of your own.",
        unobservable="It is what the autoscaler does in the cluster before it calls the server.",
    ),
    Rule(
        id="R86",
        title="The server is not asked whether an instance exists; the deletion taint stands for that",
        level=Level.NOTE,
        why="While a long drain runs, one node too many is expected (up to 1.35).",
        fix="Nothing; keep deletions quick.",
        unobservable="The protocol has no such call, so that no server can answer it wrongly.",
    ),
    Rule(
        id="R87",
        title="More than 3 nodes and 45 % not ready stop the autoscaler; a new node has 15 minutes to become ready",
        level=Level.NOTE,
        why="One bad image in a large scale-up stops all scaling of the cluster.",
        fix="Make machines that become ready, and report those that cannot as failed (R34).",
        unobservable="Readiness is a matter of the nodes in the cluster; the kit has none.",
    ),
    Rule(
        id="R88",
        title="A restart of the autoscaler loses its memory; what the server accepted is carried out all the same",
        level=Level.MUST,
        why="A deletion that waits for a second word leaves machines running that no longer count.",
        fix="Keep accepted changes in the server, and finish them without being asked again.",
    ),
    Rule(
        id="R89",
        title="Two autoscalers may call at once; changes of one group are made one after the other",
        level=Level.MUST,
        why="For some seconds of a leader change both act; lost updates cost machines or lose them.",
        fix="Hold one lock per group around each change.",
    ),
    Rule(
        id="R90",
        title="Backoff is the autoscaler's; the server need not slow it down",
        level=Level.NOTE,
        why="A server that delays or refuses calls on its own adds its backoff to the autoscaler's.",
        fix="Answer each call on its merits; go on failing placeholders while the stock is out.",
        unobservable="Backoff lives in the memory of the autoscaler, and the server may help or not as it likes.",
    ),
)
