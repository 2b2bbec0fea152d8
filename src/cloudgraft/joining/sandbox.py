"""Renders user-data templates: sandboxed, strict, limited in time and size, with filters that quote and convert."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final
from urllib.parse import urlsplit

from jinja2 import StrictUndefined, Undefined, nodes
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment
from jinja2.tests import TESTS
from jinja2.visitor import NodeTransformer

from cloudgraft.joining.tokens import bundle_hash
from cloudgraft.sdk.errors import InvalidArgumentError

# -- filters -----------------------------------------------------------------------------------------------------------
# Filters of user-data templates quote values for their place, and convert them.
#
# Every filter accepts any value, and its result is limited in size.


LONGEST: Final = 1 << 20  # characters of any text in a template, and of its outcome

# Labels in Kubernetes' own domains that a kubelet may give its node; all others there it must not (NodeRestriction).
_KUBELETS_OWN: Final = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    }
)
_KUBELETS_DOMAINS: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")
_KUBERNETES: Final = ("kubernetes.io", "k8s.io")
# Characters that YAML accepts unescaped between double quotes; U+2028 and U+2029 are line ends there.
_NOT_PLAIN: Final = re.compile("[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_BOOTSTRAP: Final = re.compile("[a-z0-9]{6}[.][a-z0-9]{16}")


def _yaml(value: Any) -> str:
    """A value on one line of YAML, quoted so that no content can break out of it."""
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return _bounded(_NOT_PLAIN.sub(lambda found: f"\\U{ord(found[0]):08x}", text))
    if isinstance(value, Mapping):
        return _bounded("{" + ", ".join(f"{_yaml(str(key))}: {_yaml(item)}" for key, item in value.items()) + "}")
    if isinstance(value, list | tuple):
        return _bounded("[" + ", ".join(_yaml(item) for item in value) + "]")
    return _json(value)


def _json(value: Any) -> str:
    return _bounded(json.dumps(value, allow_nan=False))


def _shell(value: Any) -> str:
    text = _text(value)
    if "\0" in text:
        raise InvalidArgumentError("no shell takes a NUL character")
    return _bounded(shlex.quote(text))


def _indent(value: Any, width: int = 2) -> str:
    """Indents all lines but the first."""
    if not 0 <= width <= 100:
        raise InvalidArgumentError("indent takes 0 to 100")
    text = _text(value)
    _check(len(text) + text.count("\n") * width)
    return text.replace("\n", "\n" + " " * width)


def _replace(value: Any, old: str, new: str) -> str:
    text = _text(value)
    _check(len(text) + text.count(old) * len(new))
    return text.replace(old, new)


def _join(values: Iterable[Any], separator: str = "") -> str:
    parts = [_text(value) for value in values]
    _check(sum(map(len, parts)) + len(separator) * len(parts))
    return separator.join(parts)


def _base64(value: Any) -> str:
    return _bounded(base64.b64encode(_text(value).encode()).decode())


def _sha256(value: Any) -> str:
    return hashlib.sha256(_text(value).encode()).hexdigest()


def _kubelet_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Those that a kubelet may give its own node. The others are added by cloudgraft, when the node has joined."""
    return {key: value for key, value in labels.items() if _is_for_kubelet(key)}


def _is_for_kubelet(key: str) -> bool:
    domain = key.rpartition("/")[0]
    if not _is_within(domain, _KUBERNETES):
        return True
    return key in _KUBELETS_OWN or _is_within(domain, _KUBELETS_DOMAINS)


def _is_within(domain: str, others: Iterable[str]) -> bool:
    return any(domain == other or domain.endswith(f".{other}") for other in others)


def _label_args(labels: Mapping[str, str]) -> list[str]:
    """Labels as kubelet arguments: ``key=value``."""
    return [f"{key}={value}" for key, value in labels.items()]


def _taint_args(taints: Iterable[Mapping[str, str]]) -> list[str]:
    """Taints as kubelet arguments: ``key=value:effect``."""
    return [f"{taint['key']}={taint['value']}:{taint['effect']}" for taint in taints]


def _endpoint(url: str) -> str:
    """``host:port`` of a URL."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{host}:{parts.port or 443}"


def _with_ca_hash(token: str, authority: str) -> str:
    """A bootstrap token in the form of k3s and RKE2, so that a machine can verify the server. Others are unchanged."""
    return f"K10{bundle_hash(authority)}::{token}" if _BOOTSTRAP.fullmatch(token) and authority else token


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise InvalidArgumentError("a text or a number is wanted here")


def _check(length: int) -> None:
    if length > LONGEST:
        raise InvalidArgumentError(f"a text would be longer than {LONGEST} characters")


def _bounded(text: str) -> str:
    _check(len(text))
    return text


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "b64": _base64,
    "endpoint": _endpoint,
    "indent": _indent,
    "join": _join,
    "json": _json,
    "kubelet_labels": _kubelet_labels,
    "label_args": _label_args,
    "replace": _replace,
    "sh": _shell,
    "sha256": _sha256,
    "taint_args": _taint_args,
    "with_ca_hash": _with_ca_hash,
    "yaml": _yaml,
}


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
    """Limits the number of steps that templates may run."""
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
    """Adds step counting to loops, and the size limit to ``~``."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - Jinja's way of naming them
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, "_counted", [], [], None, None, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - as above
        self.generic_visit(node)
        parts = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(parts, "join", [], [], None, None, lineno=node.lineno)


class Sandbox(SandboxedEnvironment):
    """Jinja without everything that reads files, runs without end, or grows without limit."""

    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def __init__(self, undefined: type[Undefined] = StrictUndefined) -> None:
        super().__init__(
            undefined=undefined,
            autoescape=False,
            optimized=False,  # else a part would be computed before steps are counted
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
        """Counts the step, then calls."""
        _step()
        return super().call(context, obj, *args, **kwargs)


def _wanting(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a filter of ours fail on an undefined value as Jinja does."""

    def wanting(*args: Any, **kwargs: Any) -> Any:
        _step()
        missing = [value for value in (*args, *kwargs.values()) if isinstance(value, Undefined)]
        return str(missing[0]) if missing else function(*args, **kwargs)

    return wanting


def _shown(value: Any) -> Any:
    """The text of ``{{ … }}``. A value that would appear in Python's notation is an error."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float | Undefined):
        return value
    kind = "nothing" if value is None else "a mapping" if isinstance(value, Mapping) else "a list"
    raise InvalidArgumentError(f"{kind} cannot be shown as it is: use a filter, such as yaml, json or join")
