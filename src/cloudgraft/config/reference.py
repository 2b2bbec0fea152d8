"""The page `docs/reference/configuration.md`, made from the models: it cannot differ from what is accepted."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from cloudgraft.config.fields import Kind
from cloudgraft.config.model import Config, Log, Server, ServerTls
from cloudgraft.config.providers import (
    Backoff,
    EntryPointProvider,
    ExternalGrpcProvider,
    PluginProvider,
    RemoteTls,
    Snapshot,
)
from cloudgraft.sdk.duration import format_duration

__all__ = ["EXAMPLE", "markdown"]

_INTRO = """\
# Configuration file

One YAML file, given by `cloudgraft serve --config FILE`. It is checked as a whole before anything starts: unknown
keys, wrong types, impossible values and files that cannot be read are told all at once, one line each, with file,
line, column, key and a suggestion:

```text
cloudgraft.yaml:4:11: server.listn: unknown key (did you mean listen?)
```

- **Paths** are relative to the directory of the file.
- **Durations** are written as Go writes them: `500ms`, `5s`, `1m30s`, `2h`. The units are `ns`, `us`, `ms`, `s`, `m`
  and `h`; a number without a unit is refused.
- **Addresses** are `host:port`, with brackets around IPv6: `[::1]:8086`.
- **Names** are lower-case letters, digits and hyphens, at most 63.
- **Secrets** belong into files or the environment. What is wrong with a value that may be a secret is told without it.
- YAML reads `no`, `on` and `yes` as booleans and `1.10` as a number. Where text is wanted, that is refused with the
  advice to use quotes. A key that is there twice is an error. Anchors, aliases and `<<` may be used.
- The file must be UTF-8, and at most 1 MiB.
"""

EXAMPLE = """\
cluster: prod
server:
  listen: 0.0.0.0:8086
  tls:
    cert: certs/server.crt
    key: certs/server.key
    clientCA: certs/ca.crt
    allowedClients: [cluster-autoscaler-grpc-client]
  ops: 127.0.0.1:8087
log: {level: 2, format: json}
providers:
  - type: externalgrpc
    name: other
    address: other.example:8086
    tls: {cert: certs/client.crt, key: certs/client.key, ca: certs/ca.crt}
  - type: plugin
    name: lab
    command: [python3, lab_plugin.py]
    env: {LAB_URL: "https://lab.example"}
    snapshot: {refreshEvery: 10s}
  - type: memory
    snapshot: false
    options:
      groups: [{id: small, maxSize: 3}]
"""

# Heading, model: in the order of the page.
_SECTIONS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("The file", Config),
    ("`server`", Server),
    ("`server.tls`", ServerTls),
    ("`log`", Log),
    ("`providers`: `type: externalgrpc`", ExternalGrpcProvider),
    ("`tls` of an `externalgrpc` provider", RemoteTls),
    ("`providers`: `type: plugin`", PluginProvider),
    ("`backoff` of a `plugin` provider", Backoff),
    ("`providers`: any other type", EntryPointProvider),
    ("`snapshot` of a provider", Snapshot),
)


def markdown() -> str:
    """The whole page."""
    example = f"## Example\n\n```yaml\n{EXAMPLE}```\n"
    return "\n".join([_INTRO, example, *(_section(heading, model) for heading, model in _SECTIONS)])


def _section(heading: str, model: type[BaseModel]) -> str:
    hints = typing.get_type_hints(model, include_extras=True)
    rows = [
        f"| `{field.alias or name}` | {_type(hints[name])} | {_default(field)} | {field.description} |"
        for name, field in model.model_fields.items()
    ]
    head = ["| Key | Type | Default | Meaning |", "|---|---|---|---|"]
    return "\n".join([f"## {heading}", "", model.__doc__ or "", "", *head, *rows, ""])


def _type(annotation: Any) -> str:
    """A type in the words of the page."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        kinds = [extra.text for extra in args[1:] if isinstance(extra, Kind)]
        return kinds[-1] if kinds else _type(args[0])
    if origin in {typing.Union, types.UnionType}:
        others = [arg for arg in args if arg is not type(None)]
        return "mapping" if len(others) > 1 else _type(others[0])
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in args)
    if origin is tuple:
        item = _type(args[0])
        return f"list of {item}s"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "mapping" if args[1] is Any else "mapping of strings"
    names = {bool: "true or false", int: "whole number"}
    return names.get(annotation, "mapping" if issubclass(annotation, BaseModel) else annotation.__name__)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "none"
    if isinstance(value, BaseModel):
        return "its own defaults"
    if isinstance(value, dict):
        return "empty"
    text = format_duration(value) if isinstance(value, timedelta) else str(value).lower()
    return f"`{text}`"
