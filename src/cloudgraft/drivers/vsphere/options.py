"""Defines the options of the driver ``vsphere`` and the ``machine:`` section of its groups."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from cloudgraft.sdk.driver import ProviderIdBy, Shape
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.flaws import Flaws
from cloudgraft.sdk.quantity import Quantity, amount, check_amounts

MARKS: Final = "cloudgraft."  # how the keys of our marks begin in a virtual machine's extraConfig
_OURS: Final = (MARKS, "guestinfo.userdata", "guestinfo.metadata")
_MEBI: Final = 1 << 20
_MOST_PER_PAGE: Final = 1000
_MOST_CPUS: Final = 768  # of one virtual machine, in any version so far
_HOST: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(:[0-9]{1,5})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A shape in the units of the API."""

    cpus: int
    memory_mib: int
    disk_bytes: int | None  # None: as large as the template's


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeOptions:
    """A machine type. Amounts are written as Kubernetes writes them; vSphere itself has no machine types."""

    cpu: int  # how many
    memory: str | int  # a multiple of 4Mi, such as 4Gi
    disk: str | int | None = None  # of the first disk, not smaller than the template's; unset: as large as that
    pods: int = 110  # how many a node of it takes
    extra: Mapping[str, str | int] = field(default_factory=dict)  # what else its node has, such as nvidia.com/gpu: 1
    labels: Mapping[str, str] = field(default_factory=dict)  # that its nodes have by themselves

    def __post_init__(self) -> None:
        """Refuses amounts that no virtual machine can have."""
        flaws = Flaws()
        flaws.expect(1 <= self.cpu <= _MOST_CPUS, "cpu", f"is {self.cpu}: a machine has 1 to {_MOST_CPUS}")
        with flaws.at("memory"):
            memory = _bytes(self.memory)
            is_multiple = memory >= 4 * _MEBI and memory % (4 * _MEBI) == 0
            flaws.expect(is_multiple, "memory", f"is {self.memory}: vSphere wants a multiple of 4Mi")
        with flaws.at("disk"):
            is_disk = self.disk is None or _bytes(self.disk) >= _MEBI
            flaws.expect(is_disk, "disk", f"is {self.disk}: it must be 1Mi or more")
        check_amounts(flaws, "extra", self.extra)
        flaws.raise_any()

    def size(self) -> Size:
        """In the units of the API."""
        disk = None if self.disk is None else _bytes(self.disk)
        return Size(cpus=self.cpu, memory_mib=_bytes(self.memory) // _MEBI, disk_bytes=disk)


def _bytes(value: str | int) -> int:
    return math.ceil(amount(value).value)


@dataclass(frozen=True, slots=True, kw_only=True)
class VsphereOptions:
    """One vCenter: how it is reached, where machines go there, and what sizes they have."""

    server: str  # host name or address of the vCenter, with :port if that is not 443
    user: str  # who logs in, such as cloudgraft@vsphere.local
    password_file: Path  # a file with its password in it, which is read again when it changes
    datacenter: str  # where machines go: its name, or its path when it is in a folder
    shapes: Mapping[str, ShapeOptions]  # machine types by name, such as {small: {cpu: 2, memory: 4Gi}}
    ca_file: Path | None = None  # the CA of the vCenter's certificate; unset: the CAs that the system trusts
    insecure: bool = False  # True: accept any certificate; anyone on the network can then read and change everything
    folder: str = "cloudgraft"  # of virtual machines; it must be there: for all machines of this cloud, and no others
    cluster: str = ""  # where machines run: a cluster, or a host that stands alone; this or `resourcePool` must be said
    resource_pool: str = ""  # inside the cluster; or, without one, its whole path in the inventory
    datastore: str = ""  # where disks go; empty: where the template's are
    datastore_cluster: str = ""  # instead of `datastore`: the one of its datastores with the most free space
    networks: Sequence[str] = ()  # one for each network adapter, in the place of the template's; none: the template's
    template: str = ""  # what machines are cloned from, for groups that name none
    clone_wait: timedelta = timedelta(seconds=30)  # how long a create looks on, to tell at once why a clone failed
    connect_timeout: timedelta = timedelta(seconds=10)  # how long to wait for a connection
    timeout: timedelta = timedelta(seconds=40)  # how long to wait for one answer of the vCenter
    page_size: int = 250  # how many machines the vCenter tells of in one answer
    # Who writes a node's providerID: cloudgraft, vSphere's cloud controller manager, which writes the same, or the
    # kubelet, where an image tells it
    providerIDBy: ProviderIdBy = ProviderIdBy.CLOUDGRAFT  # noqa: N815 - spelt as Kubernetes spells it

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        flaws = Flaws()
        # The message does not repeat it: it may contain a password.
        is_host = _HOST.fullmatch(self.server)
        flaws.expect(is_host, "server", "is not a host name: write it like vcenter.example, without https://")
        for key, name in {"user": self.user, "datacenter": self.datacenter, "folder": self.folder}.items():
            is_name = name.strip("/ ") and name.isprintable()
            flaws.expect(is_name, key, "must be a name, and is empty or not printable")
        is_one = not self.insecure or self.ca_file is None
        flaws.expect(is_one, "caFile", "does nothing with insecure: true; give one of them")
        is_said = self.cluster or self.resource_pool
        flaws.expect(is_said, "cluster", "say in it or in resourcePool where machines run")
        _check_datastore(flaws, self.datastore, self.datastore_cluster)
        flaws.expect(self.shapes, "shapes", "must say what sizes there are, such as {small: {cpu: 2, memory: 4Gi}}")
        flaws.expect_positive(connectTimeout=self.connect_timeout, timeout=self.timeout)
        flaws.expect_not_negative(cloneWait=self.clone_wait)
        is_size = 1 <= self.page_size <= _MOST_PER_PAGE
        flaws.expect(is_size, "pageSize", f"must be between 1 and {_MOST_PER_PAGE}")
        flaws.raise_any()

    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self.server.rpartition(":") if _has_port(self.server) else (self.server, "", "443")
        return host.strip("[]"), int(port)


def _has_port(server: str) -> bool:
    return ":" in server.rpartition("]")[2]


def _check_datastore(flaws: Flaws, datastore: str, cluster: str) -> None:
    is_one = not (datastore and cluster)
    flaws.expect(is_one, "datastore", "and datastoreCluster exclude each other: give one of them")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """The ``machine:`` section of a group. What is not said is as the cloud has it."""

    shape: str  # one of the cloud's `shapes`
    template: str = ""  # what machines are cloned from; empty: the cloud's
    linked_clone: bool = False  # share the template's disks from a snapshot on: quick and small, but tied to it
    snapshot: str = ""  # for a linked clone, by name; empty: the template's current one
    cluster: str = ""  # where machines run; with either of these, neither of the cloud's counts
    resource_pool: str = ""  # inside `cluster`; or, without one, its whole path in the inventory
    datastore: str = ""  # where disks go; empty: as the cloud says
    datastore_cluster: str = ""  # instead of `datastore`: the one of its datastores with the most free space
    networks: Sequence[str] = ()  # one for each network adapter; none: as the cloud says
    extra_config: Mapping[str, str] = field(
        default_factory=dict
    )  # advanced settings, such as {disk.EnableUUID: "TRUE"}

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        flaws = Flaws()
        is_used = not self.snapshot or self.linked_clone
        flaws.expect(is_used, "snapshot", "is for linked clones: say linkedClone: true too, or leave it out")
        _check_datastore(flaws, self.datastore, self.datastore_cluster)
        for key in self.extra_config:
            is_free = key and not key.lower().startswith(_OURS)
            flaws.expect(is_free, "extraConfig", f"{key!r} cannot be set, it is what cloudgraft sets itself")
        flaws.raise_any()


# -- shapes ------------------------------------------------------------------------------------------------------------
# Machine types: those of the options, since vSphere has none.


def shapes_of(options: VsphereOptions) -> Sequence[Shape]:
    """All of them."""
    return [_shape(name, given) for name, given in options.shapes.items()]


def size_of(options: VsphereOptions, shape: str) -> Size:
    """Of one; raises InvalidArgumentError that names those that there are."""
    given = options.shapes.get(shape)
    if given is None:
        raise InvalidArgumentError(f"there is no shape {shape!r}; the cloud's shapes are {', '.join(options.shapes)}")
    return given.size()


def _shape(name: str, given: ShapeOptions) -> Shape:
    capacity = {"cpu": Quantity(given.cpu), "memory": Quantity(given.memory), "pods": Quantity(given.pods)}
    if given.disk is not None:
        capacity["ephemeral-storage"] = Quantity(given.disk)
    capacity |= {key: Quantity(amount) for key, amount in given.extra.items()}
    return Shape(name=name, capacity=capacity, labels={"node.kubernetes.io/instance-type": name, **given.labels})
