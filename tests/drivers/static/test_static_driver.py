"""Machines that one owns: who gets which, how they are switched, and what becomes of those that leave the list."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from cloudgraft.drivers.static.driver import StaticDriver
from cloudgraft.drivers.static.options import Host
from cloudgraft.sdk.driver import Machine, Ownership
from cloudgraft.sdk.errors import (
    CloudgraftError,
    DeadlineError,
    InvalidArgumentError,
    OutOfStockError,
    PreconditionError,
    UnavailableError,
)
from tests.conditions import until
from tests.drivers.exec.exec_scripts import names, nothing_left, script
from tests.drivers.static.static_machines import OFF, ON, hosts, spec, static_driver, switched_on


async def test_create_switches_a_free_machine_on_and_delete_switches_it_off(tmp_path: Path) -> None:
    driver = static_driver(tmp_path)
    await driver.start()
    first, second = await driver.create(spec("a")), await driver.create(spec("b"))
    assert (first.machine_id, first.provider_id, first.addresses) == ("host-1", "static://host-1", ("10.0.0.1",))
    assert switched_on(tmp_path) == {"host-1": "a", "host-2": "b"}
    assert await driver.list() == [first, second]
    assert first.tags == {"cloudgraft-name": "a"}
    await driver.delete(first)
    assert switched_on(tmp_path) == {"host-2": "b"}
    assert await driver.list() == [second]
    assert driver.traits.ownership is Ownership.INVENTORY


async def test_one_name_has_one_machine_also_for_a_new_driver(tmp_path: Path) -> None:
    first = await static_driver(tmp_path).create(spec("a"))
    again = static_driver(tmp_path)
    assert await again.create(spec("a")) == first
    assert await again.list() == [first]


async def test_no_machine_is_given_to_two_at_once(tmp_path: Path) -> None:
    drivers = [static_driver(tmp_path, machines=hosts(4)) for _ in range(2)]  # an old one that closes, and a new one
    made = await asyncio.gather(*(drivers[number % 2].create(spec(f"m{number}")) for number in range(4)))
    assert {machine.machine_id for machine in made} == {"host-1", "host-2", "host-3", "host-4"}


async def test_without_a_free_machine_it_is_out_of_stock(tmp_path: Path) -> None:
    driver = static_driver(tmp_path, machines=hosts(1))
    await driver.create(spec("a"))
    with pytest.raises(OutOfStockError, match="no machine is free: 1 of 1 are taken"):
        await driver.create(spec("b"))


async def test_a_group_gets_the_machines_that_are_for_it(tmp_path: Path) -> None:
    machines = [Host(id="gpu", group="gpus"), Host(id="a", labels={"rack": "a"}), Host(id="b", labels={"rack": "b"})]
    driver = static_driver(tmp_path, machines=machines)
    assert (await driver.create(spec("x", select={"rack": "b"}))).machine_id == "b"
    assert (await driver.create(spec("y"))).machine_id == "a"
    with pytest.raises(OutOfStockError, match="2 of 2 are taken"):
        await driver.create(spec("z"))
    assert (await driver.create(spec("z", "gpus"))).machine_id == "gpu"
    with pytest.raises(InvalidArgumentError, match="none of the 3 machines is for the group 'pool' with the labels"):
        await driver.create(spec("u", select={"rack": "nowhere"}))


async def test_the_commands_are_told_which_machine_and_its_secrets_by_file(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("open-sesame\n")
    host = Host(id="h", providerID="metal://7", addresses=["10.1.1.1"], vars={"bmc": "b7"}, var_files={"pin": secret})
    body = "cat >stdin; env >env; cat $CLOUDGRAFT_USER_DATA_FILE >user-data"
    driver = static_driver(
        tmp_path, machines=[host], power_on=body, power_off='echo "$CLOUDGRAFT_VAR_PIN" >&2; exit 208'
    )
    machine = await driver.create(spec("a"))
    env = (tmp_path / "env").read_text().splitlines()
    told = {
        "CLOUDGRAFT_OPERATION=powerOn",
        "CLOUDGRAFT_HOST_ID=h",
        "CLOUDGRAFT_HOST_ADDRESS=10.1.1.1",
        "CLOUDGRAFT_PROVIDER_ID=metal://7",
        "CLOUDGRAFT_NAME=a",
        "CLOUDGRAFT_GROUP=pool",
        "CLOUDGRAFT_VAR_BMC=b7",
        "CLOUDGRAFT_VAR_PIN=open-sesame",
    }
    assert told <= set(env)
    stdin = json.loads((tmp_path / "stdin").read_text())
    assert stdin["host"]["vars"] == {"bmc": "b7"}
    assert stdin["machine"]["name"] == "a"
    assert "open-sesame" not in (tmp_path / "stdin").read_text() + (tmp_path / "state.json").read_text()
    with pytest.raises(CloudgraftError, match=r"powerOff of h exited with 208 .*\[secret\]"):
        await driver.delete(machine)
    assert await driver.list() == [machine]


async def test_a_switch_that_did_nothing_frees_the_machine_and_others_are_tried_first(tmp_path: Path) -> None:
    body = f'[ "$CLOUDGRAFT_HOST_ID" != host-1 ] || exit 210; {ON}'
    driver = static_driver(tmp_path, power_on=body)
    with pytest.raises(UnavailableError, match="powerOn of host-1 exited with 210"):
        await driver.create(spec("a"))
    assert await driver.list() == []
    assert (await driver.create(spec("a"))).machine_id == "host-2"


async def test_a_switch_of_which_nobody_knows_what_it_did_keeps_the_machine(tmp_path: Path) -> None:
    """Law 3: it may be on, so nobody else gets it; the list shows it, and a delete switches it off."""
    driver = static_driver(tmp_path, power_on=f"{ON}; exit 1")
    with pytest.raises(DeadlineError):
        await driver.create(spec("a"))
    again = static_driver(tmp_path, power_on="exit 210")
    with pytest.raises(DeadlineError, match="whether an earlier try did it is not known"):
        await again.create(spec("a"))
    [machine] = await driver.list()
    assert (machine.name, machine.machine_id) == ("a", "host-1")
    await driver.delete(machine)
    assert switched_on(tmp_path) == {}
    assert await driver.list() == []


async def test_a_late_delete_does_not_touch_a_machine_that_serves_another(tmp_path: Path) -> None:
    """Law 4."""
    driver = static_driver(tmp_path, machines=hosts(1))
    old = await driver.create(spec("a"))
    await driver.delete(old)
    new = await driver.create(spec("b"))
    await driver.delete(old)
    await driver.delete(Machine(name="b", machine_id="nobody"))
    assert switched_on(tmp_path) == {"host-1": "b"}
    assert await driver.list() == [new]


async def test_a_machine_that_is_being_switched_on_is_switched_off_after_that(tmp_path: Path) -> None:
    slow = f"touch begun; while [ ! -e go ]; do sleep 0.01; done; {ON}"
    driver = static_driver(tmp_path, power_on=slow, machines=hosts(1))
    create = asyncio.create_task(driver.create(spec("a")))
    await until((tmp_path / "begun").exists)
    delete = asyncio.create_task(driver.delete(Machine(name="a", machine_id="host-1")))
    (tmp_path / "go").touch()
    await asyncio.gather(create, delete)
    assert switched_on(tmp_path) == {}
    assert await driver.list() == []


# -- the list of machines, and the account of who has which ------------------------------------------------------------


async def test_a_machine_in_use_that_left_the_inventory_is_told_and_not_touched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = await static_driver(tmp_path).create(spec("a"))
    smaller = static_driver(tmp_path, machines=hosts(3)[1:], power_off=f"touch touched; {OFF}")
    [machine] = await smaller.list()
    assert machine.machine_id == made.machine_id
    assert machine.provider_id == made.provider_id
    assert machine.reason == "it is no longer in the inventory, and is left alone"
    assert [record.message for record in caplog.records] == ["a machine in use is no longer in the inventory"]
    for call in (smaller.delete(machine), smaller.create(spec("a"))):
        with pytest.raises(
            PreconditionError, match=r"host-1, which serves a, is no longer in the inventory.*state.json"
        ):
            await call
    assert names(tmp_path, "touched") == []
    assert switched_on(tmp_path) == {"host-1": "a"}


async def test_a_damaged_account_stops_everything_rather_than_give_a_machine_twice(tmp_path: Path) -> None:
    driver = static_driver(tmp_path)
    await driver.create(spec("a"))
    good = (tmp_path / "state.json").read_text()
    for bad in (good[:40], "", "[]", '{"version": 2, "taken": []}', good.replace('"name"', '"nom"')):
        (tmp_path / "state.json").write_text(bad)
        for call in (driver.start(), driver.list(), driver.create(spec("b"))):
            with pytest.raises(UnavailableError, match=r"state.json, which says who has which machine, is damaged"):
                await call
    assert switched_on(tmp_path) == {"host-1": "a"}
    assert (tmp_path / "state.json").stat().st_mode & 0o777 == 0o600


async def test_an_account_that_has_no_place_is_told_at_the_start(tmp_path: Path) -> None:
    """Such as beside a configuration file that is mounted read-only."""
    driver = static_driver(tmp_path, state_file=tmp_path / "no-such-directory" / "state.json")
    with pytest.raises(UnavailableError, match=r"cannot be opened: .*a place that can be written: see stateFile"):
        await driver.start()


async def test_an_account_that_cannot_be_written_switches_nothing(tmp_path: Path) -> None:
    driver = static_driver(tmp_path, state_file=tmp_path / "nowhere" / "state.json")
    with pytest.raises(UnavailableError, match="Nothing was done"):
        await driver.create(spec("a"))
    assert switched_on(tmp_path) == {}


async def test_a_hook_that_hangs_is_ended_and_nothing_is_left(tmp_path: Path) -> None:
    driver = static_driver(tmp_path, power_on="touch begun; sleep 300")
    async with nothing_left(tmp_path):
        call = asyncio.create_task(driver.create(spec("a")))
        await until((tmp_path / "begun").exists)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert [machine.name for machine in await driver.list()] == ["a"]


def test_machines_may_be_in_a_file_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "machines.yaml").write_text(
        "machines:\n- {id: h1, addresses: [10.0.0.1], labels: {rack: a}, vars: {bmc: b1}, varFiles: {pin: pin.txt}}\n"
    )
    driver = static_driver(tmp_path, machines=[Host(id="h0")], machines_file=tmp_path / "machines.yaml")
    assert list(driver._hosts) == ["h0", "h1"]
    assert driver._hosts["h1"].var_files == {"pin": tmp_path / "pin.txt"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {id: h0}\n", "two machines have the id 'h0'"),
        ("- {id: h1, providerID: 'static://h0'}\n", "two machines have the providerID 'static://h0'"),
        ("- {id: h1, adresses: []}\n", r"machines\[0\].adresses: unknown key \(did you mean addresses\?\)"),
        ("- {addresses: []}\n", r"machines\[0\].id: is missing"),
        ("- 7\n", r"machines\[0\]: must be a mapping of keys to values, not a number"),
        ("h1: {}\n", "must be a list of machines"),
        ("[", "neither YAML nor JSON"),
    ],
)
def test_a_wrong_file_of_machines_is_told(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "machines.yaml").write_text(text)
    with pytest.raises(InvalidArgumentError, match=message):
        static_driver(tmp_path, machines=[Host(id="h0")], machines_file=tmp_path / "machines.yaml")


def test_options_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="machines: say here, or in a machinesFile"):
        static_driver(tmp_path, machines=[])
    with pytest.raises(InvalidArgumentError, match="machinesFile cannot be read"):
        static_driver(tmp_path, machines_file=tmp_path / "nowhere.yaml")
    with pytest.raises(InvalidArgumentError, match="powerOn: is empty"):
        static_driver(tmp_path, power_on=[])
    with pytest.raises(InvalidArgumentError, match="vars: 'a b' is no name for a variable"):
        Host(id="h", vars={"a b": "x"})


async def test_a_command_that_is_missing_is_told_at_the_start(tmp_path: Path) -> None:
    script(tmp_path, ON, "on.sh").chmod(0o644)
    with pytest.raises(PreconditionError, match=r"powerOn: .*on.sh cannot be executed"):
        await static_driver(tmp_path, power_on=["./on.sh"]).start()
    assert isinstance(static_driver(tmp_path), StaticDriver)


async def test_a_changed_file_of_machines_is_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "machines.yaml"
    file.write_text("[{id: one}]")
    driver = static_driver(tmp_path, machines=(), machines_file=file)
    assert (await driver.create(spec("a"))).machine_id == "one"
    file.write_text("[{id: one}, {id: two}]")
    assert (await driver.create(spec("b"))).machine_id == "two"
    file.write_text("nonsense of another length")
    for _ in range(2):
        assert [m.machine_id for m in await driver.list()] == ["one", "two"]
    file.write_text("[{id: two}]")
    assert [m.reason for m in await driver.list()] == ["it is no longer in the inventory, and is left alone", ""]
    told = [record.message for record in caplog.records]
    assert told == [
        "the changed list of machines cannot be used, the old one stays",
        "a machine in use is no longer in the inventory",
    ]
