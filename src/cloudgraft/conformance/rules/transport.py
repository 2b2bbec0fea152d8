"""Rules of the way to the server: Refresh, Cleanup, deadlines, codes, TLS (R1 to R9)."""

from __future__ import annotations

from cloudgraft.conformance.rules.rule import Level, Rule

__all__ = ["RULES"]

RULES = (
    Rule(
        id="R1",
        title="Refresh answers well within five seconds, every time",
        level=Level.MUST,
        why="The autoscaler calls it at the start of each loop; while it is late, no loop runs and nothing is scaled.",
        fix="Talk to the cloud in the background and let Refresh answer from memory.",
    ),
    Rule(
        id="R2",
        title="A failing Refresh ends the loop without harm; it is the way to tell that the cloud cannot be reached",
        level=Level.NOTE,
        why="A loop that goes on with wrong data deletes nodes; one that never runs is restarted after 15 minutes.",
        fix="Return an error from Refresh while the state is too old to act on, and from nothing else.",
        unobservable="A healthy server gives Refresh no reason to fail, and what follows is the autoscaler's.",
    ),
    Rule(
        id="R3",
        title="Every call works before the first Refresh",
        level=Level.MUST,
        why="A restarted autoscaler reads groups, instances and nodes first; what it misses then it mistakes.",
        fix="Load the state when the server starts, before it listens, and not in Refresh.",
    ),
    Rule(
        id="R4",
        title="The list of groups, their min, max and debug text change only with a Refresh",
        level=Level.SHOULD,
        why="The autoscaler keeps them until the next Refresh; a change in between makes it act on two truths.",
        fix="Take new configuration into use in Refresh, all at once.",
    ),
    Rule(
        id="R5",
        title="Cleanup may come twice or never, and deletes no machine",
        level=Level.MUST,
        why="It is sent when the autoscaler stops, at every upgrade of it; the nodes run on and must stay.",
        fix="Answer OK and release only what the server itself holds, never machines.",
    ),
    Rule(
        id="R6",
        title="Every call is answered within five seconds",
        level=Level.MUST,
        why="After five seconds the autoscaler has given up, without a retry: the loop ends or the group is put aside.",
        fix="Answer reads from memory; record a change, answer, and carry it out afterwards.",
    ),
    Rule(
        id="R7",
        title="A call that was given up leaves its change done once or not at all",
        level=Level.MUST,
        why="A change that goes on in secret after the deadline is bought again, or kills pods that just came back.",
        fix="Record the change in one step that cannot be cancelled halfway; do the long work from a queue.",
    ),
    Rule(
        id="R8",
        title="Unimplemented is an answer only for the template, the options and the two prices",
        level=Level.MUST,
        why="Everywhere else, and in releases before 1.29 there too, it is an error like any other and stops the loop.",
        fix="Implement the other eleven calls; answer the options with OK and nothing set.",
    ),
    Rule(
        id="R9",
        title="With TLS the certificate names the host of the address, and HTTP/2 is agreed on by ALPN",
        level=Level.MUST,
        why="It verifies the host name and, from 1.33 on, refuses a server without ALPN: it never connects.",
        fix="Put the name or IP of the cloud-config's address into the certificate and offer h2 by ALPN.",
    ),
)
