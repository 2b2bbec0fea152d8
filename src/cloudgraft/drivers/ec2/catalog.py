"""Reads EC2's instance types as shapes, their spot prices, and the subnets and images of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from cloudgraft.drivers.ec2.options import MachineSettings
from cloudgraft.drivers.ec2.session import Client, Clients, pages, parts, read
from cloudgraft.sdk.driver import Price, Shape
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity

# -- instance types and prices -----------------------------------------------------------------------------------------

_ASKED: Final = 100  # instance types that one request may name
_ARCHITECTURES: Final[Mapping[str, str]] = {"x86_64": "amd64", "arm64": "arm64", "i386": "386"}  # Kubernetes' names
_GPUS: Final[Mapping[str, str]] = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
_SYSTEM: Final = "Linux/UNIX"


def read_shapes(client: Client, names: Sequence[str], region: str) -> list[Shape]:
    """Returns the types of these names, or all of the current generation."""
    asked: list[dict[str, Any]] = [{"InstanceTypes": part} for part in parts(names, _ASKED)]
    if not names:
        asked = [{"Filters": [{"Name": "current-generation", "Values": ["true"]}], "MaxResults": _ASKED}]
    call = client.describe_instance_types
    found = (kind for one in asked for page in pages(call, one) for kind in page["InstanceTypes"])
    return [_shape(kind, region) for kind in found]


def _shape(kind: Mapping[str, Any], region: str) -> Shape:
    """Builds a shape without `ephemeral-storage`: that is the root volume, whose size depends on the group."""
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
    """Returns current spot prices in the most expensive zone, since a group's zone is not known here."""
    asked = {"InstanceTypes": list(names), "ProductDescriptions": [_SYSTEM], "StartTime": datetime.now(UTC)}
    highest: dict[str, Decimal] = {}
    for page in pages(client.describe_spot_price_history, asked):
        for entry in page["SpotPriceHistory"]:
            name, price = str(entry["InstanceType"]), Decimal(entry["SpotPrice"])
            highest[name] = max(price, highest.get(name, price))
    return {name: Price(shape=name, hourly=price, currency="USD") for name, price in highest.items()}


# -- subnets and images ------------------------------------------------------------------------------------------------
# The properties of subnets and images that an order needs; asked once, and cached.


class Places:
    """Subnets and their zones, images and their root devices. Neither ever changes. Thread-safe."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._zones: dict[str, str] = {}
        self._devices: dict[str, str] = {}

    def subnets(self, settings: MachineSettings) -> Sequence[str]:
        """Returns the subnets of the group's zone in the order to try them; [""] when EC2 chooses.

        They must all be in one zone: in another zone the same client token would create a second instance.
        """
        given = list(dict.fromkeys(settings.subnets))
        if len(given) < 2:
            return given or [""]
        zones = self._zones_of(given)
        if settings.zone:
            given = [subnet for subnet in given if zones[subnet] == settings.zone]
            if not given:
                raise InvalidArgumentError(f"none of machine.subnets is in {settings.zone}: {_shown(zones)}")
        elif len(set(zones.values())) > 1:
            raise InvalidArgumentError(
                f"machine.subnets are in several zones: {_shown(zones)}. A group has one zone: set machine.zone, or "
                "`zones` of the group for one group in each"
            )
        return given

    def root_device(self, settings: MachineSettings) -> str:
        """Returns the device name of the image's root volume; empty when it is not needed."""
        volume, image = settings.root_volume, settings.image
        if volume is None or volume.device:
            return ""
        if image in self._devices:
            return self._devices[image]
        found = read(self._clients.client().describe_images, ImageIds=[image]).get("Images") or [{}]
        device = str(found[0].get("RootDeviceName", ""))
        if not device:
            why = f"the image {image} does not exist, or has no root volume"
            raise InvalidArgumentError(f"{why}: check machine.image, or set machine.rootVolume.device")
        self._devices[image] = device
        return device

    def _zones_of(self, subnets: Sequence[str]) -> dict[str, str]:
        if not self._zones.keys() >= set(subnets):
            answer = read(self._clients.client().describe_subnets, SubnetIds=list(subnets))
            self._zones |= {str(one["SubnetId"]): str(one["AvailabilityZone"]) for one in answer.get("Subnets", ())}
            if missing := [subnet for subnet in subnets if subnet not in self._zones]:
                raise InvalidArgumentError(f"machine.subnets: {missing[0]} is not in this region")
        return {subnet: self._zones[subnet] for subnet in subnets}


def _shown(zones: dict[str, str]) -> str:
    return ", ".join(f"{subnet} in {zone}" for subnet, zone in zones.items())
