"""A create that ended in the middle: no list has what it left, until the next one has finished it, or nobody came."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cloudgraft.drivers.proxmox.driver import ProxmoxDriver
from cloudgraft.drivers.proxmox.inventory import from_description, vmid_of
from cloudgraft.sdk.driver import MachineState
from cloudgraft.sdk.errors import DeadlineError
from clouds.servers.proxmox_fake import FakeProxmox, Fault, Kind
from clouds.servers.proxmox_fake.data import Guest
from tests.drivers.proxmox.proxmox_stage import aged, proxmox_driver, soon, spec

DATA = "#cloud-config\nruncmd: [join 0123456789abcdef]\n"
VMID = vmid_of("one", 100_000_000, 999_999_999)
CLONE = Fault(kind=Kind.RESET, method="POST", path="/clone$", times=-1)
TAGS = Fault(kind=Kind.RESET, method="POST", path="/config$", skip=1, times=-1)  # settings come first
STEPS = {
    "CD": Fault(kind=Kind.RESET, method="POST", path="/upload$", times=-1),
    "disk": Fault(kind=Kind.RESET, method="PUT", path="/resize$", times=-1),
    "settings": Fault(kind=Kind.RESET, method="POST", path="/config$", times=-1),
    "start": Fault(kind=Kind.RESET, method="POST", path="/status/start$", times=-1),
    "tags": TAGS,
}


def broken(fake: FakeProxmox, driver: ProxmoxDriver, fault: Fault) -> None:
    """A create that comes as far as that, and never further."""
    fake.faults.order(fault)
    with pytest.raises(DeadlineError):
        driver.create(spec("one", user_data=DATA))
    fake.faults.order()


@pytest.mark.parametrize("step", ["clone", *STEPS])
def test_a_create_that_broke_is_in_no_list_until_the_next_one_has_finished_it(
    fake: FakeProxmox, driver: ProxmoxDriver, tmp_path: Path, step: str
) -> None:
    broken(fake, driver, STEPS.get(step, CLONE))
    successor = proxmox_driver(fake, tmp_path)
    assert driver.list() == successor.list() == []
    made = successor.create(spec("one", user_data=DATA))
    assert fake.cluster.alive() == fake.cluster.ever == ["one"]
    guest = fake.cluster.guests[VMID]
    assert guest.is_running
    assert (guest.config["cores"], guest.config["ide2"]) == ("2", "local:iso/one.iso,media=cdrom")
    assert "size=20G" in guest.config["scsi0"]
    (listed,) = successor.list()
    assert (listed.name, listed.tags, listed.created_at) == ("one", spec("one").tags, made.created_at)
    successor.delete(listed)
    assert not fake.cluster.alive()
    assert not fake.cluster.leftovers()


@pytest.mark.parametrize("step", STEPS)
def test_what_nobody_came_back_for_is_told_as_it_is_and_can_be_deleted(
    fake: FakeProxmox, driver: ProxmoxDriver, tmp_path: Path, step: str
) -> None:
    broken(fake, driver, STEPS[step])
    aged(fake, "one")
    later = proxmox_driver(fake, tmp_path)
    wanted = MachineState.RUNNING if step == "tags" else MachineState.FAILED
    (machine,) = soon(lambda: [one for one in later.list() if one.state is wanted], "its node has told its state")
    assert (machine.name, machine.tags) == ("one", spec("one").tags)
    later.delete(machine)
    assert not fake.cluster.alive()
    assert not fake.cluster.leftovers()


def test_a_machine_that_runs_and_lacks_its_tags_is_given_those_and_nothing_else(
    fake: FakeProxmox, driver: ProxmoxDriver, tmp_path: Path
) -> None:
    broken(fake, driver, TAGS)
    before = len(fake.given)
    proxmox_driver(fake, tmp_path).create(spec("one", user_data=DATA))
    assert [set(given) for _, given in fake.given[before:]] in ([{"tags"}], [{"description"}, {"tags"}])


def test_a_machine_that_was_finished_is_answered_as_it_is(fake: FakeProxmox, driver: ProxmoxDriver) -> None:
    made = driver.create(spec("one", user_data=DATA))
    before = len(fake.given)
    assert driver.create(spec("one", user_data=DATA)) == made
    assert len(fake.given) == before, "nothing was changed"


def test_the_time_to_be_made_begins_anew_with_each_create(
    fake: FakeProxmox, driver: ProxmoxDriver, tmp_path: Path
) -> None:
    broken(fake, driver, STEPS["start"])
    aged(fake, "one")
    successor = proxmox_driver(fake, tmp_path)
    broken(fake, successor, STEPS["start"])
    marks = from_description(fake.cluster.guests[VMID].config["description"])
    assert marks is not None
    assert marks.made is not None
    assert datetime.now(UTC) - marks.made < timedelta(minutes=1)
    assert proxmox_driver(fake, tmp_path).list() == []


def test_a_create_at_work_is_known_here_before_it_can_say_so_in_the_cluster(
    fake: FakeProxmox, driver: ProxmoxDriver, tmp_path: Path
) -> None:
    broken(fake, driver, STEPS["start"])
    aged(fake, "one")
    fake.cluster.guests[VMID].config["lock"] = "clone"  # a clone that takes longer than a create may
    hasty = proxmox_driver(fake, tmp_path, create_timeout=timedelta(milliseconds=100))
    with pytest.raises(DeadlineError, match="is not whole"):
        hasty.create(spec("one", user_data=DATA))
    assert hasty.list() == []
    others = soon(lambda: [one.state for one in proxmox_driver(fake, tmp_path).list()], "others list it")
    assert others[0] in (MachineState.FAILED, MachineState.PENDING)


def test_a_second_create_in_the_same_program_waits_for_the_first_which_was_given_up(
    fake: FakeProxmox, driver: ProxmoxDriver
) -> None:
    fake.cluster.clone_time = 0.3
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(driver.create, spec("one", user_data=DATA))  # nobody waits for it any more
        soon(lambda: fake.cluster.ever, "the clone is under way")
        second = pool.submit(driver.create, spec("one", user_data=DATA))
        assert second.result() == first.result()
    assert fake.cluster.ever == ["one"]
    assert fake.count("POST", "/clone") == fake.count("POST", "/upload") == 1


def test_closing_lets_a_create_come_to_its_end(fake: FakeProxmox, driver: ProxmoxDriver) -> None:
    fake.cluster.clone_time = 0.3
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(driver.create, spec("one", user_data=DATA))
        soon(lambda: fake.cluster.ever, "the clone is under way")
        driver.close()
        assert call.result().name == "one"
    assert fake.cluster.guests[VMID].is_running


def test_one_that_cannot_be_looked_at_has_no_name_so_that_a_create_may_be_repeated(
    fake: FakeProxmox, driver: ProxmoxDriver, tmp_path: Path
) -> None:
    """A name without marks would be another's machine to the engine, and it would never be asked for again."""
    fake.cluster.guests[VMID] = Guest(node="pve2", config={"name": "one", "description": "x"})
    fake.cluster.news_every = 0.0
    fake.cluster.resources("")
    fake.cluster.news_every = 60.0  # the node goes away, and what it told last is still known
    fake.cluster.advance()
    fake.cluster.nodes["pve2"].is_online = False
    (machine,) = driver.list()
    assert (machine.name, machine.machine_id, machine.state) == ("", str(VMID), MachineState.PENDING)
    hasty = proxmox_driver(fake, tmp_path, create_timeout=timedelta(milliseconds=100))
    with pytest.raises(DeadlineError, match="is not whole"):
        hasty.create(spec("one"))
    assert not fake.count("POST", "/clone"), "and it makes no second one"
