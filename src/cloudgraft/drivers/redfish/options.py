"""Defines the options of the driver ``redfish`` and the ``machine:`` section of its groups."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cloudgraft.drivers.hosts.inventory import Source, refuse_bad_id, refuse_twins
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Ownership, ProviderIdBy, StateFile
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.flaws import Flaws
from cloudgraft.sdk.hosts import is_loopback_host
from cloudgraft.sdk.quantity import Quantity, amount, check_amounts

LONGEST_CREATE: Final = timedelta(minutes=4)  # a controller may take half a minute for each of several requests
_WEB: Final = ("http", "https")


class Auth(enum.Enum):
    """How the controllers are told who asks."""

    BASIC = "basic"
    SESSION = "session"


class Boot(enum.Enum):
    """From what a machine boots, once; in Redfish's words."""

    CD = "Cd"
    PXE = "Pxe"
    HDD = "Hdd"
    UEFI_HTTP = "UefiHttp"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedfishHost:
    """One host, and how its controller is reached."""

    id: str  # names the host in the list, in messages and in the account; no other host may have it
    url: str  # where its controller is, such as https://bmc-7
    system: str = ""  # the path of its system, such as /redfish/v1/Systems/1; empty: the only one that there is
    username: str = ""  # of an account on its controller; empty: that of all hosts
    password_file: Path | None = None  # the password of that account; unset: that of all hosts
    ca_file: Path | None = None  # the CA of its certificate; unset: as for all hosts
    insecure: bool = False  # whether whoever answers at its address is believed; needed for http too
    addresses: Sequence[str] = ()  # IP addresses and host names by which its node may be known
    labels: Mapping[str, str] = field(default_factory=dict)  # a group selects by them; they are not a node's labels
    group: str = ""  # the only group that it serves; empty: any
    shape: str = ""  # what kind of host it is; a group with that shape gets only such
    providerID: str = ""  # noqa: N815 - spelt as Kubernetes spells it  # what its node carries; empty: redfish://ID

    def __post_init__(self) -> None:
        """Refuses invalid values, and those that would send the password in the clear."""
        flaws = Flaws()
        with flaws.at("id"):
            refuse_bad_id(self.id)
        with flaws.at("url"):
            _check_url(self.url)
            is_open = urlsplit(self.url).scheme == "http" and not is_loopback_host(urlsplit(self.url).hostname or "")
            why = "is http, where everybody on the way can read the password; use https, or say `insecure: true`"
            flaws.expect(self.insecure or not is_open, "url", why)
        is_path = not self.system or self.system.startswith("/")
        flaws.expect(is_path, "system", "must be a path, such as /redfish/v1/Systems/1")
        is_one = not self.insecure or self.ca_file is None
        flaws.expect(is_one, "caFile", "says whom to believe, and insecure to believe all; say one")
        flaws.raise_any()

    @property
    def provider_id(self) -> str:
        """The providerID of its node."""
        return self.providerID or f"redfish://{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeOptions:
    """What hosts of a shape hold. One whose controller tells of less is not given out."""

    cpu: str | int  # how many threads it has: Kubernetes counts those
    memory: str | int  # how much it has, such as 512Gi
    resources: Mapping[str, str | int] = field(
        default_factory=dict
    )  # what else it holds, such as ephemeral-storage or GPUs
    labels: Mapping[str, str] = field(default_factory=dict)  # labels that every node of it has by itself

    def __post_init__(self) -> None:
        """Refuses amounts that make no sense."""
        flaws = Flaws()
        for key, value in {"cpu": self.cpu, "memory": self.memory}.items():
            with flaws.at(key):
                amount(value)
        check_amounts(flaws, "resources", self.resources)
        flaws.raise_any()

    def capacity(self) -> Mapping[str, Quantity]:
        """As Kubernetes has it."""
        return {
            name: amount(value) for name, value in {"cpu": self.cpu, "memory": self.memory, **self.resources}.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """The ``machine:`` section of a group: which hosts it may have, and how they boot."""

    shape: str = ""  # only hosts of this shape; empty: the group says in its template what its hosts hold
    select: Mapping[str, str] = field(default_factory=dict)  # labels that a host must have
    image: str = ""  # where an ISO is that is put in as a virtual CD; the controller fetches it
    boot: Boot | None = None  # from what it boots, once; unset: from the CD if there is an image, else as it is set up
    http_boot_url: str = ""  # what it boots with UefiHttp; empty: what DHCP says

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        flaws = Flaws()
        if self.image:
            with flaws.at("image"):
                _check_url(self.image, (*_WEB, "nfs", "cifs"))
        if self.http_boot_url:
            with flaws.at("httpBootUrl"):
                _check_url(self.http_boot_url)
            flaws.expect(self.boot is Boot.UEFI_HTTP, "httpBootUrl", "is for `boot: UefiHttp`")
        flaws.raise_any()

    @property
    def boot_target(self) -> Boot | None:
        """From what it is to boot; None: nothing is said to its controller."""
        return self.boot or (Boot.CD if self.image else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedfishOptions:
    """Hosts with Redfish controllers, and how those are asked."""

    hosts: Sequence[RedfishHost] = ()  # the hosts that there are
    hosts_file: Path | None = None  # hosts in a separate file, YAML or JSON; both may be used together
    username: str = ""  # an account that every controller has whose host has none of its own here
    password_file: Path | None = None  # its password; read again when the file changes
    ca_file: Path | None = None  # the CA of the controllers' certificates; unset: the CAs that this machine trusts
    auth: Auth = Auth.BASIC  # with each request, or once; many a controller has room for a few sessions only
    shapes: Mapping[str, ShapeOptions] = field(default_factory=dict)  # what hosts hold; unset: as controllers tell it
    state_file: StateFile = None  # where the assignments of hosts are stored; unset: beside the journal
    seed_directory: Path | None = None  # where images with user data are put; a web server of yours must publish it
    seed_url: str = ""  # where that web server publishes it to the controllers
    connect_timeout: timedelta = timedelta(seconds=5)  # until a controller takes a connection
    timeout: timedelta = timedelta(seconds=30)  # until a controller has answered a request
    concurrency: int = 32  # how many controllers are asked at the same time
    power_on_time: timedelta = timedelta(minutes=2)  # how long a host that was switched on may still look off
    # How long a host may take to shut down by itself before its power is taken away; zero takes it at once.
    graceful_time: timedelta = timedelta(minutes=3)
    # Who writes the providerID on nodes.
    providerIDBy: ProviderIdBy = ProviderIdBy.CLOUDGRAFT  # noqa: N815 - spelt as Kubernetes spells it

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        flaws = Flaws()
        is_said = self.hosts or self.hosts_file is not None
        flaws.expect(is_said, "hosts", "say here, or in a hostsFile, which hosts there are")
        flaws.expect_positive(connectTimeout=self.connect_timeout, timeout=self.timeout)
        flaws.expect_not_negative(powerOnTime=self.power_on_time, gracefulTime=self.graceful_time)
        flaws.expect(self.concurrency >= 1, "concurrency", "must be at least 1")
        are_both = (self.seed_directory is not None) == bool(self.seed_url)
        flaws.expect(are_both, "seedDirectory", "goes together with seedUrl: where seeds are put, and published")
        if self.seed_url:
            with flaws.at("seedUrl"):
                _check_url(self.seed_url)
        for index, host in enumerate(self.hosts):
            with flaws.at(("hosts", index)):
                self.expect_account(host)
        with flaws.at("hosts"):
            refuse_twins(self.hosts)
        flaws.raise_any()

    def expect_account(self, host: RedfishHost) -> None:
        """Every controller wants to know who asks."""
        if not (host.username or self.username) or (host.password_file or self.password_file) is None:
            raise InvalidArgumentError(f"{host.id}: say username and passwordFile, of it or of all hosts")

    def source(self) -> Source[RedfishHost]:
        """Where the hosts are listed."""
        check = self.expect_account
        return Source(given=self.hosts, file=self.hosts_file, key="hosts", kind=RedfishHost, check=check)

    def traits(self) -> DriverTraits:
        """Returns the traits. The driver itself stores which name has which host."""
        return DriverTraits(
            ownership=Ownership.INVENTORY,
            idempotency=Idempotency.TOKEN,
            provider_id_by=self.providerIDBy,
            user_data_limit=None if self.seed_url else 0,
            create_timeout=LONGEST_CREATE,
        )


def _check_url(url: str, schemes: Sequence[str] = _WEB) -> None:
    try:
        parts = urlsplit(url)
        host, user = parts.hostname, parts.username
    except ValueError:
        parts, host, user = urlsplit(""), None, None
    if parts.scheme not in schemes or not host or parts.fragment:
        raise InvalidArgumentError("is no address; write it like https://bmc-7.example.org")
    if user is not None:
        raise InvalidArgumentError("must not have a user or a password in it")
