"""What must be known of subnets and images before an instance can be ordered; asked once, and remembered."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from cloudgraft.drivers.ec2.session import Clients, read
from cloudgraft.drivers.ec2.settings import MachineSettings
from cloudgraft.sdk.errors import InvalidArgumentError

__all__ = ["Places"]


class Places:
    """Subnets and their zones, images and their root devices. Neither ever changes."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._lock = threading.Lock()
        self._zones: dict[str, str] = {}
        self._devices: dict[str, str] = {}

    def subnets(self, settings: MachineSettings) -> Sequence[str]:
        """Those of the group's zone, to be tried in this order; [""] when EC2 is to choose.

        In another zone the same client token would make a second instance: so they must all be in one.
        """
        given = list(dict.fromkeys(settings.subnets))
        if len(given) < 2:
            return given or [""]
        zones = self._zones_of(given)
        if settings.zone:
            given = [subnet for subnet in given if zones[subnet] == settings.zone]
            if not given:
                raise InvalidArgumentError(f"none of machine.subnets is in {settings.zone}: {_told(zones)}")
        elif len(set(zones.values())) > 1:
            raise InvalidArgumentError(
                f"machine.subnets are in several zones: {_told(zones)}. A group has one zone: set machine.zone, or "
                "`zones` of the group for one group in each"
            )
        return given

    def root_device(self, settings: MachineSettings) -> str:
        """What the image calls its root volume; empty when that is not needed."""
        volume, image = settings.root_volume, settings.image
        if volume is None or volume.device:
            return ""
        with self._lock:
            if image in self._devices:
                return self._devices[image]
        found = read(self._clients.client().describe_images, ImageIds=[image]).get("Images") or [{}]
        device = str(found[0].get("RootDeviceName", ""))
        if not device:
            raise InvalidArgumentError(
                f"the image {image} is not there, or has no root volume: look at machine.image, or set "
                "machine.rootVolume.device"
            )
        with self._lock:
            self._devices[image] = device
        return device

    def _zones_of(self, subnets: Sequence[str]) -> dict[str, str]:
        with self._lock:
            known = {subnet: self._zones[subnet] for subnet in subnets if subnet in self._zones}
        if len(known) < len(subnets):
            answer = read(self._clients.client().describe_subnets, SubnetIds=list(subnets))
            known = {str(one["SubnetId"]): str(one["AvailabilityZone"]) for one in answer.get("Subnets", ())}
            if missing := [subnet for subnet in subnets if subnet not in known]:
                raise InvalidArgumentError(f"machine.subnets: {missing[0]} is not in this region")
            with self._lock:
                self._zones |= known
        return {subnet: known[subnet] for subnet in subnets}


def _told(zones: dict[str, str]) -> str:
    return ", ".join(f"{subnet} in {zone}" for subnet, zone in zones.items())
