"""Tells problems of a configuration from those of the host that it is only read on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from cloudgraft.config import Config, ConfigError, Problem, Where
from cloudgraft.config.sections.clouds import EntryPointCloud
from cloudgraft.config.sections.providers import EntryPointProvider
from cloudgraft.deploy.files import NamedFile, class_of, named_files
from cloudgraft.deploy.mounts import absolute
from cloudgraft.plugins.registry import arguments, provider_class
from cloudgraft.sdk.blocking import AnyDriver, AnyProvider
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.validation.problems import dotted

# How another host reaches the cluster is not to be seen from here.
_OF_ANOTHER_HOST: Final = ("kubernetes.inCluster", "kubernetes.kubeconfig")


def absent_files(config: Config) -> list[NamedFile]:
    """The files that the configuration names and that cannot be read on this host."""
    base_dir = config.where().base_dir
    return [file for file in named_files(config) if not os.access(absolute(file.text, base_dir), os.R_OK)]


def without_absent(config: Config, problems: Iterable[Problem]) -> Iterator[Problem]:
    """Leaves out the problems of files that are missing on this host.

    A part that reads a file when it is made reports that for all of it, so such problems are left out too. Those that
    its options have by themselves stay.
    """
    absent = absent_files(config)
    base_dir = config.where().base_dir
    keys = {*_OF_ANOTHER_HOST, *(dotted(file.path) for file in absent)}
    for file in absent:
        is_entry = file.path[0] in ("clouds", "providers")
        part = file.path[:2] if is_entry else file.path[:1]
        keys |= {dotted(part), dotted((*part, "type")), dotted((*part, "options"))}
    files = {str(absolute(file.text, base_dir)) for file in absent} | {str(base_dir / file.text) for file in absent}
    own = set(_of_options(config))
    for problem in problems:
        if problem in own or (problem.key not in keys and problem.file not in files):
            yield problem


def _of_options(config: Config) -> Iterator[Problem]:
    """The problems of drivers' and providers' options, as far as they show without making anything of them."""
    for name, cloud in config.clouds.items():
        cls = class_of(config, name)
        if cls is not None and isinstance(cloud, EntryPointCloud):
            yield from _refused(cls, cloud.options, config.where("clouds", name))
    for index, entry in enumerate(config.providers):
        if isinstance(entry, EntryPointProvider):
            with suppress(CloudgraftError):  # it cannot be imported, which is a problem of its own
                where = config.where("providers", index, "options")
                yield from _refused(provider_class(entry.type), entry.options, where)


def _refused(cls: type[AnyDriver | AnyProvider], options: Mapping[str, Any], where: Where) -> Sequence[Problem]:
    try:
        arguments(cls, options, where)
    except ConfigError as error:
        return error.problems
    return ()
