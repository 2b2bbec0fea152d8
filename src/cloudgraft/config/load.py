"""Loads the configuration file. The outcome is always a Config, or a ConfigError with all problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from importlib.metadata import entry_points
from pathlib import Path

from pydantic import ValidationError

from cloudgraft.config.checks import cross_checks
from cloudgraft.config.document import Document, Entry, read_yaml
from cloudgraft.config.explain import explain
from cloudgraft.config.fields import LoadContext
from cloudgraft.config.model import Config
from cloudgraft.config.problems import ConfigError, Problem
from cloudgraft.config.section import hide_secrets

MAX_BYTES = 1 << 20
_SMALLEST = "the least is, in two lines: cluster: prod / providers: [{type: memory}]"


def load(path: Path, *, overrides: Mapping[str, object] | None = None) -> Config:
    """Reads and checks a file.

    Relative paths in it start at its own directory. ``overrides`` are values from the command line by dotted key,
    such as ``{"server.listen": "127.0.0.1:0"}``; they win over those in the file and are checked with them.
    """
    name = str(path)
    try:
        if path.is_dir():
            raise ConfigError([Problem(file=name, message="is a directory", suggestion="name the file in it")])
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError([Problem(file=name, message="no such file", suggestion=_SMALLEST)]) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a file name"
        raise ConfigError([Problem(file=name, message=f"cannot be read: {reason}")]) from None
    if len(content) > MAX_BYTES:
        message = f"is larger than {MAX_BYTES >> 20} MiB, so it cannot be a configuration file"
        raise ConfigError([Problem(file=name, message=message)])
    return parse(_decode(content, name), path.absolute().parent, name=name, overrides=overrides)


def parse(
    text: str, base_dir: Path, *, name: str = "cloudgraft.yaml", overrides: Mapping[str, object] | None = None
) -> Config:
    """As :func:`load`, for a text; ``name`` is the file name in its problems."""
    document = read_yaml(text, name)
    if document.root.value is None and not document.problems:
        raise ConfigError([document.problem((), "the file is empty", _SMALLEST)])
    for key, value in (overrides or {}).items():
        document.override(tuple(key.split(".")), value)
    return _validate(document, base_dir)


def with_groups(config: Config, entries: Sequence[Mapping[str, object]]) -> Config:
    """The same configuration with further entries of `nodeGroups`, checked as if they stood at the end of those in the
    file. Raises ConfigError; problems of an entry have the key `nodeGroups[N]`.
    """
    if not entries:
        return config
    where = config.where()
    document, root = where.document, where.document.root
    groups = [*root.value.get("nodeGroups", ()), *(deepcopy(dict(entry)) for entry in entries)]
    value = {**root.value, "nodeGroups": groups}
    whole = Entry(value, root.line, root.column, children=root.children, keys=root.keys)
    return _validate(Document(name=document.name, root=whole, overridden=set(document.overridden)), where.base_dir)


def installed_provider_types() -> frozenset[str]:
    """The names that installed packages offer in the entry-point group `cloudgraft.providers`."""
    return frozenset(point.name for point in entry_points(group="cloudgraft.providers"))


def installed_driver_types() -> frozenset[str]:
    """The names that installed packages offer in the entry-point group `cloudgraft.drivers`."""
    return frozenset(point.name for point in entry_points(group="cloudgraft.drivers"))


def _validate(document: Document, base_dir: Path) -> Config:
    context = LoadContext(
        base_dir=base_dir, provider_types=installed_provider_types(), driver_types=installed_driver_types()
    )
    hide_secrets(document.root.value)  # first: later messages may quote values
    problems = [*document.problems, *cross_checks(document)]
    try:
        config = Config.model_validate(document.root.value, context=context)
    except ValidationError as error:
        found = explain(error.errors(include_url=False), document, Config)
        raise ConfigError([*problems, *found]) from None  # the cause would carry the values
    if problems:
        raise ConfigError(problems)
    return config.read_from(document, base_dir)


def _decode(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        problem = Problem(
            file=name, line=line, column=column, message="is not UTF-8", suggestion="save the file as UTF-8"
        )
        raise ConfigError([problem]) from None
