"""Whether a host has room for one more machine: asked before anything is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cloudgraft.drivers.libvirt.marks import may_be_ours
from cloudgraft.drivers.libvirt.options import LibvirtOptions
from cloudgraft.drivers.libvirt.states import is_active
from cloudgraft.sdk.errors import OutOfStockError
from cloudgraft.sdk.quantity import amount

if TYPE_CHECKING:  # it needs libvirt
    from cloudgraft.drivers.libvirt.host import Seen

__all__ = ["check_room"]


class _Asked(Protocol):
    """What a host can tell."""

    def domains(self) -> list[Seen]: ...

    def memory(self) -> int: ...

    def room(self) -> int: ...


def check_room(host: _Asked, options: LibvirtOptions, memory: int) -> None:
    """Raises OutOfStockError when a limit of the options would be passed by a machine with so much memory.

    Domains of others count too while they run; ours also while they are being made.
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


def _check_memory(domains: list[Seen], host: _Asked, options: LibvirtOptions, memory: int) -> None:
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
