"""Builds the providers of a configuration, and the server around them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, assert_never, runtime_checkable

from cloudgraft.admin.sockets import check_path
from cloudgraft.app.declared_groups import FileComposer
from cloudgraft.app.dock_wiring import DockLink
from cloudgraft.app.engine_wiring import desired_state, plugin_spec
from cloudgraft.app.joining_wiring import ClusterLink
from cloudgraft.app.journals import journal_from
from cloudgraft.app.node_manager_fronts import make_front
from cloudgraft.client import Address, CloudConfig, Connection, RemoteProvider
from cloudgraft.config import Config, ConfigError, Problem, Where, parse_options
from cloudgraft.config.explain import did_you_mean
from cloudgraft.config.problems import printable
from cloudgraft.config.sections.providers import (
    EntryPointProvider,
    ExternalGrpcProvider,
    NodeManagerProvider,
    PluginProvider,
    Snapshot,
)
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.groups.desired import Joining
from cloudgraft.engine.new_records import KINDS
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.engine.reporting.webhook import Webhook, WebhookSettings
from cloudgraft.plugins.host import remote as plugin_provider
from cloudgraft.plugins.registry import Kind, find
from cloudgraft.sdk.blocking import as_provider
from cloudgraft.sdk.errors import InternalError, InvalidArgumentError
from cloudgraft.sdk.provider import Provider
from cloudgraft.server.listener import Access, ListenerLimits
from cloudgraft.server.serve import ServeOptions
from cloudgraft.server.tls import TlsFiles
from cloudgraft.server.transport import Transport
from cloudgraft.service.merge import MergedProvider
from cloudgraft.service.metrics import ServiceMetrics
from cloudgraft.service.snapshot import SnapshotProvider, SnapshotSettings

ENGINE = "engine"  # the engine's name among the providers


@runtime_checkable
class Remote(Protocol):
    """A provider that answers from a copy of remote state."""

    @property
    def age(self) -> float:
        """Seconds since the last update; infinite before the first."""

    @property
    def trouble(self) -> str:
        """Why it cannot be updated now; empty when it can."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """All providers of the file, merged into one."""

    provider: Provider
    members: Mapping[str, Provider]
    engine: Engine | None = None
    link: ClusterLink | None = None  # the engine's connection to the cluster
    dock: DockLink | None = None  # the port for drivers of this engine, or of engines elsewhere

    def trouble(self) -> str:
        """Why callers should not use this process: the engine may not answer, or no provider ever has. Else empty."""
        if self.engine is not None:
            return self.engine.trouble()
        reasons = [
            f"{name}: {member.trouble}"
            for name, member in self.members.items()
            if isinstance(member, Remote) and math.isinf(member.age)
        ]
        return "; ".join(reasons) if len(reasons) == len(self.members) else ""


def assemble(config: Config, metrics: ServiceMetrics) -> Assembly:
    """Builds the providers. Raises ConfigError with the errors of all their options."""
    members: dict[str, Provider] = {}
    problems: list[Problem] = []
    engine = link = dock = None
    has_engine = bool(config.clouds or config.node_groups)
    try:
        # Without an engine, the dock can only serve engines elsewhere.
        dock = _dock(config, metrics, for_engines=not has_engine)
    except ConfigError as error:
        problems += error.problems
    if has_engine:
        try:
            link = ClusterLink(config)
        except ConfigError as error:
            problems += error.problems
        try:
            engine = make_engine(config, link, dock)
            members[ENGINE] = EngineProvider(engine)
        except ConfigError as error:
            problems += error.problems
        problems += _unusable(config)
    for index, (name, entry) in enumerate(zip(config.names(), config.providers, strict=True)):
        try:
            members[name] = _member(name, entry, config.where("providers", index, "options"), metrics)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    if not members:
        hint = "add clouds and nodeGroups; `cloudgraft dock` serves a dock alone"
        raise ConfigError([config.where().document.problem((), "has nothing to serve to the autoscaler", hint)])
    only = next(iter(members.values()))
    provider = MergedProvider(members, required=[ENGINE]) if len(members) > 1 else only
    return Assembly(provider, members, engine, link, dock)


def _dock(config: Config, metrics: ServiceMetrics, *, for_engines: bool) -> DockLink | None:
    if config.dock is None:
        return None
    return DockLink(config, config.dock, for_engines=for_engines, metrics=metrics.listeners)


def _unusable(config: Config) -> Iterator[Problem]:
    """Errors of the parts beside the engine, which are better reported before the start."""
    for part in (admin_place, make_webhook):
        try:
            part(config)
        except ConfigError as error:
            yield from error.problems


def make_engine(config: Config, link: ClusterLink | None = None, dock: DockLink | None = None) -> Engine:
    """The engine over the clouds of the file, with its journal; not started yet."""
    wanted = desired_state(config, dock)
    journal, lease = journal_from(config)
    joining = link.joining if link is not None else Joining()
    engine = Engine(wanted, journal, lease=lease, cluster=joining.cluster, user_data=joining.user_data)
    engine.composer = FileComposer(config, link, dock) if link is not None else None
    return engine


def serve_options(config: Config) -> ServeOptions:
    """The server options of a configuration."""
    server, tls = config.server, config.server.tls
    return ServeOptions(
        listen=server.listen,
        tls=TlsFiles(cert=tls.cert, key=tls.key, client_ca=tls.client_ca) if tls else None,
        allowed_clients=tls.allowed_clients if tls else (),
        insecure=server.insecure,
        ops=server.ops,
        deadline=server.deadline.total_seconds(),
        grace=server.grace.total_seconds(),
        force_options=server.force_options,
        limits=ListenerLimits(
            connections=server.limits.connections,
            streams=server.limits.streams,
            handshake=server.limits.handshake.total_seconds(),
            idle=server.limits.idle.total_seconds(),
        ),
        transport=Transport(server.transport),
    )


def _member(
    name: str,
    entry: ExternalGrpcProvider | NodeManagerProvider | PluginProvider | EntryPointProvider,
    options: Where,
    metrics: ServiceMetrics,
) -> Provider:
    if isinstance(entry, ExternalGrpcProvider):
        return _behind_snapshot(name, _remote(entry), entry.snapshot, metrics, call_timeout=entry.timeout)
    if isinstance(entry, NodeManagerProvider):
        front = make_front(name, entry)
        _watch(name, front, metrics)
        return front
    if isinstance(entry, PluginProvider):
        return _behind_snapshot(name, _plugin(name, entry), entry.snapshot, metrics)
    if isinstance(entry, EntryPointProvider):
        provider = _installed(entry, options)
        return _behind_snapshot(name, provider, entry.snapshot, metrics) if entry.snapshot else provider
    assert_never(entry)


def _remote(entry: ExternalGrpcProvider) -> RemoteProvider:
    tls = entry.tls
    return RemoteProvider(
        Connection(
            CloudConfig(
                address=Address.parse(entry.address),
                cert=str(tls.cert) if tls else "",
                key=str(tls.key) if tls else "",
                cacert=str(tls.ca) if tls else "",
                grpc_timeout=entry.timeout,
                server_name=(tls.server_name or "") if tls else "",
            )
        )
    )


def _plugin(name: str, entry: PluginProvider) -> plugin_provider.PluginProvider:
    spec, timing = plugin_spec(name, entry)
    return plugin_provider.PluginProvider(spec, timing=timing)


def _installed(entry: EntryPointProvider, where: Where) -> Provider:
    cls: Any = find(Kind.PROVIDER, entry.type).load()
    options_type = getattr(cls, "Options", None)
    if options_type is not None:
        return as_provider(cls(parse_options(options_type, entry.options, where)))
    if entry.options:
        raise ConfigError([where.document.problem(where.path, f"the provider {entry.type} takes no options")])
    return as_provider(cls())


def _behind_snapshot(
    name: str,
    provider: Provider,
    snapshot: Snapshot,
    metrics: ServiceMetrics,
    *,
    call_timeout: timedelta = timedelta(seconds=5),
) -> SnapshotProvider:
    settings = SnapshotSettings(
        refresh_every=snapshot.refresh_every.total_seconds(),
        max_staleness=snapshot.max_staleness.total_seconds(),
        call_timeout=call_timeout.total_seconds(),
    )
    wrapped = SnapshotProvider(provider, name=name, settings=settings)
    _watch(name, wrapped, metrics)
    return wrapped


def _watch(name: str, provider: Remote, metrics: ServiceMetrics) -> None:
    metrics.provider_up.labels(name).set_function(lambda: 0.0 if provider.trouble else 1.0)
    metrics.snapshot_age.labels(name).set_function(lambda: provider.age)


def make_webhook(config: Config) -> Webhook | None:
    """The webhook for events, if one is configured."""
    wanted = config.engine.webhook
    if wanted is None:
        return None
    settings = WebhookSettings(
        url=wanted.url, token_file=wanted.token_file, headers_file=wanted.headers_file, kinds=wanted.kinds
    )
    _check_kinds(config, wanted.kinds)
    try:
        return Webhook(settings, config.cluster)
    except InvalidArgumentError as error:
        raise _problem(config.where("engine", "webhook", "url"), error.message) from error


def _check_kinds(config: Config, kinds: Sequence[str]) -> None:
    """Rejects unknown kinds: events of a misspelt kind would silently never be sent."""
    for index, kind in enumerate(kinds):
        if kind not in KINDS:
            hint = did_you_mean(kind, list(KINDS)) or f"there is: {', '.join(KINDS)}"
            where = config.where("engine", "webhook", "kinds", index)
            raise _problem(where, f"there is no kind of event {printable(kind)}", hint)


def admin_place(config: Config) -> Access | Path:
    """The address of the admin service."""
    address, tls = config.admin_address(), config.admin.tls
    if address.startswith("unix:"):
        try:
            return check_path(Path(address.removeprefix("unix:")))
        except InvalidArgumentError as error:
            raise _problem(config.where("admin", "listen"), error.message) from error
    if tls is None:
        raise InternalError("an admin port without TLS")  # the configuration does not allow it
    files = TlsFiles(cert=tls.cert, key=tls.key, client_ca=tls.client_ca)
    return Access(listen=address, tls=files, allowed_clients=tls.allowed_clients)


def _problem(where: Where, message: str, suggestion: str = "") -> ConfigError:
    return ConfigError([where.document.problem(where.path, message, suggestion)])
