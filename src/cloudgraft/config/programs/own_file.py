"""Loads the files of other programs: the same rules, another model at the root."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from cloudgraft.config.document import Document, read_yaml
from cloudgraft.config.explain import explain
from cloudgraft.config.fields import LoadContext
from cloudgraft.config.problems import ConfigError, Problem
from cloudgraft.config.section import Section, hide_secrets

S = TypeVar("S", bound=Section)
_MOST_BYTES = 1 << 20


def _no_checks(_document: Document) -> Iterable[Problem]:
    return ()


def load_own(
    path: Path,
    model: type[S],
    *,
    example: str,
    checks: Callable[[Document], Iterable[Problem]] = _no_checks,
    overrides: Mapping[str, object] | None = None,
) -> S:
    """Reads and checks a file whose keys are those of ``model``. Raises ConfigError with all problems at once.

    ``example`` is the smallest such file. ``checks`` finds problems between its parts, in plain values. ``overrides``
    are values from the command line by dotted key; they win over those of the file.
    """
    document = read_yaml(_text(path, example), str(path))
    if document.root.value is None and not document.problems:
        raise ConfigError([document.problem((), "the file is empty", example)])
    for key, value in (overrides or {}).items():
        document.override(tuple(key.split(".")), value)
    hide_secrets(document.root.value)  # first: later messages may quote values
    problems = [*document.problems, *checks(document)]
    context = LoadContext(base_dir=path.absolute().parent)
    try:
        found = model.model_validate(document.root.value, context=context)
    except ValidationError as error:
        wrong = explain(error.errors(include_url=False), document, model)
        raise ConfigError([*problems, *wrong]) from None  # the cause would carry the values
    if problems:
        raise ConfigError(problems)
    return found


def _text(path: Path, example: str) -> str:
    name = str(path)
    try:
        with path.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError([Problem(file=name, message="no such file", suggestion=example)]) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a file name"
        raise ConfigError([Problem(file=name, message=f"cannot be read: {reason}")]) from None
    if len(content) > _MOST_BYTES:
        raise ConfigError([Problem(file=name, message="is larger than 1 MiB, so it cannot be a configuration file")])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError([Problem(file=name, message="is not UTF-8", suggestion="save it as UTF-8")]) from None
