"""Derives the configuration of a run from the user's own: one group, with a cluster, journal and sockets of its own.

Nothing in it leads to the user's journal, sockets, state files or Kubernetes cluster.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from cloudgraft.app.router_wiring import is_router
from cloudgraft.config import Config, checked_section, machine_settings, parse_options
from cloudgraft.config.sections.clouds import EntryPointCloud
from cloudgraft.config.sections.groups import NodeGroupConfig
from cloudgraft.drivers.router.options import RouterOptions
from cloudgraft.engine.machines.identity import Identity
from cloudgraft.plugins.registry import driver_class
from cloudgraft.sdk.blocking import AnyDriver
from cloudgraft.sdk.driver import Place
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.torture.plan import Bounds
from cloudgraft.validation.explain import did_you_mean, keys_of

CLUSTER_PREFIX: Final = "torture-"  # of the cluster's name in every run, and so of the names of its machines
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"
_SLOWEST: Final = timedelta(seconds=1)  # between two lists
_KEPT_RULES: Final = ("createDeadline", "firstListTimeout")  # of the section engine
_KEPT_OF_GROUP: Final = ("template", "price")


def new_identity() -> Identity:
    """A cluster that no other run and no user has."""
    word = "".join(secrets.choice(_ALPHABET) for _ in range(4))
    return Identity(f"{CLUSTER_PREFIX}{word}", "".join(secrets.choice(_ALPHABET) for _ in range(10)))


@dataclass(frozen=True, slots=True)
class Paths:
    """The files of a run, in its own directory."""

    directory: Path

    @property
    def config(self) -> Path:
        """The derived configuration."""
        return self.directory / "cloudgraft.yaml"

    @property
    def journal(self) -> Path:
        """The journal of the run's servers."""
        return self.directory / "journal.db"

    @property
    def socket(self) -> Path:
        """The socket of the autoscaler's calls."""
        return self.directory / "serve.sock"

    @property
    def admin(self) -> Path:
        """The socket of operators."""
        return self.directory / "admin.sock"

    @property
    def log(self) -> Path:
        """The log of all servers of the run."""
        return self.directory / "server.log"

    @property
    def own_log(self) -> Path:
        """The log of the run itself, and of its driver outside the servers."""
        return self.directory / "torture.log"

    @property
    def mark(self) -> Path:
        """Says that machines of the run may exist; locked while it goes on."""
        return self.directory / "machines-may-exist"

    @property
    def history(self) -> Path:
        """What the run did and saw."""
        return self.directory / "history.log"


def choose_group(config: Config, wanted: str) -> NodeGroupConfig:
    """The group of this id, or the only one. Raises InvalidArgumentError that lists the groups."""
    groups = {group.id: group for group in config.groups()}
    if not groups:
        raise InvalidArgumentError("the configuration has no nodeGroups: torture needs a group of one of its clouds")
    there = f"there is: {', '.join(groups)}"
    if wanted and wanted not in groups:
        raise InvalidArgumentError(f"there is no node group {wanted!r}; {did_you_mean(wanted, list(groups)) or there}")
    if not wanted and len(groups) > 1:
        raise InvalidArgumentError(f"say which group is to be tortured, with --group; {there}")
    return groups[wanted] if wanted else next(iter(groups.values()))


def private_config(
    config: Config, group: NodeGroupConfig, identity: Identity, paths: Paths, bounds: Bounds
) -> dict[str, Any]:
    """The content of the derived file. Raises ConfigError, with the places in the user's file."""
    root: Mapping[str, Any] = config.where().document.root.value
    rules = {key: value for key, value in _section(root, "engine").items() if key in _KEPT_RULES}
    # A broken machine is not replaced: the load would have to expect that.
    rules |= {"repair": {"enabled": False}, "failedTTL": "24h"}
    return {
        "cluster": identity.cluster,
        "clusterId": identity.cluster_id,
        "server": {"listen": f"unix:{paths.socket}", "ops": None},
        "admin": {"listen": f"unix:{paths.admin}"},
        "log": {"level": 2, "format": "json"},
        "store": {"path": str(paths.journal)},
        "guards": _guards(_section(root, "guards"), bounds),
        "engine": rules,
        "clouds": {name: _cloud(config, name) for name in _needed(config, group.cloud)},
        "nodeGroups": [_group(config, group, bounds)],
    }


def _section(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key)
    return dict(value) if isinstance(value, Mapping) else {}


def _guards(own: dict[str, Any], bounds: Bounds) -> dict[str, Any]:
    """The user's guards, and those of the run where they are lower."""
    limits = {"maxMachines": bounds.machines, "maxCreatesPerHour": bounds.creates}
    return own | {key: min(limit, own.get(key) or limit) for key, limit in limits.items()}


def _needed(config: Config, cloud: str) -> Sequence[str]:
    """The group's cloud, and those that it uses if it is a router."""
    found = config.clouds[cloud]
    if not isinstance(found, EntryPointCloud) or not is_router(driver_class(found.driver)):
        return (cloud,)
    options = parse_options(RouterOptions, found.options, config.where("clouds", cloud))
    return (cloud, *options.clouds)


def _cloud(config: Config, name: str) -> dict[str, Any]:
    raw: dict[str, Any] = dict(config.where().document.root.value["clouds"][name])
    found = config.clouds[name]
    engine = _section(raw, "engine")
    if found.engine.observe_every > _SLOWEST:
        engine["observeEvery"] = f"{_SLOWEST.total_seconds():g}s"
    if isinstance(found, EntryPointCloud):
        return {"driver": found.driver, "engine": engine, **_options(config, name, found, driver_class(found.driver))}
    directory = found.working_directory  # of a plugin
    return raw | {"engine": engine} | ({"workingDirectory": str(directory)} if directory else {})


def _options(config: Config, name: str, cloud: EntryPointCloud, cls: type[AnyDriver]) -> dict[str, Any]:
    """The driver's options, with absolute paths, and without a state file: that of the run is beside its journal."""
    where = config.where("clouds", name)
    options = checked_section(cls.Options, cloud.options, where)
    for key, declared in keys_of(cls.Options).items():
        if declared.place is Place.STATE_FILE:
            options.pop(key, None)
        elif declared.place is Place.WORKING_DIRECTORY and options.get(key) is None:
            options[key] = str(where.base_dir)
    return options


def _group(config: Config, group: NodeGroupConfig, bounds: Bounds) -> dict[str, Any]:
    cloud, where = config.clouds[group.cloud], config.where("nodeGroups", group.index)
    cls = driver_class(cloud.driver) if isinstance(cloud, EntryPointCloud) else None
    raw = config.where().document.root.value["nodeGroups"][group.index]
    return {
        "id": group.id,
        "cloud": group.cloud,
        "minSize": 0,
        "maxSize": bounds.machines,
        "machine": machine_settings(cls and cls.MachineSettings, group, where),
        **{key: raw[key] for key in _KEPT_OF_GROUP if key in raw},
    }
