"""Clones and restored backups of machines of ours: they carry our marks, and are not ours (law 4)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cloudgraft.drivers.proxmox.driver import ProxmoxDriver
from cloudgraft.drivers.proxmox.options import ProviderIdForm
from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.errors import DeadlineError, PreconditionError
from clouds.servers.proxmox_fake import FakeProxmox, Fault, Kind
from clouds.servers.proxmox_fake.data import Guest
from tests.drivers.proxmox.proxmox_stage import proxmox_driver, soon, spec

DATA = "#cloud-config\nruncmd: [join 0123456789abcdef]\n"


def config_of(fake: FakeProxmox, machine: Machine) -> dict[str, str]:
    return fake.cluster.guests[int(machine.machine_id)].config


def by_an_older_release(fake: FakeProxmox, machine: Machine) -> dict[str, str]:
    """Its marks do not say which VMID they were made for, and it is not new."""
    config = config_of(fake, machine)
    tags = re.sub(r"cloudgraft-made\+\d+", "cloudgraft-made+1000", config["tags"]).split(";")
    config["tags"] = ";".join(tag for tag in tags if not tag.startswith("cloudgraft-vmid"))
    config["description"] = re.sub(r'"made": \d+', '"made": 1000', config["description"])
    config["description"] = re.sub(r', "vmid": \d+', "", config["description"])
    return config


def test_a_clone_that_somebody_made_of_a_machine_of_ours_is_not_ours(fake: FakeProxmox, driver: ProxmoxDriver) -> None:
    made = driver.create(spec("one"))
    for vmid, marks in ((500, "tags"), (300_000_000, "description")):
        config = {key: value for key, value in config_of(fake, made).items() if key in ("memory", marks)}
        fake.cluster.guests[vmid] = Guest(node="pve1", config={"name": f"copy-{vmid}", **config}, is_running=True)
    assert [one.machine_id for one in driver.list()] == [made.machine_id]
    driver.delete(Machine(name="one", machine_id="500"))
    driver.delete(made)
    assert fake.cluster.alive() == ["copy-500", "copy-300000000"]
    assert driver.list() == []


@pytest.mark.parametrize(("vmid", "copied"), [(107, "tags"), (300_000_000, "tags"), (300_000_000, "description")])
@pytest.mark.parametrize("called", ["Copy-of-VM-one", "one"])
def test_a_copy_of_a_machine_that_an_older_release_made_is_never_taken_for_it(
    fake: FakeProxmox, driver: ProxmoxDriver, called: str, vmid: int, copied: str
) -> None:
    """Such marks do not say which VMID they were made for. A backup that was restored has even the name."""
    made = driver.create(spec("one"))
    old = by_an_older_release(fake, made)
    fake.cluster.guests[vmid] = Guest(node="pve1", config={"name": called, copied: old[copied]}, is_running=True)

    def names() -> dict[str, str]:
        return {one.machine_id: one.name for one in driver.list()}

    assert names()[str(vmid)] in ("", called), "before its node has told its name, too"
    soon(lambda: names() == {made.machine_id: "one", str(vmid): called}, "its name is told")
    for name in {"one", called}:
        with pytest.raises(PreconditionError, match=rf"may be a copy.*the tag cloudgraft-vmid\+{vmid}"):
            driver.delete(Machine(name=name, machine_id=str(vmid)))
    driver.delete(Machine(name="two", machine_id=str(vmid)))
    driver.delete(made)
    assert fake.cluster.alive() == [called]
    fake.cluster.guests[vmid].config["tags"] = f"{old['tags']};cloudgraft-vmid+{vmid}"  # somebody knows that it is ours
    (ours,) = driver.list()
    assert ours.name == "one"
    driver.delete(ours)
    assert not fake.cluster.alive()


def test_a_copy_without_a_name_has_no_uuid_either(fake: FakeProxmox, tmp_path: Path) -> None:
    fake.cluster.news_every = 60.0  # nodes tell names at the first request, and then no more
    driver = proxmox_driver(fake, tmp_path, providerID=ProviderIdForm.UUID)
    made = driver.create(spec("one"))
    tags = by_an_older_release(fake, made)["tags"]
    fake.cluster.guests[107] = Guest(node="pve1", config={"name": "copy", "tags": tags}, is_running=True)
    assert {one.machine_id: one.provider_id for one in driver.list()} == {
        made.machine_id: made.provider_id,
        "107": None,
    }


def test_a_machine_of_an_older_release_that_was_renamed_is_known_by_its_vmid(
    fake: FakeProxmox, driver: ProxmoxDriver
) -> None:
    made = driver.create(spec("one"))
    by_an_older_release(fake, made)["name"] = "renamed"
    fake.cluster.news_every = 0.0  # the new name is told at once
    (machine,) = driver.list()
    assert (machine.name, machine.provider_id) == ("one", made.provider_id)
    driver.delete(machine)
    assert not fake.cluster.alive()


@pytest.mark.parametrize("is_old", [True, False])
def test_a_clone_of_a_template_that_was_a_machine_of_ours_is_made_to_its_end(
    fake: FakeProxmox, driver: ProxmoxDriver, tmp_path: Path, is_old: bool
) -> None:
    """It has the tags of that machine from the first moment, and they say that nothing is missing."""
    first = driver.create(spec("one"))
    tags = by_an_older_release(fake, first)["tags"] if is_old else config_of(fake, first)["tags"]
    driver.delete(first)
    for guest in fake.cluster.guests.values():
        guest.config["tags"] = tags  # of the templates, which are all that there is
    fake.faults.order(Fault(kind=Kind.RESET, method="POST", path="/status/start$", times=-1))
    with pytest.raises(DeadlineError):
        driver.create(spec("two", user_data=DATA))
    fake.faults.order()
    successor = proxmox_driver(fake, tmp_path)
    assert driver.list() == successor.list() == [], "it is half made"
    made = successor.create(spec("two", user_data=DATA))
    guest = fake.cluster.guests[int(made.machine_id)]
    assert guest.is_running
    assert guest.config["ide2"] == "local:iso/two.iso,media=cdrom"
    assert made.tags == spec("two").tags
    assert [(one.name, one.tags) for one in driver.list()] == [("two", made.tags)]
    driver.delete(made)
    assert not fake.cluster.alive()
    assert not fake.cluster.leftovers()
