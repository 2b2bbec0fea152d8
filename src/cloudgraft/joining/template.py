"""Checks a user-data template at start, and reports everything that is wrong with file and line."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, Self

from jinja2 import Template, TemplateRuntimeError, TemplateSyntaxError, Undefined, meta, nodes
from jinja2.utils import missing

from cloudgraft.joining.sandbox import LONGEST, Sandbox, steps_counted
from cloudgraft.sdk.common.nearest import nearest
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError

# The variables of a template, and what to write when one is unknown. Those without advice are always known.
VARIABLES: Final[Mapping[str, str]] = {
    "name": "",
    "group": "",
    "cloud": "",
    "cluster": "",
    "provider_id": "",
    "labels": "",
    "taints": "",
    "values": "",
    "settings": "",
    "token_seconds": "",
    "keep_trying": "",
    "server": "write join.server",
    "ca_cert": "write join.caFile, or kubernetes with a kubeconfig that has one",
    "ca_cert_hash": "write join.caFile, or kubernetes with a kubeconfig that has one",
    "ca_cert_hashes": "write join.caFile, or kubernetes with a kubeconfig that has one",
    "token": "write kubernetes, for one token per machine, or a lasting one as token in join.valuesFile",
    "token_id": "write kubernetes, for one token per machine",
    "token_secret": "write kubernetes, for one token per machine",
}
_GIVEN: Final = {
    "values": "write it into join.values, or into join.valuesFile if it is secret",
    "settings": "write it into the machine section of the group",
}
_TOKENS: Final = frozenset({"token", "token_id", "token_secret"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """Something wrong in a template. ``line`` counts from 1; 0 when it is not known."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}" if self.line else f"{self.file}: {self.message}"


class TemplateError(InvalidArgumentError):
    """A template cannot be used. Holds all mistakes that were found; ``str()`` is one line for each."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = tuple(sorted(set(mistakes), key=lambda mistake: (mistake.line, mistake.message)))
        super().__init__("\n".join(map(str, self.mistakes)))


class UserDataTemplate:
    """A compiled template."""

    def __init__(self, text: str, file: str) -> None:
        """Raises TemplateError when it cannot work, whatever the values are."""
        self._file = file
        try:
            tree = Sandbox().parse(text, filename=file)
        except TemplateSyntaxError as error:
            raise TemplateError([Mistake(file=file, line=error.lineno, message=error.message or "not valid")]) from None
        except RecursionError:
            raise TemplateError([Mistake(file=file, line=0, message="is nested too deep")]) from None
        mistakes = [*_unknown_words(tree, file), *_unknown_names(tree, file)]
        if mistakes:
            raise TemplateError(mistakes)
        self._text = text
        self._template = self._compiled(Sandbox())
        self.needs_token = bool(meta.find_undeclared_variables(tree) & _TOKENS)

    def render(self, variables: Mapping[str, Any]) -> str:
        """The text for these values. Raises TemplateError with the line when they do not fit."""
        return self._run(self._template, variables)

    def mistakes(self, *examples: Mapping[str, Any]) -> Sequence[Mistake]:
        """Mistakes with these values: everything that is missing, and the first error."""
        lacking: list[tuple[str, int]] = []
        names = {id(variables[name]): name for variables in examples for name in _GIVEN if name in variables}

        class Noted(_Noted):
            noted = lacking
            file = self._file
            given = names

        found: list[Mistake] = []
        template = self._compiled(Sandbox(Noted))
        for variables in examples:
            try:
                self._run(template, variables)
            except TemplateError as error:
                found += error.mistakes
        lines = template.get_corresponding_lineno
        found += [
            Mistake(file=self._file, line=lines(line) if line else 0, message=message) for message, line in lacking
        ]
        return found

    def _compiled(self, environment: Sandbox) -> Template:
        tree = environment.bounded(environment.parse(self._text, filename=self._file))
        code = environment.compile(tree, filename=self._file)
        return Template.from_code(environment, code, environment.globals)

    def _run(self, template: Template, variables: Mapping[str, Any]) -> str:
        parts: list[str] = []
        length = 0
        try:
            with steps_counted():
                for part in template.root_render_func(template.new_context(dict(variables))):
                    length = _within_limit(length + len(part))
                    parts.append(part)
        except TemplateError:
            raise
        except Exception as error:  # noqa: BLE001 - all errors of a template are reported in the same way
            raise TemplateError([self._mistake(template, error)]) from None
        return "".join(parts)

    def _mistake(self, template: Template, error: Exception) -> Mistake:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == self._file]
        line = template.get_corresponding_lineno(lines[-1]) if lines and lines[-1] else 0
        if isinstance(error, RecursionError):
            message = "a macro or loop calls itself without end"
        elif isinstance(error, CloudgraftError | TemplateRuntimeError):
            message = str(error)
        else:
            message = f"{type(error).__name__}: {error}"[:200]
        return Mistake(file=self._file, line=line, message=message)


def _within_limit(length: int) -> int:
    if length > LONGEST:
        raise InvalidArgumentError(f"the user data is longer than {LONGEST} characters")
    return length


class _Noted(Undefined):
    """An undefined value: it is recorded and counts as empty, so that the rest is checked too."""

    noted: list[tuple[str, int]]
    file: str
    given: Mapping[int, str]  # mappings from the configuration, by identity

    def _note(self) -> Self:
        name = str(self._undefined_name)
        message = self._undefined_message
        if self._undefined_obj is missing:
            message = f"{name} is not known: {VARIABLES[name]}" if VARIABLES.get(name) else message
        elif place := self.given.get(id(self._undefined_obj)):
            message = f"{place}.{name} is not given: {_GIVEN[place]}"
        self.noted.append((message, _line_of(sys._getframe(1), self.file)))  # noqa: SLF001 - no other way to the line
        return self

    def __getattr__(self, name: str) -> Any:
        if name[:2] == "__":
            raise AttributeError(name)
        return self._note()

    def __getitem__(self, _: object) -> Any:
        return self._note()

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self._note()

    def __str__(self) -> str:
        self._note()
        return ""

    def __iter__(self) -> Iterator[Any]:
        self._note()
        return iter(())

    def __len__(self) -> int:
        self._note()
        return 0

    def __bool__(self) -> bool:
        self._note()
        return False

    def __eq__(self, other: object) -> bool:
        self._note()
        return False

    __hash__ = Undefined.__hash__


def _line_of(frame: FrameType | None, file: str) -> int:
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    return 0 if frame is None else frame.f_lineno


def _unknown_words(tree: nodes.Template, file: str) -> Iterator[Mistake]:
    """Unknown filters and tests, and statements that would read other files."""
    environment = Sandbox()
    for node in tree.find_all((nodes.Filter, nodes.Test)):
        kind, known = ("filter", environment.filters) if isinstance(node, nodes.Filter) else ("test", environment.tests)
        if node.name not in known:
            yield Mistake(
                file=file, line=node.lineno, message=f"there is no {kind} {node.name}{_near(node.name, known)}"
            )
    for other in tree.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)):
        yield Mistake(file=file, line=other.lineno, message="a template cannot read other files: write it in one")


def _unknown_names(tree: nodes.Template, file: str) -> Iterator[Mistake]:
    if any(_unknown_words(tree, file)):
        return  # Jinja cannot look further then
    known = {*VARIABLES, *Sandbox().globals}
    unknown = meta.find_undeclared_variables(tree) - known
    for node in tree.find_all(nodes.Name):
        if node.name in unknown and node.ctx == "load":
            message = f"{node.name} is not known here{_near(node.name, known)}"
            yield Mistake(file=file, line=node.lineno, message=message)


def _near(name: str, known: Any) -> str:
    close = nearest(name, [word for word in known if not word.startswith("_")])
    return f" (did you mean {close}?)" if close else ""
