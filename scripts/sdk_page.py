"""Renders the reference page of the SDK from its docstrings, and from the comments at its fields.

Everything that `cloudgraft.sdk` exports is on the page, and every field has a text: the page is not made otherwise.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, Final, get_args

from cloudgraft import sdk
from cloudgraft.plugins.field_comments import Field, fields_in
from cloudgraft.sdk import driver as driver_module
from cloudgraft.sdk.errors import error_table

_INTRO: Final = """\
# SDK

Everything that the author of a driver or provider imports from `cloudgraft.sdk`. It needs only Python's standard
library. The rules that the engine relies on are in [the drivers' contract](driver-contract.md). [Your first
driver](../tutorial/your-first-driver.md) and [a driver for an HTTP API](../how-to/write-a-driver-for-an-http-api.md)
show it in use.
"""
_ERRORS: Final = """\
All errors are subclasses of `CloudgraftError`. [Errors](errors.md) says of each whether it promises that nothing was
done, what the engine does then, and which HTTP answers belong to it.
"""
_DRIVER: Final = """\
`BlockingDriver` has plain methods, which run in threads: right for most libraries of clouds. `Driver` is the same with
`async` methods. Three methods are required; the others have a default.
"""
_PROVIDER: Final = """\
Write a provider when your cloud has node groups of its own, with a size that it keeps itself. `BlockingProvider` has
plain methods, `Provider` the same with `async`.
"""


def sdk_page() -> str:
    """The whole page, in Markdown."""
    lines = [
        _INTRO,
        *_methods("Drivers", sdk.BlockingDriver, sdk.Driver, _DRIVER),
        "## Declarations",
        "",
        *_described(sdk.DriverDeclarations, level=0),
        *_table("attribute", _fields(sdk.DriverDeclarations)),
        *_aliases(),
        *_described(sdk.MaxSizeCheck),
        *_signatures(sdk.MaxSizeCheck),
        *_described(sdk.Flaws, text=_flaws_text()),
        *_signatures(sdk.Flaws),
        *_described(sdk.FlawedError),
        "## Traits",
        "",
        *_value(sdk.DriverTraits),
        *_value(sdk.Ownership),
        *_value(sdk.Idempotency),
        *_value(sdk.ProviderIdBy),
        "## Machines",
        "",
        *_value(sdk.MachineSpec),
        *_value(sdk.Machine),
        *_value(sdk.MachineState),
        *_described(sdk.PartialList),
        *_value(sdk.Shape),
        *_value(sdk.Price),
        *_described(sdk.Quantity),
        *_described(sdk.InvalidQuantityError),
        *_value(sdk.Taint),
        "## Errors",
        "",
        _ERRORS,
        *_described(sdk.CloudgraftError),
        *(line for cls in error_table() for line in _described(cls)),
        *_value(sdk.ErrorClass),
        *_function(sdk.http_error),
        "### `HttpCall`",
        "",
        f"A type: one of {', '.join(f'`{call}`' for call in get_args(sdk.HttpCall))}.",
        "",
        "## Secrets",
        "",
        *_function(sdk.hide),
        *_methods("Providers", sdk.BlockingProvider, sdk.Provider, _PROVIDER),
        *_value(sdk.NodeGroup),
        *_value(sdk.NodeRef),
        *_value(sdk.Instance),
        *_value(sdk.InstanceState),
        *_value(sdk.InstanceError),
        *_value(sdk.NodeTemplate),
        *_value(sdk.NodeCondition),
        *_value(sdk.AutoscalingOptions),
        *_value(sdk.Pod),
        *_value(sdk.Container),
        *_function(sdk.pod_requests),
    ]
    page = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"
    missing = [name for name in sdk.__all__ if not re.search(rf"^#+ .*`{name}`|^\| `{name}`", page, re.MULTILINE)]
    if missing:
        raise LookupError(f"cloudgraft.sdk exports names that its page does not have: {', '.join(missing)}")
    return page


# -- parts of the page -------------------------------------------------------------------------------------------------


def _described(cls: type, *, level: int = 3, text: str = "") -> list[str]:
    heading = [f"{'#' * level} `{cls.__name__}`", ""] if level else [f"### `{cls.__name__}`", ""]
    return [*heading, text or _text(cls), ""]


def _value(cls: type) -> list[str]:
    """A value: its docstring, and its fields or members."""
    word = "member" if "__members__" in dir(cls) else "field"
    return [*_described(cls), *_table(word, [field for field in _fields(cls) if field.name != "source"])]


def _table(word: str, fields: list[Field]) -> list[str]:
    default = "value" if word == "member" else "default"
    with_types = word != "member"
    head = f"| {word} |" + (" type |" if with_types else "") + f" {default} | meaning |"
    rows = [head, "|---" * (4 if with_types else 3) + "|"]
    for field in fields:
        kind = f" `{_escaped(field.annotation)}` |" if with_types else ""
        rows.append(f"| `{field.name}` |{kind} {_default(field.default)} | {_escaped(field.text)} |")
    return [*rows, ""]


def _methods(title: str, blocking: type, asynchronous: type, intro: str) -> Iterator[str]:
    yield from (f"## {title}", "", intro)
    yield from (f"### `{blocking.__name__}` and `{asynchronous.__name__}`", "", _text(blocking), "")
    yield from _signatures(blocking)
    only = [name for name in _names(asynchronous) if not hasattr(blocking, name)]
    if only:
        yield f"Only `{asynchronous.__name__}` has these, for its replies to be sent without a call:"
        yield ""
        yield from _signatures(asynchronous, only)


def _signatures(cls: type, names: list[str] | None = None) -> Iterator[str]:
    for name in names or _names(cls):
        method = inspect.getattr_static(cls, name)
        required = ", required" if getattr(method, "__isabstractmethod__", False) else ""
        yield f"**`{_signature(name, getattr(cls, name))}`**{required}"
        yield ""
        yield _text(getattr(cls, name))
        yield ""


def _function(function: Any) -> list[str]:
    return [f"### `{function.__name__}`", "", f"`{_signature(function.__name__, function)}`", "", _text(function), ""]


def _aliases() -> Iterator[str]:
    """The types for fields of ``Options``, with the comments at their definitions."""
    declared = {field.name: field.text for field in fields_in(inspect.getsource(driver_module))}
    for name in ("StateFile", "WorkingDirectory"):
        words = f"A type for a field of `Options`, with None as the default: {declared[name]}."
        yield from (f"### `{name}`", "", words, "")
    yield from ("### `MadePath`", "", f"A type for a field of `Options`: {declared['MadePath']}.", "")


def _flaws_text() -> str:
    module = inspect.getmodule(sdk.Flaws)
    return _text(module)


def _names(cls: type) -> list[str]:
    """Its public methods, in the order of the source."""
    return [name for name, value in vars(cls).items() if not name.startswith("_") and callable(value)]


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    parameters = [one for key, one in signature.parameters.items() if key != "self"]
    text = str(signature.replace(parameters=parameters)).replace("'", "")
    return f"{name}{re.sub(r'[a-z_]+[.](?=[A-Za-z])', '', text)}"


# -- texts of the source -----------------------------------------------------------------------------------------------


def _fields(cls: type) -> list[Field]:
    """The fields of a class; raises LookupError for one without a text."""
    fields = [field for field in fields_in(inspect.getsource(cls)) if not field.name.startswith("_")]
    if bare := [field.name for field in fields if not field.text]:
        raise LookupError(f"fields of {cls.__name__} have no comment for the reference page: {', '.join(bare)}")
    return fields


def _text(thing: Any) -> str:
    """The docstring as Markdown."""
    text = inspect.getdoc(thing) or ""
    if not text:
        raise LookupError(f"{thing} has no docstring for the reference page")
    text = re.sub(r"::\n\n((?:    .*\n?|\n)+)", lambda found: f":\n\n```python\n{_dedented(found[1])}\n```\n", text)
    return _plain(text)


def _dedented(text: str) -> str:
    return inspect.cleandoc("\n" + text).strip()


def _plain(text: str) -> str:
    """Sphinx's roles as code, with the last part of the name unless it is a module's."""
    text = re.sub(r":(?!mod)\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", text)
    text = re.sub(r":mod:`~?([\w.]+)`", r"`\1`", text)
    return re.sub(r"(?<!`)``([^`]+)``(?!`)", r"`\1`", text)


def _escaped(text: str) -> str:
    return _plain(text).replace("|", "\\|")


def _default(source: str) -> str:
    if not source:
        return "required"
    source = re.sub(r"^field\((.*)\)$", r"\1", source)
    if found := re.search(r"default_factory=(\w+)", source):
        source = f"{found[1]}()"
    elif found := re.search(r"default=([^,]+)", source):
        source = found[1]
    return f"`{_escaped(source)}`"
