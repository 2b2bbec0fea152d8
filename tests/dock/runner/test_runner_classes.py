"""How classes and secrets reach a driver: fetched once for each revision, shown before they are used, never told."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence

import pytest

from cloudgraft.dock.protocol.codes import Code, Verb
from cloudgraft.dock.protocol.messages import ClassRef, MachineClass, Secret
from cloudgraft.dock.runner import MachineError, current_class
from cloudgraft.sdk import BlockingDriver, Machine, MachineSpec
from cloudgraft.sdk.errors import AuthenticationError
from cloudgraft.sdk.flaws import Flaw, FlawedError
from tests.conditions import until
from tests.dock.runner.drivers import GatedDriver, running
from tests.dock.runner.small_hub import SmallHub, create, delete, read, small_hub

SMALL = {"metadata": {"name": "small"}, "providerSpec": {"image": "ubuntu", "size": 2}, "secretRef": {"name": "keys"}}


class UsingDriver(GatedDriver):
    """Notes what it is shown, and of which class each call is."""

    def __init__(self) -> None:
        super().__init__()
        self.used: list[tuple[str, int, dict[str, bytes]]] = []
        self.classes: list[str] = []
        self.refuses: Exception | None = None
        self.fails_after: type[Exception] | None = None

    async def create(self, spec: MachineSpec) -> Machine:
        made = await super().create(spec)
        if self.fails_after is not None:
            raise self.fails_after("login with correct-horse failed")
        return made

    async def use(self, machine_class: MachineClass, secret: Secret | None) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.used.append((machine_class.name, machine_class.revision, dict(secret.data) if secret else {}))

    async def list(self) -> Sequence[Machine]:
        current = current_class()
        self.classes.append(current.name if current is not None else "")
        return await super().list()


class BlockingUser(BlockingDriver):
    """The same in threads."""

    def __init__(self) -> None:
        self.used: list[str] = []
        self.seen: list[tuple[str, bool]] = []

    def use(self, machine_class: MachineClass, secret: Secret | None) -> None:
        assert threading.current_thread() is not threading.main_thread()
        self.used.append(machine_class.name)

    def create(self, spec: MachineSpec) -> Machine:
        current = current_class()
        self.seen.append((current.name if current else "", threading.current_thread() is threading.main_thread()))
        return Machine(name=spec.name, machine_id="1", tags={"size": str(spec.settings.get("size"))})

    def delete(self, machine: Machine) -> None:
        """Nothing."""

    def list(self) -> Sequence[Machine]:
        return []


def _fill(hub: SmallHub, *, revision: int = 3, password: bytes = b"correct-horse") -> None:
    hub.classes["small"] = (revision, SMALL)
    hub.secrets["small"] = (revision + 10, {"password": password})


def ref(revision: int = 3) -> ClassRef:
    return ClassRef(name="small", revision=revision, secret_revision=revision + 10)


async def test_the_class_says_what_a_machine_is_and_the_group_has_the_last_word() -> None:
    driver = GatedDriver()
    async with small_hub() as hub, running(driver, hub.address):
        _fill(hub)
        visit = await hub.visit()
        await visit.ask(create("m-1", ref=ref(), settings={"size": 8}))
        assert (await visit.result()).status.code == 0
        assert driver.specs[0].settings == {"image": "ubuntu", "size": 8}
        assert hub.fetched == ["class small"]  # whoever has no use for a secret does not get it


async def test_a_driver_is_shown_class_and_secret_once_for_each_revision() -> None:
    driver = UsingDriver()
    async with small_hub() as hub, running(driver, hub.address):
        _fill(hub)
        visit = await hub.visit()
        for operation in (create("m-1", ref=ref()), create("m-2", ref=ref()), read(ref=ref())):
            await visit.ask(operation)
            assert (await visit.result()).status.code == 0
        assert hub.fetched == ["class small", "secret of small"]
        _fill(hub, revision=4, password=b"battery-staple")
        await visit.ask(read(ref=ref(4)))
        await visit.result()
        assert driver.used == [
            ("small", 3, {"password": b"correct-horse"}),
            ("small", 4, {"password": b"battery-staple"}),
        ]
        assert driver.classes == ["small", "small"]


async def test_another_hubs_class_of_the_same_revision_is_fetched_again() -> None:
    """A hub that was started again counts anew, and may come to a number that the last one had for something else."""
    driver = UsingDriver()
    async with small_hub(hub_id="first") as hub, running(driver, hub.address):
        _fill(hub)
        visit = await hub.visit()
        await visit.ask(read(ref=ref()))
        await visit.result()
        hub.hub_id = "second"
        _fill(hub, password=b"battery-staple")
        visit.hung_up.set()
        again = await hub.visit()
        for _ in range(2):
            await again.ask(read(ref=ref()))
            await again.result()
        assert [shown[2]["password"] for shown in driver.used] == [b"correct-horse", b"battery-staple"]
        assert hub.fetched == ["class small", "secret of small"] * 2


async def test_many_operations_at_once_fetch_a_class_once() -> None:
    driver = UsingDriver()
    async with small_hub() as hub, running(driver, hub.address):
        _fill(hub)
        visit = await hub.visit()
        for number in range(20):
            await visit.ask(create(f"m-{number}", ref=ref()))
        for _ in range(20):
            assert (await visit.result()).status.code == 0
        assert hub.fetched == ["class small", "secret of small"]
        assert len(driver.used) == 1


@pytest.mark.parametrize("changed", [{"machine_classes": ["small"]}, {"secrets": ["keys"]}])
async def test_what_has_changed_is_fetched_again(changed: dict[str, list[str]]) -> None:
    driver = UsingDriver()
    async with small_hub() as hub, running(driver, hub.address):
        _fill(hub)
        visit = await hub.visit()
        await visit.ask(read(ref=ref()))
        await visit.result()
        _fill(hub, password=b"battery-staple")
        await visit.say(changed=changed)
        await visit.ask(read(ref=ref()))
        await visit.result()
        assert [secret for *_, secret in driver.used] == [
            {"password": b"correct-horse"},
            {"password": b"battery-staple"},
        ]


async def test_a_class_that_is_missing_is_not_a_machine_that_is_missing() -> None:
    """Else a delete would be taken for done."""
    driver = UsingDriver()
    async with small_hub() as hub, running(driver, hub.address):
        visit = await hub.visit()
        machine = Machine(name="m-1", machine_id="1")
        for operation in (create("m-1", ref=ref()), delete(machine, ref=ref()), read(ref=ref())):
            await visit.ask(operation)
            status = (await visit.result()).status
            assert status.code == Code.FAILED_PRECONDITION
            assert "nothing was done" in status.message
        assert driver.begun == []


async def test_every_error_of_a_class_is_reported() -> None:
    driver = UsingDriver()
    driver.refuses = FlawedError([Flaw(("size",), "is too small"), Flaw(("image",), "is not known")])
    async with small_hub() as hub, running(driver, hub.address):
        _fill(hub)
        visit = await hub.visit()
        await visit.ask(create("m-1", ref=ref()))
        status = (await visit.result()).status
        assert status.code == Code.INVALID_ARGUMENT
        assert "size: is too small; image: is not known; nothing was done" in status.message


async def test_a_class_that_is_gone_still_deletes_its_machines() -> None:
    """Case 39, on the driver's side."""
    driver = UsingDriver()
    async with small_hub() as hub, running(driver, hub.address):
        _fill(hub)
        visit = await hub.visit()
        await visit.ask(create("m-1", ref=ref()))
        made = (await visit.result()).create.machine
        hub.classes.clear()
        await visit.say(changed={"machine_classes": ["small"]})
        await visit.ask(create("m-2", ref=ref()))
        assert (await visit.result()).status.code == Code.FAILED_PRECONDITION
        await visit.ask(delete(Machine(name="m-1", machine_id=made.machine_id), ref=ref()))
        assert (await visit.result()).status.code == 0
        assert driver.machines == []


async def test_deletes_and_lists_of_a_plain_driver_need_no_class() -> None:
    driver = GatedDriver()
    async with small_hub() as hub, running(driver, hub.address):
        visit = await hub.visit()
        for operation in (delete(Machine(name="m-1", machine_id="1"), ref=ref()), read(ref=ref())):
            await visit.ask(operation)
            assert (await visit.result()).status.code == 0
        assert hub.fetched == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (AuthenticationError("wrong password"), Code.UNAUTHENTICATED),
        (MachineError(Code.INVALID_ARGUMENT, "no region"), Code.INVALID_ARGUMENT),
        (RuntimeError("correct-horse is wrong"), Code.FAILED_PRECONDITION),
    ],
)
async def test_a_class_that_a_driver_cannot_use_fails_the_operation_and_is_tried_again(
    error: Exception, code: Code, caplog: pytest.LogCaptureFixture
) -> None:
    driver = UsingDriver()
    driver.refuses = error
    async with small_hub() as hub, running(driver, hub.address):
        _fill(hub)
        visit = await hub.visit()
        await visit.ask(create("m-1", ref=ref()))
        result = await visit.result()
        assert result.status.code == code
        assert "correct-horse" not in result.status.message + caplog.text
        driver.refuses = None
        await visit.ask(create("m-1", ref=ref()))
        assert (await visit.result()).status.code == 0


async def test_nothing_secret_is_in_logs_or_errors(caplog: pytest.LogCaptureFixture) -> None:
    """Case 40, on the driver's side."""
    caplog.set_level(logging.DEBUG)
    driver = UsingDriver()
    driver.fails = AuthenticationError("login with correct-horse failed")
    async with small_hub() as hub, running(driver, hub.address):
        _fill(hub)
        visit = await hub.visit()
        await visit.ask(create("m-1", ref=ref()))
        assert (await visit.result()).status.message == "login with [secret] failed"
    assert "correct-horse" not in caplog.text


async def test_a_blocking_driver_is_shown_its_class_in_a_thread() -> None:
    driver = BlockingUser()
    async with small_hub() as hub, running(driver, hub.address):
        _fill(hub)
        visit = await hub.visit()
        await visit.ask(create("m-1", ref=ref()))
        assert (await visit.result()).create.machine.tags["size"] == "2"
    assert (driver.used, driver.seen) == (["small"], [("small", False)])


async def test_cancel_before_the_class_has_come_means_that_nothing_was_done() -> None:
    driver = UsingDriver()
    waiting = asyncio.Event()

    async def use(machine_class: MachineClass, secret: Secret | None) -> None:
        waiting.set()
        await asyncio.Event().wait()

    driver.use = use  # type: ignore[method-assign]  # for this one driver
    async with small_hub() as hub, running(driver, hub.address):
        _fill(hub)
        visit = await hub.visit()
        number = await visit.ask(create("m-1", ref=ref()))
        await until(waiting.is_set)
        await visit.say(cancel={"id": number})
        assert (await visit.result()).status.code == Code.CANCELLED
        assert driver.begun == []
        await visit.ask(read(Verb.LIST, ref=ref(), seconds=0.05))
        status = (await visit.result()).status
        assert (status.code, status.retry_after.seconds) == (Code.UNAVAILABLE, 1)


async def test_the_secret_of_an_older_kind_is_named_in_its_spec() -> None:
    """As in AWSMachineClass and its like: ``spec.secretRef``."""
    driver = UsingDriver()
    async with small_hub() as hub, running(driver, hub.address):
        _fill(hub)
        hub.classes["small"] = (3, {"metadata": {"name": "small"}, "spec": {"size": 2, "secretRef": {"name": "keys"}}})
        visit = await hub.visit()
        await visit.ask(create("m-1", ref=ref()))
        assert (await visit.result()).status.code == Code.OK
    assert driver.used == [("small", 3, {"password": b"correct-horse"})]
    assert driver.specs[0].settings["size"] == 2


async def test_case_38_a_secret_that_was_rotated_stays_hidden_for_what_still_runs_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The create began with the old one, and its cloud's library quotes it, without the newline of the file."""
    caplog.set_level(logging.DEBUG)
    driver = UsingDriver()
    gate = driver.hold("m-1")
    async with small_hub() as hub, running(driver, hub.address):
        _fill(hub, password=b"correct-horse\n")
        visit = await hub.visit()
        await visit.ask(create("m-1", ref=ref()))
        await until(lambda: driver.begun == ["m-1"])
        _fill(hub, revision=4, password=b"battery-staple\n")
        await visit.ask(read(Verb.LIST, ref=ref(4)))
        await visit.result()
        assert [data["password"] for _, _, data in driver.used] == [b"correct-horse\n", b"battery-staple\n"]
        driver.fails_after = AuthenticationError  # made when it is raised, as a library does
        gate.set()
        assert (await visit.result()).status.message == "login with [secret] failed"
    assert "correct-horse" not in caplog.text
