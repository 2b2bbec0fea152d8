"""Volumes of a storage pool as libvirt's XML, and what a host says of its volumes and of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree as ET

from cloudgraft.drivers.libvirt.options import DomainType

__all__ = ["OVERLAY_FORMAT", "Image", "Offer", "new_volume", "read_image", "read_offer"]

OVERLAY_FORMAT: Final = "qcow2"  # the only one that can have a base
_WITHOUT_FILES: Final = frozenset({"block", "network"})  # types of volumes: they have no format but raw


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A volume that disks are made from."""

    path: str
    format: str
    capacity: int  # bytes
    is_file: bool = True

    @property
    def clone_format(self) -> str:
        """What a copy of it has."""
        return self.format if self.is_file else "raw"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a host can run."""

    arch: str
    types: frozenset[tuple[str, str]]  # of architecture and domain type

    def best(self, arch: str) -> DomainType:
        """KVM, where it is to be had."""
        return DomainType.KVM if (arch, DomainType.KVM.value) in self.types else DomainType.QEMU


def new_volume(name: str, *, capacity: int, kind: str, base: Image | None = None) -> str:
    """A volume that takes no room yet, and that only the host's own users can read: seeds hold secrets.

    ``base`` makes it an overlay, which holds only what differs from the base.
    """
    volume = ET.Element("volume")
    _text(volume, "name", name)
    _text(volume, "capacity", str(capacity), unit="bytes")
    _text(volume, "allocation", "0", unit="bytes")
    target = ET.SubElement(volume, "target")
    ET.SubElement(target, "format", type=kind)
    _text(ET.SubElement(target, "permissions"), "mode", "0600")
    if base is not None:
        backing = ET.SubElement(volume, "backingStore")
        _text(backing, "path", base.path)
        ET.SubElement(backing, "format", type=base.format)
    return ET.tostring(volume, encoding="unicode")


def read_image(xml: str) -> Image:
    """From the XML of a volume."""
    volume = ET.fromstring(xml)  # noqa: S314 - from libvirt, which writes no entities
    found = volume.find("target/format")
    return Image(
        path=volume.findtext("target/path", ""),
        format=found.get("type", "raw") if found is not None else "raw",
        capacity=int(volume.findtext("capacity", "0")),
        is_file=volume.get("type", "file") not in _WITHOUT_FILES,
    )


def read_offer(xml: str) -> Offer:
    """From a host's capabilities."""
    found = ET.fromstring(xml)  # noqa: S314 - from libvirt, which writes no entities
    types = {
        (arch.get("name", ""), domain.get("type", ""))
        for arch in found.iterfind("guest/arch")
        for domain in arch.iterfind("domain")
    }
    return Offer(arch=found.findtext("host/cpu/arch", "x86_64"), types=frozenset(types))


def _text(parent: ET.Element, tag: str, text: str, **attributes: str) -> None:
    ET.SubElement(parent, tag, attributes).text = text
