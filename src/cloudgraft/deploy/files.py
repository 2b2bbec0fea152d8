"""Finds every file and directory that a configuration names, in all sections and in the options of drivers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cloudgraft.config import Config
from cloudgraft.config.sections.clouds import EntryPointCloud
from cloudgraft.config.sections.providers import EntryPointProvider
from cloudgraft.plugins.registry import driver_class, provider_class
from cloudgraft.sdk.blocking import AnyDriver
from cloudgraft.sdk.driver import Place
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.validation.paths import NamedPath, named_paths
from cloudgraft.validation.problems import KeyPath

_PUBLIC: Final = frozenset({"ca", "ca_file", "client_ca"})  # fields with certificates of authorities


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The part of a configuration that a file is for. Its files are mounted together."""

    kind: str  # such as cloud
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFile:
    """A file or directory that the configuration names."""

    path: KeyPath  # its place in the configuration
    text: str  # as it is written there
    owner: Owner
    is_directory: bool = False
    place: Place | None = None  # None: it must exist, and is read
    is_public: bool = False  # whether it holds no secret

    @property
    def key(self) -> str:
        """The name of its key, also where the key has a list or a mapping of files."""
        return next(str(part) for part in reversed(self.path) if not isinstance(part, int))


def named_files(config: Config) -> list[NamedFile]:
    """All of them, in the order of the sections."""
    root = config.where().document.root.value
    found = [_of_section(one) for one in named_paths(Config, root)]
    found += _of_clouds(config, root)
    found += _of_groups(config, root)
    found += _of_providers(config, root)
    return found


def class_of(config: Config, cloud: str) -> type[AnyDriver] | None:
    """The class of a cloud's driver; None for a plugin, and for one that cannot be imported."""
    entry = config.clouds.get(cloud)
    if not isinstance(entry, EntryPointCloud):
        return None
    try:
        return driver_class(entry.driver)
    except CloudgraftError:
        return None


def _file(path: KeyPath, named: NamedPath, owner: Owner, *, is_public: bool = False) -> NamedFile:
    field = named.key.field if named.key else ""
    return NamedFile(
        path=path,
        text=named.text,
        owner=owner,
        is_directory=named.is_directory,
        place=named.key.place if named.key else None,
        is_public=is_public or field in _PUBLIC,
    )


def _of_section(named: NamedPath) -> NamedFile:
    match named.path:
        case ["nodeGroups", _, "join", *_] | ["join", *_]:
            owner = Owner(kind="section", name="join")
        case ["dock", *_]:
            owner = Owner(kind="section", name="drivers")  # a directory `dock` is the chart's
        case ["engine", "webhook", *_]:
            owner = Owner(kind="section", name="webhook")
        case _:
            owner = Owner(kind="section", name=str(named.path[0]).lower())
    # A template of user data says what is done, and gets what is secret as values.
    is_template = owner.name == "join" and named.path[-1] == "file"
    return _file(named.path, named, owner, is_public=is_template)


def _of_clouds(config: Config, root: Mapping[str, Any]) -> Iterator[NamedFile]:
    for name in config.clouds:
        cls, options = class_of(config, name), root["clouds"][name]
        owner = Owner(kind="cloud", name=name)
        if cls is None:
            continue
        for named in named_paths(cls.Options, options):
            yield _file(("clouds", name, *named.path), named, owner)
        if cls.__name__ == "RouterDriver":
            yield from _of_router(config, name, options)


def _of_router(config: Config, name: str, options: Mapping[str, Any]) -> Iterator[NamedFile]:
    """Files of the `machine` sections that a router has for other clouds."""
    for shape, backends in options.get("shapes", {}).items():
        for index, backend in enumerate(backends):
            cls = class_of(config, backend["cloud"])
            for named in named_paths(cls and cls.MachineSettings, backend.get("machine", {})):
                path = ("clouds", name, "shapes", shape, index, "machine", *named.path)
                yield _file(path, named, Owner(kind="cloud", name=backend["cloud"]))


def _of_groups(config: Config, root: Mapping[str, Any]) -> Iterator[NamedFile]:
    for index, group in enumerate(config.node_groups):
        cls = class_of(config, group.cloud)
        for named in named_paths(cls and cls.MachineSettings, root["nodeGroups"][index].get("machine", {})):
            path = ("nodeGroups", index, "machine", *named.path)
            yield _file(path, named, Owner(kind="cloud", name=group.cloud))


def _of_providers(config: Config, root: Mapping[str, Any]) -> Iterator[NamedFile]:
    for index, (name, entry) in enumerate(zip(config.names(), config.providers, strict=True)):
        where: KeyPath = ("providers", index)
        value, kind = root["providers"][index], type(entry)
        owner = Owner(kind="provider", name=name)
        if isinstance(entry, EntryPointProvider):
            try:
                options_type = provider_class(entry.type).Options
            except CloudgraftError:
                continue
            for named in named_paths(options_type, value.get("options", {})):
                yield _file((*where, "options", *named.path), named, owner)
            continue
        for named in named_paths(kind, value):
            yield _file((*where, *named.path), named, owner)
