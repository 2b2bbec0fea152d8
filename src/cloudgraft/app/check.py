"""Finds what is wrong with a configuration and can be known without asking a cloud.

A server starts although a file that a driver needs is missing, or a group names an unknown machine type: that cloud or
group fails, and the others are served (law 6). So only `serve --check` and `doctor` report these.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cloudgraft.app.engine_wiring import made, places_of
from cloudgraft.app.wiring import Parts, build, nothing_to_serve
from cloudgraft.config import Config, ConfigError, Problem, Problems, load
from cloudgraft.config.load import hidden_problems
from cloudgraft.config.sections.clouds import EntryPointCloud, PluginCloud
from cloudgraft.config.sections.groups import NodeGroupConfig
from cloudgraft.config.sections.process import PluginProcess
from cloudgraft.config.sections.providers import PluginProvider
from cloudgraft.deploy.absent import without_absent
from cloudgraft.deploy.files import class_of
from cloudgraft.engine.groups.desired import Catalog, DesiredState, GroupDeclaration, complete
from cloudgraft.engine.groups.resolution import spend_caps
from cloudgraft.plugins.registry import arguments, provider_class
from cloudgraft.sdk.blocking import AnyDriver, overrides
from cloudgraft.sdk.common.files import stat_of
from cloudgraft.sdk.driver import Shape
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError
from cloudgraft.service.metrics import ServiceMetrics
from cloudgraft.validation.document import Where
from cloudgraft.validation.explain import did_you_mean
from cloudgraft.validation.paths import missing_paths, nearby, shown
from cloudgraft.validation.problems import dotted, printable

_INTERPRETERS: Final = re.compile(r"python[0-9.]*|perl|ruby")  # a shell would look in PATH too
_MOST_NAMES: Final = 500  # characters of the machine types that a message names


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A file, its problems, and what was built from it; None for a file that is wrong by itself."""

    config: Config | None = None
    parts: Parts | None = None
    problems: tuple[Problem, ...] = ()


def check_file(path: Path, *, overrides: Mapping[str, object] | None = None, needs_host: bool = True) -> Checked:
    """Reads a file and checks all of it. The problems are in the order of lines, each once.

    ``needs_host`` is false for a file of another host, whose files and programs may be missing on this one.
    """
    find = check_all if needs_host else check_elsewhere
    try:
        config = load(path, overrides=overrides, find=find, needs_files=needs_host)
    except ConfigError as error:
        return Checked(problems=error.problems)
    problems = Problems()
    parts = _checked(config, problems, needs_host=needs_host)
    problems.add(*hidden_problems(config, problems, find, needs_files=needs_host))
    if parts.wanted is None and not parts.members:
        problems.add(*nothing_to_serve(config).problems)
    return Checked(config=config, parts=parts, problems=ConfigError(problems).problems)


def check_all(config: Config) -> None:
    """Raises ConfigError with the problems that all parts find, and with those of :func:`incomplete`."""
    problems = Problems()
    _checked(config, problems)
    problems.raise_any()


def check_elsewhere(config: Config) -> None:
    """As :func:`check_all`, for the file of another host."""
    problems = Problems()
    _checked(config, problems, needs_host=False)
    problems.raise_any()


def problems_of(config: Config) -> tuple[Problems, Problems]:
    """The problems that all parts find in a valid file, and those of :func:`incomplete`."""
    problems = Problems()
    parts = build(config, ServiceMetrics(), problems)
    return problems, incomplete(config, parts.wanted)


def _checked(config: Config, problems: Problems, *, needs_host: bool = True) -> Parts:
    found = Problems()
    parts = build(config, ServiceMetrics(), found)
    problems.add(*(found if needs_host else without_absent(config, found)))
    problems.add(*incomplete(config, parts.wanted, needs_host=needs_host))
    return parts


def incomplete(config: Config, wanted: DesiredState | None, *, needs_host: bool = True) -> Problems:
    """What the file names and does not exist: files, programs, machine types. ``wanted`` is the state of the file.

    Without ``needs_host``, only machine types.
    """
    problems = Problems([*_files(config), *_plugins(config)] if needs_host else ())
    if wanted is None:
        return problems
    if needs_host:
        for name in config.clouds.keys() - wanted.clouds.keys():
            problems.add(*_lacks_beside_mistakes(config, name))
    catalogs: dict[str, Catalog] = {}
    for name, declared in wanted.clouds.items():
        where = config.where("clouds", name)
        with problems.collecting():
            driver = made(declared.make, where, f"the driver of {name}")
            lacks = made(driver.missing, where, f"missing() of the driver of {name}") if needs_host else {}
            problems.add(*(where.document.problem((*where.path, key), why) for key, why in lacks.items()))
            shapes = made(driver.known_shapes, where, f"known_shapes() of the driver of {name}")
            catalog = _known_catalog(class_of(config, name), shapes)
            if catalog is not None:
                catalogs[name] = catalog
    problems.add(*misfits(config, wanted, catalogs))
    return problems


def _lacks_beside_mistakes(config: Config, name: str) -> Iterator[Problem]:
    """What a driver misses whose options are wrong: it is made without the wrong ones, if it can do without them."""
    cloud, cls, where = config.clouds[name], class_of(config, name), config.where("clouds", name)
    if not isinstance(cloud, EntryPointCloud) or cls is None or not overrides(cls, "missing"):
        return

    def lacks(options: Mapping[str, object]) -> Mapping[str, str]:
        given = arguments(cls, options, where, places_of(config, name))
        driver = made(lambda: cls(*given), where, f"the driver {cloud.driver}", cls.Options)
        return made(driver.missing, where, f"missing() of the driver of {name}")

    try:
        lacks(cloud.options)
    except ConfigError as error:
        keys = {option: dotted((*where.path, option)) for option in cloud.options}
        wrong = {
            o for o, key in keys.items() if any(f"{p.key}.".startswith((f"{key}.", f"{key}[")) for p in error.problems)
        }
        rest = {option: value for option, value in cloud.options.items() if option not in wrong}
        with contextlib.suppress(ConfigError):
            found = lacks(rest)
            yield from (where.document.problem((*where.path, key), why) for key, why in found.items() if key in rest)


# -- files and programs ------------------------------------------------------------------------------------------------


def _files(config: Config) -> Iterator[Problem]:
    """Files that the options of drivers and providers and the settings of machines name."""
    classes = {name: class_of(config, name) for name in config.clouds}
    for name, cloud in config.clouds.items():
        cls = classes[name]
        if isinstance(cloud, EntryPointCloud) and cls is not None:
            yield from missing_paths(cls.Options, dict(cloud.options), config.where("clouds", name))
    for index, group in enumerate(config.node_groups):
        cls = classes.get(group.cloud)
        if cls is not None:
            yield from missing_paths(
                cls.MachineSettings, dict(group.machine), config.where("nodeGroups", index, "machine")
            )
    for index, entry in enumerate(config.providers):
        try:
            options_type = provider_class(entry.type).Options
        except CloudgraftError:  # one of ours without a class, or one that is reported already
            continue
        given = dict(getattr(entry, "options", {}))
        yield from missing_paths(options_type, given, config.where("providers", index, "options"))


def _plugins(config: Config) -> Iterator[Problem]:
    for name, cloud in config.clouds.items():
        if isinstance(cloud, PluginCloud):
            yield from _program(cloud, config.where("clouds", name, "command", 0))
            yield from _script(cloud, config.where("clouds", name, "command", 1))
    for index, entry in enumerate(config.providers):
        if isinstance(entry, PluginProvider):
            yield from _program(entry, config.where("providers", index, "command", 0))
            yield from _script(entry, config.where("providers", index, "command", 1))


def _program(process: PluginProcess, where: Where) -> Iterator[Problem]:
    program = process.command[0]
    message = hint = ""
    if "/" not in program:
        if shutil.which(program, path=process.env.get("PATH", os.environ.get("PATH", os.defpath))) is None:
            message, hint = f"there is no program {printable(program)} in PATH", f"for a file, write ./{program}"
    elif stat_of(Path(program)) is None:
        message = f"no such file: {shown(Path(program))}"
    elif not os.access(program, os.X_OK) or Path(program).is_dir():
        message, hint = f"cannot be executed: {shown(Path(program))}", f"chmod +x {program}"
    if message:
        yield where.document.problem(where.path, message, hint)


def _script(process: PluginProcess, where: Where) -> Iterator[Problem]:
    """The script of an interpreter that opens its first argument. Other arguments may be anything."""
    program, *rest = process.command
    if not rest or rest[0].startswith("-") or not _INTERPRETERS.fullmatch(Path(program).name):
        return
    script = (process.working_directory or where.base_dir) / rest[0]
    if stat_of(script) is None:
        yield where.document.problem(where.path, f"no such file: {shown(script)}", nearby(script))


# -- machine types -----------------------------------------------------------------------------------------------------


def _known_catalog(cls: type[AnyDriver] | None, shapes: Sequence[Shape] | None) -> Catalog | None:
    """The machine types that a driver knows from its options; empty for one that has none, None for only online."""
    if cls is None:
        return None  # only the running plugin knows
    if shapes is None:
        return None if overrides(cls, "shapes") else Catalog()
    return Catalog(shapes={shape.name: shape for shape in shapes})


def misfits(
    config: Config, wanted: DesiredState, catalogs: Mapping[str, Catalog], *, with_prices: bool = False
) -> Iterator[Problem]:
    """Groups that could not be served with these catalogs, by cloud. Groups of other clouds are not checked.

    ``with_prices`` says that the catalogs have all prices that the clouds know.
    """
    places = {group.id: group for group in config.groups()}
    for group in wanted.groups:
        catalog = catalogs.get(group.cloud)
        if catalog is None:
            continue
        known = catalog.shapes
        if group.shape and known and group.shape not in known:
            path = _place_of_shape(config, places[group.id])
            hint = did_you_mean(group.shape, list(known)) or f"there is: {', '.join(sorted(known))[:_MOST_NAMES]}"
            message = f"cloud {group.cloud} has no machine type {printable(group.shape)}"
            yield path.document.problem(path.path, message, hint)
            continue
        why = _why_not(group, catalog, needs_price=with_prices and bool(spend_caps(wanted, group.cloud)))
        if why:
            where = config.where("nodeGroups", places[group.id].index)
            yield where.document.problem((*where.path, "template"), why)


def _place_of_shape(config: Config, group: NodeGroupConfig) -> Where:
    entry = config.node_groups[group.index]
    if group.shape in entry.shapes:
        return config.where("nodeGroups", group.index, "shapes", entry.shapes.index(group.shape))
    return config.where("nodeGroups", group.index, "machine", "shape")


def _why_not(group: GroupDeclaration, catalog: Catalog, *, needs_price: bool) -> str:
    try:
        complete(group, catalog, needs_price=needs_price)
    except InvalidArgumentError as error:
        return error.message
    return ""
