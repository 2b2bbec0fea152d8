"""Looks up objects of a vCenter by the names in the options, and caches them.

A name is first tried as a path below its part of the datacenter. Otherwise it is searched everywhere in that part, and
must be unique.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from cloudgraft.drivers.vsphere.options import MachineSettings, VsphereOptions
from cloudgraft.drivers.vsphere.pyvmomi import Data, Reference, vim
from cloudgraft.drivers.vsphere.session import Session, properties_of, properties_of_each
from cloudgraft.sdk.errors import InvalidArgumentError, OutOfStockError, PreconditionError

T = TypeVar("T")
_LASTS: Final = 60.0  # seconds for which an object is cached


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What machines are cloned from."""

    name: str
    reference: Reference
    devices: Sequence[Data]
    snapshot: Data  # the tree of its snapshots, None when it has none


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network, and how a network adapter is connected to it."""

    name: str
    backing: Data


class Inventory:
    """The objects that the options name."""

    def __init__(self, session: Session, options: VsphereOptions) -> None:
        self._session = session
        self._options = options
        self._lock = threading.Lock()
        self._cache: dict[str, tuple[float, object]] = {}
        self._folder: Reference = None

    def folder(self) -> Reference:
        """Returns the folder of our machines. After the first call it is known by its id, so it may be renamed.

        The driver never creates it: after a rename while cloudgraft is stopped, a new and empty one would say that all
        machines are gone.
        """
        if self._folder is None:
            path = f"{self._options.datacenter}/vm/{self._options.folder.strip('/')}"
            found = self._by_path(path)
            if not isinstance(found, vim.Folder):
                raise PreconditionError(f"there is no folder {path}: make it in vCenter, or name another in `folder`")
            self._folder = found
        return self._folder

    def forget(self) -> None:
        """Clears the cache, after an object was not where it should be."""
        with self._lock:
            self._cache.clear()

    # -- what a clone needs --------------------------------------------------------------------------------------------

    def template(self, settings: MachineSettings) -> Template:
        """Returns the group's template, or the cloud's."""
        name = settings.template or self._options.template
        if not name:
            raise InvalidArgumentError("say in machine.template, or in the cloud's template, what is cloned")
        return self._cached(f"template {name}", lambda: self._template(name))

    def pool(self, settings: MachineSettings) -> Reference:
        """Returns the resource pool for machines."""
        chosen = settings if settings.cluster or settings.resource_pool else self._options
        key = f"pool {chosen.cluster}/{chosen.resource_pool}"
        return self._cached(key, lambda: self._pool(chosen.cluster, chosen.resource_pool))

    def datastore(self, settings: MachineSettings) -> Reference:
        """Returns the datastore for disks; None: the template's."""
        chosen = settings if settings.datastore or settings.datastore_cluster else self._options
        if chosen.datastore_cluster:
            return self._emptiest(chosen.datastore_cluster)
        if not chosen.datastore:
            return None
        name = chosen.datastore
        return self._cached(f"datastore {name}", lambda: self._find("datastore", name, vim.Datastore, "datastore"))

    def networks(self, settings: MachineSettings) -> Sequence[Network]:
        """Returns one network for each network adapter; none: the template's adapters stay."""
        names = settings.networks or self._options.networks
        return [self._cached(f"network {name}", partial(self._network, name)) for name in names]

    # -- lookups -------------------------------------------------------------------------------------------------------

    def _template(self, name: str) -> Template:
        found = self._find("vm", name, vim.VirtualMachine, "template")
        values = properties_of(self._session, "template", found, ["config.hardware.device", "snapshot"])
        devices = values.get("config.hardware.device")
        if devices is None:
            raise PreconditionError(f"vCenter cannot tell what the template {name} is made of: look at it there")
        return Template(name=name, reference=found, devices=list(devices), snapshot=values.get("snapshot"))

    def _pool(self, cluster: str, pool: str) -> Reference:
        if not cluster:
            return self._find("host", pool, vim.ResourcePool, "resourcePool")
        compute = self._find("host", cluster, vim.ComputeResource, "cluster")
        root = properties_of(self._session, "cluster", compute, ["resourcePool"])["resourcePool"]
        for step in filter(None, pool.split("/")):
            found = self._child(root, step)
            if not isinstance(found, vim.ResourcePool):
                raise InvalidArgumentError(f"the cluster {cluster} has no resource pool {pool}; look at resourcePool")
            root = found
        return root

    def _child(self, parent: Reference, name: str) -> Reference:
        return self._session.read("inventory", lambda content: content.searchIndex.FindChild(parent, name))

    def _emptiest(self, name: str) -> Reference:
        pod = self._cached(f"pod {name}", lambda: self._find("datastore", name, vim.StoragePod, "datastoreCluster"))
        members = properties_of(self._session, "datastore cluster", pod, ["childEntity"]).get("childEntity") or []
        summaries = properties_of_each(self._session, "datastore cluster", members, ["summary"])
        usable = [one for one in summaries if is_usable(one.properties["summary"])]
        if not usable:
            raise OutOfStockError(f"no datastore of {name} can be used: look at it in vCenter")
        return max(usable, key=lambda one: int(one.properties["summary"].freeSpace)).reference

    def _network(self, name: str) -> Network:
        found = self._find("network", name, vim.Network, "networks")
        if isinstance(found, vim.dvs.DistributedVirtualPortgroup):
            values = properties_of(self._session, "network", found, ["key", "config.distributedVirtualSwitch"])
            switch = values["config.distributedVirtualSwitch"]
            number = properties_of(self._session, "network", switch, ["uuid"])["uuid"]
            port = vim.dvs.PortConnection(portgroupKey=values["key"], switchUuid=number)
            return Network(
                name=name,
                backing=vim.vm.device.VirtualEthernetCard.DistributedVirtualPortBackingInfo(port=port),
            )
        values = properties_of(self._session, "network", found, ["summary", "name"])
        return Network(name=name, backing=plain_backing(values["summary"], values["name"], found))

    def _find(self, part: str, name: str, kind: Data, option: str) -> Reference:
        """Finds an object by its path below a part of the datacenter, else by its name anywhere in that part."""
        path = f"{self._options.datacenter}/{part}/{name.strip('/')}"
        found = self._by_path(path)
        if not isinstance(found, kind) and "/" not in name.strip("/"):
            found = self._by_name(part, name, kind, option)
        if not isinstance(found, kind):
            raise InvalidArgumentError(f"there is no {path} in {self._options.server}: look at `{option}`")
        return found

    def _by_path(self, path: str) -> Reference:
        return self._session.read("inventory", lambda content: content.searchIndex.FindByInventoryPath(path))

    def _by_name(self, part: str, name: str, kind: Data, option: str) -> Reference:
        root = self._by_path(f"{self._options.datacenter}/{part}")
        if root is None:
            raise InvalidArgumentError(f"there is no datacenter {self._options.datacenter}: look at `datacenter`")
        view = self._session.read(
            "inventory", lambda content: content.viewManager.CreateContainerView(root, [kind], recursive=True)
        )
        try:
            inside = properties_of(self._session, "inventory", view, ["view"]).get("view") or []
            by_kind: dict[type, list[Reference]] = {}
            for reference in inside:
                by_kind.setdefault(type(reference), []).append(reference)
            objects = [
                one
                for same in by_kind.values()
                for one in properties_of_each(self._session, "inventory", same, ["name"])
            ]
        finally:
            self._session.read("inventory", lambda _: view.DestroyView())
        named = [one.reference for one in objects if one.properties.get("name") == name]
        if len(named) > 1:
            raise InvalidArgumentError(f"there are {len(named)} of the name {name}: give the whole path in `{option}`")
        return named[0] if named else None

    def _cached(self, key: str, find: Callable[[], T]) -> T:
        now = time.monotonic()
        with self._lock:
            kept = self._cache.get(key)
        if kept is not None and now - kept[0] < _LASTS:
            return kept[1]  # type: ignore[return-value]  # it was put there under this key
        found = find()
        with self._lock:
            self._cache[key] = (now, found)
        return found


def is_usable(summary: Data) -> bool:
    """Returns whether disks may be put into a datastore."""
    return bool(summary.accessible) and summary.maintenanceMode in (None, "normal")


def plain_backing(summary: Data, name: str, reference: Reference) -> Data:
    """Returns the connection to a standard network of the hosts, or to one of NSX."""
    if isinstance(summary, vim.OpaqueNetwork.Summary):
        return vim.vm.device.VirtualEthernetCard.OpaqueNetworkBackingInfo(
            opaqueNetworkId=summary.opaqueNetworkId, opaqueNetworkType=summary.opaqueNetworkType
        )
    return vim.vm.device.VirtualEthernetCard.NetworkBackingInfo(deviceName=name, network=reference)
