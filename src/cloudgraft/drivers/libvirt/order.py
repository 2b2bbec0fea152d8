"""Plans one machine and checks whether its host has room for it; creates nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudgraft.drivers.common.seed_iso import seed_iso
from cloudgraft.drivers.libvirt.domains import OVERLAY_FORMAT, Image, Marks, Plan, is_active, may_be_ours
from cloudgraft.drivers.libvirt.options import (
    PLAIN_ARCH,
    Disk,
    LibvirtOptions,
    MachineSettings,
    ShapeOptions,
)
from cloudgraft.sdk.driver import MachineSpec
from cloudgraft.sdk.errors import InvalidArgumentError, OutOfStockError
from cloudgraft.sdk.quantity import amount
from cloudgraft.validation import read_settings

if TYPE_CHECKING:  # it needs libvirt
    from cloudgraft.drivers.libvirt.host import Host, Seen

# -- orders ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A machine as its group describes it, before any call to the host."""

    spec: MachineSpec
    settings: MachineSettings
    shape: ShapeOptions
    image: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One machine, with everything needed to create it."""

    plan: Plan
    size: int  # of the disk, in bytes
    source: tuple[Any, Image]
    is_clone: bool
    seed: bytes = field(repr=False)  # holds secrets


def request_of(spec: MachineSpec, options: LibvirtOptions) -> Request:
    """Reads the request of a spec; raises InvalidArgumentError for one that can never be created."""
    settings = read_settings(MachineSettings, spec.settings)
    shape = options.shapes.get(settings.shape)
    if shape is None:
        known = ", ".join(options.shapes)
        raise InvalidArgumentError(f"shape: there is no {settings.shape!r} in the cloud's shapes; there is: {known}")
    image = settings.image or options.image
    if not image:
        raise InvalidArgumentError("image is missing: name a volume, in the group's machine or in the cloud")
    return Request(spec=spec, settings=settings, shape=shape, image=image)


def order_of(request: Request, marks: Marks, host: Host, options: LibvirtOptions) -> Order:
    """Checks that the host has everything that the machine needs."""
    settings = request.settings
    source = host.image(request.image)
    is_clone = settings.disk is Disk.CLONE
    networks = options.networks if settings.networks is None else settings.networks
    host.check_networks(networks)
    arch = _arch(host, options)
    plan = Plan(
        marks=marks,
        cpu=request.shape.cpu,
        memory=int(amount(request.shape.memory).value),
        domain_type=options.domain_type or host.offer().best(arch),
        arch=arch,
        disk_format=source[1].clone_format if is_clone else OVERLAY_FORMAT,
        networks=networks,
        boot=settings.boot,
    )
    config = settings.network_config or None
    seed = seed_iso(name=request.spec.name, user_data=request.spec.user_data, network_config=config)
    return Order(plan=plan, size=_size(request, source[1]), source=source, is_clone=is_clone, seed=seed)


def _arch(host: Host, options: LibvirtOptions) -> str:
    """Returns the architecture. The shape, and so the group's template, was built without asking the host."""
    if options.arch:
        return options.arch
    arch = host.offer().arch
    if arch != PLAIN_ARCH:
        raise InvalidArgumentError(f"the host is of architecture {arch}: say `arch: {arch}` for this cloud")
    return arch


def _size(request: Request, image: Image) -> int:
    wanted = request.settings.size if request.settings.size != "" else request.shape.disk
    if wanted == "":
        return image.capacity
    size = int(amount(wanted).value)
    if size < image.capacity:
        raise InvalidArgumentError(f"size: {wanted} is less than the image has, which is {image.capacity} bytes")
    return size


# -- room on the host --------------------------------------------------------------------------------------------------


def check_room(host: Host, options: LibvirtOptions, memory: int) -> None:
    """Raises OutOfStockError when a machine with this memory would exceed a limit of the options.

    Domains of others count while they run; ours also while they are being created.
    """
    if options.max_machines is not None or options.host_memory_reserve != "":
        domains = host.domains()
        _check_count(domains, options)
        _check_memory(domains, host, options, memory)
    if options.pool_reserve != "" and host.room() < amount(options.pool_reserve).value:
        raise OutOfStockError(f"the storage pool {options.pool} has less room than poolReserve: {options.pool_reserve}")


def _check_count(domains: list[Seen], options: LibvirtOptions) -> None:
    count = sum(may_be_ours(seen.id) for seen in domains)
    if options.max_machines is not None and count >= options.max_machines:
        raise OutOfStockError(f"the host has {count} machines of cloudgraft, and maxMachines is {options.max_machines}")


def _check_memory(domains: list[Seen], host: Host, options: LibvirtOptions, memory: int) -> None:
    if options.host_memory_reserve == "":
        return
    reserve = int(amount(options.host_memory_reserve).value)
    given = sum(seen.memory for seen in domains if is_active(seen.state) or may_be_ours(seen.id))
    total = host.memory()
    if given + memory + reserve > total:
        free = max(0, total - reserve - given) // 2**20
        raise OutOfStockError(
            f"the host has {free} MiB left for machines, beside hostMemoryReserve, and this one needs {memory // 2**20}"
        )
