"""Builds the engine's desired state from the configuration: clouds, groups, guards."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from cloudgraft.app.dock_wiring import DockLink
from cloudgraft.app.router_wiring import Routing, given_to_nodes, is_router
from cloudgraft.config import (
    Config,
    ConfigError,
    Problem,
    Where,
    machine_settings,
    missing_prices,
    parse_options,
    refusals,
)
from cloudgraft.config.section import convert
from cloudgraft.config.sections.clouds import EntryPointCloud, PluginCloud
from cloudgraft.config.sections.engine import Guards
from cloudgraft.config.sections.groups import Group, Template
from cloudgraft.config.sections.process import PluginProcess
from cloudgraft.dock.driver import DockDriver
from cloudgraft.drivers.router.options import RouterOptions
from cloudgraft.engine.groups.desired import CloudDeclaration, DesiredState, GroupDeclaration
from cloudgraft.engine.groups.specs import CloudSettings, EngineSettings, GuardLimits, Money, RepairSettings
from cloudgraft.engine.groups.templates import TemplateDeclaration
from cloudgraft.engine.machines.breaker import BreakerLimit
from cloudgraft.plugins.host.process import PluginSpec, Timing
from cloudgraft.plugins.host.remote import RemoteDriver
from cloudgraft.plugins.registry import Kind, find
from cloudgraft.sdk.blocking import BlockingDriver, as_driver
from cloudgraft.sdk.driver import Driver
from cloudgraft.sdk.errors import CloudgraftError

_LOOKS: Final = 4  # threads for read-only calls: calls that change something may hang, and a list must still work


def desired_state(config: Config, dock: DockLink | None = None) -> DesiredState:
    """The desired state of a file. Raises ConfigError with all errors that drivers find in it.

    ``dock`` is the dock for clouds with ``driver: dock``.
    """
    problems: list[Problem] = []
    clouds: dict[str, CloudDeclaration] = {}
    classes: dict[str, type | None] = {}
    for name, cloud in config.clouds.items():
        try:
            classes[name] = _driver_class(config, name, cloud)
        except ConfigError as error:
            problems += error.problems
    threads = _threads(config, classes)
    for name, cls in classes.items():
        try:
            if not is_router(cls):
                clouds[name] = _cloud(config, name, cls, dock, threads[name])
        except ConfigError as error:
            problems += error.problems
    routing = Routing(config, classes, clouds)  # drivers that use other clouds, after those are built
    problems += routing.problems
    for name, router in routing.routers.items():
        settings = _cloud_settings(config, name)
        if any(clouds[used].settings.observe_only for used in router.options.clouds):
            settings = dataclasses.replace(settings, observe_only=True)  # it would create machines in an observed one
        clouds[name] = CloudDeclaration(settings=settings, make=router.make, fingerprint=router.fingerprint)
    groups: list[GroupDeclaration] = []
    for group in config.groups():
        try:
            groups.append(_group(config, group, classes.get(group.cloud)))
            routing.check(group)
        except ConfigError as error:
            problems += error.problems
    unpriced = [g.id for g in groups if g.price is None and _knows_no_price(classes.get(g.cloud))]
    problems += missing_prices(config, unpriced)
    if problems:
        raise ConfigError(problems)
    return DesiredState(cluster=config.cluster, clouds=clouds, groups=groups, settings=_settings(config))


# -- clouds ------------------------------------------------------------------------------------------------------------


def _driver_class(config: Config, name: str, cloud: EntryPointCloud | PluginCloud) -> type | None:
    """The class of a cloud's driver; None for a plugin, which is unknown before it runs."""
    if isinstance(cloud, PluginCloud):
        return None
    try:
        cls: type = find(Kind.DRIVER, cloud.driver).load()
    except CloudgraftError as error:
        raise ConfigError(refusals(error, config.where("clouds", name, "driver"))) from error
    return cls


def _threads(config: Config, classes: Mapping[str, type | None]) -> Counter[str]:
    """The number of concurrent calls of each cloud: its own, and those of every router that uses it.

    With fewer threads, the creates of one would block the lists of the other, and the cloud would count as down.
    """
    threads = Counter({name: config.clouds[name].engine.max_calls + _LOOKS for name in classes})
    for name, cls in classes.items():
        cloud = config.clouds[name]
        if not is_router(cls) or not isinstance(cloud, EntryPointCloud):
            continue
        with contextlib.suppress(ConfigError):  # errors are reported when the driver is made
            options: RouterOptions = parse_options(cls.Options, cloud.options, config.where("clouds", name))
            threads.update(dict.fromkeys(options.clouds, threads[name]))
    return threads


def _cloud(config: Config, name: str, cls: type | None, dock: DockLink | None, threads: int) -> CloudDeclaration:
    cloud = config.clouds[name]
    settings = _cloud_settings(config, name)
    if isinstance(cloud, PluginCloud):
        spec, timing = plugin_spec(name, cloud)
        return CloudDeclaration(
            settings=settings,
            make=lambda: RemoteDriver.plugin(spec, timing=timing),
            fingerprint=cloud.model_dump(exclude={"engine"}),
        )
    make, fingerprint = _installed(config, name, cloud, cls, dock, threads), (cloud.driver, dict(cloud.options))
    return CloudDeclaration(settings=settings, make=make, fingerprint=fingerprint)


def plugin_spec(name: str, process: PluginProcess) -> tuple[PluginSpec, Timing]:
    """How to start a plugin, for a driver or a provider."""
    spec = PluginSpec(
        name=name,
        command=process.command,
        env=process.env,
        cwd=str(process.working_directory) if process.working_directory else None,
        options=process.options,
    )
    timing = Timing(
        handshake=process.start_timeout.total_seconds(),
        backoff_first=process.backoff.initial.total_seconds(),
        backoff_max=process.backoff.max.total_seconds(),
    )
    return spec, timing


def _installed(
    config: Config, name: str, cloud: EntryPointCloud, cls: Any, dock: DockLink | None, threads: int
) -> Callable[[], Driver]:
    where = config.where("clouds", name)
    beside = config.store.path.parent if config.store.path else where.base_dir
    own = own_options(cls, f"the driver {cloud.driver}", cloud.options, where)
    given = tuple(with_places(options, Path(beside) / f"cloud-{name}.db", where.base_dir) for options in own)
    if issubclass(cls, DockDriver):
        given = (*given, *_docked(config, name, given[0], dock))

    def make() -> Driver:
        return as_driver(cls(*given), threads=threads)

    try:
        make()  # reports mistakes that only the driver can find, with their place
    except CloudgraftError as error:
        raise ConfigError(refusals(error, where)) from error
    return make


def _docked(config: Config, name: str, options: Any, dock: DockLink | None) -> tuple[object, ...]:
    """The hub and the classes of this process, for a cloud whose driver dials in here."""
    if options.address:
        return ()
    if config.dock is None:
        hint = "add that section, or give the address of a dock elsewhere"
        raise config.where("clouds", name, "driver").error("needs a section dock", hint)
    return (dock.hub, dock.classes) if dock is not None else ()


def own_options(cls: Any, who: str, options: Mapping[str, Any], where: Where) -> tuple[object, ...]:
    """The arguments with which a driver or provider is made: its options, or nothing for one that takes none."""
    options_type = getattr(cls, "Options", None)
    if options_type is not None:
        return (parse_options(options_type, options, where),)
    if options:
        raise where.error(f"{who} takes no options")
    return ()


def with_places(options: Any, state_file: Path, working_directory: Path) -> Any:
    """Fills in a driver's paths, where its options have these fields and they are not set."""
    if not dataclasses.is_dataclass(options):
        return options
    places = {"state_file": state_file, "working_directory": working_directory}
    open_ones = {key: place for key, place in places.items() if getattr(options, key, "") is None}
    return dataclasses.replace(options, **open_ones)  # type: ignore[type-var]  # a dataclass, as asked


def _cloud_settings(config: Config, name: str) -> CloudSettings:
    cloud = config.clouds[name]
    engine = cloud.engine
    return convert(
        engine,
        CloudSettings,
        name=name,
        driver=cloud.driver,
        backoff_initial=engine.backoff.initial,
        backoff_max=engine.backoff.max,
        guards=_limits(engine.guards),
        observe_only=config.observe_only or engine.observe_only,
    )


def _limits(guards: Guards) -> GuardLimits:
    spend = guards.max_spend_per_day
    return convert(guards, GuardLimits, max_spend_per_day=convert(spend, Money) if spend else None)


# -- groups ------------------------------------------------------------------------------------------------------------


def _knows_no_price(cls: type | None) -> bool:
    """Whether a driver's class has no prices; unknown for a plugin before it was called."""
    return getattr(cls, "prices", None) in (Driver.prices, BlockingDriver.prices)


def _group(config: Config, group: Group, cls: type | None) -> GroupDeclaration:
    schema = getattr(cls, "MachineSettings", None)
    machine = machine_settings(schema, group, config.where("nodeGroups", group.index))
    taints = [taint.model_dump() for taint in group.template.taints]
    for key, value in (("labels", dict(group.template.labels)), ("taints", taints)):
        if value and key in given_to_nodes(cls):  # such a driver sets the template's labels and taints on nodes (R69)
            machine.setdefault(key, value)
    price = Money(amount=group.price.hourly, currency=group.price.currency) if group.price else None
    return convert(group, GroupDeclaration, machine=machine, template=_template(group.template), price=price)


def _template(template: Template) -> TemplateDeclaration:
    return convert(
        template,
        TemplateDeclaration,
        taints=[taint.as_taint() for taint in template.taints],
        eviction_memory=template.eviction_hard.memory,
        eviction_nodefs=template.eviction_hard.nodefs,
    )


def _settings(config: Config) -> EngineSettings:
    engine, absence = config.engine, config.engine.mass_absence
    return convert(
        engine,
        EngineSettings,
        keep_gone=config.store.keep_gone,
        keep_events=config.store.keep_events,
        guards=_limits(config.guards),
        repair=convert(engine.repair, RepairSettings),
        absence=convert(absence, BreakerLimit, hold=absence.hold.total_seconds(), looks=absence.lists),
        delete_orphans=engine.orphans.delete,
        gpu_label=engine.gpu_label or "",
    )
