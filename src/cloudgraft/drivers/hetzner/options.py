"""What a configuration file may say about a project of Hetzner Cloud, and about the servers of a group."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cloudgraft.drivers.label_text import HETZNER
from cloudgraft.sdk.driver import ProviderIdBy
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.hosts import is_loopback_host

__all__ = ["MARK", "USER_DATA_LIMIT", "HetznerOptions", "MachineSettings"]

USER_DATA_LIMIT: Final = 32 * 1024  # bytes
MARK: Final = "cloudgraft-"  # how the keys of our own labels begin
_KEY: Final = re.compile(
    r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9._-]{0,251}[a-zA-Z0-9])?/)?[a-zA-Z0-9](?:[a-zA-Z0-9._-]{0,61}[a-zA-Z0-9])?"
)
_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]*")

Reference = int | str  # a thing of the project: its number, or its name


@dataclass(frozen=True, slots=True, kw_only=True)
class HetznerOptions:
    """One project: how it is reached, and where its servers are."""

    token_file: Path  # with an API token of the project that may read and write; read again when it changes
    location: str  # such as fsn1: where servers are made, unless their group says another; prices are those of here
    endpoint: str = "https://api.hetzner.cloud/v1"  # where the API is
    connect_timeout: timedelta = timedelta(seconds=5)  # until the API answers at all
    timeout: timedelta = timedelta(seconds=25)  # until a request is answered
    list_timeout: timedelta = timedelta(seconds=55)  # for a list with all its pages; the engine waits a minute
    list_delay: timedelta = timedelta(seconds=5)  # for how long a new server may be missing from a list
    # Who writes hcloud://ID on the node. Hetzner's own cloud controller writes the same, where there is one.
    providerIDBy: ProviderIdBy = ProviderIdBy.CLOUDGRAFT  # noqa: N815 - spelt as Kubernetes spells it

    def __post_init__(self) -> None:
        """Refuses what can never work, and what would send the token in the clear."""
        _check_name(self.location, "location")
        _check_endpoint(self.endpoint)
        if min(self.connect_timeout, self.timeout, self.list_timeout) <= timedelta(0):
            raise InvalidArgumentError("connectTimeout, timeout and listTimeout must be more than zero")
        if self.list_delay < timedelta(0):
            raise InvalidArgumentError("listDelay must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """The ``machine:`` section of a group. Things are named by their name or by their number."""

    shape: str  # the server type, such as cx23
    # Such as ubuntu-24.04, of which the one for the right architecture is taken; or the number of a snapshot.
    image: Reference
    location: str = ""  # where servers are made; empty: in the cloud's
    networks: Sequence[Reference] = ()  # private ones that it is attached to
    firewalls: Sequence[Reference] = ()  # that guard its public addresses
    ssh_keys: Sequence[Reference] = ()  # for root; empty: Hetzner makes a password, which is not kept
    placement_group: Reference | None = None  # that keeps servers apart; it takes ten at most
    public_ipv4: bool = True  # no: without a public IPv4 address
    public_ipv6: bool = True  # no: without public IPv6 addresses; without any public one it needs a network
    labels: Mapping[str, str] = field(default_factory=dict)  # of the server, beside our own

    def __post_init__(self) -> None:
        """Refuses what can never work."""
        _check_name(self.shape, "shape")
        if self.location != "":
            _check_name(self.location, "location")
        _check_references((self.image,), "image")
        for key, values in (("networks", self.networks), ("firewalls", self.firewalls), ("sshKeys", self.ssh_keys)):
            _check_references(values, key)
        if self.placement_group is not None:
            _check_references((self.placement_group,), "placementGroup")
        if not (self.public_ipv4 or self.public_ipv6 or self.networks):
            raise InvalidArgumentError("without publicIpv4 and publicIpv6 a server needs a network: give networks")
        _check_labels(self.labels)


def _check_name(value: str, key: str) -> None:
    if not _NAME.fullmatch(value):
        raise InvalidArgumentError(f"{key} must be a name: letters, digits, dots and dashes")


def _check_references(values: Sequence[Reference], key: str) -> None:
    for value in values:
        if not (value > 0 if isinstance(value, int) else value.strip() and value.isprintable()):
            raise InvalidArgumentError(f"{key}: {value!r} is neither a name nor a number")


def _check_labels(labels: Mapping[str, str]) -> None:
    for key, value in labels.items():
        if not _KEY.fullmatch(key):
            raise InvalidArgumentError(f"labels: {key!r} cannot be the key of a label")
        if key.startswith(MARK):
            raise InvalidArgumentError(f"labels: {key!r} is a mark of cloudgraft's own; take another key")
        if not HETZNER.takes(value):
            raise InvalidArgumentError(
                f"labels: the value of {key!r} must be at most 63 letters, digits, dots, dashes and underscores, "
                "with a letter or a digit at both ends"
            )


def _check_endpoint(url: str) -> None:
    form = "write it like https://api.hetzner.cloud/v1"
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        raise InvalidArgumentError(f"endpoint is not an address; {form}") from None
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or parts.username is not None:
        raise InvalidArgumentError(f"endpoint is not the address of an API; {form}")
    if parts.scheme == "http" and not is_loopback_host(host):
        raise InvalidArgumentError(
            "endpoint is http to another host: the token would be readable on the way; use https"
        )
