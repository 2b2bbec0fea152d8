"""Defines the options of the driver ``proxmox`` and the ``machine:`` section of its groups."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from cloudgraft.sdk.driver import DriverTraits, Idempotency, ProviderIdBy, Shape
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.flaws import Flaws
from cloudgraft.sdk.hosts import check_url
from cloudgraft.sdk.quantity import Quantity, amount

MEBIBYTE: Final = 1 << 20
_USER: Final = re.compile(r"[^\s:/!@]+@[A-Za-z][A-Za-z0-9._-]*(![A-Za-z][A-Za-z0-9._-]*)?")
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LEAST_MEMORY: Final = Quantity("16Mi")
_LOWEST_VMID: Final = 100
_HIGHEST_VMID: Final = 999_999_999
_FEWEST_VMIDS: Final = 1000
_MOST_CPUS: Final = 512
_NAME: Final = "must be a name: letters, digits, dots and dashes"
_EXAMPLE: Final = "https://pve.example:8006"


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
        flaws = Flaws()
        flaws.expect(1 <= self.cpu <= _MOST_CPUS, "cpu", f"must be a whole number from 1 to {_MOST_CPUS}")
        with flaws.at("memory"):
            memory = _whole_mebibytes(self.memory)
            flaws.expect(memory >= _LEAST_MEMORY, "memory", f"must be {_LEAST_MEMORY} or more, such as 4Gi")
        with flaws.at("disk"):
            is_fine = self.disk == "" or _whole_mebibytes(self.disk) > Quantity(0)
            flaws.expect(is_fine, "disk", "must be more than 0; leave it out for a disk as large as the template's")
        flaws.expect(self.pods >= 0, "pods", "must not be negative")
        flaws.raise_any()

    @property
    def memory_bytes(self) -> int:
        """How much memory a machine gets."""
        return int(amount(self.memory).value)

    @property
    def disk_bytes(self) -> int:
        """How large its disk is; 0 when the template says."""
        return int(amount(self.disk).value) if self.disk != "" else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxmoxOptions:
    """One cluster, or one host: how it is reached, and where machines are made."""

    url: str  # such as https://pve.example:8006
    fallback_urls: Sequence[str] = ()  # other nodes of the same cluster, for when that one is away
    user: str  # such as cloudgraft@pve!scaler with tokenFile, or cloudgraft@pve with passwordFile
    token_file: Path | None = None  # the secret of the API token
    password_file: Path | None = None
    ca_file: Path | None = None  # the CA of its certificate; None: the CAs that the system trusts
    insecure: bool = False  # True: accept any certificate, and allow http:// to another host
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
    timeout: timedelta = timedelta(seconds=30)  # for the response to one request
    create_timeout: timedelta = timedelta(minutes=5)  # in which a machine is cloned, set up and started at most
    delete_timeout: timedelta = timedelta(seconds=110)  # the engine waits 2 minutes
    list_delay: timedelta = timedelta(seconds=20)  # how long a new machine may be missing from a list

    def __post_init__(self) -> None:
        """Refuses invalid values, and those that would send the secret in the clear."""
        flaws = Flaws()
        with flaws.at("url"):
            check_url(self.url, example=_EXAMPLE, exposed="the secret", insecure=self.insecure)
        for index, url in enumerate(self.fallback_urls):
            with flaws.at(("fallbackUrls", index)):
                check_url(url, example=_EXAMPLE, exposed="the secret", insecure=self.insecure)
        self._check_user(flaws)
        for key, value in {"region": self.region, "seedStorage": self.seed_storage}.items():
            flaws.expect(_ID.fullmatch(value), key, _NAME)
        for key, value in {"pool": self.pool, "storage": self.storage}.items():
            flaws.expect(not value or _ID.fullmatch(value), key, _NAME)
        for index, node in enumerate(self.nodes):
            flaws.expect(_ID.fullmatch(node), ("nodes", index), _NAME)
        flaws.expect(self.shapes, "shapes", "must say which machine types there are: {small: {cpu: 2, memory: 4Gi}}")
        is_one = not self.insecure or self.ca_file is None
        flaws.expect(is_one, "caFile", "with insecure: true nobody looks at the certificate; leave caFile or it out")
        self._check_numbers(flaws)
        flaws.raise_any()

    def _check_user(self, flaws: Flaws) -> None:
        form = "must be like cloudgraft@pve!scaler for an API token, or cloudgraft@pve for a password"
        flaws.expect(_USER.fullmatch(self.user), "user", form)
        if (self.token_file is None) == (self.password_file is None):
            flaws.tell((), "give either tokenFile or passwordFile")
        elif ("!" in self.user) != (self.token_file is not None):
            needed = "tokenFile goes with a user like cloudgraft@pve!scaler, and passwordFile with one without !"
            flaws.tell("user", needed)

    def _check_numbers(self, flaws: Flaws) -> None:
        if not _LOWEST_VMID <= self.first_vmid <= self.last_vmid <= _HIGHEST_VMID:
            flaws.tell("firstVmid", f"it and then lastVmid must be from {_LOWEST_VMID} to {_HIGHEST_VMID}")
        elif self.last_vmid - self.first_vmid + 1 < _FEWEST_VMIDS:
            why = "a machine's name decides which of them it gets, and one whose VMID is taken cannot be made"
            flaws.tell("firstVmid", f"to lastVmid it must be {_FEWEST_VMIDS} VMIDs or more: {why}")
        with flaws.at("memoryReserve"):
            amount(self.memory_reserve)
        flaws.expect_not_negative(cpuRatio=self.cpu_ratio, listDelay=self.list_delay)
        flaws.expect_positive(
            connectTimeout=self.connect_timeout,
            timeout=self.timeout,
            createTimeout=self.create_timeout,
            deleteTimeout=self.delete_timeout,
        )

    def traits(self) -> DriverTraits:
        """A machine's VMID is made from its name, so that Proxmox itself keeps a second one from being made."""
        return DriverTraits(
            idempotency=Idempotency.TOKEN,
            list_delay=self.list_delay,
            provider_id_by=self.providerIDBy,
            create_timeout=self.create_timeout + self.timeout,  # the last request may take its time
        )

    def offers(self) -> list[Shape]:
        """Returns the machine types as shapes."""
        return [_shape(name, shape, self.region) for name, shape in self.shapes.items()]


def _whole_mebibytes(value: str | int) -> Quantity:
    quantity = amount(value)
    if quantity.value % MEBIBYTE:
        raise InvalidArgumentError("must be a whole number of MiB, such as 4Gi")
    return quantity


def _shape(name: str, options: ShapeOptions, region: str) -> Shape:
    capacity = {
        "cpu": Quantity(options.cpu),
        "memory": amount(options.memory),
        "pods": Quantity(options.pods),
    }
    if options.disk != "":
        capacity["ephemeral-storage"] = amount(options.disk)
    labels = {
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": name,
        "topology.kubernetes.io/region": region,
    }
    return Shape(name=name, capacity=capacity, labels=labels)


# -- the machine settings of node groups -------------------------------------------------------------------------------


DRIVE: Final = re.compile(r"ide[0-3]|sata[0-5]|scsi([12]?[0-9]|30)|virtio(1[0-5]|[0-9])")  # as Proxmox names them
_CD: Final = re.compile(r"(ide|sata|scsi)[0-9]+")
_BRIDGE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,14}")
_MODELS: Final = ("virtio", "e1000", "e1000e", "rtl8139", "vmxnet3")
_VLANS: Final = range(1, 4095)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """What one group's machines are like."""

    shape: str
    template: int | str  # its VMID or its name; templates of one name on several nodes count as one
    full_clone: bool = False  # True: a copy; else what differs from the template, which is made at once
    storage: str = ""  # for the disk of a full clone; empty: the cloud's
    bridge: str = ""  # for net0, such as vmbr0; empty: the template's
    vlan: int | None = None
    model: str = "virtio"  # of the network card, when bridge is given
    disk: str = ""  # which one grows to the shape's size, such as scsi0; empty: the one that is booted from
    seed_drive: str = "ide2"  # where the CD with user data is, unless the template has a cloud-init drive

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        flaws = Flaws()
        flaws.expect(self.shape, "shape", "must not be empty")
        is_template = not isinstance(self.template, bool) and self.template not in ("", 0)
        flaws.expect(is_template, "template", "must be the VMID or the name of a template")
        is_used = not self.storage or self.full_clone
        flaws.expect(is_used, "storage", "is for full clones only: say fullClone: true, or leave it out")
        is_bridge = not self.bridge or _BRIDGE.fullmatch(self.bridge)
        flaws.expect(is_bridge, "bridge", f"{self.bridge!r} is no name of a bridge, such as vmbr0")
        is_vlan = self.vlan is None or (self.vlan in _VLANS and self.bridge)
        flaws.expect(is_vlan, "vlan", "must be from 1 to 4094, and needs a bridge")
        flaws.expect(self.model in _MODELS, "model", f"must be one of {', '.join(_MODELS)}")
        is_drive = not self.disk or DRIVE.fullmatch(self.disk)
        flaws.expect(is_drive, "disk", f"{self.disk!r} is no drive of Proxmox, such as scsi0")
        is_cd = DRIVE.fullmatch(self.seed_drive) and _CD.fullmatch(self.seed_drive)
        flaws.expect(is_cd, "seedDrive", f"{self.seed_drive!r} cannot be a CD; take one such as ide2 or sata0")
        flaws.raise_any()
