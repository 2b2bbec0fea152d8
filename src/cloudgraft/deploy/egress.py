"""Finds the hosts and ports that a configuration makes the server call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from cloudgraft.config import Config
from cloudgraft.sdk.hosts import is_loopback_host
from cloudgraft.validation.problems import KeyPath

OPEN_PORTS: Final = frozenset({443, 6443})  # networkPolicy.egressPorts of the chart
_PORTS: Final[Mapping[str, int]] = {
    "https": 443,
    "http": 80,
    "qemu+ssh": 22,
    "qemu+tls": 16514,
    "qemu+tcp": 16509,
}
# Options that hold a host, with or without a port, in place of a URL: the driver, the key, and the usual port.
_HOSTS: Final = {("vsphere", "server"): 443, ("dock", "address"): 443}
_FOR_OTHERS: Final = frozenset({"seedUrl"})  # URLs that others call


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A host that the server calls, and the key that says so."""

    host: str
    port: int
    path: KeyPath

    @property
    def is_this_host(self) -> bool:
        """Whether it is the pod itself, in the cluster."""
        return is_loopback_host(self.host)


def endpoints(config: Config) -> list[Endpoint]:
    """All of them but the database, for which the chart has a value of its own."""
    root = config.where().document.root.value
    found: list[Endpoint] = []
    for name, cloud in config.clouds.items():
        options = {key: value for key, value in root["clouds"][name].items() if key != "engine"}
        found += _urls(options, ("clouds", name))
        for (driver, key), port in _HOSTS.items():
            if cloud.driver == driver and isinstance(options.get(key), str) and options[key]:
                found += _of_url(f"//{options[key]}", port, ("clouds", name, key))
    for index, value in enumerate(root.get("providers", ())):
        path: KeyPath = ("providers", index)
        if value.get("type") == "externalgrpc" and not str(value["address"]).startswith("unix:"):
            found += _of_url(f"//{value['address']}", 443, (*path, "address"))
        found += _urls(value, path)
    if config.engine.webhook is not None:
        found += _urls(root["engine"]["webhook"], ("engine", "webhook"))
    if config.tracing is not None:
        found += _of_url(f"//{config.tracing.endpoint}", 443, ("tracing", "endpoint"))
    if config.kubernetes is not None:
        # Machines call them, but they have the port of the API's servers, which the server in the pod calls too.
        if config.join is not None and config.join.server:
            found += _urls({"server": config.join.server}, ("join",))
        for index, group in enumerate(config.node_groups):
            if group.join is not None and group.join.server:
                found += _urls({"server": group.join.server}, ("nodeGroups", index, "join"))
    return found


def _urls(value: Any, path: KeyPath) -> Iterator[Endpoint]:
    if isinstance(value, str):
        yield from _of_url(value, None, path)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if key not in _FOR_OTHERS:
                yield from _urls(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _urls(each, (*path, index))


def _of_url(text: str, port: int | None, path: KeyPath) -> Iterator[Endpoint]:
    try:
        parts = urlsplit(text)
        found = parts.port or port or _PORTS.get(parts.scheme)
        if parts.hostname and found and (port is not None or "://" in text):
            yield Endpoint(host=parts.hostname, port=found, path=path)
    except ValueError:  # no URL, although it has the look of one
        return
