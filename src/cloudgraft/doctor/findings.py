"""Lists all findings in one table. The reference page is made from it, and no finding is made without it."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Final

# -- findings and severity ---------------------------------------------------------------------------------------------


class Severity(enum.StrEnum):
    """The severity of a finding, worst first."""

    ERROR = "error"  # it does not work, or does harm
    WARNING = "warning"  # it works until something else happens
    NOTE = "note"  # worth knowing; nothing has to be done

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Entry:
    """One kind of finding."""

    title: str
    _: KW_ONLY
    severity: Severity
    why: str  # the harm it does
    fix: str  # the general fix, where no specific one is known
    id: str = ""  # its key in the table; it never changes, because scripts use it


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding."""

    entry: Entry
    where: str  # the file, the Deployment, the group, the node
    what: str  # the details of this case
    fix: str  # the command or the line that fixes it

    @property
    def sort_key(self) -> tuple[int, str, str, str]:
        """The sort key: worst first, then by id and place, so that two runs can be compared."""
        return self.entry.severity.rank, self.entry.id, self.where, self.what

    def as_json(self) -> dict[str, str]:
        """For programs."""
        return {
            "id": self.entry.id,
            "severity": self.entry.severity.value,
            "title": self.entry.title,
            "where": self.where,
            "what": self.what,
            "why": self.entry.why,
            "fix": self.fix,
        }


def exit_code(findings: Iterable[Finding]) -> int:
    """0 when there is nothing worse than a note, 1 with warnings, 3 with errors; 2 is left to wrong usage."""
    found = {finding.entry.severity for finding in findings}
    if Severity.ERROR in found:
        return 3
    return 1 if Severity.WARNING in found else 0


# -- configuration file and server -------------------------------------------------------------------------------------


_error = partial(Entry, severity=Severity.ERROR)
_warning = partial(Entry, severity=Severity.WARNING)
_note = partial(Entry, severity=Severity.NOTE)

_SERVER: Final = {
    "config-invalid": _error(
        "The configuration file cannot be used",
        why="A server does not start with it, and a running one keeps what it had before.",
        fix="cloudgraft serve --config FILE --check",
    ),
    "config-incomplete": _error(
        "The configuration names something that does not exist",
        why="A server starts with it, but the cloud or the group that needs it does not work.",
        fix="cloudgraft serve --config FILE --check",
    ),
    "config-missing": _note(
        "No configuration file was checked",
        why="Whatever depends on it is not checked: groups, options, prices, certificates.",
        fix="cloudgraft doctor --config FILE",
    ),
    "config-not-taken": _warning(
        "The running server keeps an older configuration",
        why="What was changed in the file has no effect until it is valid.",
        fix="cloudgraft serve --config FILE --check says what is wrong with it",
    ),
    "server-unreachable": _warning(
        "No running server answers on the admin socket",
        why="Machines, clouds, guards and the journal are not checked. If no server runs at all, the autoscaler's "
        "loops fail.",
        fix="run doctor where the server runs, as its user: "
        "kubectl -n kube-system exec deploy/cloudgraft -- cloudgraft doctor -c /etc/cloudgraft/config/cloudgraft.yaml",
    ),
    "not-leader": _warning(
        "This server does not lead, and does not say who does",
        why="It serves nothing. If no other replica leads, nothing is scaled.",
        fix="look at the log of all replicas, and at the way to the database",
    ),
    "standby": _note(
        "This replica is on standby: another one leads",
        why="It serves nothing, as it should, and does not know the state of machines and clouds.",
        fix="ask the replica that leads",
    ),
    "first-list-awaited": _warning(
        "The server has started and does not answer the autoscaler yet",
        why="The journal does not know some cloud, so our machines there are unknown before its first list. An "
        "answer without them would do more harm than none.",
        fix="wait; `cloudgraft status` shows the cloud, and engine.firstListTimeout limits the wait",
    ),
    "cluster-not-seen": _warning(
        "The running server does not see the nodes",
        why="Nodes get neither providerID nor labels, none is removed, and whether machines join is not known.",
        fix="cloudgraft doctor --kubeconfig FILE with the server's own kubeconfig says whether the API answers",
    ),
    "dock-driver-busy": _warning(
        "Calls wait for a driver that has dialled in",
        why="It takes no more calls at once, and is slow: machines come late, and after five minutes a call fails.",
        fix="is its cloud slow? A driver of 2018 that can do more at once: maxInFlight of its cloud",
    ),
    "dock-error-unclassified": _warning(
        "A driver of 2018 reports an error that no table knows",
        why="Its errors are texts without a code. For one that is in no table the autoscaler hears `internal`, and not "
        "that a quota or the stock is used up.",
        fix="if it is about quota, stock or credentials, write a part of the text into errorTexts of its cloud",
    ),
    "node-not-looked-after": _warning(
        "The running server leaves a node alone",
        why="It is not certain which machine it is, or something keeps it from being made complete: a node without the "
        "right providerID belongs to no group for the autoscaler, and its machine is deleted (R30).",
        fix="what the finding says; docs/how-to/let-machines-join.md has the rules",
    ),
    "journal-not-writable": _error(
        "The journal cannot be written",
        why="Every change is refused until it can be: nothing is created and nothing deleted.",
        fix="give the disk room and the server's user the right to write; `cloudgraft db check` looks at the journal",
    ),
    "group-left-out": _error(
        "A node group is not served",
        why="The autoscaler does not know it, and does not touch its machines.",
        fix="cloudgraft explain GROUP",
    ),
    "group-stale": _warning(
        "A node group is served with an older configuration",
        why="What was changed for it in the file has no effect.",
        fix="cloudgraft explain GROUP",
    ),
    "paused": _warning(
        "A node group or a cloud is paused",
        why="Nothing is created or deleted in it, whatever the autoscaler asks for.",
        fix="cloudgraft resume",
    ),
    "observe-only": _warning(
        "A cloud is only observed",
        why="observeOnly is set: the autoscaler's orders are refused, and what would be done is only reported.",
        fix="remove observeOnly from the configuration once the `observed` events look right",
    ),
    "cloud-credentials-refused": _error(
        "A cloud refuses the credentials",
        why="No machine can be created, deleted or seen there until it accepts them; trying again does not help.",
        fix="put credentials that are valid, with the rights that the driver needs, where the configuration says",
    ),
    "cloud-down": _error(
        "A cloud cannot be listed",
        why="Its groups stay as they were in the journal, and a machine that is asked for fails at once.",
        fix="cloudgraft status; then look at the cloud, or at the way to it",
    ),
    "cloud-never-listed": _warning(
        "A cloud was not listed yet",
        why="Nothing is created in it before its first list has shown what is there already.",
        fix="wait for the first list, and look again",
    ),
    "cloud-blocked": _error(
        "Nothing may be created in a cloud",
        why="It can be reached, but what it shows does not allow to create machines safely.",
        fix="cloudgraft status",
    ),
    "list-delay-too-small": _warning(
        "Lists lag more than the driver declares",
        why="A machine that exists can be taken for missing: it is then created a second time, or counted as gone.",
        fix="raise list_delay in the driver's traits, or its option for it, above the observed delay",
    ),
    "cloud-list-doubted": _error(
        "A cloud's list misses many machines at once",
        why="Such a list is more likely wrong than right. Until that has lasted, the machines count as present.",
        fix="check the cloud, its account, its region; if the machines are gone, cloudgraft accept-loss --cloud NAME",
    ),
    "quota-reached": _warning(
        "A cloud is out of capacity",
        why="Machines of this group fail, and the autoscaler takes another group if there is one that fits.",
        fix="raise the quota in the cloud, choose another machine type or zone, or lower maxSize to what can be had",
    ),
    "machines-fail": _warning(
        "Machines of a group fail",
        why="Pods wait while machines are created and deleted, and the autoscaler backs off from the group.",
        fix="cloudgraft explain GROUP",
    ),
    "guard-reached": _warning(
        "A guard is used up",
        why="No more machines are created, or deleted without an order, until there is room under it again.",
        fix="raise the guard in the configuration file if this is what you want, else find out what needs so much",
    ),
    "orphans": _warning(
        "A cloud has orphaned machines",
        why="They look like ours and are paid for, but no group counts them.",
        fix="cloudgraft orphans list",
    ),
    "machine-twice": _warning(
        "A cloud has two machines for one intent",
        why="Both are paid for. One is being deleted, unless it cannot be proven to be ours.",
        fix="cloudgraft orphans list",
    ),
    "machine-missing": _warning(
        "A machine of the journal is not in its cloud",
        why="The group counts it although it does not run.",
        fix="cloudgraft orphans list",
    ),
    "machine-unproven": _warning(
        "A machine can no longer be proven to be ours",
        why="Our marks were removed from it, so it is never deleted.",
        fix="cloudgraft orphans list",
    ),
    "machine-stuck": _warning(
        "A machine cannot be deleted",
        why="It costs money although it is not wanted.",
        fix="cloudgraft orphans list",
    ),
}


# -- certificates and connection ---------------------------------------------------------------------------------------


_TLS: Final = {
    "tls-insecure": _warning(
        "The server listens without TLS",
        why="Anyone who reaches the port can create and delete machines.",
        fix="cloudgraft certs init certs --host NAME, then server.tls in place of server.insecure",
    ),
    "dock-local-secrets": _warning(
        "The dock gives secrets to drivers that prove nothing",
        why="Any program on this host can register as a driver and read the credentials of its machine classes.",
        fix="give each driver a tokenFile in dock.drivers, and remove dock.allowLocalSecrets",
    ),
    "tls-unreadable": _error(
        "A certificate cannot be read",
        why="The side that should present it cannot, and the connection fails.",
        fix="put it where the configuration says, PEM, readable by the user who needs it",
    ),
    "tls-expired": _error(
        "A certificate has ended",
        why="The other side refuses it: no call arrives any more.",
        fix="cloudgraft certs renew DIR",
    ),
    "tls-expires-soon": _warning(
        "A certificate ends soon",
        why="From that day on no call arrives. The autoscaler reads its certificate only when it starts.",
        fix="cloudgraft certs renew DIR; restart the autoscaler if it is its certificate",
    ),
    "tls-not-yet-valid": _error(
        "A certificate is not valid yet",
        why="The other side refuses it until then.",
        fix="set the clock, or wait",
    ),
    "tls-wrong-purpose": _error(
        "A certificate is for something else",
        why="A server's certificate is refused as a client's, and the other way round.",
        fix="use the right file, or have it issued with the right key usage",
    ),
    "tls-key": _error(
        "A key does not belong to its certificate",
        why="The connection fails, or the server keeps the old pair.",
        fix="cloudgraft certs renew DIR",
    ),
    "tls-key-readable": _warning(
        "A private key can be read by everybody",
        why="Anyone who has it can impersonate its owner.",
        fix="chmod 600 FILE",
    ),
    "tls-name-missing": _error(
        "The server's certificate is not for the name that the autoscaler looks for",
        why="The autoscaler takes the host of `address` in its cloud-config and refuses a certificate without it (R9).",
        fix="cloudgraft certs renew DIR --what server --host NAME",
    ),
    "tls-server-untrusted": _error(
        "The server's certificate was not signed by the authority that the autoscaler trusts",
        why="The autoscaler refuses it.",
        fix="name the authority of the server's certificate as cacert in the cloud-config",
    ),
    "tls-client-untrusted": _error(
        "The client's certificate was not signed by the server's clientCA",
        why="The server refuses the autoscaler in the handshake.",
        fix="cloudgraft certs client DIR NAME, signed by the authority that is server.tls.clientCA",
    ),
    "tls-client-not-allowed": _error(
        "The client's certificate has no name of allowedClients",
        why="Every call of the autoscaler is refused with PERMISSION_DENIED.",
        fix="add the name to server.tls.allowedClients",
    ),
    "tls-on-one-side": _error(
        "Only one side speaks TLS",
        why="The autoscaler uses TLS only if its cloud-config has `cert`. With TLS on one side only, every call fails.",
        fix="set key, cert and cacert in the cloud-config, and server.tls in the configuration file",
    ),
    "cloud-config-invalid": _error(
        "The autoscaler's cloud-config cannot be used",
        why="The autoscaler ends when it starts.",
        fix="the keys are address, key, cert, cacert and grpc_timeout",
    ),
    "cloud-config-unknown": _note(
        "The autoscaler's cloud-config was not checked",
        why="Its address, timeout and certificates are not compared with the server's.",
        fix="cloudgraft doctor --cloud-config FILE",
    ),
    "call-fails": _error(
        "A call with the autoscaler's cloud-config fails",
        why="It fails for the autoscaler in the same way, if it is made from the same place.",
        fix="cloudgraft call NodeGroups --cloud-config FILE",
    ),
    "timeout-too-short": _warning(
        "The autoscaler gives up before the server does",
        why="A call that is given up may still be carried out: a scale-up that worked counts as failed, and the group "
        "is backed off.",
        fix="server.deadline below the timeout: 4.5s for the autoscaler's 5s",
    ),
    "timeout-ignored": _note(
        "grpc_timeout has no effect in this release",
        why="Up to 1.28 every call is given up after 5 seconds.",
        fix="remove it, or upgrade the autoscaler",
    ),
}


# -- the autoscaler's Deployment ---------------------------------------------------------------------------------------


_AUTOSCALER: Final = {
    "autoscaler-not-found": _warning(
        "There is no autoscaler that uses externalgrpc",
        why="No autoscaler calls this server, unless it runs outside the cluster or under another name.",
        fix="kubectl apply -k deploy, or say where it is with --autoscaler NAMESPACE/NAME",
    ),
    "autoscaler-unreadable": _note(
        "The autoscaler's Deployment could not be read",
        why="Its release, flags, mounts and rights are not checked.",
        fix="run doctor with a kubeconfig whose user may read Deployments, ConfigMaps and roles",
    ),
    "autoscaler-switched-off": _warning(
        "The autoscaler has no replicas",
        why="Nothing is scaled up or down.",
        fix="kubectl scale deployment NAME --replicas=1",
    ),
    "two-autoscalers": _error(
        "Two autoscalers use one server",
        why="Each undoes what the other does: one removes the nodes that the other has just ordered.",
        fix="remove one of the Deployments; for a standby, give one Deployment two replicas",
    ),
    "no-leader-election": _error(
        "Several replicas of the autoscaler work at the same time",
        why="Without leader election each of them scales by itself.",
        fix="remove --leader-elect=false, or set replicas: 1",
    ),
    "release-unknown": _warning(
        "The autoscaler's image does not show its release",
        why="What is true of some releases only is not checked, and a tag that moves changes the release by itself.",
        fix="name a release in the image's tag, such as v1.35.2",
    ),
    "release-too-old": _error(
        "The autoscaler is older than 1.25",
        why="Its externalgrpc client was never tested with cloudgraft, and may not exist.",
        fix="use a release from 1.25 to 1.37",
    ),
    "release-too-new": _warning(
        "The autoscaler is newer than 1.37",
        why="This release was not tested with this cloudgraft.",
        fix="use a release from 1.25 to 1.37, or a newer cloudgraft",
    ),
    "release-not-the-clusters": _warning(
        "The autoscaler and Kubernetes are not of one minor release",
        why="The autoscaler simulates the scheduler of its own release; what the cluster's scheduler does differently, "
        "it gets wrong.",
        fix="set the image's tag to the minor release of the cluster",
    ),
    "wrong-cloud-provider": _error(
        "The autoscaler does not use externalgrpc",
        why="It never calls cloudgraft.",
        fix="--cloud-provider=externalgrpc",
    ),
    "no-cloud-config": _error(
        "The autoscaler has no --cloud-config",
        why="It does not know where cloudgraft is, and ends when it starts. The official chart has no value for it "
        "with externalgrpc.",
        fix="--cloud-config=/etc/cloudgraft/config/cloud-config.yaml; in the chart: extraArgs.cloud-config",
    ),
    "cloud-config-not-mounted": _error(
        "No volume is mounted where --cloud-config points to",
        why="The file is not there, and the autoscaler ends when it starts.",
        fix="mount the ConfigMap there; in the chart: extraVolumes and extraVolumeMounts",
    ),
    "client-certificate-not-mounted": _error(
        "No volume is mounted where the cloud-config names key, cert or cacert",
        why="The files are not there, and the autoscaler ends when it starts.",
        fix="mount the Secret with the client's certificate there",
    ),
    "certificate-never-renewed": _warning(
        "The client's certificate is mounted with subPath",
        why="A file that is mounted so never changes: a renewed certificate does not arrive even with a restart of the "
        "container alone.",
        fix="mount the whole directory, without subPath",
    ),
    "rbac-missing": _error(
        "The autoscaler lacks a right that its release needs",
        why="Its caches never fill, or what it wants to do is refused; it waits forever, or scales nothing.",
        fix="kubectl apply -f deploy/cluster-autoscaler.yaml has the rights of all releases",
    ),
    "rbac-unknown": _note(
        "The autoscaler's rights could not be checked",
        why="Whether they are enough for its release is not checked.",
        fix="run doctor with a kubeconfig whose user may create subjectaccessreviews",
    ),
}


# -- flags and options of groups ---------------------------------------------------------------------------------------


_FLAGS: Final = {
    "flag-unknown": _error(
        "This release does not know a flag",
        why="The autoscaler ends when it starts.",
        fix="remove the flag",
    ),
    "nodes-flag-ignored": _note(
        "--nodes or --node-group-auto-discovery is set",
        why="With externalgrpc the autoscaler does not look at it: groups and sizes come from cloudgraft. The official "
        "chart renders nothing without one, so a group that does not exist is fine there.",
        fix="remove the flag, unless the chart wants it",
    ),
    "nodes-flag-misleads": _warning(
        "--nodes gives other sizes to a group than cloudgraft does",
        why="The flag has no effect; minSize and maxSize in cloudgraft's configuration apply.",
        fix="remove the flag, and set minSize and maxSize in the configuration file",
    ),
    "min-size-not-enforced": _warning(
        "A group has a minSize that the autoscaler does not restore",
        why="The autoscaler only never goes below it. A group that starts empty, or loses a machine, stays "
        "below (R15).",
        fix="--enforce-node-group-min-size=true, from 1.26 on",
    ),
    "expander-price-without-prices": _error(
        "--expander=price, and a group has no price",
        why="A group without a price is dropped from every choice; if all are, the autoscaler never scales up and does "
        "not say why (R83).",
        fix='price: {hourly: "0.05", currency: EUR} in every group, or --expander=least-waste',
    ),
    "expander-grpc": _note(
        "--expander=grpc: another server chooses the group",
        why="cloudgraft is no expander. If that server is unavailable, the autoscaler goes on without its advice.",
        fix="nothing, if you run such a server; else --expander=least-waste",
    ),
    "expander-grpc-incomplete": _error(
        "--expander=grpc without its server",
        why="Without --grpc-expander-url and --grpc-expander-cert the autoscaler ends at start, or gets no advice.",
        fix="--grpc-expander-url=HOST:PORT --grpc-expander-cert=FILE",
    ),
    "expander-priority-no-configmap": _warning(
        "--expander=priority without its ConfigMap",
        why="Without the priorities the expander lets every group pass, and the choice is random.",
        fix="make the ConfigMap cluster-autoscaler-priority-expander with the key priorities in the autoscaler's "
        "namespace",
    ),
    "expander-priority-group-unmatched": _warning(
        "A group matches none of the priorities",
        why="The priority expander never chooses it while any other group fits.",
        fix="add a pattern for it to the ConfigMap cluster-autoscaler-priority-expander",
    ),
    "options-held-back": _warning(
        "A group's options are not sent to this release",
        why="They would do harm there (B1 to B3), so cloudgraft holds them back and the autoscaler's flags hold.",
        fix="use the autoscaler's flags instead, and remove the options; docs/explanation/releases.md says why",
    ),
    "options-delete-new-machines": _error(
        "forceOptions with a release that deletes new machines (B1)",
        why="Up to 1.28 an override makes the provision time zero: 1.27 and 1.28 delete every new machine in the next "
        "loop.",
        fix="server.forceOptions: false",
    ),
    "options-turn-off": _warning(
        "forceOptions with a release that loses other options (B2)",
        why="From 1.28 to 1.32 an override turns --ignore-daemonsets-utilization off for the group.",
        fix="server.forceOptions: false, or ignoreDaemonSetsUtilization: false in the group's options",
    ),
    "options-buy-twice": _warning(
        "forceOptions with a release that does not wait for nodes (B3)",
        why="From 1.35 on an override makes the startup time zero: a node that boots counts as unready and may be "
        "bought twice.",
        fix="server.forceOptions: false, unless nodes are ready soon after they register",
    ),
    "zero-or-max-never-shrinks": _warning(
        "A group of all or none is never scaled down",
        why="With externalgrpc every release takes each node for a group of its own, and removes none (B6).",
        fix="remove zeroOrMaxNodeScaling",
    ),
    "template-cache": _warning(
        "The autoscaler plans by a real node that differs from the template",
        why="Once it has seen a ready node of a group it keeps that as the template, for ten years or until it "
        "restarts (R67).",
        fix="restart the autoscaler after a change of the template, or set --node-info-cache-expire-time=1h",
    ),
    "scale-down-off": _warning(
        "Scale-down is turned off",
        why="Machines are created and never deleted.",
        fix="remove --scale-down-enabled=false",
    ),
    "scale-down-too-eager": _warning(
        "Nodes are removed too early",
        why="A node is removed in the next lull and created again a moment later; pods move all the time.",
        fix="leave the flag at its default",
    ),
    "scale-down-never": _warning(
        "Nodes are hardly ever removed",
        why="With such values unneeded machines cost money.",
        fix="leave the flag at its default",
    ),
    "unready-never-removed": _warning(
        "Nodes that are not ready are never removed",
        why="A dead machine keeps its place in the group, and costs money.",
        fix="remove --scale-down-unready-enabled=false",
    ),
    "provision-time-too-short": _warning(
        "The autoscaler gives up on a machine before cloudgraft does",
        why="After --max-node-provision-time it deletes the machine and backs the group off, although it may be about "
        "to join (R47).",
        fix="--max-node-provision-time longer than engine.createDeadline and engine.joinDeadline together",
    ),
    "local-data-lost": _note(
        "Nodes with pods that keep data in emptyDir are removed",
        why="With --skip-nodes-with-local-storage=false that data is lost when a node goes.",
        fix="remove the flag if some of that data matters",
    ),
    "system-pods-moved": _note(
        "Nodes with pods of kube-system are removed",
        why="With --skip-nodes-with-system-pods=false cluster DNS and others are moved about.",
        fix="give them PodDisruptionBudgets, or remove the flag",
    ),
}


# -- the cluster -------------------------------------------------------------------------------------------------------


_CLUSTER: Final = {
    "cluster-not-looked-at": _note(
        "No cluster was checked",
        why="Nodes, the autoscaler's Deployment and rights are not checked.",
        fix="cloudgraft doctor --kubeconfig FILE",
    ),
    "cluster-unreachable": _warning(
        "The Kubernetes API does not answer",
        why="Nothing of the cluster is checked; machines that are created meanwhile cannot get a token to join.",
        fix="kubectl --kubeconfig FILE get nodes",
    ),
    "nodes-unreadable": _note(
        "The nodes of the cluster could not be listed",
        why="Whether they belong to the machines is not checked.",
        fix="run doctor with a kubeconfig whose user may list nodes",
    ),
    "provider-id-empty": _error(
        "The node of a machine has no providerID",
        why="For the autoscaler the machine never came: after 15 minutes it is deleted with its pods on it (R30).",
        fix="kubernetes.setProviderID: true, or --provider-id on the machine's kubelet, or a cloud-controller-manager",
    ),
    "provider-id-case": _error(
        "A node's providerID differs from its machine's by upper and lower case",
        why="The two are compared byte for byte: the autoscaler takes the machine for one that never came (R30).",
        fix="give the kubelet the providerID exactly as `cloudgraft status GROUP` shows it",
    ),
    "provider-id-prefix": _error(
        "A node's providerID has another prefix than its machine's",
        why="The two are compared byte for byte: the autoscaler takes the machine for one that never came (R30).",
        fix="give the kubelet the providerID exactly as `cloudgraft status GROUP` shows it",
    ),
    "provider-id-other": _error(
        "The node of a machine has another providerID",
        why="The autoscaler takes the machine for one that never came, and deletes it (R30). A providerID cannot be "
        "changed once it is set.",
        fix="delete the Node object and let the machine register again, with the providerID of `cloudgraft "
        "status GROUP`",
    ),
    "provider-id-twice": _error(
        "Two nodes have one providerID",
        why="The autoscaler counts one machine twice, and may delete the machine of the one by the name of the other.",
        fix="delete the Node object that has no machine",
    ),
    "node-missing": _warning(
        "A running machine has no node",
        why="It is paid for and does no work. The autoscaler deletes it after --max-node-provision-time.",
        fix="look at the machine's console, or at what its user data has done (/var/log/cloud-init-output.log)",
    ),
    "node-left-behind": _warning(
        "The machine of a node is gone",
        why="Only a cloud-controller-manager or cloudgraft deletes Node objects; the autoscaler counts it as "
        "being deleted forever (R57).",
        fix="kubernetes.removeNodes: true, or kubectl delete node NAME",
    ),
    "node-waits-for-cloud-controller": _warning(
        "A node waits for a cloud-controller-manager",
        why="It has the taint node.cloudprovider.kubernetes.io/uninitialized, so no pod runs there until one takes it "
        "away.",
        fix="run the cloud-controller-manager, look at its log, or start the kubelet without --cloud-provider=external",
    ),
    "two-set-provider-ids": _warning(
        "A cloud-controller-manager runs, and cloudgraft sets providerIDs too",
        why="The first one wins, and a providerID cannot be changed: nodes may get one that cloudgraft does not "
        "list. The other may also delete nodes that it does not know.",
        fix="kubernetes: {setProviderID: false, removeNodes: false}, or remove the cloud-controller-manager",
    ),
    "nodes-not-named-like-machines": _warning(
        "Nodes without providerID are not named like machines",
        why="With matchBy: [name] a node is known by its machine's name only; under another it is never given its "
        "providerID.",
        fix="let the machine's host name be its name, or kubernetes.matchBy: [name, address, machineID]",
    ),
    "template-label": _warning(
        "Real nodes lack a label of the template",
        why="The autoscaler orders a node for a pod that asks for the label, and the pod does not fit there (R69).",
        fix="kubernetes.labelNodes: true, or the kubelet's --node-labels; or remove it from template.labels",
    ),
    "template-taint-missing": _warning(
        "Real nodes lack a taint of the template",
        why="Pods that were to be kept off run there, and the autoscaler does not order the group for pods that would "
        "fit.",
        fix="give the kubelet --register-with-taints, or remove it from template.taints",
    ),
    "template-taint-unknown": _warning(
        "Real nodes have a taint that the template lacks",
        why="The autoscaler orders a node for pods that do not tolerate the taint, and orders another when they still "
        "wait.",
        fix="add it to template.taints",
    ),
    "template-resource": _warning(
        "Real nodes have less of a resource than the template",
        why="The autoscaler orders a node for pods that do not fit on it, and orders another when they still "
        "wait (R68).",
        fix="set template.allocatable or template.reserved to what real nodes have",
    ),
    "right-missing": _error(
        "cloudgraft lacks a right in the cluster",
        why="What needs it does not work; `cloudgraft status` and the log say so each time.",
        fix="kubectl apply -f deploy/cloudgraft-access.yaml; docs/reference/rbac.md says which right is for what",
    ),
}


# -- all findings ------------------------------------------------------------------------------------------------------


SECTIONS: Final[Mapping[str, Mapping[str, Entry]]] = {
    "The configuration and the running server": _SERVER,
    "Certificates and the connection": _TLS,
    "The autoscaler as it is deployed": _AUTOSCALER,
    "The autoscaler's flags": _FLAGS,
    "The cluster": _CLUSTER,
}
ENTRIES: Final[Mapping[str, Entry]] = {
    id_: replace(entry, id=id_) for section in SECTIONS.values() for id_, entry in section.items()
}


def found(id_: str, *, where: str, what: str, fix: str = "") -> Finding:
    """A finding of that kind; ``fix`` is the specific fix of this case, where there is one."""
    entry = ENTRIES[id_]
    return Finding(entry=entry, where=where, what=what, fix=fix or entry.fix)
