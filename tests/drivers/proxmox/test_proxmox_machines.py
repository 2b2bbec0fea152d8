"""What is made, where, how it is marked, and what is seen of it."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from cloudgraft.drivers.proxmox.driver import ProxmoxDriver
from cloudgraft.drivers.proxmox.inventory import Marks, from_description, from_tags, uuid_of, vmid_of
from cloudgraft.drivers.proxmox.options import ProviderIdForm
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.sdk.errors import (
    InvalidArgumentError,
    OutOfStockError,
    PermissionDeniedError,
    PreconditionError,
    UnavailableError,
)
from clouds.servers.proxmox_fake import FakeProxmox
from clouds.servers.proxmox_fake.data import GIB, SHARED, Guest, Storage
from tests.drivers.proxmox.proxmox_stage import aged, proxmox_driver, soon, spec

DATA = "#cloud-config\nruncmd: [join 0123456789abcdef]\n"


def config_of(fake: FakeProxmox, machine: Machine) -> dict[str, str]:
    return fake.cluster.guests[int(machine.machine_id)].config


def test_a_machine_is_cloned_set_up_marked_and_started(fake: FakeProxmox, driver: ProxmoxDriver) -> None:
    made = driver.create(spec("one", user_data=DATA, bridge="vmbr1", vlan=7))
    config = config_of(fake, made)
    assert (config["name"], config["cores"], config["memory"], config["balloon"]) == ("one", "2", "2048", "0")
    assert "size=20G" in config["scsi0"]
    assert config["net0"].endswith("bridge=vmbr1,tag=7")
    assert config["ide2"] == "local:iso/one.iso,media=cdrom", "in the place of Proxmox's own cloud-init drive"
    assert b"0123456789abcdef" in fake.cluster.seed("one")
    assert "cloudgraft-cluster-id+c1" in config["tags"].split(";")
    assert made.provider_id == f"proxmox://lab/{made.machine_id}"
    assert made.tags == spec("one").tags
    (listed,) = soon(lambda: [one for one in driver.list() if one.state is MachineState.RUNNING], "it runs")
    assert (listed.name, listed.tags, listed.created_at) == ("one", made.tags, made.created_at)
    driver.delete(listed)
    assert not fake.cluster.alive()
    assert not fake.cluster.leftovers()


def test_without_user_data_nothing_is_uploaded_and_proxmoxs_own_drive_stays(
    fake: FakeProxmox, driver: ProxmoxDriver
) -> None:
    made = driver.create(spec("one", shape="plain"))
    assert "-cloudinit" in config_of(fake, made)["ide2"]
    assert "size=10G" in config_of(fake, made)["scsi0"], "as large as the template's"
    driver.delete(made)
    assert not fake.count("POST", "/upload")
    assert not fake.cluster.leftovers()


def test_machines_go_where_the_most_memory_is_left(fake: FakeProxmox, tmp_path: Path) -> None:
    fake.cluster.news_every = 60.0  # no node tells of the new ones meanwhile
    driver = proxmox_driver(fake, tmp_path)
    made = [driver.create(spec(f"m{number}", shape="huge")) for number in range(3)]
    nodes = {fake.cluster.guests[int(machine.machine_id)].node for machine in made}
    assert nodes == {"pve1", "pve2", "pve3"}
    with pytest.raises(OutOfStockError, match=r"pve1: .* MiB of memory are missing; pve2"):
        driver.create(spec("m3", shape="huge"))
    driver.delete(made[0])
    driver.create(spec("m3", shape="huge"))
    driver.close()


def test_a_node_that_gave_its_cpus_away_or_has_no_room_for_disks_is_full(fake: FakeProxmox, tmp_path: Path) -> None:
    few = proxmox_driver(fake, tmp_path, cpu_ratio=0.1, nodes=["pve2"])
    with pytest.raises(OutOfStockError, match="CPUs"):
        few.create(spec("one"))
    fake.cluster.storages["ceph"].size = 15 * GIB
    with pytest.raises(OutOfStockError, match="ceph has no room"):
        proxmox_driver(fake, tmp_path, storage="ceph").create(spec("one", fullClone=True))


def test_a_template_on_shared_storage_is_cloned_to_any_node(fake: FakeProxmox, tmp_path: Path) -> None:
    driver = proxmox_driver(fake, tmp_path, nodes=["pve3"], seed_storage="cephfs", pool="kubernetes")
    made = driver.create(spec("one", template=SHARED, user_data=DATA))
    guest = fake.cluster.guests[int(made.machine_id)]
    assert (guest.node, guest.pool) == ("pve3", "kubernetes")
    assert guest.config["ide2"] == "cephfs:iso/one.iso,media=cdrom"
    full = driver.create(spec("two", template="debian-13", fullClone=True, storage="ceph"))
    assert fake.cluster.guests[int(full.machine_id)].config["scsi0"].startswith("ceph:vm-")
    for machine in (made, full):
        driver.delete(machine)
    assert not fake.cluster.leftovers()


def test_a_template_on_local_storage_is_cloned_on_its_own_node_only(fake: FakeProxmox, tmp_path: Path) -> None:
    driver = proxmox_driver(fake, tmp_path, nodes=["pve3"])
    assert fake.cluster.guests[int(driver.create(spec("one")).machine_id)].node == "pve3"
    with pytest.raises(InvalidArgumentError, match="not on shared storage"):
        driver.create(spec("two", template=9001))
    with pytest.raises(InvalidArgumentError, match=r"machine\.template"):
        driver.create(spec("two", template="windows"))
    with pytest.raises(InvalidArgumentError, match="no template"):
        driver.create(spec("two", template="one"))
    fake.cluster.nodes["pve3"].is_online = False
    with pytest.raises(UnavailableError, match="offline"):
        driver.create(spec("two", template=9003))


def test_what_proxmox_cannot_make_is_refused_before_it_is_asked(fake: FakeProxmox, driver: ProxmoxDriver) -> None:
    refused = {
        "name": spec("n" * 64),
        "disks can only grow": spec("one", shape="tiny"),
        "there is no 'odd'": spec("one", shape="odd"),
        "not known|unknown key": spec("one", flavour="odd"),
        "too long": spec("one", group="g" * 300),
        r"machine\.disk": spec("one", disk="scsi7"),
    }
    for told, order in refused.items():
        with pytest.raises(InvalidArgumentError, match=told):
            driver.create(order)
    assert not fake.count("POST", "")
    with pytest.raises(InvalidArgumentError, match=r"machine\.seedDrive"):
        driver.create(spec("one", template=SHARED, seedDrive="scsi0", user_data=DATA))
    assert not fake.cluster.alive()


def test_a_vmid_that_another_machine_has_is_never_touched(fake: FakeProxmox, driver: ProxmoxDriver) -> None:
    vmid = vmid_of("one", 100_000_000, 999_999_999)
    fake.cluster.guests[vmid] = Guest(node="pve2", config={"name": "precious", "memory": "512"})
    with pytest.raises(PreconditionError, match="precious"):
        driver.create(spec("one"))
    driver.delete(Machine(name="one", machine_id=str(vmid)))
    assert fake.cluster.alive() == ["precious"]
    fake.cluster.guests[vmid].kind = "lxc"
    with pytest.raises(PreconditionError, match="precious"):
        driver.create(spec("one"))


def test_a_machine_of_another_cluster_is_shown_with_its_marks(driver: ProxmoxDriver) -> None:
    driver.create(spec("one", cluster="c1"))
    driver.create(spec("two", cluster="c2"))
    assert {one.name: one.tags["cloudgraft-cluster-id"] for one in driver.list()} == {"one": "c1", "two": "c2"}


def test_a_list_is_one_call_however_many_machines_there_are(fake: FakeProxmox, driver: ProxmoxDriver) -> None:
    for number in range(300):
        tags = Marks.new(spec(f"m{number}").tags, 100_000_000 + number).as_tags()
        config = {"name": f"m{number}", "tags": tags, "memory": "512"}
        fake.cluster.guests[100_000_000 + number] = Guest(node="pve1", config=config, is_running=True)
    fake.requests.clear()
    assert len(driver.list()) == 300
    assert fake.requests == [("GET", "/cluster/resources")]


def test_strangers_among_our_vmids_are_looked_at_once(fake: FakeProxmox, driver: ProxmoxDriver) -> None:
    for number in range(5):
        fake.cluster.guests[100_000_000 + number] = Guest(node="pve1", config={"name": f"other{number}"})
    soon(lambda: all(guest.news for guest in fake.cluster.guests.values()) or driver.list(), "names are told")
    for _ in range(3):
        assert driver.list() == []
    assert fake.count("GET", "/qemu/100000001/config") == 1


@pytest.mark.parametrize("whose", ["/vms/", "/vms/{id}"])
def test_machines_that_we_may_not_see_any_more_are_not_gone(
    fake: FakeProxmox, driver: ProxmoxDriver, tmp_path: Path, whose: str
) -> None:
    made = driver.create(spec("one"))
    other = driver.create(spec("two"))
    assert len(driver.list()) == 2
    fake.cluster.denied.add((whose.format(id=made.machine_id), "VM.Audit"))
    for _ in range(2):
        with pytest.raises(PermissionDeniedError, match=r"VM\.Audit on /vms"):
            driver.list()
    if whose == "/vms/":
        with pytest.raises(PermissionDeniedError, match=r"VM\.Audit on /vms"):
            proxmox_driver(fake, tmp_path).list()  # of a process that knows of no machine yet
    fake.cluster.denied.clear()
    assert len(driver.list()) == 2
    for machine in (made, other):
        del fake.cluster.guests[int(machine.machine_id)]  # by hand
    assert driver.list() == []


def test_what_left_the_pool_that_our_rights_come_with_is_gone(fake: FakeProxmox, tmp_path: Path) -> None:
    fake.cluster.is_pool_only = True
    driver = proxmox_driver(fake, tmp_path, pool="kubernetes")
    assert driver.list() == []
    made = driver.create(spec("one"))
    assert len(driver.list()) == 1
    driver.delete(made)
    assert driver.list() == []


def test_all_in_our_pool_is_listed_so_that_it_can_be_taken_over(fake: FakeProxmox, tmp_path: Path) -> None:
    fake.cluster.guests[500] = Guest(node="pve1", config={"name": "old-node"}, pool="kubernetes", is_running=True)
    fake.cluster.guests[501] = Guest(node="pve1", config={"name": "elsewhere"}, is_running=True)
    driver = proxmox_driver(fake, tmp_path, pool="kubernetes")
    (machine,) = soon(lambda: [one for one in driver.list() if one.name], "its name is told")
    assert (machine.name, machine.tags, machine.provider_id) == ("old-node", {}, "proxmox://lab/500")
    driver.delete(machine)
    assert fake.cluster.alive() == ["elsewhere"]


def test_machines_of_a_node_that_is_away_stay_in_the_list(fake: FakeProxmox, driver: ProxmoxDriver) -> None:
    made = driver.create(spec("one"))
    node = fake.cluster.guests[int(made.machine_id)].node
    config = config_of(fake, made)
    config["tags"] = re.sub(r"cloudgraft-made\+\d+", "cloudgraft-made+1000", config["tags"])  # it is no new one
    fake.cluster.nodes[node].is_online = False
    found = soon(lambda: [one for one in driver.list() if "offline" in one.reason], "its state is forgotten")
    assert (found[0].name, found[0].state) == ("one", MachineState.RUNNING)
    assert found[0].tags == made.tags
    with pytest.raises(UnavailableError):
        driver.delete(made)


def test_states_are_what_they_are(fake: FakeProxmox, driver: ProxmoxDriver) -> None:
    def tags(made: int) -> str:
        return f"cloudgraft;cloudgraft-name+m;cloudgraft-made+{made}"

    now = int(time.time())
    guests = {
        1: Guest(node="pve1", config={"name": "m", "tags": tags(now)}),
        2: Guest(node="pve1", config={"name": "m", "tags": tags(now - 999)}),
        3: Guest(node="pve1", config={"name": "m", "tags": tags(now), "lock": "destroyed"}),
        4: Guest(node="pve1", config={"name": "m", "tags": "cloudgraft;cloudgraft-made+x"}, is_running=True),
        5: Guest(node="pve1", config={"lock": "clone", "description": "qmclone temporary file\n"}),
        6: Guest(node="pve1", config={"name": "m", "description": _notes(now)}),
        7: Guest(node="pve1", config={"name": "m", "description": _notes(now - 9999)}),
        8: Guest(node="pve1", config={"name": "m", "description": _notes(now - 9999)}, is_running=True),
        9: Guest(node="pve1", config={"name": "m", "description": _notes(now - 9999), "lock": "destroyed"}),
        10: Guest(node="pve1", config={"name": "m", "description": _notes(now + 9999)}),  # by a clock that was wrong
        11: Guest(node="pve1", config={"name": "m", "tags": tags(now + 9999)}),
    }
    fake.cluster.guests |= {200_000_000 + number: guest for number, guest in guests.items()}
    fake.cluster.news_every = 0.0
    seen = {int(one.machine_id) - 200_000_000: one.state for one in driver.list()}
    assert seen == {
        1: MachineState.PENDING,
        2: MachineState.STOPPED,
        3: MachineState.DELETING,
        4: MachineState.RUNNING,
        5: MachineState.PENDING,
        7: MachineState.FAILED,
        8: MachineState.RUNNING,
        9: MachineState.DELETING,
        10: MachineState.FAILED,
        11: MachineState.STOPPED,
    }, "the sixth is half made"


def _notes(made: int) -> str:
    marks = from_tags(f"cloudgraft;cloudgraft-name+m;cloudgraft-made+{made}")
    assert marks is not None
    return marks.as_description() + "\n"


def test_a_machine_that_was_renamed_or_deleted_by_hand_is_seen_so(
    fake: FakeProxmox, driver: ProxmoxDriver, tmp_path: Path
) -> None:
    made = driver.create(spec("one"))
    aged(fake, "one")
    driver = proxmox_driver(fake, tmp_path)
    (bare,) = soon(lambda: [one for one in driver.list() if one.state is MachineState.RUNNING], "it runs")
    assert bare.tags == made.tags, "they are in its notes"
    config_of(fake, made)["name"] = "renamed"
    fake.cluster.news_every = 0.0  # the new name is told at once
    (machine,) = driver.list()
    assert (machine.name, machine.tags) == ("one", made.tags)
    driver.delete(machine)
    assert not fake.cluster.alive(), "it is the same machine, by its marks"
    driver.delete(made)
    assert driver.list() == []


def test_a_machine_of_ours_under_another_name_is_not_said_to_be_gone(fake: FakeProxmox, driver: ProxmoxDriver) -> None:
    made = driver.create(spec("one"))
    with pytest.raises(PreconditionError, match=r"VM \d+ is one; it is left alone"):
        driver.delete(Machine(name="two", machine_id=made.machine_id))
    assert fake.cluster.alive() == ["one"]


def test_a_cd_that_was_ejected_by_hand_is_removed_with_its_machine(fake: FakeProxmox, driver: ProxmoxDriver) -> None:
    made = driver.create(spec("one", user_data=DATA))
    config_of(fake, made)["ide2"] = "none,media=cdrom"
    driver.delete(made)
    assert not fake.cluster.leftovers(), "its secrets are not left behind"


def test_without_user_data_no_right_on_their_storage_is_needed(fake: FakeProxmox, driver: ProxmoxDriver) -> None:
    fake.cluster.denied.add(("/storage/local", "Datastore.Allocate"))
    driver.delete(driver.create(spec("one", shape="plain")))
    assert not fake.cluster.alive()


def test_a_provider_id_can_be_made_of_the_uuid(fake: FakeProxmox, tmp_path: Path) -> None:
    driver = proxmox_driver(fake, tmp_path, providerID=ProviderIdForm.UUID)
    made = driver.create(spec("one"))
    assert made.provider_id == f"proxmox://{uuid_of('one')}"
    assert config_of(fake, made)["smbios1"] == f"uuid={uuid_of('one')},manufacturer=QWNtZQ=="
    assert [one.provider_id for one in driver.list()] == [made.provider_id]


def test_marks_survive_as_tags_and_in_notes_byte_for_byte() -> None:
    tags = {"cloudgraft-group": "Größe/1 +x", "cloudgraft-name": "one", "empty": "", "cloudgraft-cluster": "UPPER"}
    marks = Marks.new(tags, 4711)
    assert from_tags(marks.as_tags().lower()) == marks, "Proxmox makes small letters of capitals"
    assert from_description(f"{marks.as_description()}\n") == marks
    assert from_tags("cloudgraft-name+one") is None
    assert from_description("somebody wrote cloudgraft: here") is None


def test_a_user_that_may_not_see_memory_is_told_what_to_give(fake: FakeProxmox, driver: ProxmoxDriver) -> None:
    fake.cluster.denied.add(("/nodes", "Sys.Audit"))
    with pytest.raises(PermissionDeniedError, match=r"Sys\.Audit"):
        driver.create(spec("one"))


def test_a_storage_that_only_one_node_has_is_where_machines_are_made(fake: FakeProxmox, tmp_path: Path) -> None:
    fake.cluster.storages["fast"] = Storage(kind="lvmthin", content="images")
    driver = proxmox_driver(fake, tmp_path, storage="fast")
    made = driver.create(spec("one", template=SHARED, fullClone=True))
    assert fake.cluster.guests[int(made.machine_id)].node == "pve1", "where the template is: the storage is not shared"
