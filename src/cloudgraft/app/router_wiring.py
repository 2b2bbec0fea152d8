"""Builds routers from the configuration: drivers that use other clouds of the same file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from cloudgraft.config import Config, ConfigError, Problem, Where, checked_section, parse_options, refusals
from cloudgraft.config.sections.clouds import EntryPointCloud
from cloudgraft.config.sections.engine import Guards
from cloudgraft.config.sections.groups import NodeGroupConfig
from cloudgraft.drivers.router.backend import Cloud
from cloudgraft.drivers.router.driver import RouterDriver
from cloudgraft.drivers.router.options import BackendOptions, RouterOptions
from cloudgraft.drivers.router.share import share
from cloudgraft.engine.groups.desired import CloudDeclaration
from cloudgraft.sdk.blocking import AnyDriver
from cloudgraft.sdk.driver import Driver
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.validation.explain import did_you_mean

_NODE_KEYS = frozenset({"labels", "taints"})


def is_router(cls: type[AnyDriver] | None) -> TypeGuard[type[RouterDriver]]:
    """Whether a cloud's driver uses other clouds."""
    return cls is not None and issubclass(cls, RouterDriver)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Router:
    options: RouterOptions
    make: Callable[[], Driver]
    fingerprint: object


class Routing:
    """The routers of one configuration. All routers that use a cloud share its driver."""

    def __init__(self, config: Config, classes: Mapping[str, type[AnyDriver]]) -> None:
        """Reads the options of the routers; :meth:`build` makes them. ``problems`` grows with both."""
        self.routers: dict[str, _Router] = {}
        self.problems: list[Problem] = []
        self._config = config
        self._classes = classes
        named = [name for name, cls in classes.items() if is_router(cls)]
        self.options = {name: found for name in named if (found := self._options(name)) is not None}

    def build(self, clouds: dict[str, CloudDeclaration]) -> None:
        """``clouds`` are those without the routers; each cloud that a router uses is replaced by its shared form."""
        self._share(clouds, {cloud for one in self.options.values() for cloud in one.clouds})
        for name, one in self.options.items():
            self._add(clouds, name, one)

    def check(self, group: NodeGroupConfig) -> None:
        """Rejects a group whose shape its router does not have, or whose template its clouds contradict."""
        router = self.routers.get(group.cloud)
        if router is None:
            return
        where = self._config.where("nodeGroups", group.index)
        backends = router.options.shapes.get(group.shape)
        if backends is None:
            there = f"there is: {', '.join(sorted(router.options.shapes))}"
            hint = did_you_mean(group.shape, list(router.options.shapes)) or there
            message = f"the router {group.cloud} has no shape {group.shape!r}"
            raise ConfigError([where.document.problem((*where.path, "machine", "shape"), message, hint)])
        problems = [
            where.document.problem((*where.path, "template", key), message, "the template must be true of all of them")
            for backend in backends
            for key, message in _contradictions(group, backend, self._takes(backend.cloud))
        ]
        if problems:
            raise ConfigError(problems)

    # -- one router --------------------------------------------------------------------------------------------------

    def _options(self, name: str) -> RouterOptions | None:
        where, cloud = self._config.where("clouds", name), self._config.clouds[name]
        try:
            given = cloud.options if isinstance(cloud, EntryPointCloud) else {}
            options = parse_options(RouterOptions, given, where)
        except ConfigError as error:
            self.problems += error.problems
            return None
        found = [
            *self._wrong_clouds(options, where),
            *self._unguarded(name, options, where),
            *self._slow_lists(name, options, where),
        ]
        shapes: dict[str, list[BackendOptions]] = {}
        for shape, backends in options.shapes.items():
            for index, backend in enumerate(backends):
                place = dataclasses.replace(where, path=(*where.path, "shapes", shape, index, "machine"))
                try:
                    cls = self._classes.get(backend.cloud)
                    machine = checked_section(cls and cls.MachineSettings, backend.machine, place)
                    shapes.setdefault(shape, []).append(dataclasses.replace(backend, machine=machine))
                except ConfigError as error:
                    found += error.problems
        self.problems += found
        return None if found else dataclasses.replace(options, shapes=shapes)

    def _wrong_clouds(self, options: RouterOptions, where: Where) -> Iterator[Problem]:
        known = [name for name in self._config.clouds if not is_router(self._classes.get(name))]
        for shape, backends in options.shapes.items():
            for index, backend in enumerate(backends):
                path = (*where.path, "shapes", shape, index, "cloud")
                is_there = where.document.find(("clouds", backend.cloud)) is not None
                if backend.cloud in known or (is_there and backend.cloud not in self._config.clouds):
                    continue  # the latter has problems of its own
                there = f"there is: {', '.join(known)}" if known else "write that cloud as well"
                message = f"there is no cloud {backend.cloud!r}"
                if backend.cloud in self._config.clouds:
                    message = f"{backend.cloud} is a router, and cannot be used by another one"
                yield where.document.problem(path, message, did_you_mean(backend.cloud, known) or there)

    def _unguarded(self, name: str, options: RouterOptions, where: Where) -> Iterator[Problem]:
        """Law 10: a cloud's guard does not count machines that routers create there, so routers need a guard too."""
        limits = (self._config.clouds[name].engine.guards, self._config.guards)
        for cloud in options.clouds:
            own = self._config.clouds[cloud].engine.guards if cloud in self._config.clouds else None
            for field, info in Guards.model_fields.items():
                is_limited = own is not None and getattr(own, field) is not None
                if is_limited and all(getattr(one, field) is None for one in limits):
                    message = (
                        f"has no {info.alias}, and that of cloud {cloud} does not count what this router makes there"
                    )
                    hint = f"set it in clouds.{name}.engine.guards, or in guards for all clouds"
                    yield where.document.problem((*where.path, "engine"), message, hint)

    def _slow_lists(self, name: str, options: RouterOptions, where: Where) -> Iterator[Problem]:
        """Law 6: without a shorter timeout, one cloud that hangs would make the lists of all fail."""
        limit = self._config.clouds[name].engine.list_timeout
        if options.list_timeout >= limit:
            message = f"must be less than engine.listTimeout of this cloud, which is {limit.total_seconds():g}s"
            yield where.document.problem((*where.path, "listTimeout"), message, "a list of all would end with it")

    def _share(self, clouds: dict[str, CloudDeclaration], names: set[str]) -> None:
        base = self._config.where()
        for name in names & set(clouds):
            declared = clouds[name]
            key = (str(base.base_dir), base.document.name, name, repr(declared.fingerprint))
            make = share(key, declared.make).handle
            # A cloud that becomes shared gets a new driver, so that there are not two.
            clouds[name] = dataclasses.replace(declared, make=make, fingerprint=("shared", declared.fingerprint))

    def _add(self, clouds: Mapping[str, CloudDeclaration], name: str, options: RouterOptions) -> None:
        if any(cloud not in clouds for cloud in options.clouds):
            return  # the error of that cloud is reported already
        used = {cloud: Cloud(make=clouds[cloud].make, takes=self._takes(cloud)) for cloud in options.clouds}
        try:
            RouterDriver(options, used)
        except CloudgraftError as error:
            self.problems += refusals(error, self._config.where("clouds", name))
            return
        fingerprint = (options, {cloud: clouds[cloud].fingerprint for cloud in options.clouds})
        self.routers[name] = _Router(options=options, make=lambda: RouterDriver(options, used), fingerprint=fingerprint)

    def _takes(self, cloud: str) -> frozenset[str]:
        cls = self._classes.get(cloud)
        return _NODE_KEYS if cls is not None and cls.sets_node_labels else frozenset()


def _contradictions(
    group: NodeGroupConfig, backend: BackendOptions, takes: frozenset[str]
) -> Iterator[tuple[str, str]]:
    """Labels and taints that a cloud's own section sets on nodes, and that differ from the template."""
    template: dict[str, Any] = {
        "labels": dict(group.template.labels),
        "taints": {(taint.key, taint.effect): taint.value for taint in group.template.taints},
    }
    for key in sorted(takes & backend.machine.keys()):
        own: Any = backend.machine[key]
        if key == "taints":
            own = {(one.get("key"), one.get("effect") or "NoSchedule"): one.get("value") or "" for one in own}
        if own != template[key]:
            yield key, f"differs from what cloud {backend.cloud} gives to nodes of shape {group.shape}: {_shown(own)}"


def _shown(own: Mapping[Any, str]) -> str:
    texts = [f"{key[0]}={value}:{key[1]}" if isinstance(key, tuple) else f"{key}={value}" for key, value in own.items()]
    return ", ".join(texts) or "none"
