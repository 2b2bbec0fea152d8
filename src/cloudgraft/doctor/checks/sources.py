"""What could not be looked at, and is therefore not known to be right."""

from __future__ import annotations

from collections.abc import Iterator

from cloudgraft.doctor.catalog import found
from cloudgraft.doctor.findings import Finding
from cloudgraft.doctor.picture import Picture

__all__ = ["check"]


def check(picture: Picture) -> Iterator[Finding]:
    """All sources."""
    file = picture.config_file
    for problem in picture.config_problems:
        yield found("config-invalid", where=file, what=problem, fix=f"cloudgraft serve --config {file} --check")
    if picture.settings is None and not picture.config_problems:
        yield found("config-missing", where="--config", what="no configuration file is given, nor is one here")
    if picture.server is None and picture.server_trouble:
        yield found("server-unreachable", where="admin socket", what=picture.server_trouble)
    yield from _cluster(picture)
    # Whether a Deployment has one at all is told there.
    if not picture.cloud_configs() and not picture.autoscalers:
        yield found("cloud-config-unknown", where="--cloud-config", what="no cloud-config is given, and none was found")


def _cluster(picture: Picture) -> Iterator[Finding]:
    cluster = picture.cluster
    if cluster is None:
        if picture.cluster_trouble:
            yield found("cluster-unreachable", where="Kubernetes API", what=picture.cluster_trouble)
        else:
            what = "neither --kubeconfig nor the section kubernetes of the configuration says where it is"
            yield found("cluster-not-looked-at", where="--kubeconfig", what=what)
        return
    if cluster.nodes is None:
        yield found("nodes-unreadable", where="nodes", what=cluster.nodes_trouble)
    if cluster.autoscalers is None:
        yield found("autoscaler-unreadable", where="Deployments", what=cluster.autoscalers_trouble)
    elif not cluster.autoscalers and picture.cloud_config is None:  # with one, it is known to run elsewhere
        what = cluster.autoscalers_trouble or "no Deployment has a container with --cloud-provider=externalgrpc"
        yield found("autoscaler-not-found", where="Deployments", what=what)
