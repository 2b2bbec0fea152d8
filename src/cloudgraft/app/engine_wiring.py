"""Builds the engine's desired state from the configuration: clouds, groups, guards."""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from cloudgraft.app.dock_wiring import DockLink
from cloudgraft.app.router_wiring import Routing, is_router
from cloudgraft.config import (
    Config,
    ConfigError,
    Problems,
    Where,
    machine_settings,
    missing_prices,
    refusals,
)
from cloudgraft.config.section import convert
from cloudgraft.config.sections.clouds import EntryPointCloud, PluginCloud
from cloudgraft.config.sections.engine import Guards
from cloudgraft.config.sections.groups import NodeGroupConfig, Template
from cloudgraft.config.sections.process import PluginProcess
from cloudgraft.dock.driver import DockDriver, DockOptions
from cloudgraft.engine.groups.desired import CloudDeclaration, DesiredState, GroupDeclaration
from cloudgraft.engine.groups.specs import CloudSettings, EngineSettings, GuardLimits, Money, RepairSettings
from cloudgraft.engine.groups.templates import TemplateDeclaration
from cloudgraft.engine.machines.breaker import BreakerLimit
from cloudgraft.plugins.host.process import PluginSpec, Timing
from cloudgraft.plugins.host.remote import RemoteDriver
from cloudgraft.plugins.registry import arguments, driver_class
from cloudgraft.sdk.blocking import AnyDriver, as_driver, overrides
from cloudgraft.sdk.common.causes import cause
from cloudgraft.sdk.driver import Driver, Place
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.validation.problems import dotted

T = TypeVar("T")
log = logging.getLogger("cloudgraft.app")

_LOOKS: Final = 4  # threads for read-only calls: calls that change something may hang, and a list must still work


def desired_state(config: Config, dock: DockLink | None = None) -> DesiredState:
    """The desired state of a file. Raises ConfigError with all errors that drivers find in it.

    ``dock`` is the dock for clouds with ``driver: dock``.
    """
    problems = Problems()
    wanted = draft_state(config, dock, problems)
    problems.raise_any()
    return wanted


def draft_state(config: Config, dock: DockLink | None, problems: Problems) -> DesiredState:
    """As :func:`desired_state`, but without the clouds and groups that have problems, which it adds to ``problems``."""
    clouds: dict[str, CloudDeclaration] = {}
    classes: dict[str, type[AnyDriver]] = {}  # without those of plugins, which are unknown before they run
    for name, cloud in config.clouds.items():
        try:
            if isinstance(cloud, EntryPointCloud):
                classes[name] = driver_class(cloud.driver)
        except CloudgraftError as error:
            problems.add(*refusals(error, config.where("clouds", name, "driver")))
    routing = Routing(config, classes)  # drivers that use other clouds
    threads = _threads(config, routing)
    for name, cloud in config.clouds.items():
        settings, cls = _cloud_settings(config, name), classes.get(name)
        with problems.collecting():
            if isinstance(cloud, PluginCloud):
                fingerprint: object = cloud.model_dump(exclude={"engine"})
                clouds[name] = CloudDeclaration(settings=settings, make=_plugin(name, cloud), fingerprint=fingerprint)
            elif cls is not None and not is_router(cls):
                make = _installed(config, name, cloud, cls, dock, threads[name])
                fingerprint = (cloud.driver, dict(cloud.options))
                clouds[name] = CloudDeclaration(settings=settings, make=make, fingerprint=fingerprint)
    routing.build(clouds)
    problems.add(*routing.problems)
    for name, router in routing.routers.items():
        settings = _cloud_settings(config, name)
        if any(clouds[used].settings.observe_only for used in router.options.clouds):
            settings = dataclasses.replace(settings, observe_only=True)  # it would create machines in an observed one
        clouds[name] = CloudDeclaration(settings=settings, make=router.make, fingerprint=router.fingerprint)
    groups: list[GroupDeclaration] = []
    for group in config.groups():
        with problems.collecting():
            groups.append(_group(config, group, classes.get(group.cloud)))
        with problems.collecting():
            routing.check(group)
    unpriced = [g.id for g in groups if g.price is None and _knows_no_price(classes.get(g.cloud))]
    problems.add(*missing_prices(config, unpriced))
    return DesiredState(cluster=config.cluster, clouds=clouds, groups=groups, settings=_settings(config))


# -- clouds ------------------------------------------------------------------------------------------------------------


def _threads(config: Config, routing: Routing) -> Counter[str]:
    """The number of concurrent calls of each cloud: its own, and those of every router that uses it.

    With fewer threads, the creates of one would block the lists of the other, and the cloud would count as down.
    """
    threads = Counter({name: cloud.engine.max_calls + _LOOKS for name, cloud in config.clouds.items()})
    for name, options in routing.options.items():
        threads.update(dict.fromkeys(options.clouds, threads[name]))
    return threads


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


def _plugin(name: str, cloud: PluginCloud) -> Callable[[], Driver]:
    spec, timing = plugin_spec(name, cloud)
    return lambda: RemoteDriver.plugin(spec, timing=timing)


def _installed(
    config: Config, name: str, cloud: EntryPointCloud, cls: type[AnyDriver], dock: DockLink | None, threads: int
) -> Callable[[], Driver]:
    where = config.where("clouds", name)
    given = arguments(cls, cloud.options, where, places_of(config, name), name=f"the driver {cloud.driver}")
    for options in given:
        if isinstance(options, DockOptions) and issubclass(cls, DockDriver):
            given = (options, *_docked(config, name, options, dock))

    def make() -> Driver:
        return as_driver(cls(*given), threads=threads)

    made(make, where, f"the driver {cloud.driver}", cls.Options)  # reports mistakes that only the driver can find
    return make


def places_of(config: Config, name: str) -> dict[Place, Path]:
    """Where a cloud's driver works and keeps its state, unless its options say otherwise."""
    base = config.where().base_dir
    beside = config.store.path.parent if config.store.path else base
    return {Place.STATE_FILE: beside / f"cloud-{name}.db", Place.WORKING_DIRECTORY: base}


def made(make: Callable[[], T], where: Where, what: str, options: type | None = None) -> T:
    """Makes a driver or a provider; raises ConfigError for whatever it raises.

    ``options`` is the class of its options, which are at ``where`` in the file.
    """
    try:
        return make()
    except ConfigError:
        raise
    except CloudgraftError as error:
        raise ConfigError(refusals(error, where, options)) from error
    except Exception as error:  # a bug of its author; its message may hold a secret
        log.exception("%s cannot be made", what, extra={"key": dotted(where.path)})
        hint = "the log says where; its author must correct that"
        raise where.error(f"{what} failed with {cause(error)}", hint) from error


def _docked(config: Config, name: str, options: DockOptions, dock: DockLink | None) -> tuple[object, ...]:
    """The hub and the classes of this process, for a cloud whose driver dials in here."""
    if options.address:
        return ()
    if config.dock is None and config.where().document.find(("dock",)) is not None:
        return ()  # that section has problems of its own
    if config.dock is None:
        hint = "add that section, or give the address of a dock elsewhere"
        raise config.where("clouds", name, "driver").error("needs a section dock", hint)
    return (dock.hub, dock.classes) if dock is not None else ()


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


def _knows_no_price(cls: type[AnyDriver] | None) -> bool:
    """Whether a driver's class has no prices; unknown for a plugin before it was called."""
    return cls is not None and not overrides(cls, "prices")


def _group(config: Config, group: NodeGroupConfig, cls: type[AnyDriver] | None) -> GroupDeclaration:
    machine = machine_settings(cls and cls.MachineSettings, group, config.where("nodeGroups", group.index))
    taints = [taint.model_dump() for taint in group.template.taints]
    for key, value in (("labels", dict(group.template.labels)), ("taints", taints)):
        if value and cls is not None and cls.sets_node_labels:  # R69
            machine.setdefault(key, value)
    price = Money(amount=group.price.hourly, currency=group.price.currency) if group.price else None
    template, options = _template(group.template), group.options.as_options()
    return convert(group, GroupDeclaration, machine=machine, template=template, options=options, price=price)


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
