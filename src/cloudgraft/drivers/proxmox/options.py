"""What a configuration file may say about a Proxmox VE cluster."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cloudgraft.sdk.driver import DriverTraits, Idempotency, ProviderIdBy, Shape
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.hosts import is_loopback_host
from cloudgraft.sdk.quantity import Quantity

__all__ = ["MEBIBYTE", "ProviderIdForm", "ProxmoxOptions", "ShapeOptions", "amount"]

MEBIBYTE: Final = 1 << 20
_USER: Final = re.compile(r"[^\s:/!@]+@[A-Za-z][A-Za-z0-9._-]*(![A-Za-z][A-Za-z0-9._-]*)?")
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LEAST_MEMORY: Final = Quantity("16Mi")
_LOWEST_VMID: Final = 100
_HIGHEST_VMID: Final = 999_999_999
_FEWEST_VMIDS: Final = 1000
_MOST_CPUS: Final = 512


class ProviderIdForm(enum.Enum):
    """What a node's providerID is made of."""

    VMID = "vmid"  # proxmox://REGION/VMID, as Proxmox's cloud controller writes it
    UUID = "uuid"  # proxmox://UUID, as that writes it with `provider: capmox`, and Cluster API's provider does


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeOptions:
    """A machine type; Proxmox itself has none. Amounts are written as Kubernetes writes them."""

    cpu: int
    memory: str | int
    disk: str | int = ""  # how large the disk is made; empty: as large as the template's
    pods: int = 110

    def __post_init__(self) -> None:
        """Refuses what no machine can be."""
        if not 1 <= self.cpu <= _MOST_CPUS:
            raise InvalidArgumentError(f"cpu must be a whole number from 1 to {_MOST_CPUS}")
        if amount("memory", self.memory) < _LEAST_MEMORY:
            raise InvalidArgumentError(f"memory must be {_LEAST_MEMORY} or more, such as 4Gi")
        for key, value in {"memory": self.memory, "disk": self.disk}.items():
            if value != "" and amount(key, value).value % MEBIBYTE:
                raise InvalidArgumentError(f"{key} must be a whole number of MiB, such as 4Gi")
        if self.disk != "" and amount("disk", self.disk) == Quantity(0):
            raise InvalidArgumentError("disk must be more than 0; leave it out for a disk as large as the template's")
        if self.pods < 0:
            raise InvalidArgumentError("pods must not be negative")

    @property
    def memory_bytes(self) -> int:
        """How much memory a machine gets."""
        return int(amount("memory", self.memory).value)

    @property
    def disk_bytes(self) -> int:
        """How large its disk is; 0 when the template says."""
        return int(amount("disk", self.disk).value) if self.disk != "" else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxmoxOptions:
    """One cluster, or one host: how it is reached, and where machines are made."""

    url: str  # such as https://pve.example:8006
    fallback_urls: Sequence[str] = ()  # other nodes of the same cluster, for when that one is away
    user: str  # such as cloudgraft@pve!scaler with tokenFile, or cloudgraft@pve with passwordFile
    token_file: Path | None = None  # the secret of the API token
    password_file: Path | None = None
    ca_file: Path | None = None  # who signed the certificate; None: whom the system trusts
    insecure: bool = False  # True: believe any certificate, and allow http:// to another host
    region: str  # the cluster's name in providerIDs
    shapes: Mapping[str, ShapeOptions]
    pool: str = ""  # the resource pool that machines are put into; all that is in it is listed
    nodes: Sequence[str] = ()  # on which machines are made; empty: all
    storage: str = ""  # for the disks of full clones; empty: where the template's are
    seed_storage: str = "local"  # for the CDs with user data: it must take ISO images
    first_vmid: int = 100_000_000
    last_vmid: int = _HIGHEST_VMID
    memory_reserve: str | int = "1Gi"  # memory of each node that no machine is given
    cpu_ratio: float = 0.0  # virtual CPUs that a node gives for each of its own, at most; 0: nobody counts
    providerID: ProviderIdForm = ProviderIdForm.VMID  # noqa: N815 - spelt as Kubernetes spells it
    providerIDBy: ProviderIdBy = ProviderIdBy.CLOUDGRAFT  # noqa: N815 - likewise
    connect_timeout: timedelta = timedelta(seconds=5)
    timeout: timedelta = timedelta(seconds=30)  # until a request is answered
    create_timeout: timedelta = timedelta(minutes=5)  # in which a machine is cloned, set up and started at most
    delete_timeout: timedelta = timedelta(seconds=110)  # the engine waits 2 minutes
    list_delay: timedelta = timedelta(seconds=20)  # for which a new machine may be missing from a list

    def __post_init__(self) -> None:
        """Refuses what can never work, and what would send the secret in the clear."""
        for url in (self.url, *self.fallback_urls):
            _check_url(url, insecure=self.insecure)
        self._check_user()
        for key, value in {"region": self.region, "pool": self.pool, "storage": self.storage}.items():
            if (value or key == "region") and not _ID.fullmatch(value):
                raise InvalidArgumentError(f"{key} must be a name: letters, digits, dots and dashes")
        if not _ID.fullmatch(self.seed_storage) or not all(_ID.fullmatch(node) for node in self.nodes):
            raise InvalidArgumentError("seedStorage and nodes must be names: letters, digits, dots and dashes")
        if not self.shapes:
            raise InvalidArgumentError("shapes must say which machine types there are: {small: {cpu: 2, memory: 4Gi}}")
        if self.insecure and self.ca_file is not None:
            raise InvalidArgumentError("with insecure: true nobody looks at the certificate; leave caFile or it out")
        self._check_numbers()

    def _check_user(self) -> None:
        if not _USER.fullmatch(self.user):
            raise InvalidArgumentError(
                "user must be like cloudgraft@pve!scaler for an API token, or cloudgraft@pve for a password"
            )
        if (self.token_file is None) == (self.password_file is None):
            raise InvalidArgumentError("give either tokenFile or passwordFile")
        if ("!" in self.user) != (self.token_file is not None):
            raise InvalidArgumentError(
                "tokenFile goes with a user like cloudgraft@pve!scaler, and passwordFile with one without !"
            )

    def _check_numbers(self) -> None:
        if not _LOWEST_VMID <= self.first_vmid <= self.last_vmid <= _HIGHEST_VMID:
            raise InvalidArgumentError(f"firstVmid and lastVmid must be from {_LOWEST_VMID} to {_HIGHEST_VMID}")
        if self.last_vmid - self.first_vmid + 1 < _FEWEST_VMIDS:
            raise InvalidArgumentError(
                f"firstVmid to lastVmid must be {_FEWEST_VMIDS} VMIDs or more: a machine's name decides which of them "
                "it gets, and one whose VMID is taken cannot be made"
            )
        amount("memoryReserve", self.memory_reserve)
        if self.cpu_ratio < 0:
            raise InvalidArgumentError("cpuRatio must not be negative")
        times = (self.connect_timeout, self.timeout, self.create_timeout, self.delete_timeout)
        if min(times) <= timedelta(0):
            raise InvalidArgumentError("connectTimeout, timeout, createTimeout, deleteTimeout must be more than zero")
        if self.list_delay < timedelta(0):
            raise InvalidArgumentError("listDelay must not be negative")

    def traits(self) -> DriverTraits:
        """A machine's VMID is made from its name, so that Proxmox itself keeps a second one from being made."""
        return DriverTraits(
            idempotency=Idempotency.TOKEN,
            list_delay=self.list_delay,
            provider_id_by=self.providerIDBy,
            create_timeout=self.create_timeout + self.timeout,  # the last request may take its time
        )

    def offers(self) -> list[Shape]:
        """The machine types as the engine knows them."""
        return [_shape(name, shape, self.region) for name, shape in self.shapes.items()]


def amount(key: str, value: str | int) -> Quantity:
    """A quantity of the file, which must not be negative; the error names its key."""
    try:
        quantity = Quantity(value)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{key}: {error.message}") from None
    if quantity < Quantity(0):
        raise InvalidArgumentError(f"{key} must not be negative")
    return quantity


def _shape(name: str, options: ShapeOptions, region: str) -> Shape:
    capacity = {
        "cpu": Quantity(options.cpu),
        "memory": amount("memory", options.memory),
        "pods": Quantity(options.pods),
    }
    if options.disk != "":
        capacity["ephemeral-storage"] = amount("disk", options.disk)
    labels = {
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": name,
        "topology.kubernetes.io/region": region,
    }
    return Shape(name=name, capacity=capacity, labels=labels)


def _check_url(url: str, *, insecure: bool) -> None:
    form = "write it like https://pve.example:8006"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise InvalidArgumentError(f"{url!r} is not an address; {form}") from None
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or parts.username is not None:
        raise InvalidArgumentError(f"a url is not the address of a node; {form}")
    if parts.scheme == "http" and not insecure and not is_loopback_host(host):
        raise InvalidArgumentError(
            "a url is http to another host: the secret would be readable on the way; use https, or say insecure: true"
        )
