"""Converts machines to domains and back: ownership marks, states, and libvirt's XML. Calls no host."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final
from xml.etree import ElementTree as ET

from cloudgraft.drivers.common.listing import is_younger
from cloudgraft.drivers.libvirt.options import Boot, DomainType, Firmware, LibvirtOptions, Network, SeedBus
from cloudgraft.sdk.driver import Machine, MachineSpec, MachineState
from cloudgraft.sdk.errors import OutOfStockError

# -- marks -------------------------------------------------------------------------------------------------------------
# The ownership marks that cloudgraft writes into a domain's metadata. A domain's uuid is derived from its machine's
# name. So the name is unique twice: libvirt refuses a second domain of that name, and defining the same one again
# changes only itself. Such a uuid has version 5, while libvirt's own have version 4: so the id alone excludes most
# other domains.

NAMESPACE: Final = "urn:cloudgraft:libvirt:machine:1"  # of our element in a domain
_NAMES: Final = uuid.UUID("7d2f8c0e-51c7-5d5b-9a53-3c1f2b0c7a11")  # never change it: every machine's id depends on it
_VERSION: Final = 5


def uuid_of(name: str) -> str:
    """Returns the id of the machine with this name."""
    return str(uuid.uuid5(_NAMES, name))


def may_be_ours(domain_id: str) -> bool:
    """Returns whether a domain with this id may have our metadata."""
    return uuid.UUID(domain_id).version == _VERSION


def provider_id(domain_id: str) -> str:
    """Returns the providerID of this machine's node."""
    return f"libvirt:///{domain_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The ownership marks of a domain."""

    name: str  # the domain's own name may be changed by hand
    pool: str  # of its volumes: the configuration may have changed since
    since: datetime
    tags: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: MachineSpec, pool: str) -> Marks:
        """Creates the marks of a new machine."""
        return cls(name=spec.name, pool=pool, since=datetime.now(UTC), tags=dict(spec.tags))

    def element(self) -> ET.Element:
        """Builds the element for ``<metadata>``. Tags are JSON in plain ASCII: XML would not keep every character."""
        attributes = {"name": self.name, "pool": self.pool, "since": self.since.isoformat()}
        element = ET.Element(f"{{{NAMESPACE}}}machine", attributes)
        element.text = json.dumps(dict(self.tags))
        return element

    @classmethod
    def read(cls, text: str, domain_id: str) -> Marks | None:
        """Parses the marks; None when they are not ours: then nothing proves ownership.

        Marks whose name does not match the id were copied by hand from another machine. Trusting them would delete that
        machine's disks (law 4).
        """
        try:
            element = ET.fromstring(text)  # noqa: S314 - libvirt has parsed it, and writes it out without entities
            tags = json.loads(element.text or "{}")
            since = datetime.fromisoformat(element.attrib["since"])
            marks = cls(name=element.attrib["name"], pool=element.attrib["pool"], since=since, tags=tags)
        except (ET.ParseError, KeyError, ValueError):
            return None
        is_sound = isinstance(tags, dict) and all(isinstance(value, str) for value in tags.values())
        return marks if is_sound and uuid_of(marks.name) == domain_id and since.tzinfo is not None else None

    def are_of(self, machine: Machine) -> bool:
        """Returns whether they still match the marks of this machine, where it has any."""
        return not machine.tags or machine.tags == self.tags


# -- states ------------------------------------------------------------------------------------------------------------

_PAUSED: Final = 3
_SHUTOFF: Final = 5
_CRASHED: Final = 6
_STATES: Final = {
    0: (MachineState.PENDING, "the host does not know its state"),
    1: (MachineState.RUNNING, ""),
    2: (MachineState.RUNNING, ""),  # blocked: waits for something
    _PAUSED: (MachineState.STOPPED, "it is paused"),
    4: (MachineState.STOPPED, "it is shutting down"),
    _SHUTOFF: (MachineState.STOPPED, "it is shut off"),
    _CRASHED: (MachineState.FAILED, "it has crashed"),
    7: (MachineState.STOPPED, "it sleeps"),
}
_IO_ERROR: Final = 5  # why a domain is paused
_STARTING: Final = 11
_NEVER_RAN: Final = frozenset({0, 6})  # reasons of a shut-off domain: unknown, as for a new one; failed to start
_WHY_OFF: Final = {1: "its guest shut it down", 2: "it was switched off"}
_BROKEN: Final = {3: "it crashed", 8: "libvirt's daemon was restarted and could not take it over"}
_HAS_RUN: Final = frozenset({1, 2, 4, 5, 7})  # shut down, switched off, moved to another host, saved, reverted


def is_active(state: int) -> bool:
    """Returns whether a domain in this state has a process."""
    return state not in (_SHUTOFF, _CRASHED)


def has_run(state: int, reason: int) -> bool:
    """Returns whether it runs or certainly did. One that crashed, or whose daemon restarted, may be half made."""
    return is_active(state) or reason in _HAS_RUN


def is_being_made(marks: Marks | None, state: int, reason: int, making: timedelta) -> bool:
    """Returns whether a create may still work on it or be repeated: it never started, and is young enough.

    ``making`` is the longest time of a create.
    """
    return _never_ran(state, reason) and marks is not None and is_younger(marks.since, making)


def machine_of(domain_id: str, name: str, marks: Marks | None, state: int, reason: int) -> Machine:
    """Converts a domain to a machine. One that never started is FAILED: its create died, and it must be deleted."""
    seen, why, failure = _meaning(state, reason)
    if _never_ran(state, reason):
        seen, why = MachineState.FAILED, "it is off: it was never made in whole, or its host was restarted"
    known = marks.name if marks is not None else name
    return Machine(
        name=known,
        machine_id=domain_id,
        provider_id=provider_id(domain_id),
        state=seen,
        tags=dict(marks.tags) if marks is not None else {},
        created_at=marks.since if marks is not None else None,
        reason=why if known == name else f"{why or 'it runs'}; its domain was renamed by hand to {name}",
        addresses=(known,),
        failure=failure,
    )


def _never_ran(state: int, reason: int) -> bool:
    return state == _SHUTOFF and reason in _NEVER_RAN


def _meaning(state: int, reason: int) -> tuple[MachineState, str, str]:
    if state == _PAUSED and reason == _IO_ERROR:
        why = "it is paused because its disk cannot be written; is the storage pool full?"
        return MachineState.FAILED, why, OutOfStockError.slug
    if state == _PAUSED and reason == _STARTING:
        return MachineState.PENDING, "it is starting", ""
    seen, why = _STATES.get(state, (MachineState.PENDING, f"its state is {state}, which is not known here"))
    if state == _SHUTOFF and reason in _BROKEN:
        return MachineState.FAILED, _BROKEN[reason], ""
    if state == _SHUTOFF and reason in _WHY_OFF:
        why = _WHY_OFF[reason]
    return seen, why, ""


# -- cached marks ------------------------------------------------------------------------------------------------------
# libvirt returns the marks of one domain at a time. Without a cache, a list of thousands of machines would be thousands
# of calls. Only marks of running domains are cached: those of a domain that is being created may be rewritten. Marks
# removed by hand from a running domain are noticed at the next read, after 10 to 20 minutes. Deletes never use the
# cache.

_LASTS: Final = (600.0, 1200.0)  # seconds; random, so that they do not all expire at once
_NOT_KNOWN: Final = 0  # the state of a domain that did not answer in time


class KnownMarks:
    """Caches the marks of the domains of one host. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, tuple[str, Marks, float]] = {}  # by id: the domain's name, its marks, until when

    def read(self, domain_id: str, name: str, state: int, ask: Callable[[], Marks | None]) -> Marks | None:
        """Returns the cached marks of a domain, else those from ``ask``."""
        known = self._known.get(domain_id)
        if known is not None and known[0] == name and is_active(state) and self._clock() < known[2]:
            return known[1]
        marks = ask()
        if marks is not None and is_active(state) and state != _NOT_KNOWN:
            lasts = random.uniform(*_LASTS)  # noqa: S311 - it only spreads the load
            self._known[domain_id] = (name, marks, self._clock() + lasts)
        else:
            self._known.pop(domain_id, None)
        return marks

    def keep(self, ids: Collection[str]) -> None:
        """Forgets all domains but these."""
        for domain_id in [one for one in list(self._known) if one not in ids]:
            self._known.pop(domain_id, None)


# -- XML of domains ----------------------------------------------------------------------------------------------------
# A machine as libvirt's XML: the domain, with its marks, and the volumes for its disk and its seed.

_X86: Final = "x86_64"
_MACHINE_TYPES: Final = {_X86: "q35", "aarch64": "virt"}
_DEVICES: Final = {SeedBus.VIRTIO: "vdb", SeedBus.IDE: "hda", SeedBus.SATA: "sda", SeedBus.SCSI: "sda"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All decisions about one machine before it is defined."""

    marks: Marks
    cpu: int
    memory: int  # bytes
    domain_type: DomainType
    arch: str
    disk_format: str
    networks: Sequence[Network]
    boot: Boot | None = None


def disk_volume(name: str) -> str:
    """Returns the name of the volume with a machine's disk."""
    return f"{name}-disk"


def seed_volume(name: str) -> str:
    """Returns the name of the volume with a machine's user data."""
    return f"{name}-seed.iso"


def domain_xml(plan: Plan, options: LibvirtOptions) -> str:
    """Returns the XML of the domain; nothing in it is secret."""
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


# -- XML of volumes and hosts ------------------------------------------------------------------------------------------

OVERLAY_FORMAT: Final = "qcow2"  # the only one that can have a base
_WITHOUT_FILES: Final = frozenset({"block", "network"})  # types of volumes: they have no format but raw


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A volume that disks are created from."""

    path: str
    format: str
    capacity: int  # bytes
    is_file: bool = True

    @property
    def clone_format(self) -> str:
        """The format of a copy of it."""
        return self.format if self.is_file else "raw"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a host can run."""

    arch: str
    types: frozenset[tuple[str, str]]  # of architecture and domain type

    def best(self, arch: str) -> DomainType:
        """Returns KVM where the host has it."""
        return DomainType.KVM if (arch, DomainType.KVM.value) in self.types else DomainType.QEMU


def new_volume(name: str, *, capacity: int, kind: str, base: Image | None = None) -> str:
    """Returns the XML of a volume that takes no room yet, and that only its owner can read: seeds hold secrets.

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
    """Parses the XML of a volume."""
    volume = ET.fromstring(xml)  # noqa: S314 - from libvirt, which writes no entities
    found = volume.find("target/format")
    return Image(
        path=volume.findtext("target/path", ""),
        format=found.get("type", "raw") if found is not None else "raw",
        capacity=int(volume.findtext("capacity", "0")),
        is_file=volume.get("type", "file") not in _WITHOUT_FILES,
    )


def read_offer(xml: str) -> Offer:
    """Parses a host's capabilities."""
    found = ET.fromstring(xml)  # noqa: S314 - from libvirt, which writes no entities
    types = {
        (arch.get("name", ""), domain.get("type", ""))
        for arch in found.iterfind("guest/arch")
        for domain in arch.iterfind("domain")
    }
    return Offer(arch=found.findtext("host/cpu/arch", "x86_64"), types=frozenset(types))
