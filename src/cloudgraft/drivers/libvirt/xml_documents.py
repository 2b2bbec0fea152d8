"""Writes domains and volumes as libvirt's XML, and parses what a host reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree as ET

from cloudgraft.drivers.libvirt.domains import Marks, uuid_of
from cloudgraft.drivers.libvirt.options import Boot, DomainType, Firmware, LibvirtOptions, Network, SeedBus

# -- domains -----------------------------------------------------------------------------------------------------------
# A machine as libvirt's XML: the domain, with its marks, and the volumes for its disk and its seed.

_X86: Final = "x86_64"
_MACHINE_TYPES: Final = {_X86: "q35", "aarch64": "virt"}
_DEVICES: Final = {SeedBus.VIRTIO: "vdb", SeedBus.IDE: "hda", SeedBus.SATA: "sda", SeedBus.SCSI: "sda"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that is decided about one machine before it is defined."""

    marks: Marks
    cpu: int
    memory: int  # bytes
    domain_type: DomainType
    arch: str
    disk_format: str
    networks: Sequence[Network]
    boot: Boot | None = None


def disk_volume(name: str) -> str:
    """What the volume with a machine's disk is called."""
    return f"{name}-disk"


def seed_volume(name: str) -> str:
    """What the volume with a machine's user data is called."""
    return f"{name}-seed.iso"


def domain_xml(plan: Plan, options: LibvirtOptions) -> str:
    """The domain; nothing in it is secret."""
    domain = ET.Element("domain", type=plan.domain_type.value)
    _text(domain, "name", plan.marks.name)
    _text(domain, "uuid", uuid_of(plan.marks.name))
    ET.SubElement(domain, "metadata").append(plan.marks.element())
    _text(domain, "memory", str(plan.memory // 1024), unit="KiB")
    _text(domain, "vcpu", str(plan.cpu))
    domain.append(_os(plan, options))
    if plan.arch == _X86:
        features = ET.SubElement(domain, "features")
        ET.SubElement(features, "acpi")
        ET.SubElement(features, "apic")
    mode = options.cpu_mode or ("host-passthrough" if plan.domain_type is DomainType.KVM else "")
    if mode:
        ET.SubElement(domain, "cpu", mode=mode)
    ET.SubElement(domain, "clock", offset="utc")
    for event, action in {"on_poweroff": "destroy", "on_reboot": "restart", "on_crash": "destroy"}.items():
        _text(domain, event, action)
    domain.append(_devices(plan, options))
    return ET.tostring(domain, encoding="unicode")


def _os(plan: Plan, options: LibvirtOptions) -> ET.Element:
    element = ET.Element("os")
    if options.firmware is Firmware.EFI:
        element.set("firmware", "efi")
    kind = _text(element, "type", "hvm", arch=plan.arch)
    machine_type = options.machine_type or _MACHINE_TYPES.get(plan.arch, "")
    if machine_type:
        kind.set("machine", machine_type)
    if plan.boot is not None:
        for key, value in {
            "kernel": plan.boot.kernel,
            "initrd": plan.boot.initrd,
            "cmdline": plan.boot.cmdline,
        }.items():
            if value:
                _text(element, key, value)
    else:
        ET.SubElement(element, "boot", dev="hd")
    return element


def _devices(plan: Plan, options: LibvirtOptions) -> ET.Element:
    devices = ET.Element("devices")
    name, pool = plan.marks.name, plan.marks.pool
    disk = _volume(devices, "disk", pool, disk_volume(name), plan.disk_format)
    ET.SubElement(disk, "target", dev="vda", bus="virtio")
    bus = options.seed_bus
    seed = _volume(devices, "disk" if bus is SeedBus.VIRTIO else "cdrom", pool, seed_volume(name), "raw")
    ET.SubElement(seed, "target", dev=_DEVICES[bus], bus=bus.value)
    ET.SubElement(seed, "readonly")
    if bus is SeedBus.SCSI:
        ET.SubElement(devices, "controller", type="scsi", index="0", model="virtio-scsi")
    for network in plan.networks:
        _card(devices, network)
    _console(devices, name, options.console_log_directory)
    channel = ET.SubElement(devices, "channel", type="unix")  # for a guest agent, where the image has one
    ET.SubElement(channel, "target", type="virtio", name="org.qemu.guest_agent.0")
    random = ET.SubElement(devices, "rng", model="virtio")  # a new machine makes keys at once
    _text(random, "backend", "/dev/urandom", model="random")
    return devices


def _volume(devices: ET.Element, device: str, pool: str, volume: str, kind: str) -> ET.Element:
    disk = ET.SubElement(devices, "disk", type="volume", device=device)
    driver = ET.SubElement(disk, "driver", name="qemu", type=kind)
    if device == "disk" and kind != "raw":
        driver.set("discard", "unmap")
    ET.SubElement(disk, "source", pool=pool, volume=volume)
    return disk


def _card(devices: ET.Element, network: Network) -> None:
    kind = "network" if network.network else "bridge"
    card = ET.SubElement(devices, "interface", type=kind)
    ET.SubElement(card, "source", {kind: network.network or network.bridge})
    ET.SubElement(card, "model", type=network.model)


def _console(devices: ET.Element, name: str, directory: str) -> None:
    serial = ET.SubElement(devices, "serial", type="file" if directory else "pty")
    if directory:
        ET.SubElement(serial, "source", path=f"{directory.rstrip('/')}/{name}.log", append="on")
    ET.SubElement(serial, "target", port="0")


def _text(parent: ET.Element, tag: str, text: str, **attributes: str) -> ET.Element:
    element = ET.SubElement(parent, tag, attributes)
    element.text = text
    return element


# -- volumes and hosts -------------------------------------------------------------------------------------------------

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
