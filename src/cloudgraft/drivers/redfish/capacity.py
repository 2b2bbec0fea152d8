"""What hosts hold: as the options say, or as their controllers tell it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final

from cloudgraft.drivers.redfish.bmc import Seen
from cloudgraft.drivers.redfish.options import ShapeOptions
from cloudgraft.sdk.driver import Shape
from cloudgraft.sdk.quantity import Quantity

__all__ = ["declared_shape", "seen_shape", "shortfall"]

_PODS: Final = 110
_SHOWN: Final = 5  # hosts that a message names
_KIB: Final = 1 << 20  # of a GiB


def shortfall(seen: Seen, wanted: Mapping[str, Quantity]) -> str:
    """What a host has less of than its shape says; empty when nothing, or when its controller does not tell.

    Memory is compared in whole GiB, as controllers round it.
    """
    cpus, memory = wanted["cpu"], wanted["memory"]
    lacks = []
    if seen.cpus is not None and Quantity(str(seen.cpus)) < cpus:
        lacks.append(f"{seen.cpus} of {cpus} CPUs")
    if seen.memory is not None and Quantity(f"{int(seen.memory) + 1}Gi") <= memory:
        lacks.append(f"{seen.memory} GiB of {memory} memory")
    return " and ".join(lacks)


def declared_shape(name: str, options: ShapeOptions) -> Shape:
    """One that the options describe."""
    capacity = {"pods": Quantity(_PODS), **options.capacity()}
    return Shape(name=name, capacity=capacity, labels={**_labels(name), **options.labels})


def seen_shape(name: str, hosts: Mapping[str, Seen | str]) -> Shape:
    """One of which only its hosts are known: by their ids, what their controllers tell, or why they do not.

    One controller that is away changes nothing. Hosts that differ are no shape, and all of them silent neither.
    """
    known = {host: seen for host, seen in hosts.items() if isinstance(seen, Seen)}
    kinds: dict[tuple[Decimal, Decimal], list[str]] = {}
    for host, seen in known.items():
        if seen.cpus is not None and seen.memory is not None:
            kinds.setdefault((seen.cpus, seen.memory), []).append(host)
    if len(kinds) != 1:
        return Shape(name=name, capacity={}, labels=_labels(name), problem=_problem(name, kinds, hosts))
    ((cpus, memory),) = kinds
    capacity = {"cpu": Quantity(str(cpus)), "memory": Quantity(f"{int(memory * _KIB)}Ki"), "pods": Quantity(_PODS)}
    return Shape(name=name, capacity=capacity, labels=_labels(name))


def _problem(name: str, kinds: Mapping[tuple[Decimal, Decimal], Sequence[str]], hosts: Mapping[str, Seen | str]) -> str:
    fix = f"say under shapes what {name} holds"
    if kinds:
        told = "; ".join(f"{_some(ids)}: {cpus} CPUs, {memory} GiB" for (cpus, memory), ids in kinds.items())
        return f"the hosts of the shape {name} differ ({told}): give them shapes of their own, or {fix}"
    why = next((seen for seen in hosts.values() if isinstance(seen, str)), "the controllers do not tell")
    return f"what the hosts of the shape {name} hold is not known ({_some(list(hosts))}: {why}); {fix}"


def _some(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return f"{', '.join(ids[:_SHOWN])}{more}"


def _labels(name: str) -> Mapping[str, str]:
    return {"kubernetes.io/os": "linux", "node.kubernetes.io/instance-type": name}
