"""Defines the types of configuration values: durations, addresses, files, names."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainSerializer,
    PlainValidator,
    StrictStr,
    ValidationInfo,
)
from pydantic_core import PydanticCustomError

from cloudgraft.config.section import Section
from cloudgraft.sdk.common.files import stat_of
from cloudgraft.sdk.duration import format_duration, parse_duration
from cloudgraft.sdk.hosts import is_loopback_host
from cloudgraft.validation.paths import nearby, shown
from cloudgraft.validation.problems import KeyPath


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadContext:
    """The context of validation: the directory of the file, and the installed providers and drivers."""

    base_dir: Path
    provider_types: frozenset[str] | None = None  # None: do not check
    driver_types: frozenset[str] | None = None  # None: do not check
    needs_files: bool = True  # False: another host will read them, so they may be missing on this one


@dataclass(frozen=True, slots=True)
class Kind:
    """The name of a type on the reference page."""

    text: str


def installed(what: str, types: str, own: set[str]) -> AfterValidator:
    """Accepts the name of an installed package, or one of ``own``, which need none.

    ``types`` is the field of the context with the names of installed packages.
    """

    def check(name: str, info: ValidationInfo) -> str:
        known = getattr(info.context, types, None)
        if known is not None and name not in known:
            raise PydanticCustomError("choice", "{what}", {"what": what, "choices": sorted({*own, *known})})
        return name

    return AfterValidator(check)


def chosen_by(key: str, own: set[str]) -> Discriminator:
    """Chooses the model of a mapping by the text of a key: one tag for each of ``own``, and one for all others."""

    def tag(value: Any) -> str | None:
        # Not the bare text: an element of an error's path must not be taken for a key of the file.
        text = value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)
        if not isinstance(text, str):
            return None
        return f"{key}={text}" if text in own else f"{key}=…"

    return Discriminator(tag)


def refuse(message: str, suggestion: str = "", *, at: KeyPath = ()) -> PydanticCustomError:
    """A validator's error; ``at`` is a path below the field, for a place within its value."""
    return PydanticCustomError("cloudgraft", "{message}", {"message": message, "suggestion": suggestion, "at": at})


def matching(pattern: str, message: str, suggestion: str) -> AfterValidator:
    """Accepts text that matches the whole pattern."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise refuse(message, suggestion)
        return value

    return AfterValidator(check)


# -- durations ---------------------------------------------------------------------------------------------------------


def _duration(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except ValueError as error:
            message, _, suggestion = str(error).partition(": ")
            raise refuse(message, suggestion) from None
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise refuse("a duration needs a unit", f"seconds? write {value:g}s")
    raise refuse("must be a duration", "for example 5s, 1m30s or 250ms")


def _not_negative(value: timedelta) -> timedelta:
    if value < timedelta(0):
        raise refuse("must not be negative", "for example 5s")
    return value


def _positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise refuse("must be more than zero", "for example 5s")
    return value


_Duration = Annotated[timedelta, BeforeValidator(_duration), PlainSerializer(format_duration), Kind("duration")]
Duration = Annotated[_Duration, AfterValidator(_not_negative)]
PositiveDuration = Annotated[_Duration, AfterValidator(_positive)]


# -- numbers -----------------------------------------------------------------------------------------------------------

Share = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False), Kind("number from 0 to 1")]


# -- names -------------------------------------------------------------------------------------------------------------


def _name(value: str) -> str:
    if re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", value):
        return value
    proposal = re.sub(r"[^a-z0-9]+", "-", value[:63].lower()).strip("-")
    hint = f"for example {proposal}" if proposal else "for example prod-1"
    raise refuse("must be lower-case letters, digits and hyphens, at most 63, with no hyphen at the ends", hint)


def _text(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise refuse("must not be empty and must not hold control characters")
    return value


Name = Annotated[StrictStr, AfterValidator(_name), Kind("name")]
Variable = Annotated[
    StrictStr,
    matching("[A-Za-z_][A-Za-z0-9_]*", "must be the name of an environment variable", "for example ACME_TOKEN"),
    Kind("string"),
]
Text = Annotated[StrictStr, AfterValidator(_text), Kind("string")]


# -- addresses ---------------------------------------------------------------------------------------------------------

_HOST_PORT = re.compile(r"(?:\[(?P<bracketed>[^\[\]]+)\]|(?P<plain>[^\s:\[\]/]*)):(?P<port>[0-9]{1,5})")


def _listening(port: str) -> str:
    return f"write 127.0.0.1:{port} for this host, 0.0.0.0:{port} for all addresses"


def _calling(port: str) -> str:
    return f"write the host too, for example provider.example:{port}"


def _address(example: str, lowest_port: int, with_host: Callable[[str], str]) -> Callable[[str], str]:
    """``with_host`` completes a bare port."""

    def check(value: str) -> str:
        if value.startswith("unix:"):
            if not value.startswith("unix:/"):
                raise refuse("the path of a unix socket must be absolute", "for example unix:/run/cloudgraft.sock")
            return value
        match = _HOST_PORT.fullmatch(value)
        if match is None:
            if value.isdecimal():
                raise refuse("is a port without a host", with_host(value))
            if "://" in value:
                raise refuse("is an address without scheme and path", f"for example {example}")
            if value.count(":") > 1 and not value.startswith("["):
                raise refuse("an IPv6 address goes into brackets", "for example [::1]:8086")
            raise refuse("must be host:port", f"for example {example}")
        if not match["bracketed"] and not match["plain"]:
            raise refuse("has no host", with_host(match["port"]))
        if not lowest_port <= int(match["port"]) <= 65535:
            raise refuse(f"the port must be between {lowest_port} and 65535", f"for example {example}")
        return value

    return check


def _not_a_port(with_host: Callable[[str], str]) -> BeforeValidator:
    """Answers a bare port, which YAML reads as a number, with an address that works."""

    def check(value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 65535:
            raise refuse("is a port without a host", with_host(str(value)))
        return value

    return BeforeValidator(check)


ListenAddress = Annotated[
    StrictStr,
    _not_a_port(_listening),
    AfterValidator(_address("127.0.0.1:8086", 0, _listening)),
    Kind("address to listen on"),
]
RemoteAddress = Annotated[
    StrictStr,
    _not_a_port(_calling),
    AfterValidator(_address("provider.example:8086", 1, _calling)),
    Kind("address"),
]


def is_loopback(address: str) -> bool:
    """Whether only this host can reach an address that a server listens on."""
    return address.startswith("unix:") or is_loopback_host(address.rpartition(":")[0])


def check_closed(address: str, tls: object, *, section: str, power: str, instead: str = "") -> str:
    """Law 9: closed by default. Without TLS, accepts only an address that no other host can reach.

    ``power`` is what anyone can do who reaches the port; ``instead`` is another way out, beside TLS and loopback.
    """
    if tls is None and not is_loopback(address):
        raise refuse(
            f"without TLS only a loopback address is allowed, because anyone who reaches this port can {power}",
            f"add {section}tls with the files of `cloudgraft certs init`, or listen on 127.0.0.1{instead}",
        )
    return address


# -- files -------------------------------------------------------------------------------------------------------------


def _path(value: Any, info: ValidationInfo) -> Path:
    """A path, relative to the file. Text that is no path may be the secret itself, so the error does not repeat it."""
    if isinstance(value, Path):
        return value
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "must be a string")
    if "-----BEGIN" in value or "\n" in value or "\0" in value or len(value) > 1000 or _looks_like_base64(value):
        raise refuse("this is not a path; the content belongs into a file", "write the path of that file here")
    if not value.strip():
        raise refuse("must not be empty", "write the path of a file")
    return (info.context.base_dir if isinstance(info.context, LoadContext) else Path()) / value


def _looks_like_base64(value: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9+/]{80,}={0,2}", value) is not None


def is_readable_here(path: Path, info: ValidationInfo) -> bool:
    """Whether a validator may read the file: not outside of a load, and not when it may be missing and is."""
    context = info.context
    return isinstance(context, LoadContext) and (context.needs_files or os.access(path, os.R_OK))


def _readable_file(path: Path, info: ValidationInfo) -> Path:
    if not is_readable_here(path, info):
        return path
    try:
        found = stat_of(path)
        if found is None:
            raise refuse(f"no such file: {shown(path)}", nearby(path))
        if stat.S_ISDIR(found.st_mode):
            raise refuse(f"is a directory: {shown(path)}", "name the file in it")
        with path.open("rb"):
            return path
    except OSError as error:
        raise refuse(f"cannot be read: {shown(path)}: {error.strerror}", "it must be readable for this user") from None


def _directory(path: Path, info: ValidationInfo) -> Path:
    if is_readable_here(path, info) and not _is_directory(path):
        raise refuse(f"no such directory: {shown(path)}", "paths are relative to the directory of this file")
    return path


def _new_file(path: Path, info: ValidationInfo) -> Path:
    if isinstance(info.context, LoadContext) and info.context.needs_files:
        if _is_directory(path):
            raise refuse(f"is a directory: {shown(path)}", "name the file in it")
        if not _is_directory(path.parent):
            raise refuse(f"no such directory: {shown(path.parent)}", "make it first; the file itself need not be there")
    return path


def _is_directory(path: Path) -> bool:
    try:
        found = stat_of(path)
    except OSError as error:  # such as a name that is too long, or a directory above that this user may not enter
        raise refuse(f"cannot be used: {shown(path)}: {error.strerror}", "name another place") from None
    return found is not None and stat.S_ISDIR(found.st_mode)


ReadableFile = Annotated[Path, BeforeValidator(_path), AfterValidator(_readable_file), Kind("file")]
NewFile = Annotated[Path, BeforeValidator(_path), AfterValidator(_new_file), Kind("file")]
Directory = Annotated[Path, BeforeValidator(_path), AfterValidator(_directory), Kind("directory")]


# -- money -------------------------------------------------------------------------------------------------------------
# Text in the file, because a number in YAML would be a float.


_AMOUNT = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")


def _money(value: Any) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "must be a string")
    if not _AMOUNT.fullmatch(value):
        raise refuse("must be an amount of money", 'for example "0.05"')
    return Decimal(value)


def _not_free(amount: Decimal) -> Decimal:
    if not amount:
        raise refuse("must be more than zero", "leave it out for none")
    return amount


Money = Annotated[Decimal, PlainValidator(_money), Kind("amount of money")]
_Cost = Annotated[Money, AfterValidator(_not_free)]
Currency = Annotated[
    StrictStr,
    matching("[A-Z]{3}", "must be the three capital letters of a currency", "for example EUR"),
    Kind("currency"),
]


class Price(Section):
    """The price of one machine of the group. All prices and limits of the file are in one currency."""

    hourly: _Cost = Field(description="Per hour, in quotes.", examples=['"0.05"'])
    currency: Currency = Field(description="Its three letters.", examples=["EUR"])


class MoneyPerDay(Section):
    """An amount of money."""

    amount: _Cost = Field(description="In 24 hours, in quotes.", examples=['"40"'])
    currency: Currency = Field(description="Its three letters.", examples=["EUR"])
