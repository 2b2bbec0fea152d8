"""Findings about the autoscaler's Deployment: what runs, with which rights, and how often."""

from __future__ import annotations

from typing import Final

from cloudgraft.doctor.findings import Entry, Severity

__all__ = ["ENTRIES"]

_ERROR, _WARNING, _NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

ENTRIES: Final[tuple[Entry, ...]] = (
    Entry(
        id="autoscaler-not-found",
        severity=_WARNING,
        title="There is no autoscaler that uses externalgrpc",
        why="Nobody calls this server, unless the autoscaler runs outside the cluster or under another name.",
        fix="kubectl apply -k deploy, or say where it is with --autoscaler NAMESPACE/NAME",
    ),
    Entry(
        id="autoscaler-unreadable",
        severity=_NOTE,
        title="The autoscaler's Deployment could not be read",
        why="Its release, flags, mounts and rights are not checked.",
        fix="run doctor with a kubeconfig whose user may read Deployments, ConfigMaps and roles",
    ),
    Entry(
        id="autoscaler-switched-off",
        severity=_WARNING,
        title="The autoscaler has no replicas",
        why="Nobody asks for machines, and nobody gives them back.",
        fix="kubectl scale deployment NAME --replicas=1",
    ),
    Entry(
        id="two-autoscalers",
        severity=_ERROR,
        title="Two autoscalers use one server",
        why="Each undoes what the other does: one removes the nodes that the other has just ordered.",
        fix="remove one of the Deployments; for a standby, give one Deployment two replicas",
    ),
    Entry(
        id="no-leader-election",
        severity=_ERROR,
        title="Several replicas of the autoscaler work at the same time",
        why="Without leader election each of them scales by itself.",
        fix="remove --leader-elect=false, or set replicas: 1",
    ),
    Entry(
        id="release-unknown",
        severity=_WARNING,
        title="The autoscaler's release cannot be told from its image",
        why="What is true of some releases only is not checked, and a tag that moves changes the release by itself.",
        fix="name a release in the image's tag, such as v1.35.2",
    ),
    Entry(
        id="release-too-old",
        severity=_ERROR,
        title="The autoscaler is older than 1.25",
        why="Its externalgrpc client was never tried with cloudgraft, and may not exist.",
        fix="use a release from 1.25 to 1.37",
    ),
    Entry(
        id="release-too-new",
        severity=_WARNING,
        title="The autoscaler is newer than 1.37",
        why="Nobody has tried this release with this cloudgraft.",
        fix="use a release from 1.25 to 1.37, or a newer cloudgraft",
    ),
    Entry(
        id="release-not-the-clusters",
        severity=_WARNING,
        title="The autoscaler and Kubernetes are not of one minor release",
        why="The autoscaler simulates the scheduler of its own release; what the cluster's scheduler does differently, "
        "it gets wrong.",
        fix="set the image's tag to the minor release of the cluster",
    ),
    Entry(
        id="wrong-cloud-provider",
        severity=_ERROR,
        title="The autoscaler does not use externalgrpc",
        why="It never calls cloudgraft.",
        fix="--cloud-provider=externalgrpc",
    ),
    Entry(
        id="no-cloud-config",
        severity=_ERROR,
        title="The autoscaler has no --cloud-config",
        why="It does not know where cloudgraft is, and ends when it starts. The official chart has no value for it "
        "with externalgrpc.",
        fix="--cloud-config=/etc/cloudgraft/config/cloud-config.yaml; in the chart: extraArgs.cloud-config",
    ),
    Entry(
        id="cloud-config-not-mounted",
        severity=_ERROR,
        title="No volume is mounted where --cloud-config points to",
        why="The file is not there, and the autoscaler ends when it starts.",
        fix="mount the ConfigMap there; in the chart: extraVolumes and extraVolumeMounts",
    ),
    Entry(
        id="client-certificate-not-mounted",
        severity=_ERROR,
        title="No volume is mounted where the cloud-config names key, cert or cacert",
        why="The files are not there, and the autoscaler ends when it starts.",
        fix="mount the Secret with the client's certificate there",
    ),
    Entry(
        id="certificate-never-renewed",
        severity=_WARNING,
        title="The client's certificate is mounted with subPath",
        why="A file that is mounted so never changes: a renewed certificate does not arrive even with a restart of the "
        "container alone.",
        fix="mount the whole directory, without subPath",
    ),
    Entry(
        id="rbac-missing",
        severity=_ERROR,
        title="The autoscaler lacks a right that its release needs",
        why="Its caches never fill, or what it wants to do is refused; it waits for ever, or scales nothing.",
        fix="kubectl apply -f deploy/cluster-autoscaler.yaml has the rights of all releases",
    ),
    Entry(
        id="rbac-unknown",
        severity=_NOTE,
        title="The autoscaler's rights could not be asked for",
        why="Whether they are enough for its release is not checked.",
        fix="run doctor with a kubeconfig whose user may create subjectaccessreviews",
    ),
)
