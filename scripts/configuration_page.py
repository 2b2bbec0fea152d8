"""Generates `docs/reference/configuration.md` from the models, so that it cannot differ from what is accepted."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from cloudgraft.config.fields import Kind, MoneyPerDay, Price
from cloudgraft.config.kubernetes import TaintEntry
from cloudgraft.config.model import Config
from cloudgraft.config.programs.discovery import (
    DiscoveryClientEntry,
    DiscoveryConfig,
    DiscoveryImport,
    DiscoveryStore,
    DiscoveryVault,
)
from cloudgraft.config.programs.discovery_agent import (
    AgentCluster,
    AgentConfig,
    AgentNetwork,
    AgentPrices,
    AgentServer,
    AgentShare,
    AgentTls,
)
from cloudgraft.config.sections.clouds import CallBackoff, CloudEngine, EntryPointCloud, PluginCloud
from cloudgraft.config.sections.cluster import Kubernetes
from cloudgraft.config.sections.dock import Dock, DockClass, DockDriver, DockEngine, DockKind, DockKubernetes, DockTls
from cloudgraft.config.sections.engine import Engine, Guards, MassAbsence, Orphans, Repair, Webhook
from cloudgraft.config.sections.groups import EvictionHard, GroupOptions, NodeGroupConfig, Template
from cloudgraft.config.sections.join import Join, JoinToken
from cloudgraft.config.sections.node_manager import NodeManager, NodeManagerClient
from cloudgraft.config.sections.process import Backoff
from cloudgraft.config.sections.providers import (
    EntryPointProvider,
    ExternalGrpcProvider,
    ManagerTls,
    NodeManagerProvider,
    PluginProvider,
    RemoteTls,
    Snapshot,
)
from cloudgraft.config.sections.server import Admin, Log, Server, ServerTls
from cloudgraft.config.sections.store import Store
from cloudgraft.config.sections.tracing import CollectorTls, Tracing
from cloudgraft.config.sections.web_server import WebServerTls
from cloudgraft.sdk.duration import format_duration

_INTRO = """\
# Configuration file

One YAML file, given by `cloudgraft serve --config FILE`. It is checked as a whole before anything starts: unknown
keys, wrong types, impossible values and files that cannot be read are reported all at once, one line each, with file,
line, column, key and a suggestion:

```text
cloudgraft.yaml:4:11: server.listn: unknown key (did you mean listen?)
```

- **Paths** are relative to the directory of the file.
- **Durations** are written as Go writes them: `500ms`, `5s`, `1m30s`, `2h`. The units are `ns`, `us`, `ms`, `s`, `m`
  and `h`; a number without a unit is refused.
- **Addresses** are `host:port`, with brackets around IPv6: `[::1]:8086`.
- **Names** are lower-case letters, digits and hyphens, at most 63.
- **Quantities** of cpu, memory and other resources are written as Kubernetes writes them: `4`, `500m`, `16Gi`.
- **Money** is text in quotes, such as `"0.05"`, and all of it is in one currency.
- **Secrets** belong into files or the environment. A problem with a value that may be a secret does not quote it, and
  the value of an option whose name says that it is one (`password`, `apiToken`, ...) appears in no log or message.
- YAML reads `no`, `on` and `yes` as booleans and `1.10` as a number. Where text is wanted, that is refused with the
  advice to use quotes. A duplicate key is an error. Anchors, aliases and `<<` may be used.
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
store: {path: journal.db}
clouds:
  lab:
    driver: plugin
    command: [python3, lab_driver.py]
    env: {LAB_URL: "https://lab.example"}
    engine: {observeEvery: 15s, guards: {maxMachines: 20}}
nodeGroups:
  - id: lab-small
    cloud: lab
    minSize: 0
    maxSize: 10
    zones: [a, b] # two groups: lab-small-a and lab-small-b
    machine: {shape: small, image: ubuntu-24.04}
    template:
      labels: {pool: lab}
      taints: [{key: dedicated, value: batch, effect: NoSchedule}]
      reserved: {cpu: 100m, memory: 500Mi}
    options: {scaleDownUnneededTime: 5m}
    price: {hourly: "0.05", currency: EUR}
guards: {maxMachines: 50, maxCreatesPerHour: 30, maxSpendPerDay: {amount: "40", currency: EUR}}
providers:
  - type: externalgrpc
    name: other
    address: other.example:8086
    tls: {cert: certs/client.crt, key: certs/client.key, ca: certs/ca.crt}
  - type: plugin
    name: office
    command: [python3, office_plugin.py]
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
    ("`server.tls` and `admin.tls`", ServerTls),
    ("`admin`", Admin),
    ("`log`", Log),
    ("`store`", Store),
    ("`clouds`: `driver: plugin`", PluginCloud),
    ("`clouds`: any other driver", EntryPointCloud),
    ("`engine` of a cloud", CloudEngine),
    ("`backoff` in the `engine` of a cloud", CallBackoff),
    ("`nodeGroups`", NodeGroupConfig),
    ("`template` of a node group", Template),
    ("`taints` of a template", TaintEntry),
    ("`evictionHard` of a template", EvictionHard),
    ("`options` of a node group", GroupOptions),
    ("`price` of a node group", Price),
    ("`kubernetes`", Kubernetes),
    ("`join`, of the file and of a node group", Join),
    ("`token` of `join`", JoinToken),
    ("`dock`", Dock),
    ("`dock.tls`", DockTls),
    ("`drivers` of `dock`", DockDriver),
    ("`engines` of `dock`", DockEngine),
    ("`kinds` of a driver or engine of `dock`", DockKind),
    ("`classes` of `dock`", DockClass),
    ("`dock.kubernetes`", DockKubernetes),
    ("`tracing`", Tracing),
    ("`tls` of `tracing`", CollectorTls),
    ("`nodeManager`", NodeManager),
    ("`nodeManager.tls`", WebServerTls),
    ("`clients` of `nodeManager`", NodeManagerClient),
    ("`guards`, of the file and of a cloud", Guards),
    ("`maxSpendPerDay` of guards", MoneyPerDay),
    ("`engine`", Engine),
    ("`engine.repair`", Repair),
    ("`engine.massAbsence`", MassAbsence),
    ("`engine.orphans`", Orphans),
    ("`engine.webhook`", Webhook),
    ("`providers`: `type: externalgrpc`", ExternalGrpcProvider),
    ("`tls` of an `externalgrpc` provider", RemoteTls),
    ("`providers`: `type: node-manager`", NodeManagerProvider),
    ("`tls` of a `node-manager` provider", ManagerTls),
    ("`providers`: `type: plugin`", PluginProvider),
    ("`backoff` of a plugin", Backoff),
    ("`providers`: any other type", EntryPointProvider),
    ("`snapshot` of a provider", Snapshot),
)
_DISCOVERY_INTRO = """# Configuration of discovery

Two files, each of one command: `cloudgraft discovery serve --config discovery.yaml` and, in a remote cluster,
`cloudgraft discovery agent --config agent.yaml`. Paths are relative to the file. Unknown keys and impossible values are
refused at start, all at once, each with its line. [Run a discovery server](../how-to/run-a-discovery-server.md) shows
both in use.
"""
_DISCOVERY_SECTIONS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("The server's file", DiscoveryConfig),
    ("`tls` of the server", WebServerTls),
    ("`clients` of the server", DiscoveryClientEntry),
    ("`store` of the server", DiscoveryStore),
    ("`vault` of the server", DiscoveryVault),
    ("`importSecrets` of the server", DiscoveryImport),
    ("The agent's file", AgentConfig),
    ("`server` of the agent", AgentServer),
    ("`tls` in the `server` of the agent", AgentTls),
    ("`cluster` of the agent", AgentCluster),
    ("`network` in the `cluster` of the agent", AgentNetwork),
    ("`share` of the agent", AgentShare),
    ("`prices` of the agent", AgentPrices),
)

_FIRST = {"type", "driver"}  # the keys that decide which others there are


def markdown() -> str:
    """The whole page."""
    example = f"## Example\n\n```yaml\n{EXAMPLE}```\n"
    return "\n".join([_INTRO, example, *(_section(heading, model) for heading, model in _SECTIONS)])


def discovery_markdown() -> str:
    """The page on the files of discovery."""
    return "\n".join([_DISCOVERY_INTRO, *(_section(heading, model) for heading, model in _DISCOVERY_SECTIONS)])


def _section(heading: str, model: type[BaseModel]) -> str:
    hints = typing.get_type_hints(model, include_extras=True)
    rows = [
        f"| `{field.alias or name}` | {_type(hints[name])} | {_default(field)} | {field.description} |"
        for name, field in sorted(model.model_fields.items(), key=lambda item: item[0] not in _FIRST)
    ]
    head = ["| Key | Type | Default | Meaning |", "|---|---|---|---|"]
    return "\n".join([f"## {heading}", "", inspect.cleandoc(model.__doc__ or ""), "", *head, *rows, ""])


def _type(annotation: Any) -> str:
    """The name of a type on the page."""
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
    if value in ({}, (), ""):
        return "empty"
    text = format_duration(value) if isinstance(value, timedelta) else str(value)
    text = f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else text
    text = text.lower() if isinstance(value, bool) else text
    return f"`{text}`"
