"""Reads the configuration file, as far as doctor needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cloudgraft.config import Config, ConfigError, Problem, Problems, load
from cloudgraft.config.kubernetes import ZONE_LABEL
from cloudgraft.config.sections.clouds import CloudConfig, EntryPointCloud
from cloudgraft.config.sections.groups import NodeGroupConfig
from cloudgraft.config.sections.join import Join
from cloudgraft.doctor.inputs import GroupSettings, NodeCare, Settings
from cloudgraft.sdk.driver import ProviderIdBy
from cloudgraft.sdk.types import NodeTemplate

# Problems with which no server starts, and what the file names and does not exist.
ConfigCheck = Callable[[Config], tuple[Iterable[Problem], Iterable[Problem]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSeen:
    """The file, or its problems."""

    config: Config | None = None
    incomplete: tuple[str, ...] = ()  # what it names and does not exist
    settings: Settings | None = None
    problems: tuple[str, ...] = ()
    kubeconfig: Path | None = None  # of its section kubernetes
    is_in_cluster: bool = False


def read_config(path: Path, check: ConfigCheck | None = None) -> ConfigSeen:
    """Reads and checks the file as `serve` would; ``check`` finds what drivers and other parts say about it."""
    try:
        config = load(path, find=None if check is None else partial(_raise_any, check))
    except ConfigError as error:
        return ConfigSeen(problems=tuple(str(problem) for problem in error.problems))
    problems, incomplete = check(config) if check is not None else ((), ())
    kubernetes = config.kubernetes
    return ConfigSeen(
        config=config,
        problems=tuple(str(problem) for problem in ConfigError(problems).problems),
        incomplete=tuple(str(problem) for problem in ConfigError(incomplete).problems),
        settings=_settings(config, str(path)),
        kubeconfig=kubernetes.kubeconfig if kubernetes is not None else None,
        is_in_cluster=kubernetes is not None and kubernetes.in_cluster,
    )


def _raise_any(check: ConfigCheck, config: Config) -> None:
    problems, incomplete = check(config)
    Problems([*problems, *incomplete]).raise_any()


def _error_texts(config: Config) -> dict[str, str]:
    installed = (cloud for cloud in config.clouds.values() if isinstance(cloud, EntryPointCloud))
    given = (cloud.options.get("errorTexts") for cloud in installed if cloud.driver == "dock")
    return {str(text): str(slug) for texts in given if isinstance(texts, Mapping) for text, slug in texts.items()}


def _settings(config: Config, file: str) -> Settings:
    tls, engine = config.server.tls, config.engine
    return Settings(
        file=file,
        has_tls=tls is not None,
        is_insecure=config.server.insecure,
        gives_local_secrets=config.dock is not None and config.dock.allow_local_secrets,
        error_texts=_error_texts(config),
        allowed_clients=tls.allowed_clients if tls is not None else (),
        deadline=config.server.deadline,
        force_options=config.server.force_options,
        create_deadline=engine.create_deadline,
        join_deadline=engine.join_deadline,
        has_own_deadlines=bool({"create_deadline", "join_deadline"} & engine.model_fields_set),
        groups=tuple(_group(group) for group in config.groups()),
        node_care=_node_care(config),
    )


def _group(group: NodeGroupConfig) -> GroupSettings:
    template = group.template
    zone = {ZONE_LABEL: group.zone} if group.zone else {}
    return GroupSettings(
        id=group.id,
        cloud=group.cloud,
        min_size=group.min_size,
        max_size=group.max_size,
        options=group.options.as_options(),
        has_price=group.price is not None,
        declared=NodeTemplate(
            labels={**template.labels, **zone},
            taints=tuple(taint.as_taint() for taint in template.taints),
            capacity=template.capacity,
            allocatable=template.allocatable,
        ),
    )


def _node_care(config: Config) -> NodeCare | None:
    kubernetes = config.kubernetes
    if kubernetes is None:
        return None
    return NodeCare(
        sets_provider_id=kubernetes.set_provider_id,
        labels_nodes=kubernetes.label_nodes,
        removes_nodes=kubernetes.remove_nodes,
        events_namespace=kubernetes.events.namespace if kubernetes.events is not None else "",
        events_deployment=kubernetes.events.deployment if kubernetes.events is not None else "",
        match_by=kubernetes.match_by,
        mints_tokens=any(_mints(join) for join in config.joins().values()),
        leaves_provider_ids=bool(config.clouds) and all(map(_leaves_provider_ids, config.clouds.values())),
    )


def _leaves_provider_ids(cloud: CloudConfig) -> bool:
    """Judges by the file alone: only the driver knows what else it does by itself."""
    said = cloud.options.get("providerIDBy") if isinstance(cloud, EntryPointCloud) else None
    return said in {ProviderIdBy.KUBELET.value, ProviderIdBy.CLOUD_CONTROLLER.value}


def _mints(join: Join) -> bool:
    """Whether each machine gets a token. With a custom template, only if `token` is configured."""
    try:
        values = join.as_plan({}).values
    except ConfigError:
        return False
    return "token" not in values and (join.template is not None or join.token is not None)
