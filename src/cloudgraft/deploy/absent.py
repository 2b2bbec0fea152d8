"""Tells problems of a configuration from those of the host that it is only read on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final

from cloudgraft.config import Config, Problem
from cloudgraft.deploy.files import NamedFile, named_files
from cloudgraft.deploy.mounts import absolute
from cloudgraft.validation.problems import dotted

# How another host reaches the cluster is not to be seen from here.
_OF_ANOTHER_HOST: Final = ("kubernetes.inCluster", "kubernetes.kubeconfig")


def absent_files(config: Config) -> list[NamedFile]:
    """The files that the configuration names and that cannot be read on this host."""
    base_dir = config.where().base_dir
    return [file for file in named_files(config) if not os.access(absolute(file.text, base_dir), os.R_OK)]


def without_absent(config: Config, problems: Iterable[Problem]) -> Iterator[Problem]:
    """Leaves out the problems of files that are missing on this host.

    A part that reads a file when it is made reports that for all of it, so such problems are left out too.
    """
    absent = absent_files(config)
    base_dir = config.where().base_dir
    keys = {*_OF_ANOTHER_HOST, *(dotted(file.path) for file in absent)}
    for file in absent:
        is_entry = file.path[0] in ("clouds", "providers")
        part = file.path[:2] if is_entry else file.path[:1]
        keys |= {dotted(part), dotted((*part, "type")), dotted((*part, "options"))}
    files = {str(absolute(file.text, base_dir)) for file in absent} | {str(base_dir / file.text) for file in absent}
    for problem in problems:
        if problem.key not in keys and problem.file not in files:
            yield problem
