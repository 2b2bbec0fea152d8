"""Defines the options of the driver ``hetzner`` and the ``machine:`` section of its groups."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from cloudgraft.drivers.common.label_text import HETZNER
from cloudgraft.sdk.driver import ProviderIdBy
from cloudgraft.sdk.flaws import Flaws
from cloudgraft.sdk.hosts import check_url

USER_DATA_LIMIT: Final = 32 * 1024  # bytes
MARK: Final = "cloudgraft-"  # prefix of our label keys
_KEY: Final = re.compile(
    r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9._-]{0,251}[a-zA-Z0-9])?/)?[a-zA-Z0-9](?:[a-zA-Z0-9._-]{0,61}[a-zA-Z0-9])?"
)
_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]*")
_NAMED: Final = "must be a name: letters, digits, dots and dashes"

Reference = int | str  # a resource of the project: its id or its name
_EXAMPLE: Final = "https://api.hetzner.cloud/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class HetznerOptions:
    """One project: its API access and location."""

    token_file: Path  # with an API token of the project that may read and write; read again when it changes
    location: str  # such as fsn1: where servers are created, unless their group sets another; also for prices
    endpoint: str = "https://api.hetzner.cloud/v1"  # the URL of the API
    connect_timeout: timedelta = timedelta(seconds=5)  # to open a connection
    timeout: timedelta = timedelta(seconds=25)  # for the response to one request
    list_timeout: timedelta = timedelta(seconds=55)  # for a list with all its pages; the engine waits a minute
    list_delay: timedelta = timedelta(seconds=5)  # how long a new server may be missing from a list
    # Who writes hcloud://ID on the node. Hetzner's own cloud controller writes the same, where there is one.
    providerIDBy: ProviderIdBy = ProviderIdBy.CLOUDGRAFT  # noqa: N815 - spelt as Kubernetes spells it

    def __post_init__(self) -> None:
        """Refuses invalid values, and those that would send the token in the clear."""
        flaws = Flaws()
        flaws.expect(_NAME.fullmatch(self.location), "location", _NAMED)
        with flaws.at("endpoint"):
            check_url(self.endpoint, example=_EXAMPLE, exposed="the token")
        flaws.expect_positive(connectTimeout=self.connect_timeout, timeout=self.timeout, listTimeout=self.list_timeout)
        flaws.expect_not_negative(listDelay=self.list_delay)
        flaws.raise_any()


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """The ``machine:`` section of a group. Resources are given by name or id."""

    shape: str  # the server type, such as cx23
    # Such as ubuntu-24.04, for the architecture of the shape; or the id of a snapshot.
    image: Reference
    location: str = ""  # where servers are created; empty: the cloud's location
    networks: Sequence[Reference] = ()  # private networks to attach
    firewalls: Sequence[Reference] = ()  # for its public addresses
    ssh_keys: Sequence[Reference] = ()  # for root; empty: Hetzner generates a password, which is not stored
    placement_group: Reference | None = None  # that spreads servers over hosts; it holds ten at most
    public_ipv4: bool = True  # no: without a public IPv4 address
    public_ipv6: bool = True  # no: without public IPv6 addresses; without any public one it needs a network
    labels: Mapping[str, str] = field(default_factory=dict)  # of the server, beside our own

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        flaws = Flaws()
        flaws.expect(_NAME.fullmatch(self.shape), "shape", _NAMED)
        flaws.expect(self.location == "" or _NAME.fullmatch(self.location), "location", _NAMED)
        group = () if self.placement_group is None else (self.placement_group,)
        _check_references(flaws, {"image": (self.image,), "placementGroup": group})
        _check_references(flaws, {"networks": self.networks, "firewalls": self.firewalls, "sshKeys": self.ssh_keys})
        is_reachable = self.public_ipv4 or self.public_ipv6 or self.networks
        flaws.expect(is_reachable, "networks", "without publicIpv4 and publicIpv6 a server needs a network")
        _check_labels(flaws, self.labels)
        flaws.raise_any()


def _check_references(flaws: Flaws, given: Mapping[str, Sequence[Reference]]) -> None:
    for key, values in given.items():
        for value in values:
            is_one = value > 0 if isinstance(value, int) else value.strip() and value.isprintable()
            flaws.expect(is_one, key, f"{value!r} is neither a name nor a number")


def _check_labels(flaws: Flaws, labels: Mapping[str, str]) -> None:
    for key, value in labels.items():
        flaws.expect(_KEY.fullmatch(key), "labels", f"{key!r} cannot be the key of a label")
        is_free = not key.startswith(MARK)
        flaws.expect(is_free, "labels", f"{key!r} is a mark of cloudgraft's own; take another key")
        form = "at most 63 letters, digits, dots, dashes and underscores, with a letter or a digit at both ends"
        flaws.expect(HETZNER.takes(value), "labels", f"the value of {key!r} must be {form}")
