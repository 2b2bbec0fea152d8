"""Prints the list of `cloudgraft drivers`, and what it says of one driver or provider."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any

import click

from cloudgraft.cli.terminal import clean, console, fail, print_table, text
from cloudgraft.plugins.describe import FieldDescription, describe
from cloudgraft.plugins.registry import Extension, Kind, Listing, extensions, glance_at_all, list_all
from cloudgraft.sdk.common.extras import install_command
from cloudgraft.sdk.common.nearest import nearest
from cloudgraft.sdk.driver import DriverDeclarations, DriverTraits
from cloudgraft.sdk.duration import format_duration
from cloudgraft.sdk.errors import CloudgraftError

# -- the list ----------------------------------------------------------------------------------------------------------


def print_list(output: str) -> None:
    """Prints all that are installed."""
    if output == "json":
        click.echo(json.dumps([_as_json(listing) for listing in list_all()], indent=2))
    else:
        _print(glance_at_all())


def _print(found: Sequence[Listing]) -> None:
    rows = [[one.name, "" if one.kind is Kind.DRIVER else "provider", one.summary, _needs(one)] for one in found]
    print_table(["NAME", "", "WHAT IT IS", "NEEDS"], rows)
    lacking = [one for one in found if one.lacks_extras]
    for package in dict.fromkeys(one.distribution for one in lacking):
        click.echo(f"To install what one needs: {install_command('NAME', package=package)}")
    for one in found:
        if one.error and not one.lacks_extras:
            click.echo(clean(one.error))
    click.echo("`cloudgraft drivers NAME` shows the options of one.")
    click.echo("For another cloud, `cloudgraft new driver NAME` writes a driver to start from.")


def _needs(listing: Listing) -> object:
    if listing.error and not listing.lacks_extras:
        return text("cannot be used", "red")
    needed = f"extra {', '.join(listing.extras)}" if listing.extras else ""
    return text(f"{needed}, not installed", "yellow") if listing.lacks_extras else needed


# -- one of them -------------------------------------------------------------------------------------------------------


def print_one(name: str, output: str) -> None:
    """Prints the options, machine settings and traits of one."""
    found = [extension for kind in Kind for extension in extensions(kind) if extension.name == name]
    if not found:
        known = [extension.name for kind in Kind for extension in extensions(kind)]
        close = nearest(name, known)
        hint = f"did you mean {close}?" if close else f"there is: {', '.join(known)}"
        fail(f"no installed package offers a driver or provider {name!r}", hint=hint)
    described = [_description(extension) for extension in found]
    if output == "json":
        click.echo(json.dumps(described[0], indent=2))
        return
    for one in described:
        _print_one(one)


def _description(extension: Extension) -> dict[str, Any]:
    """Everything about one, as JSON."""
    listing = extension.listing()
    try:
        cls: Any = extension.load()
    except CloudgraftError:
        return _as_json(listing)
    options = list(describe(cls.Options))
    more: dict[str, Any] = {"options": [_field(one) for one in options]}
    machine: list[FieldDescription] = []
    if issubclass(cls, DriverDeclarations):
        machine = list(describe(cls.MachineSettings))
        more["machineSettings"] = [_field(one) for one in machine]
        more["traits"] = _traits(cls)
    more["example"] = "\n".join(_example(listing, options, machine))
    return {**_as_json(listing), **more}


def _field(one: FieldDescription) -> dict[str, Any]:
    return {
        "name": one.key,
        "required": one.is_required,
        "type": one.type.replace("`", ""),
        "default": one.default.strip("`") or None,
        "description": one.purpose,
    }


def _traits(cls: type[DriverDeclarations]) -> dict[str, Any] | None:
    """The traits that the class declares; None where its options decide."""
    if cls.traits is DriverDeclarations.traits or not isinstance(cls.traits, DriverTraits):
        return None
    values = dataclasses.asdict(cls.traits)
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return format_duration(value)
    return value.value if isinstance(value, Enum) else value


def _example(
    listing: Listing, options: Sequence[FieldDescription], machine: Sequence[FieldDescription]
) -> Iterator[str]:
    """The least that a configuration needs, with the type in place of each value."""
    required = [f"{one.key}: {_value(one)}" for one in options if one.is_required and "." not in one.key]
    if listing.kind is Kind.PROVIDER:
        yield "providers:"
        yield f"  - type: {listing.name}"
        yield from (["    options:", *(f"      {line}" for line in required)] if required else [])
        return
    yield "clouds:"
    yield f"  my-{listing.name}:"
    yield f"    driver: {listing.name}"
    yield from (f"    {line}" for line in required)
    yield "nodeGroups:"
    yield f"  - id: my-{listing.name}-group"
    yield f"    cloud: my-{listing.name}"
    yield "    maxSize: 5"
    settings = [f"{one.key}: {_value(one)}" for one in machine if one.is_required and "." not in one.key]
    yield from (["    machine:", *(f"      {line}" for line in settings)] if settings else [])


def _value(one: FieldDescription) -> str:
    kind = one.type.partition(" or ")[0]
    return {"mapping": "{}", "section": "{}", "boolean": "true", "number": "1"}.get(
        kind, "[]" if kind.startswith("list") else kind.strip("`").partition("`")[0].upper()
    )


def _print_one(one: dict[str, Any]) -> None:
    screen = console()
    screen.print(text(f"{one['name']}: {one['kind']} of {one['distribution']} {one['version']}", "bold"))
    if one["summary"]:
        click.echo(clean(one["summary"]))
    if one["extras"]:
        click.echo(f"It needs the extra {', '.join(one['extras'])}.")
    if one["error"]:
        click.echo(clean(one["error"]))
        return
    where = f"beside `driver: {one['name']}`" if one["kind"] == "driver" else f"in `options` of `type: {one['name']}`"
    _print_fields(f"Options, {where}:", one["options"])
    if "machineSettings" in one:
        _print_fields("In a group's `machine`:", one["machineSettings"])
        click.echo("\nTraits:")
        if one["traits"] is None:
            click.echo("  its options decide, or the defaults of the SDK hold")
        else:
            for name, value in one["traits"].items():
                click.echo(f"  {name}: {'-' if value in (None, '') else value}")
    click.echo("\nThe least, with types in place of values:\n")
    click.echo("\n".join(f"  {line}" for line in one["example"].splitlines()))


def _print_fields(title: str, fields: Sequence[dict[str, Any]]) -> None:
    click.echo(f"\n{title}")
    if not fields:
        click.echo("  none are declared")
        return
    rows = [
        [one["name"], one["type"], "must be set" if one["required"] else one["default"] or "", one["description"]]
        for one in fields
    ]
    print_table(["KEY", "TYPE", "DEFAULT", "WHAT FOR"], rows)


def _as_json(listing: Listing) -> dict[str, Any]:
    return {
        "kind": listing.kind.word,
        "name": listing.name,
        "target": listing.target,
        "distribution": listing.distribution,
        "version": listing.version,
        "summary": listing.summary,
        "extras": list(listing.extras),
        "options": [{"name": option.name, "required": option.is_required} for option in listing.options],
        "error": listing.error or None,
    }
