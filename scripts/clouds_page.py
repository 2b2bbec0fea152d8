"""The page of clouds: what each driver takes, what its cloud's errors mean, and by what it was judged, and when.

A cloud that nothing was judged by is not on it. What an option is for stands as a comment beside it in the code, and is
read from there.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from cloudgraft.drivers.common.error_table import ErrorTable
from cloudgraft.plugins.registry import Kind, extensions
from cloudgraft.validation.explain import item_type, keys_of, unwrap
from clouds.record import read_record
from scripts.field_comments import fields_in

ROOT = Path(__file__).resolve().parent.parent
# By whose errors those are told that a driver's own table does not name.
KIN = {"ec2-asg": "ec2"}
# The pages that are not named use-DRIVER.md.
HOW_TO = {"ec2-asg": "use-ec2-auto-scaling-groups.md", "router": "use-several-clouds-for-one-group.md"}


def clouds_page() -> str:
    record = read_record()
    lines = [
        "# Clouds",
        "",
        "Every driver of a cloud, with what it was judged by. To judge a driver is to run the",
        "[conformance suite for drivers](../how-to/test-your-driver.md), a scale-up and a scale-down through the",
        "engine, and what else is named. `make test-clouds` does it again on your machine, and says which of them it",
        "cannot have there. A *fake* was written for cloudgraft from the public description of a cloud's API, because",
        "the cloud itself cannot be started on one's own machine: it proves less than the real one.",
        "",
        "`ec2-asg` is a provider and has no engine: it is judged in a server, by the",
        "[conformance kit](../how-to/judge-any-server.md) and a scale-up and a scale-down by the autoscaler's calls.",
        "",
        "Each driver is an extra: `pip install '.[NAME]'` at the top of this tree. `router` is there without one, and",
        "`ec2-asg` comes with `ec2`.",
        "",
        "| driver | judged by | on | seen |",
        "|---|---|---|---|",
        *(_judged(name, entry) for name, entry in record.items()),
        "",
    ]
    for driver in sorted({entry["driver"] for entry in record.values()}):
        lines += _driver(driver)
    return "\n".join(lines)


def _judged(name: str, entry: Mapping[str, Any]) -> str:
    driver = entry["driver"]
    title = f"[`{driver}`](#{driver})" + (f" ({name})" if name != driver.replace("-", "_") else "")
    return f"| {title} | {entry['judgedBy']} | {entry['on']} | {'; '.join(entry['checks'])} |"


def _driver(driver: str) -> Iterator[str]:
    is_provider = driver in {provider.name for provider in extensions(Kind.PROVIDER)}
    package = f"cloudgraft.{'providers' if is_provider else 'drivers'}.{driver.replace('-', '_')}"
    options = importlib.import_module(f"{package}.options")
    yield from (f"## {driver}", "")
    how_to = HOW_TO.get(driver, f"use-{driver}.md")
    if not (ROOT / "docs" / "how-to" / how_to).exists():
        raise LookupError(f"{driver} has no page docs/how-to/{how_to}")
    yield from (f"[How to use it](../how-to/{how_to}).", "")
    if is_provider:
        yield from _table(f"In `options` of a provider with `type: {driver}`:", _options_class(options, driver))
    else:
        yield from _table(f"Beside `driver: {driver}`:", _options_class(options, driver))
        yield from _table("In a group's `machine`:", options.MachineSettings)
    module = _module(f"{package}.errors")
    errors, launches = getattr(module, "ERRORS", None), getattr(module, "LAUNCHES", None)
    kin = KIN.get(driver, "")
    otherwise = f"means what it does for [`{kin}`](#{kin})" if kin else "is told by its status"
    if isinstance(errors, ErrorTable):
        title = f"What its errors mean (`cloudgraft` [errors](errors.md)); what is not named {otherwise}:"
        yield from _errors(title, errors)
    if isinstance(launches, ErrorTable):
        yield from _errors(f"What it notes about launches that failed; a code of EC2's {otherwise}:", launches)


def _module(name: str) -> Any:
    """None when there is no such module."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            return None
        raise


def _options_class(module: Any, driver: str) -> type:
    cls: type = getattr(module, f"{driver.replace('-', ' ').title().replace(' ', '')}Options")
    return cls


# -- options -----------------------------------------------------------------------------------------------------------


def _table(title: str, cls: type) -> list[str]:
    rows = list(_rows(cls))
    if not rows:
        return []
    return [title, "", "| key | type | unless said | what for |", "|---|---|---|---|", *rows, ""]


def _rows(cls: Any, before: str = "") -> Iterator[str]:
    comments, defaults = _comments(cls), {field.name: field for field in dataclasses.fields(cls)}
    for name, key in keys_of(cls).items():
        inner = unwrap(key.annotation)
        of_items = item_type(inner)
        section = inner if dataclasses.is_dataclass(inner) else unwrap(of_items) if of_items is not None else None
        field = defaults[key.field]
        what = comments.get(key.field, "")
        yield f"| `{before}{name}` | {_type(key.annotation)} | {_default(field)} | {what} |"
        if isinstance(section, type) and dataclasses.is_dataclass(section) and not before.count("."):
            yield from _rows(section, f"{before}{name}{_inside(inner, section)}.")


def _inside(inner: Any, section: type) -> str:
    """How a path goes on: into a section, into each of a list, or into each of a mapping with names of its own."""
    if section is inner:
        return ""
    origin = getattr(inner, "__origin__", None)
    return ".NAME" if isinstance(origin, type) and issubclass(origin, Mapping) else "[]"


def _type(annotation: Any) -> str:
    """In a reader's words."""
    plain = unwrap(annotation)
    words: dict[Any, str] = {str: "text", int: "number", float: "number", bool: "boolean", Path: "path"}
    words[timedelta] = "duration"
    if plain in words:
        return words[plain]
    if isinstance(plain, type) and issubclass(plain, enum.Enum):
        return ", ".join(f"`{member.value}`" for member in plain)
    origin = getattr(plain, "__origin__", None)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "mapping"
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return f"list of {_type(plain.__args__[0])}"
    if isinstance(plain, type) and dataclasses.is_dataclass(plain):
        return "section"
    args = [arg for arg in getattr(plain, "__args__", ()) if arg is not type(None)]
    return " or ".join(dict.fromkeys(_type(arg) for arg in args)) or str(getattr(plain, "__name__", plain)).lower()


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return ""
    if field.default is dataclasses.MISSING:
        return "must be set"
    value = field.default
    if value is None or value in ("", ()):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    return f"`{getattr(value, 'value', value)}`"


def _comments(cls: type) -> dict[str, str]:
    """What stands beside each field, or above it."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base):
            found |= {field.name: _told(field.text) for field in fields_in(inspect.getsource(base))}
    return found


def _told(text: str) -> str:
    return (text[:1].upper() + text[1:]).replace("|", "\\|")


# -- errors ------------------------------------------------------------------------------------------------------------


def _errors(title: str, table: ErrorTable) -> Iterator[str]:
    yield from (title, "")
    yield from ("| its error | ours | what to do |", "|---|---|---|")
    for row in table.rows:
        said = [f"`{row.code}`"] if row.code else []
        said += [f"status {row.status}"] if row.status is not None else []
        said += [f"“{row.text}”"] if row.text else []
        yield f"| {', '.join(said).replace('|', chr(92) + '|')} | `{row.error.slug}` | {row.fix} |"
    yield ""
