"""The environment in which templates of user data run: sandboxed, strict, and bounded in time and size.

A template is written by whoever may configure cloudgraft, so it is no enemy; but a slip in it must not take the whole
process down. Every turn of a loop and every call is counted, and no text can grow without limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from jinja2 import StrictUndefined, Undefined, nodes
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment
from jinja2.tests import TESTS
from jinja2.visitor import NodeTransformer

from cloudgraft.joining.filters import FILTERS, LONGEST
from cloudgraft.sdk.errors import InvalidArgumentError

__all__ = ["MOST_STEPS", "Sandbox", "steps_counted"]

MOST_STEPS: Final = 10_000  # turns of loops, and calls, in one rendering

# Of Jinja's own filters and methods, those that cannot make much out of little.
_HARMLESS: Final = (
    "abs", "d", "default", "dictsort", "first", "float", "int", "items", "last", "length", "list", "lower", "map",
    "reject", "rejectattr", "round", "select", "selectattr", "sort", "string", "trim", "unique", "upper",
)  # fmt: skip
_OF_TEXT: Final = {
    "endswith", "lower", "lstrip", "removeprefix", "removesuffix", "rstrip", "split", "splitlines", "startswith",
    "strip", "upper",
}  # fmt: skip
_OF_MAPPINGS: Final = {"get", "items", "keys", "values"}

_steps: ContextVar[list[int]] = ContextVar("_steps")


@contextmanager
def steps_counted() -> Iterator[None]:
    """Within it, templates may run for a bounded number of steps."""
    mark = _steps.set([MOST_STEPS])
    try:
        yield
    finally:
        _steps.reset(mark)


def _step() -> None:
    left = _steps.get()
    left[0] -= 1
    if left[0] < 0:
        raise InvalidArgumentError(f"the template takes more than {MOST_STEPS} steps: does a loop not end?")


def _counted(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        _step()
        yield value


class _Bounded(NodeTransformer):
    """Puts the counting into loops, and the limit into ``~``."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - Jinja's way of naming them
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, "_counted", [], [], None, None, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - as above
        self.generic_visit(node)
        parts = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(parts, "join", [], [], None, None, lineno=node.lineno)


class Sandbox(SandboxedEnvironment):
    """Jinja, without everything that reads files, runs on, or grows."""

    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def __init__(self, undefined: type[Undefined] = StrictUndefined) -> None:
        super().__init__(
            undefined=undefined,
            autoescape=False,
            optimized=False,  # else a part would be computed before anybody counts
            finalize=_shown,
            keep_trailing_newline=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.filters = {name: JINJA_FILTERS[name] for name in _HARMLESS} | {"_counted": _counted}
        self.filters |= {name: _wanting(function) for name, function in FILTERS.items()}
        self.tests = dict(TESTS)
        self.globals = {name: self.globals[name] for name in ("range", "namespace")}

    def bounded(self, tree: nodes.Template) -> nodes.Template:
        """The same template, with its loops counted."""
        changed = _Bounded().visit(tree)
        if not isinstance(changed, nodes.Template):
            raise TypeError("a template stays a template")
        return changed

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Arithmetic is for numbers; texts and lists can be added, up to a limit."""
        _step()
        numbers = (int, float)
        if operator == "+" and isinstance(left, str | list) and isinstance(right, str | list):
            if len(left) + len(right) > LONGEST:
                raise InvalidArgumentError(f"a text or list would be longer than {LONGEST}")
        elif operator == "**" or not (isinstance(left, numbers) and isinstance(right, numbers)):
            raise InvalidArgumentError(f"{operator} cannot be used here")
        elif max(abs(left), abs(right)) > LONGEST**2:
            raise InvalidArgumentError("a number is too large")
        return super().call_binop(context, operator, left, right)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """``values.items`` is the value of that name, if there is one."""
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Of texts, lists and mappings, only the methods that are harmless."""
        if isinstance(obj, str):
            return attr in _OF_TEXT
        if isinstance(obj, Mapping):
            return attr in _OF_MAPPINGS
        if isinstance(obj, list | tuple | bytes | int | float):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Counts it, then calls."""
        _step()
        return super().call(context, obj, *args, **kwargs)


def _wanting(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter of ours that is given what is not there says so as Jinja does."""

    def wanting(*args: Any, **kwargs: Any) -> Any:
        _step()
        missing = [value for value in (*args, *kwargs.values()) if isinstance(value, Undefined)]
        return str(missing[0]) if missing else function(*args, **kwargs)

    return wanting


def _shown(value: Any) -> Any:
    """What ``{{ … }}`` puts into the text. What would appear in Python's words is a slip."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float | Undefined):
        return value
    kind = "nothing" if value is None else "a mapping" if isinstance(value, Mapping) else "a list"
    raise InvalidArgumentError(f"{kind} cannot be shown as it is: use a filter, such as yaml, json or join")
