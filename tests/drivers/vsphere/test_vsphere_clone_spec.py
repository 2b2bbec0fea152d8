"""The one call that makes a virtual machine, and what of it is read back."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cloudgraft.drivers.vsphere.inventory import Network, Template, is_usable, plain_backing
from cloudgraft.drivers.vsphere.machines import (
    USER_DATA_LIMIT,
    check_name,
    clone_spec,
    instance_uuid,
    is_same,
    machine_of,
    marks_in,
)
from cloudgraft.drivers.vsphere.options import MachineSettings, Size
from cloudgraft.drivers.vsphere.pyvmomi import vim
from cloudgraft.sdk.driver import MachineSpec, MachineState
from cloudgraft.sdk.errors import InvalidArgumentError, PreconditionError

NOW = datetime(2026, 1, 2, tzinfo=UTC)
TAGS = {"cloudgraft-cluster-id": "abcdefghij", "cloudgraft-group": 'é "quoted"\n\\ =,'}
SPEC = MachineSpec(name="prod-1", group="g", tags=TAGS, user_data="#cloud-config\nä: 1\n")
SIZE = Size(cpus=2, memory_mib=4096, disk_bytes=None)


def template(**changes: Any) -> Template:
    disk = vim.vm.device.VirtualDisk(key=2000, controllerKey=1000, unitNumber=0, capacityInKB=10 << 20)
    card = vim.vm.device.VirtualE1000(key=4000)
    given = {"name": "t", "reference": vim.VirtualMachine("vm-1"), "devices": [disk, card], "snapshot": None}
    return Template(**{**given, **changes})


def made(settings: MachineSettings | None = None, size: Size = SIZE, spec: MachineSpec = SPEC, **given: Any) -> Any:
    wanted = {"template": template(), "pool": vim.ResourcePool("p"), "datastore": None, "networks": (), **given}
    return clone_spec(spec, settings or MachineSettings(shape="small"), size, **wanted)


def extra(spec: Any) -> dict[str, str]:
    return {one.key: one.value for one in spec.config.extraConfig}


def shown(spec: Any, **changes: Any) -> Mapping[str, Any]:
    """As a vCenter shows what was made of it."""
    return {
        "name": SPEC.name,
        "config.template": False,
        "config.uuid": "4213AB00-0000-0000-0000-000000000001",
        "config.instanceUuid": spec.config.instanceUuid,
        **{f'config.extraConfig["{one.key}"]': one for one in spec.config.extraConfig},
        "config.createDate": NOW,
        "runtime.powerState": "poweredOn",
        "runtime.connectionState": "connected",
        "guest.ipAddress": "10.0.0.9",
        "guest.hostName": "prod-1",
        **changes,
    }


def test_one_call_has_the_size_the_marks_and_the_power_switch() -> None:
    spec = made(MachineSettings(shape="small", extra_config={"a.b": "c"}))
    assert (spec.config.numCPUs, spec.config.memoryMB, spec.powerOn, spec.template) == (2, 4096, True, False)
    assert spec.config.instanceUuid == instance_uuid("prod-1")
    assert spec.location.diskMoveType == "moveAllDiskBackingsAndConsolidate"
    assert extra(spec)["a.b"] == "c"
    marks = marks_in(extra(spec))
    assert marks is not None
    assert (marks.name, marks.tags) == ("prod-1", TAGS)


def test_cloud_init_gets_the_user_data_and_the_host_name_by_guestinfo() -> None:
    told = extra(made())
    assert told["guestinfo.userdata.encoding"] == told["guestinfo.metadata.encoding"] == "base64"
    assert base64.b64decode(told["guestinfo.userdata"]).decode() == SPEC.user_data
    metadata = json.loads(base64.b64decode(told["guestinfo.metadata"]))
    assert metadata == {"instance-id": "prod-1", "local-hostname": "prod-1"}


def test_too_much_user_data_is_refused_and_nothing_of_it_is_told() -> None:
    most = MachineSpec(name="prod-1", group="g", user_data="s" * USER_DATA_LIMIT)
    assert len(extra(made(spec=most))["guestinfo.userdata"]) <= 64 * 1024
    with pytest.raises(InvalidArgumentError, match="user data") as caught:
        made(spec=MachineSpec(name="prod-1", group="g", user_data="s" * (USER_DATA_LIMIT + 1)))
    assert "sss" not in caught.value.message


def test_the_first_disk_grows_and_never_shrinks() -> None:
    (change,) = made(size=Size(cpus=2, memory_mib=4096, disk_bytes=40 << 30)).config.deviceChange
    assert (change.operation, change.device.key, change.device.capacityInKB) == ("edit", 2000, 40 << 20)
    assert not made(size=Size(cpus=2, memory_mib=4096, disk_bytes=10 << 30)).config.deviceChange
    with pytest.raises(InvalidArgumentError, match="smaller"):
        made(size=Size(cpus=2, memory_mib=4096, disk_bytes=1 << 30))
    with pytest.raises(InvalidArgumentError, match="linked"):
        made(
            MachineSettings(shape="small", linked_clone=True),
            size=Size(cpus=2, memory_mib=4096, disk_bytes=40 << 30),
        )
    with pytest.raises(PreconditionError, match="no disk"):
        made(size=Size(cpus=2, memory_mib=4096, disk_bytes=40 << 30), template=template(devices=[]))


def test_networks_replace_the_adapters_of_the_template() -> None:
    backing = plain_backing(vim.Network.Summary(), "VM Network", vim.Network("n"))
    changes = made(networks=[Network(name="VM Network", backing=backing)]).config.deviceChange
    assert [(one.operation, type(one.device).__name__) for one in changes] == [
        ("remove", "vim.vm.device.VirtualE1000"),
        ("add", "vim.vm.device.VirtualVmxnet3"),
    ]
    assert changes[1].device.backing.deviceName == "VM Network"


def test_a_linked_clone_stands_on_a_snapshot_by_name_or_on_the_current_one() -> None:
    base, newer = vim.vm.Snapshot("s1"), vim.vm.Snapshot("s2")
    child = vim.vm.SnapshotTree(snapshot=newer, name="newer", childSnapshotList=[])
    root = vim.vm.SnapshotTree(snapshot=base, name="base", childSnapshotList=[child])
    given = template(snapshot=vim.vm.SnapshotInfo(currentSnapshot=newer, rootSnapshotList=[root]))
    spec = made(MachineSettings(shape="small", linked_clone=True), template=given)
    assert (spec.snapshot, spec.location.diskMoveType) == (newer, "createNewChildDiskBacking")
    named = made(MachineSettings(shape="small", linked_clone=True, snapshot="base"), template=given)
    assert named.snapshot == base
    with pytest.raises(InvalidArgumentError, match="no snapshot 'other'"):
        made(MachineSettings(shape="small", linked_clone=True, snapshot="other"), template=given)
    with pytest.raises(PreconditionError, match="Take one"):
        made(MachineSettings(shape="small", linked_clone=True))


@pytest.mark.parametrize("name", ["", "x" * 81, "a/b", "a%2fb", "ä", "-a", "a b"])
def test_a_name_that_vcenter_would_refuse_or_rewrite_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="80"):
        check_name(name)


def test_what_was_made_is_read_back_as_it_was_asked_for() -> None:
    machine = machine_of(shown(made()), NOW + timedelta(hours=1))
    assert machine is not None
    assert (machine.name, machine.machine_id, dict(machine.tags)) == ("prod-1", instance_uuid("prod-1"), TAGS)
    assert machine.provider_id == "vsphere://4213ab00-0000-0000-0000-000000000001"
    assert (machine.state, machine.created_at) == (MachineState.RUNNING, NOW)
    assert machine.addresses == ("10.0.0.9", "prod-1")


@pytest.mark.parametrize(
    ("power", "age", "state"),
    [
        ("poweredOff", timedelta(seconds=5), MachineState.PENDING),
        ("poweredOff", timedelta(hours=1), MachineState.STOPPED),
        ("suspended", timedelta(seconds=5), MachineState.STOPPED),
        ("somethingNew", timedelta(hours=1), MachineState.PENDING),
    ],
)
def test_states_are_told_apart_and_an_unknown_one_breaks_nothing(
    power: str, age: timedelta, state: MachineState
) -> None:
    machine = machine_of(shown(made(), **{"runtime.powerState": power}), NOW + age)
    assert machine is not None
    assert (machine.state, bool(machine.reason)) == (state, True)


def test_a_renamed_machine_keeps_its_name_and_a_copy_gets_none_of_its_marks() -> None:
    renamed = shown(made(), name="by-hand")
    copied = shown(made(), **{"name": "by-hand", "config.instanceUuid": "5000-other"})
    first, second = machine_of(renamed, NOW), machine_of(copied, NOW)
    assert first is not None
    assert second is not None
    assert (first.name, dict(first.tags)) == ("prod-1", TAGS)
    assert (second.name, dict(second.tags), second.machine_id) == ("by-hand", {}, "5000-other")
    assert is_same(renamed, instance_uuid("prod-1"), "prod-1")
    assert not is_same(copied, "5000-other", "prod-1")
    assert not is_same(copied, instance_uuid("prod-1"), "prod-1")


def test_a_template_is_no_machine_and_one_in_the_making_is_pending() -> None:
    assert machine_of(shown(made(), **{"config.template": True}), NOW) is None
    machine = machine_of({"name": "prod-1"}, NOW)
    assert machine is not None
    assert (machine.state, machine.machine_id) == (MachineState.PENDING, instance_uuid("prod-1"))


@pytest.mark.parametrize("tags", ["not json", "[]", '{"a": 1}'])
def test_marks_that_cannot_be_read_are_none(tags: str) -> None:
    assert marks_in({"cloudgraft.name": "prod-1", "cloudgraft.tags": tags}) is None


def test_a_datastore_in_maintenance_is_not_used() -> None:
    assert is_usable(vim.Datastore.Summary(accessible=True, maintenanceMode="normal"))
    assert not is_usable(vim.Datastore.Summary(accessible=True, maintenanceMode="inMaintenance"))
    assert not is_usable(vim.Datastore.Summary(accessible=False))
