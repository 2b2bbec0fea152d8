"""Reads every source by itself, each with a time limit. A source that fails is reported, never raised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cloudgraft.admin.client import AdminClient
from cloudgraft.doctor.gather.cluster import ClusterWanted, look_at_cluster
from cloudgraft.doctor.gather.connection import look_at_certificates, read_cloud_config, try_calls
from cloudgraft.doctor.gather.running import ask_server
from cloudgraft.doctor.gather.settings import ConfigCheck, ConfigSeen, read_config
from cloudgraft.doctor.inputs import Cluster, Inputs, Server
from cloudgraft.sdk.errors import CloudgraftError

__all__ = ["Sources", "gather"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where to look. What is None is not looked at."""

    config: Path | None = None
    check: ConfigCheck | None = None  # what drivers and other parts say about the configuration
    kubeconfig: Path | None = None  # instead of the one that the configuration names
    autoscaler: tuple[str, str] | None = None
    cloud_config: Path | None = None
    admin: Callable[[], AdminClient] | None = None  # may raise CloudgraftError when its address is unknown


async def gather(sources: Sources, *, tell: Callable[[str], None] = lambda _: None) -> Inputs:
    """Reads all sources. Never raises for what it finds there; ``tell`` gets the name of each source."""
    now = datetime.now(UTC)
    tell("the configuration")
    seen = read_config(sources.config, sources.check) if sources.config is not None else ConfigSeen()
    tell("the running server")
    server, server_trouble = await _server(sources, seen)
    tell("the cloud-config and certificates")
    cloud_config = read_cloud_config(sources.cloud_config) if sources.cloud_config is not None else None
    client = cloud_config.config if cloud_config is not None else None
    certificates = look_at_certificates(seen.config, client, now)
    cloud_config, templates = await try_calls(cloud_config) if cloud_config is not None else (None, {})
    tell("the cluster")
    cluster, cluster_trouble = await _cluster(sources, seen)
    return Inputs(
        now=now,
        settings=seen.settings,
        config_problems=seen.problems,
        config_incomplete=seen.incomplete,
        config_file=str(sources.config or ""),
        server=server,
        server_trouble=server_trouble,
        certificates=tuple(certificates),
        cloud_config=cloud_config,
        templates=templates,
        cluster=cluster,
        cluster_trouble=cluster_trouble,
    )


async def _server(sources: Sources, seen: ConfigSeen) -> tuple[Server | None, str]:
    has_engine = seen.settings is None or bool(seen.settings.groups)  # one without listens for no operators
    if sources.admin is None or not has_engine:
        return None, ""
    try:
        client = sources.admin()
    except CloudgraftError as error:
        return None, error.message
    return await ask_server(client)


async def _cluster(sources: Sources, seen: ConfigSeen) -> tuple[Cluster | None, str]:
    """With the credentials that were named; else with cloudgraft's own, whose rights are then looked at too."""
    if sources.kubeconfig is not None:
        return await look_at_cluster(ClusterWanted(kubeconfig=sources.kubeconfig, autoscaler=sources.autoscaler))
    if seen.kubeconfig is None and not seen.is_in_cluster:
        return None, ""
    care = seen.settings.node_care if seen.settings is not None else None
    wanted = ClusterWanted(kubeconfig=seen.kubeconfig, autoscaler=sources.autoscaler, own_account=care)
    return await look_at_cluster(wanted)
