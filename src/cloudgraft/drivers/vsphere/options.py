"""What a configuration file may say about a vCenter, and about the machines that are cloned there."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from cloudgraft.sdk.driver import ProviderIdBy
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity

__all__ = ["MARKS", "MachineSettings", "ShapeOptions", "Size", "VsphereOptions"]

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
    disk: str | int | None = None  # of the first disk, not smaller than the template's; not said: as large as that
    pods: int = 110  # how many a node of it takes
    extra: Mapping[str, str | int] = field(default_factory=dict)  # what else its node has, such as nvidia.com/gpu: 1
    labels: Mapping[str, str] = field(default_factory=dict)  # that its nodes have by themselves

    def __post_init__(self) -> None:
        """Refuses amounts that no virtual machine can have."""
        if not 1 <= self.cpu <= _MOST_CPUS:
            raise InvalidArgumentError(f"cpu is {self.cpu}: a machine has 1 to {_MOST_CPUS}")
        memory = _bytes(self.memory, "memory")
        if memory < 4 * _MEBI or memory % (4 * _MEBI):
            raise InvalidArgumentError(f"memory is {self.memory}: vSphere wants a multiple of 4Mi")
        if self.disk is not None and _bytes(self.disk, "disk") < _MEBI:
            raise InvalidArgumentError(f"disk is {self.disk}: it must be 1Mi or more")
        for key, amount in self.extra.items():
            _bytes(amount, key)

    def size(self) -> Size:
        """In the units of the API."""
        disk = None if self.disk is None else _bytes(self.disk, "disk")
        return Size(cpus=self.cpu, memory_mib=_bytes(self.memory, "memory") // _MEBI, disk_bytes=disk)


def _bytes(amount: str | int, key: str) -> int:
    try:
        return math.ceil(Quantity(amount).value)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{key}: {error.message}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class VsphereOptions:
    """One vCenter: how it is reached, where machines go there, and what sizes they have."""

    server: str  # host name or address of the vCenter, with :port if that is not 443
    user: str  # who logs in, such as cloudgraft@vsphere.local
    password_file: Path  # a file with its password in it, which is read again when it changes
    datacenter: str  # where machines go: its name, or its path when it is in a folder
    shapes: Mapping[str, ShapeOptions]  # machine types by name, such as {small: {cpu: 2, memory: 4Gi}}
    ca_file: Path | None = None  # who signed the vCenter's certificate; not said: one that the system trusts
    insecure: bool = False  # True: any certificate is believed, so anybody on the way can read and change everything
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
        """Refuses what can never work."""
        _check_server(self.server)
        _check_named(user=self.user, datacenter=self.datacenter, folder=self.folder)
        if self.insecure and self.ca_file is not None:
            raise InvalidArgumentError("caFile does nothing with insecure: true; give one of them")
        if not self.cluster and not self.resource_pool:
            raise InvalidArgumentError("say in cluster or in resourcePool where machines run")
        if self.datastore and self.datastore_cluster:
            raise InvalidArgumentError("datastore and datastoreCluster exclude each other: give one of them")
        if not self.shapes:
            raise InvalidArgumentError("say under shapes what sizes there are, such as {small: {cpu: 2, memory: 4Gi}}")
        if min(self.connect_timeout, self.timeout) <= timedelta(0) or self.clone_wait < timedelta(0):
            raise InvalidArgumentError("connectTimeout and timeout must be more than zero, cloneWait not negative")
        if not 1 <= self.page_size <= _MOST_PER_PAGE:
            raise InvalidArgumentError(f"pageSize must be between 1 and {_MOST_PER_PAGE}")

    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self.server.rpartition(":") if _has_port(self.server) else (self.server, "", "443")
        return host.strip("[]"), int(port)


def _has_port(server: str) -> bool:
    return ":" in server.rpartition("]")[2]


def _check_server(server: str) -> None:
    """Without repeating it: somebody may have put a password into it."""
    if not _HOST.fullmatch(server):
        raise InvalidArgumentError("server is not a host name: write it like vcenter.example, without https://")


def _check_named(**named: str) -> None:
    for key, value in named.items():
        if not value.strip("/ ") or not value.isprintable():
            raise InvalidArgumentError(f"{key} must be a name, and is empty or not printable")


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
        """Refuses what can never work."""
        if self.snapshot and not self.linked_clone:
            raise InvalidArgumentError("snapshot is for linked clones: say linkedClone: true too, or leave it out")
        if self.datastore and self.datastore_cluster:
            raise InvalidArgumentError("datastore and datastoreCluster exclude each other: give one of them")
        for key in self.extra_config:
            if not key or key.lower().startswith(_OURS):
                raise InvalidArgumentError(f"extraConfig: {key!r} cannot be set, it is what cloudgraft sets itself")
