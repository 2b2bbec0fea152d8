"""Loads configuration files. The outcome is always a valid model, or a ConfigError with all problems."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from importlib.metadata import entry_points
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from cloudgraft.config.checks import cross_checks
from cloudgraft.config.fields import LoadContext
from cloudgraft.config.model import Config
from cloudgraft.config.rest import valid_rest
from cloudgraft.config.section import Section, hide_secrets
from cloudgraft.validation.document import Document, Entry, read_file, read_yaml
from cloudgraft.validation.explain import UNKNOWN_KEY, explain
from cloudgraft.validation.problems import ConfigError, KeyPath, Problem, Problems, dotted

S = TypeVar("S", bound=Section)
_SMALLEST = "the least is, in two lines: cluster: prod / providers: [{type: memory}]"


def load(
    path: Path,
    *,
    overrides: Mapping[str, object] | None = None,
    find: Callable[[Config], object] | None = None,
    needs_files: bool = True,
) -> Config:
    """Reads and checks a file.

    Relative paths in it start at its own directory. ``overrides`` are values from the command line by dotted key,
    such as ``{"server.listen": "127.0.0.1:0"}``; they win over those in the file and are checked with them. None is not
    given.

    ``find`` raises ConfigError with more problems, such as those that drivers find. It is called only for a file that
    has problems already, with the valid rest of it, so that all of them are reported together.

    ``needs_files`` is false for a configuration of another host: the files that it names may then be missing here.
    """
    text, context = read_file(path, _SMALLEST), _context(path.absolute().parent, needs_files=needs_files)
    return _parse(text, context, str(path), overrides, find)


def parse(
    text: str,
    base_dir: Path,
    *,
    name: str = "cloudgraft.yaml",
    overrides: Mapping[str, object] | None = None,
    needs_files: bool = True,
) -> Config:
    """As :func:`load`, for a text; ``name`` is the file name in its problems."""
    return _parse(text, _context(base_dir, needs_files=needs_files), name, overrides, None)


def load_other(
    path: Path,
    model: type[S],
    *,
    example: str,
    checks: Callable[[Document], Iterable[Problem]] = lambda _: (),
    overrides: Mapping[str, object] | None = None,
) -> S:
    """As :func:`load`, for the file of another program, whose keys are those of ``model``.

    ``example`` is the smallest such file. ``checks`` finds problems between its parts, in plain values.
    """
    document = _document(read_file(path, example), str(path), example, overrides)
    return _validated(document, model, checks, LoadContext(base_dir=path.absolute().parent))


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
    return _config(
        Document(name=document.name, root=whole, overridden=set(document.overridden)), _context(where.base_dir)
    )


def _parse(
    text: str,
    context: LoadContext,
    name: str,
    overrides: Mapping[str, object] | None,
    find: Callable[[Config], object] | None,
) -> Config:
    document = _document(text, name, _SMALLEST, overrides)
    try:
        return _config(document, context)
    except ConfigError as error:
        if find is None:
            raise
        raise ConfigError(Problems([*error.problems, *_in_rest(document, context, find)])) from None


def hidden_problems(
    config: Config, known: Iterable[Problem], find: Callable[[Config], object], *, needs_files: bool = True
) -> Iterable[Problem]:
    """The problems that ``find`` finds in a valid file only without the unknown keys that are among ``known``."""
    where = config.where()
    context = _context(where.base_dir, needs_files=needs_files)
    return _in_rest(where.document, context, find, known) if _unknown_keys(where.document, known) else ()


def _in_rest(
    document: Document, context: LoadContext, find: Callable[[Config], object], known: Iterable[Problem] = ()
) -> Iterable[Problem]:
    """The problems that ``find`` finds in the valid rest of a file, and in that without the unknown keys it finds.

    A driver sees its section only when its keys are known. Only unknown keys are left out: nothing depends on them,
    while a driver could miss another value, and report problems that the file does not have.
    """
    found, wrong = Problems(), _unknown_keys(document, known)
    while True:
        left = valid_rest(
            document.root.value, Config, lambda value: Config.model_validate(value, context=context), wrong
        )
        if left is None:
            return found
        config, rest = left
        more = Problems()
        with more.collecting():
            find(config.read_from(document, context.base_dir))
        found.add(*rest.news(more))
        unknown = _unknown_keys(document, found) - wrong
        if not unknown:
            return found
        wrong |= unknown


def _unknown_keys(document: Document, problems: Iterable[Problem]) -> set[KeyPath]:
    wanted = {problem.key for problem in problems if problem.message == UNKNOWN_KEY}
    return {path for path in _all_paths(document.root) if dotted(path) in wanted} if wanted else set()


def _all_paths(entry: Entry, path: KeyPath = ()) -> Iterator[KeyPath]:
    yield path
    for key, child in entry.children.items():
        yield from _all_paths(child, (*path, key))


def _config(document: Document, context: LoadContext) -> Config:
    return _validated(document, Config, cross_checks, context).read_from(document, context.base_dir)


def _context(base_dir: Path, *, needs_files: bool = True) -> LoadContext:
    return LoadContext(
        base_dir=base_dir,
        needs_files=needs_files,
        provider_types=_installed("cloudgraft.providers"),
        driver_types=_installed("cloudgraft.drivers"),
    )


def _installed(group: str) -> frozenset[str]:
    """The names that installed packages offer in an entry-point group."""
    return frozenset(point.name for point in entry_points(group=group))


def _document(text: str, name: str, example: str, overrides: Mapping[str, object] | None) -> Document:
    document = read_yaml(text, name)
    if document.root.value is None and not document.problems:
        raise ConfigError([document.problem((), "the file is empty", example)])
    for key, value in (overrides or {}).items():
        if value is not None:
            document.override(tuple(key.split(".")), value)
    return document


def _validated(
    document: Document, model: type[S], checks: Callable[[Document], Iterable[Problem]], context: LoadContext
) -> S:
    hide_secrets(document.root.value)  # first: later messages may quote values
    problems = [*document.problems, *checks(document)]
    try:
        found = model.model_validate(document.root.value, context=context)
    except ValidationError as error:
        wrong = explain(error.errors(include_url=False), document, model)
        raise ConfigError([*problems, *wrong]) from None  # the cause would carry the values
    if problems:
        raise ConfigError(problems)
    return found
