"""Findings about the autoscaler's flags, and about options of groups that its release cannot be told."""

from __future__ import annotations

from typing import Final

from cloudgraft.doctor.findings import Entry, Severity

__all__ = ["ENTRIES"]

_ERROR, _WARNING, _NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

ENTRIES: Final[tuple[Entry, ...]] = (
    Entry(
        id="flag-unknown",
        severity=_ERROR,
        title="This release does not know a flag",
        why="The autoscaler ends when it starts.",
        fix="remove the flag",
    ),
    Entry(
        id="nodes-flag-ignored",
        severity=_NOTE,
        title="--nodes or --node-group-auto-discovery is set",
        why="With externalgrpc the autoscaler does not look at it: groups and sizes come from cloudgraft. The official "
        "chart renders nothing without one, so a group that does not exist is fine there.",
        fix="remove the flag, unless the chart wants it",
    ),
    Entry(
        id="nodes-flag-misleads",
        severity=_WARNING,
        title="--nodes gives other sizes to a group than cloudgraft does",
        why="What the flag says has no effect; minSize and maxSize in cloudgraft's configuration hold.",
        fix="remove the flag, and set minSize and maxSize in the configuration file",
    ),
    Entry(
        id="min-size-not-enforced",
        severity=_WARNING,
        title="A group has a minSize that the autoscaler does not restore",
        why="The autoscaler only never goes below it. A group that starts empty, or loses a machine, stays "
        "below (R15).",
        fix="--enforce-node-group-min-size=true, from 1.26 on",
    ),
    Entry(
        id="expander-price-without-prices",
        severity=_ERROR,
        title="--expander=price, and a group has no price",
        why="A group without a price is dropped from every choice; if all are, the autoscaler never scales up and does "
        "not say why (R83).",
        fix='price: {hourly: "0.05", currency: EUR} in every group, or --expander=least-waste',
    ),
    Entry(
        id="expander-grpc",
        severity=_NOTE,
        title="--expander=grpc: another server chooses the group",
        why="cloudgraft is no expander. If that server is away, the autoscaler goes on without its advice.",
        fix="nothing, if you run such a server; else --expander=least-waste",
    ),
    Entry(
        id="expander-grpc-incomplete",
        severity=_ERROR,
        title="--expander=grpc without its server",
        why="Without --grpc-expander-url and --grpc-expander-cert the autoscaler ends when it starts, or asks nobody.",
        fix="--grpc-expander-url=HOST:PORT --grpc-expander-cert=FILE",
    ),
    Entry(
        id="expander-priority-no-configmap",
        severity=_WARNING,
        title="--expander=priority without its ConfigMap",
        why="Without the priorities the expander lets every group pass, and the choice is left to chance.",
        fix="make the ConfigMap cluster-autoscaler-priority-expander with the key priorities in the autoscaler's "
        "namespace",
    ),
    Entry(
        id="expander-priority-group-unmatched",
        severity=_WARNING,
        title="A group matches none of the priorities",
        why="The priority expander never chooses it while any other group fits.",
        fix="add a pattern for it to the ConfigMap cluster-autoscaler-priority-expander",
    ),
    Entry(
        id="options-held-back",
        severity=_WARNING,
        title="A group's options are not sent to this release",
        why="They would do harm there (B1 to B3), so cloudgraft holds them back and the autoscaler's flags hold.",
        fix="use the autoscaler's flags instead, and remove the options; docs/explanation/releases.md says why",
    ),
    Entry(
        id="options-delete-new-machines",
        severity=_ERROR,
        title="forceOptions with a release that deletes new machines (B1)",
        why="Up to 1.28 an override makes the provision time zero: 1.27 and 1.28 delete every new machine in the next "
        "loop.",
        fix="server.forceOptions: false",
    ),
    Entry(
        id="options-turn-off",
        severity=_WARNING,
        title="forceOptions with a release that loses other options (B2)",
        why="From 1.28 to 1.32 an override turns --ignore-daemonsets-utilization off for the group.",
        fix="server.forceOptions: false, or ignoreDaemonSetsUtilization: false in the group's options",
    ),
    Entry(
        id="options-buy-twice",
        severity=_WARNING,
        title="forceOptions with a release that does not wait for nodes (B3)",
        why="From 1.35 on an override makes the startup time zero: a node that boots counts as unready and may be "
        "bought twice.",
        fix="server.forceOptions: false, unless nodes are ready soon after they register",
    ),
    Entry(
        id="zero-or-max-never-shrinks",
        severity=_WARNING,
        title="A group of all or none is never scaled down",
        why="With externalgrpc every release takes each node for a group of its own, and removes none (B6).",
        fix="remove zeroOrMaxNodeScaling",
    ),
    Entry(
        id="template-cache",
        severity=_WARNING,
        title="The autoscaler plans by a real node that differs from the template",
        why="Once it has seen a ready node of a group it keeps that as the template, for ten years or until it "
        "restarts (R67).",
        fix="restart the autoscaler after a change of the template, or set --node-info-cache-expire-time=1h",
    ),
    Entry(
        id="scale-down-off",
        severity=_WARNING,
        title="Scale-down is turned off",
        why="Machines are bought and never given back.",
        fix="remove --scale-down-enabled=false",
    ),
    Entry(
        id="scale-down-too-eager",
        severity=_WARNING,
        title="Nodes are removed too early",
        why="A node is taken away in the next lull and bought again a moment later; pods move all the time.",
        fix="leave the flag at its default",
    ),
    Entry(
        id="scale-down-never",
        severity=_WARNING,
        title="Nodes are hardly ever removed",
        why="With such values machines that nobody needs are paid for.",
        fix="leave the flag at its default",
    ),
    Entry(
        id="unready-never-removed",
        severity=_WARNING,
        title="Nodes that are not ready are never removed",
        why="A machine that died keeps its place in the group, and is paid for.",
        fix="remove --scale-down-unready-enabled=false",
    ),
    Entry(
        id="provision-time-too-short",
        severity=_WARNING,
        title="The autoscaler gives a machine up before cloudgraft does",
        why="After --max-node-provision-time it deletes the machine and backs the group off, although it may be about "
        "to join (R47).",
        fix="--max-node-provision-time longer than engine.createDeadline and engine.joinDeadline together",
    ),
    Entry(
        id="local-data-lost",
        severity=_NOTE,
        title="Nodes with pods that keep data in emptyDir are removed",
        why="With --skip-nodes-with-local-storage=false that data is lost when a node goes.",
        fix="remove the flag if some of that data matters",
    ),
    Entry(
        id="system-pods-moved",
        severity=_NOTE,
        title="Nodes with pods of kube-system are removed",
        why="With --skip-nodes-with-system-pods=false cluster DNS and others are moved about.",
        fix="give them PodDisruptionBudgets, or remove the flag",
    ),
)
