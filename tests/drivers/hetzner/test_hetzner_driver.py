"""Requests to Hetzner's API, and how the driver reads the responses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from cloudgraft.drivers.hetzner.driver import HetznerDriver
from cloudgraft.drivers.hetzner.options import HetznerOptions, MachineSettings
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionError,
)
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.validation import read_settings
from clouds.servers.hetzner_fake import FakeHetzner
from tests.drivers.hetzner.hetzner_stage import MACHINE, hetzner_driver, spec

_BODY = {"server_type": "cx23", "image": "ubuntu-24.04", "labels": {"cloudgraft-cluster-id": "c1"}}


def test_a_create_is_one_request_with_everything_in_it(fake: FakeHetzner, driver: HetznerDriver) -> None:
    machine = driver.create(
        spec(
            "m-1",
            group="lab/small",
            user_data="#cloud-config\n",
            shape="cax11",
            location="nbg1",
            networks=["nodes"],
            firewalls=["nodes"],
            sshKeys=["admin", 2323],
            placementGroup="spread",
            publicIpv4=False,
            labels={"team": "blue"},
        )
    )
    assert fake.count("POST", "/servers") == 1
    assert fake.bodies == [
        {
            "name": "m-1",
            "server_type": "cax11",
            "image": 161547270,  # the one for arm
            "location": "nbg1",
            "labels": {
                "team": "blue",
                "cloudgraft-cluster": "lab",
                "cloudgraft-cluster-id": "c1",
                "cloudgraft-group": "x--lab_2fsmall",
                "cloudgraft-name": "m-1",
            },
            "start_after_create": True,
            "public_net": {"enable_ipv4": False, "enable_ipv6": True},
            "networks": [4711],
            "firewalls": [{"firewall": 38}],
            "ssh_keys": ["admin", 2323],
            "placement_group": 897,
            "user_data": "#cloud-config\n",
        }
    ]
    assert (machine.provider_id, machine.state) == (f"hcloud://{machine.machine_id}", MachineState.PENDING)
    assert machine.tags == spec("m-1", group="lab/small").tags
    assert machine.created_at is not None
    assert abs(machine.created_at - datetime.now(UTC)) < timedelta(minutes=1)
    private, public = machine.addresses
    assert private.startswith("10.0.")
    assert public.startswith("2001:db8:")
    assert public.endswith("::1")


def test_names_are_looked_up_once_and_numbers_not_at_all(fake: FakeHetzner, driver: HetznerDriver) -> None:
    for number in range(3):
        driver.create(spec(f"m-{number}", networks=["nodes"]))
    assert fake.count("GET", "/networks") == fake.count("GET", "/images") == fake.count("GET", "/server_types") == 1
    fake.requests.clear()
    driver.create(spec("m-9", image=200000001, networks=[4711], firewalls=["38"]))
    assert fake.requests == [("POST", "/servers")]


def test_a_second_server_of_one_name_is_refused(fake: FakeHetzner, driver: HetznerDriver) -> None:
    driver.create(spec("m-1"))
    with pytest.raises(AlreadyExistsError, match="already used"):
        driver.create(spec("m-1"))
    assert fake.project.alive() == ["m-1"]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("initializing", MachineState.PENDING),
        ("starting", MachineState.PENDING),
        ("running", MachineState.RUNNING),
        ("migrating", MachineState.RUNNING),
        ("rebuilding", MachineState.RUNNING),
        ("stopping", MachineState.STOPPED),
        ("off", MachineState.STOPPED),
        ("deleting", MachineState.DELETING),
        ("unknown", MachineState.PENDING),
        ("dreaming", MachineState.PENDING),
    ],
)
def test_every_status_has_a_state(fake: FakeHetzner, driver: HetznerDriver, status: str, state: MachineState) -> None:
    driver.create(spec("m-1"))
    fake.project.set("m-1", status=status, created="2026-01-01T00:00:00Z")
    (machine,) = driver.list()
    assert machine.state is state
    assert (status in machine.reason) is (state is not MachineState.RUNNING)


def test_a_new_server_that_is_not_started_yet_is_pending(fake: FakeHetzner, driver: HetznerDriver) -> None:
    driver.create(spec("m-1"))
    fake.project.set("m-1", status="off")
    assert driver.list()[0].state is MachineState.PENDING


def test_servers_without_marks_are_not_listed(fake: FakeHetzner, driver: HetznerDriver) -> None:
    fake.project.create({"name": "somebodys", "server_type": "cx23", "image": "ubuntu-24.04"})
    driver.create(spec("m-1"))
    assert [machine.name for machine in driver.list()] == ["m-1"]


def test_a_list_has_every_page_and_no_call_for_each_server(fake: FakeHetzner, driver: HetznerDriver) -> None:
    for number in range(101):
        fake.project.create({"name": f"m-{number}", **_BODY})
    assert len(driver.list()) == 101
    assert fake.requests == [("GET", "/servers")] * 3


@pytest.mark.parametrize(("page", "gone", "new"), [(1, 119, 0), (2, 119, 1), (1, 60, 1), (1, 0, 2), (2, 60, 0)])
def test_a_list_leaves_nothing_out_while_servers_come_and_go(
    fake: FakeHetzner, driver: HetznerDriver, page: int, gone: int, new: int
) -> None:
    """One that goes moves those behind it to the front, where they may slip from a page that comes to one that was."""
    numbers = [fake.project.create({"name": f"m-{number}", **_BODY})["server"]["id"] for number in range(120)]

    def meanwhile(requests: int) -> None:
        if requests == page:  # behind that page, and before the next one
            fake.project.delete(numbers[gone])
            for number in range(new):
                fake.project.create({"name": f"new-{number}", **_BODY})

    fake.meanwhile = meanwhile
    seen = {int(machine.machine_id) for machine in driver.list()}
    assert set(numbers) - {numbers[gone]} <= seen
    assert len(fake.requests) <= 6


def test_servers_that_are_made_meanwhile_cost_no_second_pass(fake: FakeHetzner, driver: HetznerDriver) -> None:
    numbers = [fake.project.create({"name": f"m-{number}", **_BODY})["server"]["id"] for number in range(120)]

    def meanwhile(requests: int) -> None:
        fake.project.create({"name": f"new-{requests}", **_BODY})

    fake.meanwhile = meanwhile
    assert set(numbers) <= {int(machine.machine_id) for machine in driver.list()}
    assert len(fake.requests) == 3


def test_a_list_from_which_servers_go_all_the_time_is_still_one(fake: FakeHetzner, driver: HetznerDriver) -> None:
    numbers = [fake.project.create({"name": f"m-{number}", **_BODY})["server"]["id"] for number in range(130)]

    def meanwhile(_requests: int) -> None:
        fake.project.delete(numbers.pop())

    fake.meanwhile = meanwhile
    assert set(numbers[:-10]) <= {int(machine.machine_id) for machine in driver.list()}
    assert len(fake.requests) == 6


def test_a_server_that_was_renamed_by_hand_is_still_the_same(fake: FakeHetzner, driver: HetznerDriver) -> None:
    made = driver.create(spec("m-1"))
    fake.project.update(int(made.machine_id), {"name": "pet"})
    (machine,) = driver.list()
    assert (machine.name, machine.machine_id, machine.tags) == ("pet", made.machine_id, made.tags)
    driver.delete(made)
    assert not fake.project.alive()


def test_what_is_gone_is_deleted_already(fake: FakeHetzner, driver: HetznerDriver) -> None:
    made = driver.create(spec("m-1"))
    fake.project.delete(int(made.machine_id))
    driver.delete(made)
    driver.delete(Machine(name="never", machine_id="not-a-number"))


def test_protected_server_raises_an_error_and_stays(fake: FakeHetzner, driver: HetznerDriver) -> None:
    made = driver.create(spec("m-1"))
    fake.project.act(int(made.machine_id), "change_protection", {"delete": True, "rebuild": True})
    with pytest.raises(PreconditionError, match="remove its protection"):
        driver.delete(made)
    assert fake.project.alive() == ["m-1"]


def test_shapes_are_the_server_types_that_can_be_had(driver: HetznerDriver) -> None:
    shapes = {shape.name: shape for shape in driver.shapes()}
    assert set(shapes) == {"cpx11", "cax11", "ccx13", "cx23"}
    assert shapes["cax11"].capacity == {
        "cpu": Quantity(2),
        "memory": Quantity("4Gi"),
        "ephemeral-storage": Quantity("40G"),
    }
    assert shapes["cax11"].labels == {
        "node.kubernetes.io/instance-type": "cax11",
        "kubernetes.io/arch": "arm64",
        "topology.kubernetes.io/region": "fsn1",
    }


def test_prices_are_those_of_the_location(fake: FakeHetzner, tmp_path: Path) -> None:
    there = {price.shape: price for price in hetzner_driver(fake, tmp_path, location="ash").prices()}
    here = {price.shape: price for price in hetzner_driver(fake, tmp_path).prices()}
    assert (there["cpx11"].hourly, here["cpx11"].hourly) == (Decimal("0.0081"), Decimal("0.007"))
    assert {price.currency for price in here.values()} == {"EUR"}
    assert set(there) == {"cpx11"}


def test_a_new_token_is_taken_up(fake: FakeHetzner, tmp_path: Path) -> None:
    driver = hetzner_driver(fake, tmp_path)
    driver.list()
    fake.token = "another-" + "n" * 56
    (tmp_path / "token").write_text(fake.token, "utf-8")
    assert driver.list() == []


def test_missing_token_file_is_reported_at_start(tmp_path: Path) -> None:
    driver = HetznerDriver(HetznerOptions(token_file=tmp_path / "none", location="fsn1"))
    with pytest.raises(PreconditionError, match="tokenFile"):
        driver.start()


# -- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"shape": "", "image": "u"}, "shape"),
        ({"shape": "cx23"}, "image: is missing"),
        ({**MACHINE, "shap": "cx23"}, "did you mean shape"),
        ({**MACHINE, "networks": "nodes"}, "a list"),
        ({**MACHINE, "firewalls": [True]}, "a number, not true"),
        ({**MACHINE, "firewalls": [[]]}, r"firewalls\[0\]: must be a whole number or a string, not a list"),
        ({**MACHINE, "publicIpv4": False, "publicIpv6": False}, "needs a network"),
        ({**MACHINE, "publicIpv4": "maybe"}, "true or false"),
        ({**MACHINE, "labels": {"cloudgraft-cluster-id": "mine"}}, "a mark of cloudgraft's own"),
        ({**MACHINE, "labels": {"team": "blue team"}}, "at most 63 letters"),
        ({**MACHINE, "labels": {"": "x"}}, "key of a label"),
    ],
)
def test_settings_that_can_never_work_are_refused(wrong: dict[str, object], why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        read_settings(MachineSettings, wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"endpoint": "http://api.example/v1"},
        {"endpoint": "api.example"},
        {"location": ""},
        {"timeout": timedelta(0)},
        {"list_delay": timedelta(seconds=-1)},
    ],
)
def test_options_that_can_never_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError):
        HetznerOptions(**{"token_file": Path("t"), "location": "fsn1", **wrong})  # type: ignore[arg-type]  # on purpose


def test_marks_are_put_among_the_labels_of_a_server_and_taken_off(fake: FakeHetzner, driver: HetznerDriver) -> None:
    made = driver.create(spec("m-1", labels={"team": "blue"}))
    driver.mark(made, {"cloudgraft-group": "lab/large", "cloudgraft-name": None})
    (marked,) = driver.list()
    left = {key: value for key, value in made.tags.items() if key != "cloudgraft-name"}
    assert marked.tags == {**left, "cloudgraft-group": "lab/large"}
    (server,) = fake.project.servers({})
    assert server["labels"]["team"] == "blue"
    driver.mark(made, dict.fromkeys(made.tags))
    assert driver.list() == []
    (server,) = fake.project.servers({})
    assert server["labels"] == {"team": "blue"}
    driver.delete(made)
    with pytest.raises(NotFoundError):
        driver.mark(made, made.tags)
