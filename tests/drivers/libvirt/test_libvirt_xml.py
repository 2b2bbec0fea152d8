"""Domains and volumes as XML: what is written, and what is read back."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from cloudgraft.drivers.libvirt.domains import (
    NAMESPACE,
    Image,
    Marks,
    Plan,
    disk_volume,
    domain_xml,
    has_run,
    is_being_made,
    machine_of,
    may_be_ours,
    new_volume,
    provider_id,
    read_image,
    read_offer,
    seed_volume,
    uuid_of,
)
from cloudgraft.drivers.libvirt.options import (
    Boot,
    DomainType,
    Firmware,
    LibvirtOptions,
    Network,
    SeedBus,
    ShapeOptions,
)
from cloudgraft.sdk.driver import Machine, MachineSpec, MachineState

NAME = "lab-a1b2c3d4e5-pool-0a1b2c3d-abcdefgh"
TAGS = {"cloudgraft-cluster": "l\u00e4b", "cloudgraft-group": '<g> & "q"\t\x01 \u2028', "cloudgraft-name": NAME}
SHAPES = {"small": ShapeOptions(cpu=2, memory="4Gi")}


def marks(**changes: Any) -> Marks:
    return Marks(**{"name": NAME, "pool": "vms", "since": datetime.now(UTC), "tags": TAGS, **changes})


def plan(**changes: Any) -> Plan:
    given = {"marks": marks(), "cpu": 2, "memory": 4 * 2**30, "domain_type": DomainType.KVM, "arch": "x86_64"}
    return Plan(**{**given, "disk_format": "qcow2", "networks": (), **changes})


def domain(options: dict[str, Any] | None = None, **changes: Any) -> ET.Element:
    return ET.fromstring(domain_xml(plan(**changes), LibvirtOptions(shapes=SHAPES, **(options or {}))))


def test_a_name_has_one_uuid_for_ever() -> None:
    """Were it to change, a repeated create would make a second machine, and no old one would be known."""
    assert uuid_of(NAME) == "8fbfe357-69ba-5ffe-8226-d43cb27c16d6"
    assert provider_id(uuid_of(NAME)) == "libvirt:///8fbfe357-69ba-5ffe-8226-d43cb27c16d6"
    assert may_be_ours(uuid_of(NAME))
    assert not may_be_ours("5f1e1e2e-0000-4000-8000-000000000001")


def test_marks_are_in_the_definition_and_come_back_byte_for_byte() -> None:
    found = domain().find(f"metadata/{{{NAMESPACE}}}machine")
    assert found is not None
    found.tag = "machine"  # libvirt gives it back without its namespace
    read = Marks.read(ET.tostring(found, encoding="unicode"), uuid_of(NAME))
    assert read is not None
    assert (read.name, read.pool, read.tags) == (NAME, "vms", TAGS)
    assert Marks.of(MachineSpec(name=NAME, group="g", tags=TAGS), "vms").tags == TAGS


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<machine",
        "<machine/>",
        "<machine name='a' pool='b' since='yesterday'>{}</machine>",
        "<machine name='a' pool='b' since='2026-01-01T00:00:00'>{}</machine>",
        "<machine name='' pool='b' since='2026-01-01T00:00:00+00:00'>{}</machine>",
        "<machine name='a' pool='b' since='2026-01-01T00:00:00+00:00'>[1]</machine>",
        '<machine name="a" pool="b" since="2026-01-01T00:00:00+00:00">{"a": 1}</machine>',
    ],
)
def test_marks_that_somebody_changed_prove_nothing(text: str) -> None:
    assert Marks.read(text, uuid_of("a")) is None


def test_marks_that_were_copied_to_another_domain_are_not_its_own() -> None:
    """Law 4: whoever went by them would remove the disks of the machine that they were copied from."""
    text = ET.tostring(marks().element(), encoding="unicode")
    assert Marks.read(text, uuid_of(NAME)) is not None
    assert Marks.read(text, uuid_of("copy")) is None


def test_a_machine_is_deleted_by_the_marks_that_it_was_listed_with() -> None:
    known = Machine(name=NAME, machine_id=uuid_of(NAME))
    assert marks().are_of(known)
    assert marks().are_of(replace(known, tags=TAGS))
    assert not marks(tags={"cloudgraft-cluster-id": "another"}).are_of(replace(known, tags=TAGS))


def test_a_domain_has_what_its_shape_and_its_cloud_say() -> None:
    networks = (Network(network="lab"), Network(bridge="br0", model="e1000"))
    found = domain(networks=networks)
    assert found.get("type") == "kvm"
    assert (found.findtext("name"), found.findtext("uuid")) == (NAME, uuid_of(NAME))
    assert (found.findtext("memory"), found.findtext("vcpu")) == (str(4 * 2**20), "2")
    assert [disk.find("source").attrib for disk in found.iterfind("devices/disk")] == [  # type: ignore[union-attr]  # else it fails
        {"pool": "vms", "volume": disk_volume(NAME)},
        {"pool": "vms", "volume": seed_volume(NAME)},
    ]
    cards = [(card.get("type"), card[0].attrib, card[1].get("type")) for card in found.iterfind("devices/interface")]
    assert cards == [("network", {"network": "lab"}, "virtio"), ("bridge", {"bridge": "br0"}, "e1000")]
    assert found.find("cpu").get("mode") == "host-passthrough"  # type: ignore[union-attr]  # else it fails
    assert found.find("os/boot") is not None


def test_a_domain_in_software_for_another_architecture() -> None:
    options = {"firmware": Firmware.EFI, "seed_bus": SeedBus.VIRTIO, "console_log_directory": "/var/log/vms/"}
    boot = Boot(kernel="/vmlinuz", initrd="/initrd", cmdline="quiet")
    found = domain(options, domain_type=DomainType.QEMU, arch="aarch64", boot=boot)
    assert found.find("cpu") is None
    assert found.find("os").get("firmware") == "efi"  # type: ignore[union-attr]  # else it fails
    assert found.find("os/type").attrib == {"arch": "aarch64", "machine": "virt"}  # type: ignore[union-attr]  # else it fails
    assert [found.findtext(f"os/{key}") for key in ("kernel", "initrd", "cmdline")] == ["/vmlinuz", "/initrd", "quiet"]
    assert [disk.get("device") for disk in found.iterfind("devices/disk")] == ["disk", "disk"]
    assert found.find("devices/serial/source").get("path") == f"/var/log/vms/{NAME}.log"  # type: ignore[union-attr]  # else it fails


def test_an_overlay_names_its_base_and_nobody_else_reads_it() -> None:
    base = Image(path="/vms/a&b.qcow2", format="qcow2", capacity=5)
    found = ET.fromstring(new_volume("n-disk", capacity=7, kind="qcow2", base=base))
    assert found.findtext("backingStore/path") == "/vms/a&b.qcow2"
    assert found.findtext("capacity") == "7"
    assert found.findtext("target/permissions/mode") == "0600"
    assert ET.fromstring(new_volume("n", capacity=7, kind="raw")).find("backingStore") is None


def test_an_image_is_read_as_the_host_describes_it() -> None:
    target = "<target><path>/a</path><format type='qcow2'/></target>"
    file = f"<volume type='file'><capacity unit='bytes'>9</capacity>{target}</volume>"
    assert read_image(file) == Image(path="/a", format="qcow2", capacity=9)
    block = read_image(file.replace("'file'", "'block'"))
    assert block.clone_format == "raw"


def test_kvm_is_taken_where_the_host_has_it() -> None:
    xml = (
        "<capabilities><host><cpu><arch>x86_64</arch></cpu></host>"
        "<guest><arch name='x86_64'><domain type='qemu'/><domain type='kvm'/></arch></guest>"
        "<guest><arch name='aarch64'><domain type='qemu'/></arch></guest></capabilities>"
    )
    offer = read_offer(xml)
    assert offer.arch == "x86_64"
    assert offer.best("x86_64") is DomainType.KVM
    assert offer.best("aarch64") is DomainType.QEMU


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        (1, 1, MachineState.RUNNING),
        (2, 0, MachineState.RUNNING),
        (3, 1, MachineState.STOPPED),
        (3, 5, MachineState.FAILED),
        (3, 11, MachineState.PENDING),
        (5, 0, MachineState.FAILED),
        (5, 6, MachineState.FAILED),
        (5, 1, MachineState.STOPPED),
        (5, 8, MachineState.FAILED),
        (6, 0, MachineState.FAILED),
        (99, 0, MachineState.PENDING),
    ],
)
def test_each_state_of_a_domain_means_something(state: int, reason: int, expected: MachineState) -> None:
    own = marks()
    machine = machine_of(uuid_of(NAME), NAME, own, state, reason)
    assert machine.state is expected
    assert machine.created_at == own.since
    assert bool(machine.reason) is (expected is not MachineState.RUNNING)
    assert machine.failure == ("out_of_stock" if (state, reason) == (3, 5) else "")


@pytest.mark.parametrize(
    ("state", "reason", "age", "expected"),
    [(5, 0, 0, True), (5, 6, 0, True), (5, 0, 600, False), (5, 1, 0, False), (1, 0, 0, False), (6, 0, 0, False)],
)
def test_what_never_ran_is_being_made_for_as_long_as_that_may_take(
    state: int, reason: int, age: int, expected: bool
) -> None:
    """Law 3: such a domain is in no list yet, so that the engine repeats the create, which finishes it."""
    since = datetime.now(UTC) - timedelta(seconds=age)
    assert is_being_made(marks(since=since), state, reason, timedelta(minutes=5)) is expected
    assert not is_being_made(None, state, reason, timedelta(minutes=5))


def test_only_what_certainly_ran_is_not_made_again() -> None:
    assert all(has_run(state, 0) for state in (1, 2, 3, 4, 7))
    assert [reason for reason in range(9) if has_run(5, reason)] == [1, 2, 4, 5, 7]


def test_a_domain_that_was_renamed_is_the_machine_that_it_was() -> None:
    machine = machine_of(uuid_of(NAME), "mine-now", marks(), 1, 0)
    assert machine.name == NAME
    assert "mine-now" in machine.reason


def test_a_domain_without_marks_shows_none() -> None:
    machine = machine_of(uuid_of(NAME), NAME, None, 5, 0)
    assert (machine.name, machine.tags, machine.created_at) == (NAME, {}, None)
    assert machine.state is MachineState.FAILED
