"""Validates the ``machine:`` sections of node groups, and prepares them for their drivers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloudgraft.config.sections.groups import NodeGroupConfig
from cloudgraft.sdk.driver import MaxSizeCheck
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.validation.document import Where
from cloudgraft.validation.explain import item_type, keys_of, unwrap
from cloudgraft.validation.options import is_path, parse_options
from cloudgraft.validation.problems import ConfigError


def machine_settings(settings_type: type | None, group: NodeGroupConfig, where: Where) -> dict[str, object]:
    """A group's `machine:` section as its driver gets it: as it is in the file, but with absolute paths.

    ``settings_type`` is the driver's ``MachineSettings``, which validates the section; None and dict do not.
    ``where`` is the group's place: ``config.where("nodeGroups", group.index)``. Raises ConfigError with all problems.
    """
    if settings_type is None or issubclass(settings_type, dict):
        return dict(group.machine)
    strange = [key for key in group.spread if key not in keys_of(settings_type)]
    problems = [
        where.document.problem((*where.path, f"{key}s"), f"the machines of this driver have no {key}", "remove it")
        for key in strange
    ]
    own = {key: value for key, value in group.machine.items() if key not in strange}
    try:
        settings: object = parse_options(settings_type, own, dataclasses.replace(where, path=(*where.path, "machine")))
        if isinstance(settings, MaxSizeCheck):
            settings.check_max_size(group.max_size)
    except ConfigError as error:
        problems += error.problems
    except InvalidArgumentError as error:
        problems.append(where.document.problem((*where.path, "maxSize"), error.message))
    if problems:
        raise ConfigError(problems)
    absolute: dict[str, object] = _with_absolute_paths(settings_type, own, where.base_dir)
    return absolute


def checked_section(settings_type: type | None, section: Mapping[str, Any], where: Where) -> dict[str, object]:
    """A section at ``where``, validated by a type, as it is in the file but with absolute paths."""
    if settings_type is None or issubclass(settings_type, dict):
        return dict(section)
    parse_options(settings_type, section, where)
    absolute: dict[str, object] = _with_absolute_paths(settings_type, dict(section), where.base_dir)
    return absolute


def _with_absolute_paths(annotation: Any, value: Any, base_dir: Path, field: str = "") -> Any:
    kind = unwrap(annotation)
    if isinstance(value, str) and is_path(kind, field, value):
        return str(base_dir / value)
    if isinstance(value, list):
        return [_with_absolute_paths(item_type(kind), item, base_dir) for item in value]
    if isinstance(value, dict):
        keys, other = keys_of(kind), item_type(kind)
        return {
            name: _with_absolute_paths(keys[name].annotation, item, base_dir, keys[name].field)
            if name in keys
            else _with_absolute_paths(other, item, base_dir)
            for name, item in value.items()
        }
    return value
