"""Defines the options of the driver ``libvirt`` and the ``machine:`` section of its groups."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from cloudgraft.sdk.driver import DriverTraits, Idempotency, Ownership, ProviderIdBy, Shape
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.flaws import Flaws
from cloudgraft.sdk.quantity import Quantity, amount

_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]*")
_LEAST_MEMORY: Final = Quantity("16Mi")
_MOST_CPUS: Final = 4096
PLAIN_ARCH: Final = "x86_64"  # where nothing else is said
_ARCHITECTURES: Final = {PLAIN_ARCH: "amd64", "aarch64": "arm64"}  # as Kubernetes calls them


class DomainType(enum.Enum):
    """What runs the machines."""

    KVM = "kvm"
    QEMU = "qemu"  # in software: slow, but it works everywhere


class Firmware(enum.Enum):
    """What a machine boots with."""

    BIOS = "bios"
    EFI = "efi"


class SeedBus(enum.Enum):
    """How the CD with the user data is attached. Kernels for clouds often know no SATA and no IDE."""

    SCSI = "scsi"
    SATA = "sata"
    IDE = "ide"
    VIRTIO = "virtio"  # as a disk that cannot be written


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """One network card: in a network of libvirt, or on a bridge of the host."""

    network: str = ""  # the name of one of libvirt's networks, such as default; either this or `bridge`
    bridge: str = ""  # the name of a bridge of the host, such as br0
    model: str = "virtio"  # of the network card, as libvirt names it

    def __post_init__(self) -> None:
        """Refuses what says nothing, or two things."""
        flaws = Flaws()
        is_one = bool(self.network) != bool(self.bridge)
        flaws.expect(is_one, (), "needs either network, the name of one of libvirt's, or bridge")
        flaws.expect(_WORD.fullmatch(self.model), "model", f"{self.model!r} is no network card, such as virtio")
        flaws.raise_any()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeOptions:
    """A machine type. Amounts are written as Kubernetes writes them."""

    cpu: int  # how many
    memory: str | int  # such as 4Gi
    disk: str | int = ""  # how large its disk is, such as 20Gi, unless the group says; empty: as large as the image
    pods: int = 110  # how many a node of it takes

    def __post_init__(self) -> None:
        """Refuses what no machine can be."""
        flaws = Flaws()
        flaws.expect(1 <= self.cpu <= _MOST_CPUS, "cpu", f"must be a whole number from 1 to {_MOST_CPUS}")
        with flaws.at("memory"):
            is_enough = amount(self.memory) >= _LEAST_MEMORY
            flaws.expect(is_enough, "memory", f"must be {_LEAST_MEMORY} or more, such as 4Gi")
        with flaws.at("disk"):
            amount(self.disk or 0)
        flaws.expect(self.pods >= 0, "pods", "must not be negative")
        flaws.raise_any()


@dataclass(frozen=True, slots=True, kw_only=True)
class LibvirtOptions:
    """One host, or one user's machines on it."""

    uri: str = "qemu:///system"  # the host, as libvirt writes it, such as qemu+ssh://root@kvm1.example/system
    shapes: Mapping[str, ShapeOptions]  # machine types by a name of your choice: libvirt has none of its own
    pool: str = "default"  # the storage pool where disks are made, and where images are looked for
    image: str = ""  # the volume that disks are made from, unless the group says
    image_pool: str = ""  # the storage pool where that is, if not in `pool`
    # The network cards of every machine, unless the group says; when it is not said, one in libvirt's network default
    networks: Sequence[Network] = field(default_factory=lambda: (Network(network="default"),))
    username: str = ""  # for SASL, with `passwordFile`; with ssh and TLS the uri and the certificates say who we are
    password_file: Path | None = None  # a file with its password in it, which is read for every new connection
    domain_type: DomainType | None = None  # what runs the machines; unset: kvm where the host says that it has it
    # As libvirt names it, such as aarch64; must be said where the host is not x86_64, for the nodes' label
    arch: str = ""
    machine_type: str = ""  # as libvirt names it; empty: q35 on x86_64, virt on aarch64
    cpu_mode: str = ""  # as libvirt names it; empty: host-passthrough with kvm, else what QEMU takes
    firmware: Firmware = Firmware.BIOS  # what machines boot with
    seed_bus: SeedBus = SeedBus.SCSI  # how the CD with the user data is attached; many a cloud's kernel knows no SATA
    console_log_directory: str = ""  # on the host: serial consoles are kept there, one file each; empty: no log
    max_machines: int | None = None  # of cloudgraft on this host: beyond that it is out of stock; unset: no limit
    host_memory_reserve: str | int = ""  # memory of the host that no machine is given, such as 8Gi; empty: none counts
    pool_reserve: str | int = ""  # room in `pool` below which no machine is made, such as 50Gi; empty: nobody looks
    connect_timeout: timedelta = timedelta(seconds=20)  # how long to wait for a connection
    keepalive: timedelta = timedelta(seconds=5)  # a host that is silent for four times as long is away
    create_timeout: timedelta = timedelta(minutes=5)  # in which a machine, with a copy of its image, is made at most

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        flaws = Flaws()
        with flaws.at("uri"):
            _check_uri(self.uri)
        flaws.expect(self.shapes, "shapes", "must say which machine types there are: {small: {cpu: 2, memory: 4Gi}}")
        flaws.expect(self.pool, "pool", "must name a storage pool of the host")
        has_password = self.password_file is not None
        flaws.expect(bool(self.username) == has_password, "username", "goes together with passwordFile: give both")
        for key, value in {"arch": self.arch, "machineType": self.machine_type, "cpuMode": self.cpu_mode}.items():
            flaws.expect(not value or _WORD.fullmatch(value), key, f"{value!r} is not a name that libvirt knows")
        directory = self.console_log_directory
        is_absolute = not directory or directory.startswith("/")
        flaws.expect(is_absolute, "consoleLogDirectory", "must begin with /: it is a directory of the host")
        self._check_limits(flaws)
        flaws.raise_any()

    def _check_limits(self, flaws: Flaws) -> None:
        flaws.expect_not_negative(maxMachines=self.max_machines)
        for key, value in {"hostMemoryReserve": self.host_memory_reserve, "poolReserve": self.pool_reserve}.items():
            with flaws.at(key):
                amount(value or 0)
        flaws.expect_positive(connectTimeout=self.connect_timeout, createTimeout=self.create_timeout)
        flaws.expect(self.keepalive >= timedelta(seconds=1), "keepalive", "must be 1s or more")

    @property
    def address(self) -> str:
        """The URI to open. A program asks nobody for a password: ssh is told so, or it would wait for ever."""
        parts = urlsplit(self.uri)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        if not parts.scheme.endswith("+ssh") or "no_tty" in query:
            return self.uri
        return urlunsplit(parts._replace(query=urlencode({**query, "no_tty": "1"}, safe="/")))

    def traits(self) -> DriverTraits:
        """A machine's id is made from its name, so that libvirt itself keeps a second one from being defined."""
        return DriverTraits(
            ownership=Ownership.TAGS,
            idempotency=Idempotency.TOKEN,
            provider_id_by=ProviderIdBy.CLOUDGRAFT,
            create_timeout=self.create_timeout,
        )

    def offers(self) -> list[Shape]:
        """Returns the machine types as shapes."""
        return [_shape(name, shape, self.arch) for name, shape in self.shapes.items()]


class Disk(enum.Enum):
    """How a disk is made from an image."""

    OVERLAY = "overlay"  # what differs from the image: at once and small, but the image must stay as it is
    CLONE = "clone"  # a copy


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """A kernel that is on the host, in the place of the one on the disk."""

    kernel: str  # its path on the host
    initrd: str = ""  # the path of its initial RAM disk on the host; empty: none
    cmdline: str = ""  # what it is told, such as root=/dev/vda1 console=ttyS0

    def __post_init__(self) -> None:
        """Refuses what is not on the host."""
        flaws = Flaws()
        for key, path in {"kernel": self.kernel, "initrd": self.initrd}.items():
            flaws.expect(not path or path.startswith("/"), key, "must begin with /: it is a file of the host")
        flaws.raise_any()


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """The ``machine:`` section of a group: what its machines are like."""

    shape: str  # one of the cloud's `shapes`
    image: str = ""  # the volume that the disk is made from; empty: the cloud's
    # `overlay`: at once, and holds only what differs from the image, which must then stay as it is. `clone`: a copy
    disk: Disk = Disk.OVERLAY
    size: str | int = ""  # of the disk, such as 40Gi; empty: the shape's `disk`, else as large as the image
    networks: Sequence[Network] | None = None  # the network cards; unset: the cloud's. An empty list: none
    # cloud-init's network configuration, version 1 or 2, the same for all machines of the group; empty: DHCP, mostly
    network_config: Mapping[str, object] = field(default_factory=dict)
    boot: Boot | None = None  # a kernel of the host in the place of the one on the disk

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        flaws = Flaws()
        flaws.expect(self.shape, "shape", "must not be empty")
        with flaws.at("size"):
            amount(self.size or 0)
        flaws.raise_any()


def _shape(name: str, options: ShapeOptions, arch: str) -> Shape:
    capacity = {
        "cpu": Quantity(options.cpu),
        "memory": amount(options.memory),
        "pods": Quantity(options.pods),
    }
    if options.disk != "":
        capacity["ephemeral-storage"] = amount(options.disk)
    labels = {"kubernetes.io/os": "linux", "node.kubernetes.io/instance-type": name}
    labels["kubernetes.io/arch"] = _ARCHITECTURES.get(arch or PLAIN_ARCH, arch)
    return Shape(name=name, capacity=capacity, labels=labels)


def _check_uri(uri: str) -> None:
    example = "write it like qemu:///system, or qemu+ssh://root@kvm1.example/system"
    try:
        parts = urlsplit(uri)
        password = parts.password
    except ValueError:
        raise InvalidArgumentError(f"is not an address; {example}") from None
    if parts.scheme.partition("+")[0] != "qemu" or not parts.path.strip("/"):
        raise InvalidArgumentError(f"is not one of QEMU by libvirt; {example}")
    if password:
        raise InvalidArgumentError("must not hold a password; use username and passwordFile")
