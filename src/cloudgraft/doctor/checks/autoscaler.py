"""Checks the autoscaler's Deployment: how many there are, their release, mounts and rights."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath

from cloudgraft.doctor.findings import Finding, found
from cloudgraft.doctor.inputs import Autoscaler, Inputs, Mount
from cloudgraft.doctor.releases import NEWEST, OLDEST, Release


def check(inputs: Inputs) -> Iterator[Finding]:
    """Checks each autoscaler, and all together."""
    cluster = inputs.cluster
    if cluster is None:
        return
    yield from _together(inputs.autoscalers)
    for autoscaler in inputs.autoscalers:
        yield from _release(autoscaler, cluster.release)
        yield from _way(autoscaler)
        if autoscaler.missing_rights:
            what = f"its service account may not {', '.join(autoscaler.missing_rights)}"
            yield found("rbac-missing", where=autoscaler.where, what=what)
        if autoscaler.rights_trouble:
            yield found("rbac-unknown", where=autoscaler.where, what=autoscaler.rights_trouble)
        if autoscaler.replicas == 0:
            fix = f"kubectl -n {autoscaler.namespace} scale deployment {autoscaler.name} --replicas=1"
            yield found("autoscaler-switched-off", where=autoscaler.where, what="it has replicas: 0", fix=fix)
        if autoscaler.replicas > 1 and autoscaler.flags.is_false("leader-elect"):
            what = f"it has {autoscaler.replicas} replicas and --leader-elect=false"
            yield found("no-leader-election", where=autoscaler.where, what=what)


def _together(autoscalers: tuple[Autoscaler, ...]) -> Iterator[Finding]:
    """Finds autoscalers that call one address. One whose cloud-config cannot be read is not judged."""
    by_address: dict[str, list[Autoscaler]] = defaultdict(list)
    for autoscaler in autoscalers:
        config = autoscaler.cloud_config.config if autoscaler.cloud_config else None
        is_used = autoscaler.replicas > 0 and autoscaler.flags.text("cloud-provider") == "externalgrpc"
        if is_used and config is not None:
            host = config.address.host.removesuffix(".cluster.local")
            by_address[f"{host}:{config.address.port}"].append(autoscaler)
    for address, several in by_address.items():
        if len(several) > 1:
            names = " and ".join(f"{one.namespace}/{one.name}" for one in several)
            yield found("two-autoscalers", where=several[0].where, what=f"{names} call {address}")


def _release(autoscaler: Autoscaler, cluster: Release | None) -> Iterator[Finding]:
    release, where = autoscaler.release, autoscaler.where
    if release is None:
        yield found("release-unknown", where=where, what=f"the image is {autoscaler.image}")
        return
    if release.is_of < OLDEST:
        yield found("release-too-old", where=where, what=f"it is {release}")
    elif release.is_of > NEWEST:
        yield found("release-too-new", where=where, what=f"it is {release}")
    if cluster is not None and cluster.is_of != release.is_of:
        what = f"it is {release}, and the cluster is {cluster}"
        fix = f"set the image's tag to a release of {cluster.major}.{cluster.minor}"
        yield found("release-not-the-clusters", where=where, what=what, fix=fix)


def _way(autoscaler: Autoscaler) -> Iterator[Finding]:
    """Checks the flags and the files that they name."""
    flags, where = autoscaler.flags, autoscaler.where
    provider, path = flags.text("cloud-provider"), flags.text("cloud-config")
    if provider != "externalgrpc":
        what = f"it has --cloud-provider={provider}" if provider else "it has no --cloud-provider"
        yield found("wrong-cloud-provider", where=where, what=what)
        return
    if not path:
        yield found("no-cloud-config", where=where, what="--cloud-provider=externalgrpc stands alone")
        return
    if mount_of(autoscaler.mounts, path) is None:
        yield found("cloud-config-not-mounted", where=where, what=f"nothing is mounted at {PurePosixPath(path).parent}")
    config = autoscaler.cloud_config.config if autoscaler.cloud_config else None
    if config is None or not config.is_encrypted:
        return
    for file in (config.key, config.cert, config.cacert):
        mount = mount_of(autoscaler.mounts, file)
        if mount is None:
            yield found("client-certificate-not-mounted", where=where, what=f"nothing is mounted for {file}")
        elif mount.has_sub_path:
            yield found("certificate-never-renewed", where=where, what=f"{mount.path} is mounted with subPath")


def mount_of(mounts: tuple[Mount, ...], path: str) -> Mount | None:
    """The mount that a file lies in: the deepest, if several are around it."""
    around = [mount for mount in mounts if PurePosixPath(path).is_relative_to(mount.path)]
    return max(around, key=lambda mount: len(mount.path), default=None)
