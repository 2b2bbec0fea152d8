"""What the driver does with hosts that behave."""

from __future__ import annotations

import json
import math
import stat
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.drivers.redfish.options import Auth, RedfishHost, ShapeOptions
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.sdk.errors import InvalidArgumentError, OutOfStockError
from cloudgraft.sdk.quantity import Quantity
from tests.conditions import until
from tests.drivers.redfish.redfish_fake import ROOT, FakeRedfish, FakeSystem
from tests.drivers.redfish.redfish_stage import only, redfish_driver, redfish_hosts, spec

ISO = "https://images.example.org/os.iso"
SECRET = "#cloud-config\n# token-of-the-cluster-K10"


async def test_create_switches_a_free_host_on_and_delete_switches_it_off(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1"), FakeSystem(id="h2")) as fake:
        driver = redfish_driver(fake, tmp_path)
        machine = await driver.create(spec("a"))
        assert (machine.machine_id, machine.provider_id) == ("h1", "redfish://h1")
        assert fake.systems["h1"].power == "On"
        shown = await only(driver)
        assert shown.state is MachineState.RUNNING
        assert shown.tags["cloudgraft-cluster-id"] == "c1"
        await driver.delete(shown)
        assert await driver.list() == []
        assert fake.systems["h1"].history == ["On", "ForceOff"]
        assert fake.systems["h2"].history == []


async def test_a_list_is_one_request_for_each_host_that_is_taken(tmp_path: Path) -> None:
    with FakeRedfish(*(FakeSystem(id=f"h{number}") for number in range(9))) as fake:
        driver = redfish_driver(fake, tmp_path)
        for name in ("a", "b", "c"):
            await driver.create(spec(name))
        fake.requests.clear()
        assert len(await driver.list()) == 3
        assert sorted(fake.requests) == [("GET", f"{ROOT}/Systems/h{number}") for number in range(3)]


async def test_a_host_is_asked_to_shut_down_and_is_free_when_it_is_off(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1")) as fake:
        driver = redfish_driver(fake, tmp_path, graceful_time=timedelta(minutes=5))
        await driver.delete(await driver.create(spec("a")))
        assert fake.systems["h1"].history == ["On", "GracefulShutdown"]
        assert (await driver.create(spec("b"))).machine_id == "h1"


async def test_a_host_that_does_not_shut_down_in_time_loses_its_power(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1", heeds_shutdown=False)) as fake:
        patient = redfish_driver(fake, tmp_path, graceful_time=timedelta(minutes=5))
        machine = await patient.create(spec("a"))
        for _ in range(2):  # to say it again is not to shorten its time
            await patient.delete(machine)
        assert fake.systems["h1"].history == ["On", "GracefulShutdown"]
        assert (await only(patient)).state is MachineState.DELETING
        with pytest.raises(OutOfStockError, match="taken are h1 by a"):
            await patient.create(spec("b"))
        hasty = redfish_driver(fake, tmp_path, graceful_time=timedelta(milliseconds=1))
        await hasty.delete(machine)
        assert fake.systems["h1"].history[-1] == "ForceOff"
        assert await hasty.list() == []


async def test_a_host_that_comes_up_late_is_pending_and_not_given_away_when_deleted(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1", rise_time=math.inf)) as fake:
        driver = redfish_driver(fake, tmp_path)
        machine = await driver.create(spec("a"))
        assert (await only(driver)).state is MachineState.PENDING
        await driver.delete(machine)
        assert (await only(driver)).state is MachineState.DELETING  # it looks off, and is about to come up
        fake.systems["h1"].on_at = 0.0  # now it comes up
        await until(fake.systems["h1"].is_on)
        await driver.delete(machine)
        assert await driver.list() == []
        assert fake.systems["h1"].power == "Off"


async def test_an_image_and_user_data_are_put_in_and_taken_out(tmp_path: Path) -> None:
    seeds = tmp_path / "seeds"
    seeds.mkdir()
    with FakeRedfish(FakeSystem(id="h1")) as fake:
        system = fake.systems["h1"]
        system.media["Cd"] = "https://example.org/left-by-somebody.iso"
        driver = redfish_driver(fake, tmp_path, seed_directory=seeds, seed_url="https://seeds.example.org/s/")
        machine = await driver.create(spec("a", image=ISO, user_data=SECRET))
        (seed,) = seeds.iterdir()
        assert system.media == {"Cd": ISO, "Usb": f"https://seeds.example.org/s/{seed.name}"}
        assert stat.S_IMODE(seed.stat().st_mode) == 0o640
        assert SECRET.encode() in seed.read_bytes()
        assert len(seed.name) > 32  # nobody guesses it
        assert system.boot == {"BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once"}
        await driver.delete(machine)
        assert system.media == {"Cd": "", "Usb": ""}
        assert list(seeds.iterdir()) == []


async def test_user_data_alone_go_into_the_disc_drive_and_the_boot_order_stays(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1")) as fake:
        driver = redfish_driver(fake, tmp_path, seed_directory=tmp_path, seed_url="https://seeds.example.org")
        await driver.create(spec("a", user_data=SECRET))
        assert fake.systems["h1"].media["Cd"].startswith("https://seeds.example.org/a.")
        assert fake.systems["h1"].boot == {}


async def test_without_media_no_controller_is_asked_for_its_drives(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1")) as fake:
        driver = redfish_driver(fake, tmp_path)
        await driver.delete(await driver.create(spec("a", boot="Pxe")))
        assert fake.systems["h1"].boot["BootSourceOverrideTarget"] == "Pxe"
        assert not [path for _, path in fake.requests if "VirtualMedia" in path]


async def test_user_data_without_a_place_for_seeds_are_refused_before_anything_is_done(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1")) as fake:
        driver = redfish_driver(fake, tmp_path)
        assert driver.traits.user_data_limit == 0
        with pytest.raises(InvalidArgumentError, match="seedDirectory and seedUrl") as caught:
            await driver.create(spec("a", user_data=SECRET))
        assert "token-of-the-cluster" not in str(caught.value)
        assert not fake.requests


async def test_a_repeated_create_leaves_a_host_that_is_on_as_it_is(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1")) as fake:
        await redfish_driver(fake, tmp_path).create(spec("a", image=ISO))
        fake.requests.clear()
        again = await redfish_driver(fake, tmp_path).create(spec("a", image=ISO))
        assert again.machine_id == "h1"
        assert fake.changes() == []


async def test_the_only_system_of_a_controller_is_found_and_several_must_be_named(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1")) as fake:
        driver = redfish_driver(fake, tmp_path, hosts=[RedfishHost(id="metal-7", url=fake.url)])
        assert (await driver.create(spec("a"))).machine_id == "metal-7"
        assert fake.systems["h1"].power == "On"
    with FakeRedfish(FakeSystem(id="h1"), FakeSystem(id="h2")) as fake:
        (tmp_path / "two").mkdir()
        driver = redfish_driver(fake, tmp_path / "two", hosts=[RedfishHost(id="metal-7", url=fake.url)])
        with pytest.raises(InvalidArgumentError, match=r"Systems/h1, /redfish/v1/Systems/h2: say `system`"):
            await driver.create(spec("a"))


async def test_a_group_gets_the_hosts_of_its_shape_and_labels(tmp_path: Path) -> None:
    with FakeRedfish(*(FakeSystem(id=one) for one in ("h1", "h2", "h3"))) as fake:
        first, second, third = redfish_hosts(fake)
        hosts = [
            first,
            RedfishHost(id=second.id, url=second.url, system=second.system, shape="big"),
            RedfishHost(id=third.id, url=third.url, system=third.system, shape="big", labels={"rack": "7"}),
        ]
        driver = redfish_driver(fake, tmp_path, hosts=hosts)
        assert (await driver.create(spec("a", shape="big", select={"rack": "7"}))).machine_id == "h3"
        assert (await driver.create(spec("b", shape="big"))).machine_id == "h2"
        with pytest.raises(OutOfStockError, match="2 of 2 are taken; taken are h2 by b, h3 by a"):
            await driver.create(spec("c", shape="big"))
        with pytest.raises(InvalidArgumentError, match=r"machine.shape: no host is of the shape 'huge'"):
            await driver.create(spec("c", shape="huge"))


async def test_shapes_are_what_controllers_tell_or_what_the_options_say(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1"), FakeSystem(id="h2", cpus=None, memory=None)) as fake:
        told, silent = redfish_hosts(fake)
        hosts = [
            RedfishHost(id=told.id, url=told.url, system=told.system, shape="told"),
            RedfishHost(id=silent.id, url=silent.url, system=silent.system, shape="declared"),
            RedfishHost(id="away", url="http://127.0.0.1:9", system=told.system, shape="told"),
        ]
        declared = {"declared": ShapeOptions(cpu=64, memory="512Gi", resources={"nvidia.com/gpu": 4})}
        shapes = {one.name: one for one in await redfish_driver(fake, tmp_path, hosts=hosts, shapes=declared).shapes()}
    assert shapes["told"].capacity["cpu"] == Quantity(8)
    assert shapes["told"].capacity["memory"] == Quantity("32Gi")
    assert shapes["declared"].capacity["nvidia.com/gpu"] == Quantity(4)
    assert not any(shape.problem for shape in shapes.values())


async def test_hosts_of_one_shape_that_differ_are_told(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1"), FakeSystem(id="h2", memory=16)) as fake:
        (shape,) = await redfish_driver(fake, tmp_path, hosts=redfish_hosts(fake, shape="metal")).shapes()
    assert "h1: 8 CPUs, 32.0 GiB; h2: 8 CPUs, 16 GiB" in shape.problem


async def test_a_host_that_has_less_than_its_shape_says_is_not_given_out(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1", memory=16), FakeSystem(id="h2", memory=31.4)) as fake:
        hosts = redfish_hosts(fake, shape="metal")
        driver = redfish_driver(fake, tmp_path, hosts=hosts, shapes={"metal": ShapeOptions(cpu=8, memory="31Gi")})
        assert (await driver.create(spec("a", shape="metal"))).machine_id == "h2"
        with pytest.raises(OutOfStockError, match=r"h1 .*16 GiB of 31Gi memory, which its shape metal says"):
            await driver.create(spec("b", shape="metal"))


async def test_a_session_is_opened_once_and_ended(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1")) as fake:
        driver = redfish_driver(fake, tmp_path, auth=Auth.SESSION)
        await driver.delete(await driver.create(spec("a")))
        assert fake.sessions == ["token-0"]
        await driver.close()
        assert fake.sessions == ["ended"]


async def test_what_is_needed_to_end_a_machine_is_written_down_before_anything_is_switched(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1")) as fake:
        driver = redfish_driver(fake, tmp_path)
        await driver.create(spec("a", image=ISO))
        (entry,) = json.loads((tmp_path / "account.json").read_text())["taken"]
        assert entry["notes"] == {"media": "inserted"}
        await redfish_driver(fake, tmp_path).delete(Machine(name="a", machine_id="h1"))  # it knows nothing else
        assert fake.systems["h1"].media["Cd"] == ""
