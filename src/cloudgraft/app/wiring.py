"""Builds the providers of a configuration, and the server around them."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, assert_never, runtime_checkable

from cloudgraft.admin.server import AdminServer
from cloudgraft.admin.wire import check_path
from cloudgraft.app.dock_wiring import DockLink
from cloudgraft.app.engine_wiring import draft_state, made, plugin_spec
from cloudgraft.app.joining_wiring import ClusterLink
from cloudgraft.app.journals import journal_from
from cloudgraft.app.reload import FileComposer, WatchedFile
from cloudgraft.app.tracing import Traces, check_tracing
from cloudgraft.client import Address, CloudConfig, Connection, RemoteProvider
from cloudgraft.config import Config, ConfigError, Problems, Where
from cloudgraft.config.section import convert
from cloudgraft.config.sections.providers import (
    EntryPointProvider,
    ExternalGrpcProvider,
    NodeManagerProvider,
    PluginProvider,
    Snapshot,
)
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.groups.desired import DesiredState, Joining
from cloudgraft.engine.new_records import KINDS
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.engine.reporting.webhook import Webhook, WebhookSettings
from cloudgraft.plugins.host import remote as plugin_provider
from cloudgraft.plugins.registry import arguments, provider_class
from cloudgraft.sdk.blocking import AnyProvider, as_provider
from cloudgraft.sdk.common.extras import needing
from cloudgraft.sdk.common.tracing import Tracer
from cloudgraft.sdk.errors import CloudgraftError, InternalError, InvalidArgumentError
from cloudgraft.sdk.provider import Provider
from cloudgraft.server.listener import Access, ListenerLimits
from cloudgraft.server.serve import ServeOptions, Transport
from cloudgraft.server.tls import TlsFiles
from cloudgraft.service.merge import MergedProvider
from cloudgraft.service.metrics import ServiceMetrics
from cloudgraft.service.snapshot import SnapshotProvider, SnapshotSettings
from cloudgraft.validation.explain import did_you_mean
from cloudgraft.validation.problems import printable

if TYPE_CHECKING:
    from cloudgraft.nodemanager.front.provider import NodeManagerProvider as Front  # needs an extra


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
    traces: Traces = field(default_factory=Traces)

    def trouble(self) -> str:
        """Why callers should not use this process: the engine may not answer, or no provider ever has. Else empty."""
        if self.engine is not None:
            return self.engine.readiness()
        reasons = [
            f"{name}: {member.trouble}"
            for name, member in self.members.items()
            if isinstance(member, Remote) and math.isinf(member.age)
        ]
        return "; ".join(reasons) if len(reasons) == len(self.members) else ""


def assemble(config: Config, metrics: ServiceMetrics) -> Assembly:
    """Builds the providers. Raises ConfigError with the errors of all their options."""
    problems = Problems()
    parts = build(config, metrics, problems)
    problems.raise_any()
    traces = Traces.of(config, metrics)
    members, engine = dict(parts.members), None
    if parts.wanted is not None:
        engine = _make_engine(config, parts.wanted, parts.link, parts.dock, traces.tracer)
        members = {ENGINE: EngineProvider(engine), **members}
    if not members:
        raise nothing_to_serve(config)
    only = next(iter(members.values()))
    provider = MergedProvider(members, required=[ENGINE]) if len(members) > 1 else only
    return Assembly(provider, members, engine, parts.link, parts.dock, traces)


def nothing_to_serve(config: Config) -> ConfigError:
    """The error of a file with neither groups nor providers."""
    hint = "add clouds and nodeGroups; `cloudgraft dock` serves a dock alone"
    return config.where().error("has nothing to serve to the autoscaler", hint)


def check_parts(config: Config) -> None:
    """Raises ConfigError with the problems that drivers, providers and other parts find in their options."""
    problems = Problems()
    build(config, ServiceMetrics(), problems)
    problems.raise_any()


@dataclass(slots=True)
class Parts:
    """What an assembly is made of; what has problems is missing."""

    members: dict[str, Provider] = field(default_factory=dict)
    wanted: DesiredState | None = None
    link: ClusterLink | None = None
    dock: DockLink | None = None


def build(config: Config, metrics: ServiceMetrics, problems: Problems) -> Parts:
    """Builds all parts, each by itself, and collects their problems. Opens nothing."""
    parts = Parts()
    has_engine = bool(config.clouds or config.node_groups)
    with problems.collecting():
        check_tracing(config)
    with problems.collecting():
        if config.dock is not None:
            # Without an engine, the dock can only serve engines elsewhere.
            parts.dock = DockLink(config, config.dock, for_engines=not has_engine, metrics=metrics.listeners)
    if has_engine:
        with problems.collecting():
            parts.link = ClusterLink(config)
        parts.wanted = draft_state(config, parts.dock, problems)
        for part in (admin_place, make_webhook):  # better reported before the start
            with problems.collecting():
                part(config)
    for index, (name, entry) in enumerate(zip(config.names(), config.providers, strict=True)):
        with problems.collecting():
            parts.members[name] = _member(name, entry, config.where("providers", index), metrics)
    return parts


def _make_engine(
    config: Config, wanted: DesiredState, link: ClusterLink | None, dock: DockLink | None, tracer: Tracer | None
) -> Engine:
    """The engine over the clouds of the file, with its journal; not started yet."""
    journal, lease = journal_from(config)
    joining = link.joining if link is not None else Joining()
    cluster, user_data = joining.cluster, joining.user_data
    engine = Engine(wanted, journal, lease=lease, cluster=cluster, user_data=user_data, tracer=tracer)
    engine.composer = FileComposer(config, link, dock) if link is not None else None
    return engine


def serve_options(config: Config) -> ServeOptions:
    """The server options of a configuration."""
    server, tls, limits = config.server, config.server.tls, config.server.limits
    return convert(
        server,
        ServeOptions,
        tls=convert(tls, TlsFiles) if tls else None,
        allowed_clients=tls.allowed_clients if tls else (),
        deadline=server.deadline.total_seconds(),
        grace=server.grace.total_seconds(),
        limits=convert(
            limits, ListenerLimits, handshake=limits.handshake.total_seconds(), idle=limits.idle.total_seconds()
        ),
        transport=Transport(server.transport),
    )


def _member(
    name: str,
    entry: ExternalGrpcProvider | NodeManagerProvider | PluginProvider | EntryPointProvider,
    where: Where,
    metrics: ServiceMetrics,
) -> Provider:
    """The provider of one entry, which is at ``where``. Raises ConfigError."""
    try:
        if isinstance(entry, ExternalGrpcProvider):
            return _behind_snapshot(name, _remote(entry), entry.snapshot, metrics, call_timeout=entry.timeout)
        if isinstance(entry, NodeManagerProvider):
            front = _front(name, entry)
            _watch(name, front, metrics)
            return front
        if isinstance(entry, PluginProvider):
            spec, timing = plugin_spec(name, entry)
            plugin = plugin_provider.PluginProvider(spec, timing=timing)
            return _behind_snapshot(name, plugin, entry.snapshot, metrics)
        if isinstance(entry, EntryPointProvider):
            provider = _installed(entry, where)
            return _behind_snapshot(name, provider, entry.snapshot, metrics) if entry.snapshot else provider
    except ConfigError:
        raise
    except CloudgraftError as error:  # such as an extra that is not installed
        raise where.below("type").error(error.message) from error
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


def _front(name: str, entry: NodeManagerProvider) -> Front:
    """The provider of an entry with `type: node-manager`; opens no connection yet."""
    with needing("a node manager", "web"):
        from cloudgraft.nodemanager.front.provider import FrontSettings, ManagerLink  # noqa: PLC0415 - needs an extra
        from cloudgraft.nodemanager.front.provider import NodeManagerProvider as Front  # noqa: PLC0415
        from cloudgraft.web.client import ClientTls, WebClient  # noqa: PLC0415
    tls, timeout, snapshot = entry.tls, entry.timeout.total_seconds(), entry.snapshot
    client = WebClient(
        entry.address,
        tls=convert(tls, ClientTls) if tls is not None else None,
        token_file=entry.token_file,
        timeout=timeout,
    )
    settings = FrontSettings(
        refresh_every=snapshot.refresh_every.total_seconds(), max_staleness=snapshot.max_staleness.total_seconds()
    )
    return Front(ManagerLink(client, timeout=timeout), name=name, settings=settings)


def _installed(entry: EntryPointProvider, where: Where) -> Provider:
    options = where.below("options")
    cls: type[AnyProvider] = provider_class(entry.type)
    given = arguments(cls, entry.options, options, name=f"the provider {entry.type}")

    def make() -> AnyProvider:
        return cls(*given)

    return as_provider(made(make, options, f"the provider {entry.type}", getattr(cls, "Options", None)))


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
    _check_kinds(config, wanted.kinds)
    try:
        return Webhook(convert(wanted, WebhookSettings), config.cluster)
    except InvalidArgumentError as error:
        raise config.where("engine", "webhook", "url").error(error.message) from error


def _check_kinds(config: Config, kinds: Sequence[str]) -> None:
    """Rejects unknown kinds: events of a misspelt kind would silently never be sent."""
    for index, kind in enumerate(kinds):
        if kind not in KINDS:
            hint = did_you_mean(kind, list(KINDS)) or f"there is: {', '.join(KINDS)}"
            where = config.where("engine", "webhook", "kinds", index)
            raise where.error(f"there is no kind of event {printable(kind)}", hint)


def admin_place(config: Config) -> Access | Path:
    """The address of the admin service."""
    address, tls = config.admin_address(), config.admin.tls
    if address.startswith("unix:"):
        try:
            return check_path(Path(address.removeprefix("unix:")))
        except InvalidArgumentError as error:
            raise config.where("admin", "listen").error(error.message) from error
    if tls is None:
        raise InternalError("an admin port without TLS")  # the configuration does not allow it
    return Access(listen=address, tls=convert(tls, TlsFiles), allowed_clients=tls.allowed_clients)


# -- dock without an engine --------------------------------------------------------------------------------------------


class DockAlone:
    """Runs a :class:`DockLink` where there is no engine: its port, its admin socket, and the reload of its file."""

    def __init__(self, file: WatchedFile[Config], config: Config, link: DockLink) -> None:
        """Raises ConfigError for an admin address that cannot be used."""
        self._file = file
        self._place = admin_place(config)
        self._link = link

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serves for as long as the block lasts. A changed file brings other clients and machine classes."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._link.running())
            admin = AdminServer(self._link.methods(), self._place)
            await admin.start()
            stack.push_async_callback(admin.stop, 1.0)
            await stack.enter_async_context(
                self._file.following(
                    lambda config: self._link.replace(config.dock), logging.getLogger("cloudgraft.dock")
                )
            )
            yield
