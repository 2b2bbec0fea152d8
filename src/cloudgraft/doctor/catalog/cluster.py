"""Findings in the cluster: nodes against machines, nodes against templates, rights."""

from __future__ import annotations

from typing import Final

from cloudgraft.doctor.findings import Entry, Severity

__all__ = ["ENTRIES"]

_ERROR, _WARNING, _NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

ENTRIES: Final[tuple[Entry, ...]] = (
    Entry(
        id="cluster-not-looked-at",
        severity=_NOTE,
        title="No cluster was looked at",
        why="Nodes, the autoscaler's Deployment and rights are not checked.",
        fix="cloudgraft doctor --kubeconfig FILE",
    ),
    Entry(
        id="cluster-unreachable",
        severity=_WARNING,
        title="The Kubernetes API does not answer",
        why="Nothing of the cluster is checked; machines that are created meanwhile cannot get a token to join.",
        fix="kubectl --kubeconfig FILE get nodes",
    ),
    Entry(
        id="nodes-unreadable",
        severity=_NOTE,
        title="The nodes of the cluster could not be listed",
        why="Whether they belong to the machines is not checked.",
        fix="run doctor with a kubeconfig whose user may list nodes",
    ),
    Entry(
        id="provider-id-empty",
        severity=_ERROR,
        title="The node of a machine has no providerID",
        why="For the autoscaler the machine never came: after 15 minutes it is deleted with its pods on it (R30).",
        fix="kubernetes.setProviderID: true, or --provider-id on the machine's kubelet, or a cloud-controller-manager",
    ),
    Entry(
        id="provider-id-case",
        severity=_ERROR,
        title="A node's providerID differs from its machine's by upper and lower case",
        why="The two are compared byte for byte: the autoscaler takes the machine for one that never came (R30).",
        fix="give the kubelet the providerID exactly as `cloudgraft status GROUP` shows it",
    ),
    Entry(
        id="provider-id-prefix",
        severity=_ERROR,
        title="A node's providerID has another prefix than its machine's",
        why="The two are compared byte for byte: the autoscaler takes the machine for one that never came (R30).",
        fix="give the kubelet the providerID exactly as `cloudgraft status GROUP` shows it",
    ),
    Entry(
        id="provider-id-other",
        severity=_ERROR,
        title="The node of a machine has another providerID",
        why="The autoscaler takes the machine for one that never came, and deletes it (R30). A providerID cannot be "
        "changed once it is set.",
        fix="delete the Node object and let the machine register again, with the providerID of `cloudgraft "
        "status GROUP`",
    ),
    Entry(
        id="provider-id-twice",
        severity=_ERROR,
        title="Two nodes have one providerID",
        why="The autoscaler counts one machine twice, and may delete the machine of the one by the name of the other.",
        fix="delete the Node object that has no machine",
    ),
    Entry(
        id="node-missing",
        severity=_WARNING,
        title="A running machine has no node",
        why="It is paid for and does no work. The autoscaler deletes it after --max-node-provision-time.",
        fix="look at the machine's console, or at what its user data has done (/var/log/cloud-init-output.log)",
    ),
    Entry(
        id="node-left-behind",
        severity=_WARNING,
        title="A node is left whose machine is gone",
        why="Nobody deletes Node objects but a cloud-controller-manager or cloudgraft; the autoscaler counts it as "
        "being deleted for ever (R57).",
        fix="kubernetes.removeNodes: true, or kubectl delete node NAME",
    ),
    Entry(
        id="node-waits-for-cloud-controller",
        severity=_WARNING,
        title="A node waits for a cloud-controller-manager",
        why="It has the taint node.cloudprovider.kubernetes.io/uninitialized, so no pod runs there until one takes it "
        "away.",
        fix="run the cloud-controller-manager, look at its log, or start the kubelet without --cloud-provider=external",
    ),
    Entry(
        id="two-set-provider-ids",
        severity=_WARNING,
        title="A cloud-controller-manager runs, and cloudgraft sets providerIDs too",
        why="Who comes first wins, and a providerID cannot be changed: nodes may get one that cloudgraft does not "
        "list. The other may also delete nodes that it does not know.",
        fix="kubernetes: {setProviderID: false, removeNodes: false}, or remove the cloud-controller-manager",
    ),
    Entry(
        id="nodes-not-named-like-machines",
        severity=_WARNING,
        title="Nodes without providerID are not named like machines",
        why="With matchBy: [name] a node is known by its machine's name only; under another it is never given its "
        "providerID.",
        fix="let the machine's host name be its name, or kubernetes.matchBy: [name, address, machineID]",
    ),
    Entry(
        id="template-label",
        severity=_WARNING,
        title="Real nodes lack a label of the template",
        why="The autoscaler orders a node for a pod that asks for the label, and the pod does not fit there (R69).",
        fix="kubernetes.labelNodes: true, or the kubelet's --node-labels; or remove it from template.labels",
    ),
    Entry(
        id="template-taint-missing",
        severity=_WARNING,
        title="Real nodes lack a taint of the template",
        why="Pods that were to be kept off run there, and the autoscaler does not order the group for pods that would "
        "fit.",
        fix="give the kubelet --register-with-taints, or remove it from template.taints",
    ),
    Entry(
        id="template-taint-unknown",
        severity=_WARNING,
        title="Real nodes have a taint that the template does not tell of",
        why="The autoscaler orders a node for pods that do not tolerate the taint, and orders another when they still "
        "wait.",
        fix="add it to template.taints",
    ),
    Entry(
        id="template-resource",
        severity=_WARNING,
        title="Real nodes have less of a resource than the template",
        why="The autoscaler orders a node for pods that do not fit on it, and orders another when they still "
        "wait (R68).",
        fix="set template.allocatable or template.reserved to what real nodes have",
    ),
    Entry(
        id="right-missing",
        severity=_ERROR,
        title="cloudgraft lacks a right in the cluster",
        why="What needs it does not work; `cloudgraft status` and the log say so each time.",
        fix="kubectl apply -f deploy/cloudgraft-access.yaml; docs/reference/rbac.md says which right is for what",
    ),
)
