"""Rules of GPUs and prices (R78 to R84)."""

from __future__ import annotations

from cloudgraft.conformance.rules.rule import Level, Rule

__all__ = ["RULES"]

RULES = (
    Rule(
        id="R78",
        title="GPULabel succeeds, with an empty label if there is none",
        level=Level.SHOULD,
        why="An error is not remembered: it is asked again twice for each node in each loop.",
        fix="Answer OK, with an empty label if you have no GPU nodes.",
    ),
    Rule(
        id="R79",
        title="A node with the GPU label and no GPU counts as not ready",
        level=Level.NOTE,
        why="A label on nodes without GPUs makes them useless to the autoscaler, one after the other.",
        fix="Set the label only on nodes of groups that have GPUs, in the template too.",
    ),
    Rule(
        id="R80",
        title="GetAvailableGPUTypes answers OK; only its keys are used, for metrics",
        level=Level.NOTE,
        why="Types that are missing show up in metrics as not listed.",
        fix="Answer the values that the GPU label can have as keys; an empty map is fine.",
    ),
    Rule(
        id="R81",
        title="A node's price is found from the labels of a planned node, without capacity or providerID",
        level=Level.SHOULD,
        why="An error takes the group out of the choice of the price expander.",
        fix="Find the group by the template's labels or by the name, and price it.",
    ),
    Rule(
        id="R82",
        title="A pod's price is found for any whole pod, for the hour to come",
        level=Level.SHOULD,
        why="An error takes the option out; one call is made for each pod and option, so slowness adds up.",
        fix="Price the pod's requests, by the hours between the two times, from memory.",
    ),
    Rule(
        id="R83",
        title="Node prices and pod prices come together, or both are Unimplemented",
        level=Level.SHOULD,
        why="With the price expander one missing price means that nothing is ever scaled up, and nobody is told.",
        fix="Implement both calls or neither; say in the docs that the price expander needs them.",
    ),
    Rule(
        id="R84",
        title="Prices are above zero, finite, and in one currency",
        level=Level.SHOULD,
        why="Options are compared by the quotient of the two prices; zero or less makes the choice meaningless.",
        fix="Give every group an hourly price above zero, in the currency of all.",
    ),
)
