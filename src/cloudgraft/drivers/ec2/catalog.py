"""Instance types as shapes, and what an hour of them costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from cloudgraft.drivers.ec2.session import Client, pages
from cloudgraft.sdk.driver import Price, Shape
from cloudgraft.sdk.quantity import Quantity

__all__ = ["read_shapes", "read_spot_prices"]

_ASKED: Final = 100  # instance types that one request may name
_ARCHITECTURES: Final[Mapping[str, str]] = {"x86_64": "amd64", "arm64": "arm64", "i386": "386"}  # as Kubernetes says
_GPUS: Final[Mapping[str, str]] = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
_SYSTEM: Final = "Linux/UNIX"


def read_shapes(client: Client, names: Sequence[str], region: str) -> list[Shape]:
    """The types of these names, or all of the current generation."""
    if names:
        asked: list[dict[str, Any]] = [{"InstanceTypes": part} for part in _parts(names)]
    else:
        asked = [{"Filters": [{"Name": "current-generation", "Values": ["true"]}], "MaxResults": _ASKED}]
    call = client.describe_instance_types
    found = (kind for one in asked for page in pages(call, one) for kind in page["InstanceTypes"])
    return [_shape(kind, region) for kind in found]


def _shape(kind: Mapping[str, Any], region: str) -> Shape:
    """Without `ephemeral-storage`: that is the root volume, whose size is the group's, and not the type's own disks."""
    capacity = {
        "cpu": Quantity(int(kind["VCpuInfo"]["DefaultVCpus"])),
        "memory": Quantity(f"{int(kind['MemoryInfo']['SizeInMiB'])}Mi"),
    }
    for gpu in kind.get("GpuInfo", {}).get("Gpus", ()):
        if resource := _GPUS.get(str(gpu.get("Manufacturer", "")).lower()):
            capacity[resource] = capacity.get(resource, Quantity(0)) + Quantity(int(gpu.get("Count", 0)))
    neurons = sum(int(device.get("Count", 0)) for device in kind.get("NeuronInfo", {}).get("NeuronDevices", ()))
    if neurons:
        capacity["aws.amazon.com/neuron"] = Quantity(neurons)
    labels = {"topology.kubernetes.io/region": region}
    supported = kind.get("ProcessorInfo", {}).get("SupportedArchitectures", ())
    if known := next((_ARCHITECTURES[one] for one in ("x86_64", "arm64", "i386") if one in supported), ""):
        labels["kubernetes.io/arch"] = known
    return Shape(name=str(kind["InstanceType"]), capacity=capacity, labels=labels)


def read_spot_prices(client: Client, names: Sequence[str]) -> dict[str, Price]:
    """What spot instances of these types cost now: in the dearest zone, since a group's zone is not known here."""
    asked = {"InstanceTypes": list(names), "ProductDescriptions": [_SYSTEM], "StartTime": datetime.now(UTC)}
    highest: dict[str, Decimal] = {}
    for entry in (
        entry for page in pages(client.describe_spot_price_history, asked) for entry in page["SpotPriceHistory"]
    ):
        name, price = str(entry["InstanceType"]), Decimal(entry["SpotPrice"])
        highest[name] = max(price, highest.get(name, price))
    return {name: Price(shape=name, hourly=price, currency="USD") for name, price in highest.items()}


def _parts(names: Sequence[str]) -> Iterator[list[str]]:
    unique = list(dict.fromkeys(names))
    return (unique[start : start + _ASKED] for start in range(0, len(unique), _ASKED))
