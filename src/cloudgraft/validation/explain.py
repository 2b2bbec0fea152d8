"""Explains pydantic's errors: the place, what is wrong, and what to write instead."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Tag
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from cloudgraft.sdk.common.nearest import nearest
from cloudgraft.sdk.driver import Place
from cloudgraft.sdk.flaws import FlawedError
from cloudgraft.sdk.secrecy import may_name_a_secret
from cloudgraft.validation.document import Document
from cloudgraft.validation.problems import KeyPath, Problem, printable

# -- keys and types of sections ----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key of a section: its field, pydantic's name for it in errors, its type, an example, and its default place."""

    field: str
    location: str
    annotation: Any
    example: str = ""
    place: Place | None = None


def unwrap(annotation: Any) -> Any:
    """The type without ``Annotated`` and without ``| None``; a union of several types stays one."""
    if typing.get_origin(annotation) is Annotated:
        return unwrap(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in {typing.Union, types.UnionType}:
        others = [arg for arg in typing.get_args(annotation) if arg is not type(None)]
        return unwrap(others[0]) if len(others) == 1 else annotation
    return annotation


def keys_of(annotation: Any) -> dict[str, Key]:
    """The keys of a section by their names in the file; empty for a type that is no section."""
    section = unwrap(annotation)
    if not isinstance(section, type):
        return {}
    if issubclass(section, BaseModel):
        return {field.alias or name: _model_key(name, field) for name, field in section.model_fields.items()}
    if dataclasses.is_dataclass(section):
        hints = typing.get_type_hints(section, include_extras=True)
        names = [field.name for field in dataclasses.fields(section) if field.init]
        return {to_camel(name): _field_key(name, hints[name]) for name in names}
    return {}


def _field_key(name: str, annotation: Any) -> Key:
    return Key(field=name, location=name, annotation=annotation, place=_place(typing.get_args(annotation)))


def _model_key(name: str, field: FieldInfo) -> Key:
    example, location = str(field.examples[0]) if field.examples else "", field.alias or name
    place = _place(field.metadata)
    return Key(field=name, location=location, annotation=field.annotation, example=example, place=place)


def _place(marks: Iterable[object]) -> Place | None:
    return next((mark for mark in marks if isinstance(mark, Place)), None)


def item_type(annotation: Any) -> Any:
    """The type of a list's items, or of the values of a mapping with free keys; None for anything else."""
    plain = unwrap(annotation)
    origin, args = typing.get_origin(plain), typing.get_args(plain)
    if not isinstance(origin, type) or not args:
        return None
    if issubclass(origin, Mapping):
        return args[1]
    return args[0] if issubclass(origin, Collection) else None


def is_union(annotation: Any) -> bool:
    """Whether it is a union of several types, None aside, that have no tags."""
    return typing.get_origin(unwrap(annotation)) in {typing.Union, types.UnionType} and not branches(annotation)


def branches(annotation: Any) -> dict[str, Any]:
    """The types of a tagged union, by their tags; empty for anything else."""
    plain = unwrap(annotation)
    if typing.get_origin(plain) not in {typing.Union, types.UnionType}:
        return {}
    tagged = [arg for arg in typing.get_args(plain) if typing.get_origin(arg) is Annotated]
    return {extra.tag: arg for arg in tagged for extra in typing.get_args(arg)[1:] if isinstance(extra, Tag)}


def follow(annotation: Any, location: tuple[str | int, ...]) -> tuple[KeyPath, Any]:
    """Converts pydantic's location of an error to the path in the file, and the type that holds its last element.

    pydantic names the fields of a dataclass as Python does, and puts the branch it took of a union in between.
    """
    path: list[str | int] = []
    holder: Any = None
    here = annotation
    for part in location:
        tagged = branches(here)
        if part in tagged:
            here = tagged[str(part)]
            continue
        if is_union(here):
            here = next((kind for kind in typing.get_args(unwrap(here)) if keys_of(kind) or item_type(kind)), None)
            continue
        holder = here
        keys = keys_of(here)
        name = next((name for name, key in keys.items() if part == key.location), part)
        path.append(name)
        here = keys[str(name)].annotation if name in keys else item_type(here)
    return tuple(path), holder


def path_in_file(annotation: Any, path: KeyPath) -> KeyPath:
    """Returns the path with the keys of the file in place of Python's names of fields, at any depth.

    An author who names a field as the class does means its key: ``boot_time`` is ``bootTime`` in the file.
    """
    found: list[str | int] = []
    here = annotation
    for part in path:
        keys = keys_of(here)
        name = part if part in keys else next((name for name, key in keys.items() if part == key.field), part)
        found.append(name)
        here = keys[str(name)].annotation if name in keys else item_type(here)
    return tuple(found)


UNKNOWN_KEY = "unknown key"  # the message of that problem
_NEVER_SHOWN = {"env", "options", "machine"}  # whatever their keys are called
_OURS_IN_A_CLOUD = {"driver", "engine"}  # all else there is the driver's own
_UNION = "union"  # our type of an error: no type of a union fits
OF_A_KEY = "[key]"  # pydantic's mark for a key of a mapping that is wrong itself
_YAML_BOOLEAN = re.compile(r"(?i)y|n|yes|no|on|off|true|false")
_WANTED = {
    "string_type": "a string",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "float_parsing": "a number",
    "bool_parsing": "true or false",
    "float_type": "a number",
    "decimal_parsing": "a number",
    "decimal_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "sequence_str": "a list",
    "dict_type": "a mapping of keys to values",
    "mapping_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
    "dataclass_type": "a mapping of keys to values",
}
_LIMITS = {
    "greater_than_equal": ("ge", "at least"),
    "less_than_equal": ("le", "at most"),
    "greater_than": ("gt", "more than"),
    "less_than": ("lt", "less than"),
}


def explain(errors: Iterable[ErrorDetails], document: Document, model: Any, prefix: KeyPath = ()) -> Iterator[Problem]:
    """All problems behind the errors of one validation. ``prefix`` is the model's path in the file."""
    for error in _merged(errors, model):
        at_key = error["loc"][-1:] == (OF_A_KEY,)
        own, holder = follow(model, error["loc"][:-1] if at_key else error["loc"])
        path = (*prefix, *own)
        if any(path[: len(unread)] == unread for unread in document.unread):
            continue
        flawed = error.get("ctx", {}).get("error")
        if isinstance(flawed, FlawedError):
            for flaw in flawed.flaws:
                yield document.problem((*prefix, *path_in_file(model, (*own, *flaw.path))), flaw.message)
        elif error["type"] == "extra_forbidden":
            yield unknown_key(document, path, list(keys_of(holder)))
        elif error["type"] != "too_short" or not error["input"]:  # wrong entries are reported one by one
            yield _problem(error, document, path, holder, at_key=at_key)


def _merged(errors: Iterable[ErrorDetails], model: Any) -> Iterator[ErrorDetails]:
    """Makes one error of those of a union: pydantic reports each of its types that a value does not have."""
    found: dict[KeyPath, list[ErrorDetails]] = {}
    for error in errors:
        found.setdefault(follow(model, error["loc"])[0], []).append(error)
    for same in found.values():
        wanted = list(dict.fromkeys(_WANTED.get(error["type"], "") for error in same))
        if len(wanted) > 1 and all(wanted):
            yield {**same[0], "type": _UNION, "ctx": {"wanted": " or ".join(wanted)}}
        else:
            yield from same


def unknown_key(document: Document, path: KeyPath, known: Sequence[str]) -> Problem:
    """A key that is not known here, at the key's own place."""
    suggestion = did_you_mean(str(path[-1]), known) or f"known here: {', '.join(sorted(known)) or 'none'}"
    return document.problem(path, UNKNOWN_KEY, suggestion, at_key=True)


def _problem(error: ErrorDetails, document: Document, path: KeyPath, holder: Any, *, at_key: bool) -> Problem:
    kind, value = error["type"], error["input"]
    context: Mapping[str, Any] = error.get("ctx", {})
    if kind == "union_tag_not_found":
        return _no_type(document, path, value)
    if kind == "missing":
        message, suggestion = _missing(path, holder)
    elif kind in _WANTED or kind == _UNION:
        message, suggestion = _wrong_type(context.get("wanted") or _WANTED[kind], document, path, value)
    elif kind in {"literal_error", "enum", "choice"}:
        message, suggestion = _wrong_choice(context, value, path)
    elif kind in _LIMITS:
        key, words = _LIMITS[kind]
        limit = context[key]
        message, suggestion = f"must be {words} {f'{limit:g}' if isinstance(limit, float) else limit}", ""
    elif kind == "too_short":
        message, suggestion = "needs at least one entry", ""
    elif kind == "cloudgraft":
        path, message, suggestion = (*path, *context["at"]), context["message"], context["suggestion"]
    else:
        message, suggestion = _foreign(error, path), ""
    return document.problem(path, message, suggestion, at_key=at_key)


def _foreign(error: ErrorDetails, path: KeyPath) -> str:
    """The message of the library or of an author's validator, which may repeat the value."""
    if error["type"] in {"value_error", "assertion_error"} and _may_hold_secret(path):
        return "is not valid"
    text = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return "".join(char if char.isprintable() else " " for char in text)


def _missing(path: KeyPath, holder: Any) -> tuple[str, str]:
    key = keys_of(holder).get(str(path[-1]))
    return "is missing", f"for example {path[-1]}: {key.example}" if key and key.example else ""


def _no_type(document: Document, path: KeyPath, value: Any) -> Problem:
    """The problem of a provider without a type, or a cloud without a driver."""
    if not isinstance(value, Mapping):
        return document.problem(path, *_wrong_type(_WANTED["dict_type"], document, path, value))
    is_cloud = path[0] == "clouds"
    key = "driver" if is_cloud else "type"
    choices = (
        "plugin, or the name of an installed driver"
        if is_cloud
        else ("externalgrpc, plugin, or the name of an installed provider")
    )
    at = (*path, key)
    if key not in value:
        return document.problem(at, "is missing", choices)
    return document.problem(at, *_wrong_type("a string", document, at, value[key]))


def _wrong_type(wanted: str, document: Document, path: KeyPath, value: Any) -> tuple[str, str]:
    entry = document.find(path)
    raw = entry.raw if entry else None
    if value is None:
        return f"must be {wanted}, but has no value", "remove the key, or write a value"
    if wanted == "a string" and raw is not None and isinstance(value, bool | int | float):
        # The Norway problem: `no` is false, `1.10` is 1.1, `0755` is 493.
        harmless = _YAML_BOOLEAN.fullmatch(raw) is not None or not _may_hold_secret(path)
        shown = printable(raw) if harmless else "it"
        quoted = f'write "{printable(raw)}"' if harmless else "put it into quotes"
        return f"must be a string, but YAML reads {shown} as {_kind(value)}", quoted
    return f"must be {wanted}, not {_kind(value)}", ""


def _wrong_choice(context: Mapping[str, Any], value: Any, path: KeyPath) -> tuple[str, str]:
    if "choices" in context:
        choices = list(context["choices"])
        message = f"no {context['what']} {printable(str(value))} is installed"
    else:
        choices = re.findall(r"'([^']*)'", str(context.get("expected", "")))
        message = f"must be one of {', '.join(choices)}" if choices else f"must be {context.get('expected')}"
    close = "" if _may_hold_secret(path) else did_you_mean(str(value), choices)
    return message, close or (f"there is: {', '.join(choices)}" if "choices" in context else "")


def did_you_mean(given: str, known: Sequence[str]) -> str:
    """The nearest known word, case aside: `listenAddress`, `Listen`, `lsiten` and `force_options` all have one."""
    wanted = given.lower().replace("_", "").replace("-", "")[:100]
    near = nearest(wanted, known, cutoff=0.7, fold=str.lower)
    close = [near] if near is not None else []
    if len(wanted) > 2:
        close += [name for name in known if name.lower().startswith(wanted) or wanted.startswith(name.lower())]
    close += [name for name in known if sorted(name.lower()) == sorted(wanted)]
    return f"did you mean {close[0]}?" if close else ""


def _may_hold_secret(path: KeyPath) -> bool:
    if path[:1] == ("clouds",) and len(path) > 2 and path[2] not in _OURS_IN_A_CLOUD:
        return True
    return any(isinstance(part, str) and (part in _NEVER_SHOWN or may_name_a_secret(part)) for part in path)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    names = {int: "a number", float: "a number", str: "a string", list: "a list", dict: "a mapping"}
    return names.get(type(value), "something else")
