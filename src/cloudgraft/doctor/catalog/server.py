"""Findings in the configuration file and in the running server."""

from __future__ import annotations

from typing import Final

from cloudgraft.doctor.findings import Entry, Severity

__all__ = ["ENTRIES"]

_ERROR, _WARNING, _NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

ENTRIES: Final[tuple[Entry, ...]] = (
    Entry(
        id="config-invalid",
        severity=_ERROR,
        title="The configuration file cannot be used",
        why="A server does not start with it, and a running one keeps what it had before.",
        fix="cloudgraft serve --config FILE --check",
    ),
    Entry(
        id="config-missing",
        severity=_NOTE,
        title="No configuration file was looked at",
        why="Whatever depends on it is not checked: groups, options, prices, certificates.",
        fix="cloudgraft doctor --config FILE",
    ),
    Entry(
        id="config-not-taken",
        severity=_WARNING,
        title="The running server keeps an older configuration",
        why="What was changed in the file has no effect until it is valid.",
        fix="cloudgraft serve --config FILE --check says what is wrong with it",
    ),
    Entry(
        id="server-unreachable",
        severity=_WARNING,
        title="No running server answers on the admin socket",
        why="Machines, clouds, guards and the journal are not checked. If no server runs at all, the autoscaler's "
        "loops fail.",
        fix="run doctor where the server runs, as its user: "
        "kubectl -n kube-system exec deploy/cloudgraft -- cloudgraft doctor -c /etc/cloudgraft/config/cloudgraft.yaml",
    ),
    Entry(
        id="not-leader",
        severity=_WARNING,
        title="This server does not lead, and does not say who does",
        why="It serves nothing. If no other replica leads, nothing is scaled.",
        fix="look at the log of all replicas, and at the way to the database",
    ),
    Entry(
        id="standby",
        severity=_NOTE,
        title="This replica stands by: another one leads",
        why="It serves nothing, as it should, and cannot say how machines and clouds are.",
        fix="ask the replica that leads",
    ),
    Entry(
        id="first-list-awaited",
        severity=_WARNING,
        title="The server has started and does not answer the autoscaler yet",
        why="The journal does not know some cloud, and nobody knows which machines there are ours before its first "
        "list. An answer without them would do more harm than none.",
        fix="wait; `cloudgraft status` shows the cloud, and engine.firstListTimeout limits the wait",
    ),
    Entry(
        id="cluster-not-seen",
        severity=_WARNING,
        title="The running server does not see the nodes",
        why="Nodes get neither providerID nor labels, none is removed, and whether machines join is not known.",
        fix="cloudgraft doctor --kubeconfig FILE with the server's own kubeconfig says whether the API answers",
    ),
    Entry(
        id="node-not-looked-after",
        severity=_WARNING,
        title="The running server leaves a node alone",
        why="It is not certain which machine it is, or something keeps it from being made complete: a node without the "
        "right providerID is nobody's to the autoscaler, and its machine is deleted (R30).",
        fix="what the finding says; docs/how-to/let-machines-join.md has the rules",
    ),
    Entry(
        id="journal-not-writable",
        severity=_ERROR,
        title="The journal cannot be written",
        why="Every change is refused until it can be: nothing is created and nothing deleted.",
        fix="give the disk room and the server's user the right to write; `cloudgraft db check` looks at the journal",
    ),
    Entry(
        id="group-left-out",
        severity=_ERROR,
        title="A node group is not served",
        why="The autoscaler does not know it, and leaves its machines alone.",
        fix="cloudgraft explain GROUP",
    ),
    Entry(
        id="group-stale",
        severity=_WARNING,
        title="A node group is served with an older configuration",
        why="What was changed for it in the file has no effect.",
        fix="cloudgraft explain GROUP",
    ),
    Entry(
        id="paused",
        severity=_WARNING,
        title="A node group or a cloud is paused",
        why="Nothing is created or deleted in it, whatever the autoscaler asks for.",
        fix="cloudgraft resume",
    ),
    Entry(
        id="observe-only",
        severity=_WARNING,
        title="A cloud is only observed",
        why="observeOnly is set: the autoscaler's orders are refused, and what would be done is only reported.",
        fix="remove observeOnly from the configuration once the `observed` events look right",
    ),
    Entry(
        id="cloud-credentials-refused",
        severity=_ERROR,
        title="A cloud refuses the credentials",
        why="No machine can be created, deleted or seen there until it accepts them; trying again does not help.",
        fix="put credentials that are valid, with the rights that the driver needs, where the configuration says",
    ),
    Entry(
        id="cloud-down",
        severity=_ERROR,
        title="A cloud cannot be listed",
        why="Its groups stay as they were in the journal, and a machine that is asked for fails at once.",
        fix="cloudgraft status; then look at the cloud, or at the way to it",
    ),
    Entry(
        id="cloud-never-listed",
        severity=_WARNING,
        title="A cloud was not listed yet",
        why="Nothing is created in it before its first list has shown what is there already.",
        fix="wait for the first list, and look again",
    ),
    Entry(
        id="cloud-blocked",
        severity=_ERROR,
        title="Nothing may be created in a cloud",
        why="It can be reached, but what it shows does not allow to create machines safely.",
        fix="cloudgraft status",
    ),
    Entry(
        id="cloud-list-doubted",
        severity=_ERROR,
        title="A cloud's list misses many machines at once",
        why="Such a list is more likely wrong than right. Until it has lasted, its machines count as if still there.",
        fix="check the cloud, its account, its region; if the machines are gone, cloudgraft accept-loss --cloud NAME",
    ),
    Entry(
        id="quota-reached",
        severity=_WARNING,
        title="A cloud has no more room",
        why="Machines of this group fail, and the autoscaler takes another group if there is one that fits.",
        fix="raise the quota in the cloud, choose another machine type or zone, or lower maxSize to what can be had",
    ),
    Entry(
        id="machines-fail",
        severity=_WARNING,
        title="Machines of a group fail",
        why="Pods wait while machines are bought and thrown away, and the autoscaler backs the group off.",
        fix="cloudgraft explain GROUP",
    ),
    Entry(
        id="guard-reached",
        severity=_WARNING,
        title="A guard is used up",
        why="No more machines are created, or deleted without an order, until there is room under it again.",
        fix="raise the guard in the configuration file if this is what you want, else find out who needs so much",
    ),
    Entry(
        id="orphans",
        severity=_WARNING,
        title="A cloud has machines that nobody knows",
        why="They look like ours and are paid for, but no group counts them.",
        fix="cloudgraft orphans list",
    ),
    Entry(
        id="machine-twice",
        severity=_WARNING,
        title="A cloud has two machines for one intent",
        why="Both are paid for. One is being deleted, unless it cannot be proven to be ours.",
        fix="cloudgraft orphans list",
    ),
    Entry(
        id="machine-missing",
        severity=_WARNING,
        title="A machine of the journal is not in its cloud",
        why="The group counts it although it does not run.",
        fix="cloudgraft orphans list",
    ),
    Entry(
        id="machine-unproven",
        severity=_WARNING,
        title="A machine does not prove to be ours any more",
        why="Somebody took our marks from it, so it is never deleted.",
        fix="cloudgraft orphans list",
    ),
    Entry(
        id="machine-stuck",
        severity=_WARNING,
        title="A machine cannot be deleted",
        why="It is paid for although nobody wants it.",
        fix="cloudgraft orphans list",
    ),
)
