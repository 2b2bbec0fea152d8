"""Generates a runnable example receiver in one file from the OpenAPI description."""

from __future__ import annotations

import importlib.resources
import json
import re
from pathlib import Path
from typing import Any, Final

from cloudgraft.drivers.http.openapi import describe
from cloudgraft.sdk.errors import AlreadyExistsError, InternalError, UnavailableError

_TEMPLATE: Final = "receiver.py.tmpl"  # the suffix keeps tools from taking it for code
_PLACE: Final = re.compile(r"\$([a-z_]+)")


def write_receiver(path: Path) -> None:
    """Writes the program to a new file."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(receiver_source())
    except FileExistsError:
        raise AlreadyExistsError(f"{path} is there already: choose another name, or move it away") from None
    except OSError as error:
        raise UnavailableError(f"cannot write {path}: {error.strerror}") from error


def receiver_source(description: dict[str, Any] | None = None) -> str:
    """Returns the program for a description of a receiver, by default for the one that the driver calls."""
    facts = _facts(description or describe())

    def fact(match: re.Match[str]) -> str:
        if match[1] not in facts:
            raise InternalError(f"the template of the receiver asks for {match[1]!r}, which no description has")
        return facts[match[1]]

    return _PLACE.sub(fact, importlib.resources.files(__package__).joinpath(_TEMPLATE).read_text("utf-8"))


def _facts(description: dict[str, Any]) -> dict[str, str]:
    """Returns the parts of the description that the program uses, as Python."""
    parts = description["components"]
    signature = parts["securitySchemes"]["signature"]
    parameters = parts["parameters"]
    signed = (signature["name"], signature["x-version"], signature["x-age"], signature["x-shortest-key"])
    error = parts["schemas"]["Error"]["properties"]["error"]["properties"]["code"]
    return {
        "version": description["info"]["version"],
        "routes": _several("(", ")", [_python(route) for route in _routes(description["paths"])]),
        "statuses": _several("{", "}", [f"{_python(code)}: {status}" for code, status in error["x-statuses"].items()]),
        "required": _python(tuple(parts["schemas"]["MachineSpec"]["required"])),
        "signature": _python(signed),
        "queries": _python((parameters["PageToken"]["name"], parameters["MachineName"]["name"])),
        "idempotency_key": _python(parameters["IdempotencyKey"]["name"]),
    }


def _routes(paths: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Returns method, regular expression of the path, and operation of each route."""
    return [
        (method.upper(), re.sub(r"\{\w+\}", "([^/]+)", path), operation["operationId"])
        for path, operations in paths.items()
        for method, operation in operations.items()
    ]


def _several(begin: str, end: str, lines: list[str]) -> str:
    return "\n".join([begin, *(f"    {line}," for line in lines), end])


def _python(value: object) -> str:
    """Writes a value as the formatter would: with double quotes."""
    if isinstance(value, tuple):
        return f"({', '.join(_python(item) for item in value)})"
    return json.dumps(value)
