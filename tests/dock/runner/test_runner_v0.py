"""The same runner as in 2018: the hub speaks first, under either of its names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from cloudgraft.dock.protocol.codes import Code
from cloudgraft.dock.protocol.messages import ClassRef
from cloudgraft.dock.runner import (
    ClassData,
    DockRunner,
    MachineClassMeta,
    MachineError,
    SecretMeta,
    Speech,
    from_2018,
)
from cloudgraft.sdk.driver import DriverTraits, Machine, MachineSpec
from cloudgraft.sdk.errors import InvalidArgumentError, NotFoundError, OutOfStockError
from tests.conditions import until
from tests.dock.runner.drivers import GatedDriver, options_for, running
from tests.dock.runner.small_hub import create, read, small_hub

CLASS_PATH = "/apis/machine.example/v1/namespaces/default/labmachineclasses/small"
SMALL = {"metadata": {"namespace": "default"}, "spec": {"size": 2}, "credentialsSecretRef": {"name": "keys"}}


class Lab2018:
    """Written to the interface of 2018."""

    def __init__(self, data: ClassData) -> None:
        self.data = data
        self.machines: dict[str, str] = {}
        self.secrets: list[str] = []

    def create(
        self, machine_class: MachineClassMeta, credentials: str, machine_id: str, machine_name: str
    ) -> tuple[str, str]:
        assert (credentials, machine_id) == ("", "")
        assert '"size": 2' in self.data.get_machine_class(machine_class)
        self.secrets.append(self.data.get_secret(SecretMeta("keys", "default")))
        self.machines[f"lab:///{machine_name}"] = machine_name
        return f"lab:///{machine_name}", f"node-{machine_name}"

    def delete(self, machine_class: MachineClassMeta, credentials: str, machine_id: str) -> None:
        self.machines.pop(machine_id, None)

    def list(self, machine_class: MachineClassMeta, credentials: str, machine_id: str) -> Mapping[str, str]:
        return dict(self.machines)


@pytest.mark.parametrize("speech", [Speech.V0, Speech.V0_INFRA])
async def test_a_driver_registers_and_serves_under_either_name(speech: Speech) -> None:
    driver = GatedDriver()
    async with small_hub() as hub, running(driver, hub.address, speech=speech, name="lab"):
        visit = await hub.old_visit()
        said = visit.first.registerResp
        assert (visit.first.operationID, visit.first.operationType) == (1, "register")
        assert (said.name, said.kind, said.group, said.version) == ("lab", "LabMachineClass", "machine.example", "v1")
        made = (await visit.ask("create", name="m-1")).createresponse
        assert (made.providerID, made.nodename, made.error) == ("lab://1", "m-1", "")
        await visit.ask("create", name="m-2")
        listed = (await visit.ask("list")).listresponse.list
        assert [(one.machineID, one.machineName) for one in listed] == [("lab://1", "m-1"), ("lab://2", "m-2")]
        one = (await visit.ask("list", machine_id="lab://2")).listresponse.list
        assert [found.machineName for found in one] == ["m-2"]
        assert (await visit.ask("delete", machine_id="lab://1")).deleteresponse.error == ""
        assert driver.begun == ["m-1", "m-2", "delete id-1"]


async def test_an_unknown_operation_is_answered_without_a_content() -> None:
    async with small_hub() as hub, running(GatedDriver(), hub.address, speech=Speech.V0):
        visit = await hub.old_visit()
        assert (await visit.ask("getVMs")).WhichOneof("response") is None


async def test_an_error_carries_its_code_in_its_text() -> None:
    driver = GatedDriver()
    driver.fails = OutOfStockError("no more gpus")
    async with small_hub() as hub, running(driver, hub.address, speech=Speech.V0):
        answer = (await (await hub.old_visit()).ask("create", name="m-1")).createresponse
        assert answer.error == "machine codes error: code = [ResourceExhausted] message = [no more gpus]"
        assert answer.providerID == ""


async def test_a_machine_that_only_its_providerid_names_is_found_and_deleted() -> None:
    driver = GatedDriver()
    async with small_hub() as hub:
        async with running(driver, hub.address, speech=Speech.V0):
            await (await hub.old_visit()).ask("create", name="m-1")
        async with running(driver, hub.address, speech=Speech.V0):  # as after a restart: nothing is remembered
            visit = await hub.old_visit()
            assert (await visit.ask("delete", machine_id="lab://1")).deleteresponse.error == ""
            assert driver.machines == []
            assert (await visit.ask("delete", machine_id="lab://1")).deleteresponse.error == ""


async def test_absence_from_a_list_that_proves_nothing_is_not_a_deletion() -> None:
    driver = GatedDriver()
    driver.traits = DriverTraits(list_delay=timedelta(seconds=30))
    async with small_hub() as hub, running(driver, hub.address, speech=Speech.V0):
        answer = await (await hub.old_visit()).ask("delete", machine_id="lab://9")
        assert "does not prove that it is gone" in answer.deleteresponse.error


async def test_a_driver_of_2018_serves_in_v0() -> None:
    made: list[Lab2018] = []

    def make(data: ClassData) -> Lab2018:
        made.append(Lab2018(data))
        return made[0]

    async with small_hub() as hub, running(from_2018(make), hub.address, speech=Speech.V0):
        hub.classes[CLASS_PATH] = (1, SMALL)
        hub.secrets["keys"] = (1, {"password": b"correct-horse"})
        visit = await hub.old_visit()
        answer = (await visit.ask("create", class_name=CLASS_PATH, name="m-1")).createresponse
        assert (answer.providerID, answer.nodename, answer.error) == ("lab:///m-1", "node-m-1", "")
        assert '"password": "Y29ycmVjdC1ob3JzZQ=="' in made[0].secrets[0]
        listed = (await visit.ask("list", class_name=CLASS_PATH)).listresponse.list
        assert [found.machineID for found in listed] == ["lab:///m-1"]
        assert (await visit.ask("delete", class_name=CLASS_PATH, machine_id="lab:///m-1")).deleteresponse.error == ""
        assert made[0].machines == {}
        answer = (await visit.ask("create", class_name="elsewhere", name="m-2")).createresponse
        assert "not there" in answer.error


@pytest.mark.parametrize("speech", [Speech.V0, Speech.V1])
async def test_a_class_that_names_two_secrets_gives_a_driver_of_2018_either_by_its_name(speech: Speech) -> None:
    """It knows of one reference, and asks by that; the hub's secret has the values of both."""
    seen: list[str] = []

    class Asking(Lab2018):
        def list(self, machine_class: MachineClassMeta, credentials: str, machine_id: str) -> Mapping[str, str]:
            seen.extend(self.data.get_secret(SecretMeta(name, "default")) for name in ("keys", "pool"))
            with pytest.raises(NotFoundError):
                self.data.get_secret(SecretMeta("other", "default"))
            with pytest.raises(NotFoundError):
                self.data.get_secret(SecretMeta("pool", "elsewhere"))
            return {}

    async with small_hub() as hub, running(from_2018(Asking), hub.address, speech=speech):
        hub.classes["small"] = (1, {**SMALL, "secretRef": {"name": "pool"}})
        hub.secrets["keys"] = hub.secrets["small"] = (1, {"password": b"correct-horse"})
        if speech is Speech.V0:
            assert (await (await hub.old_visit()).ask("list", class_name="small")).listresponse.error == ""
        else:
            visit = await hub.visit()
            await visit.ask(read(ref=ClassRef(name="small", revision=1)))
            assert (await visit.result()).status.code == 0
    assert [json.loads(text)["metadata"]["name"] for text in seen] == ["keys", "pool"]
    assert all(json.loads(text)["data"] == {"password": "Y29ycmVjdC1ob3JzZQ=="} for text in seen)


async def test_a_changed_secret_reaches_a_driver_of_v0_with_its_next_operation() -> None:
    """There are no revisions that mean anything in v0: each operation looks."""
    lab: list[Lab2018] = []

    def make(data: ClassData) -> Lab2018:
        lab.append(Lab2018(data))
        return lab[0]

    async with small_hub() as hub, running(from_2018(make), hub.address, speech=Speech.V0):
        hub.classes["small"] = (1, SMALL)
        visit = await hub.old_visit()
        for number, password in enumerate((b"correct-horse", b"battery-staple")):
            hub.secrets["keys"] = (1, {"password": password})
            await visit.ask("create", class_name="small", name=f"m-{number}")
        assert len(set(lab[0].secrets)) == 2


async def test_a_driver_of_2018_serves_in_v1() -> None:
    lab: list[Lab2018] = []

    def make(data: ClassData) -> Lab2018:
        lab.append(Lab2018(data))
        return lab[0]

    async with small_hub() as hub, running(from_2018(make), hub.address):
        hub.classes["small"] = (3, SMALL)
        hub.secrets["small"] = (7, {"password": b"correct-horse"})
        visit = await hub.visit()
        assert (visit.hello.traits.ownership, visit.hello.traits.complete_list) == ("name", False)
        operation = create("m-1")
        await visit.ask(replace(operation, class_ref=replace(operation.class_ref, name="small", revision=3)))
        machine = (await visit.result()).create.machine
        assert (machine.machine_id, machine.provider_id, list(machine.addresses)) == (
            "lab:///m-1",
            "lab:///m-1",
            ["node-m-1"],
        )
        await visit.ask(replace(read(), class_ref=replace(operation.class_ref, name="small", revision=3)))
        assert [found.name for found in (await visit.result()).list.machines] == ["m-1"]


async def test_a_result_of_a_lost_connection_is_lost_and_the_driver_comes_back() -> None:
    driver = GatedDriver()
    gate = driver.hold("m-1")
    async with small_hub() as hub, running(driver, hub.address, speech=Speech.V0):
        visit = await hub.old_visit()
        asking = asyncio.create_task(visit.ask("create", name="m-1"))
        await until(lambda: driver.begun == ["m-1"])
        visit.hung_up.set()
        again = await hub.old_visit()
        gate.set()
        await until(lambda: len(driver.machines) == 1)
        found = (await again.ask("list")).listresponse.list
        assert [one.machineName for one in found] == ["m-1"]
        assert not asking.done()
        asking.cancel()


async def test_stop_unregisters_after_what_runs() -> None:
    driver = GatedDriver()
    async with small_hub() as hub:
        runner = DockRunner(driver, options_for(hub.address, speech=Speech.V0))
        await runner.start()
        visit = await hub.old_visit()
        await visit.ask("create", name="m-1")
        await runner.stop()
        last = await visit.heard.get()
        assert (last.operationType, last.WhichOneof("response")) == ("unregister", None)


def test_v0_needs_a_group_and_a_version() -> None:
    with pytest.raises(InvalidArgumentError, match="group/version"):
        replace(options_for("127.0.0.1:1", speech=Speech.V0), api_version="v1")


async def test_a_repeated_create_answers_with_the_machine_of_a_lost_result() -> None:
    """v0 has no acknowledgement: an answer may be lost with its connection, and a create makes a second machine."""
    driver = GatedDriver()
    async with small_hub() as hub, running(driver, hub.address, speech=Speech.V0):
        visit = await hub.old_visit()
        first = await visit.ask("create", name="m-1")
        visit.hung_up.set()
        visit = await hub.old_visit()
        assert (await visit.ask("create", name="m-1")).createresponse == first.createresponse
        assert len(driver.machines) == 1
        await visit.ask("delete", machine_id=first.createresponse.providerID)
        again = await visit.ask("create", name="m-1")
        assert (again.createresponse.error, driver.begun.count("m-1"), len(driver.machines)) == ("", 2, 1)


async def test_a_list_that_would_end_the_connection_is_an_error_and_not_a_part() -> None:
    driver = GatedDriver()
    driver.machines = [Machine(name="m-1", machine_id="1", provider_id="x" * (16 << 20))]
    async with small_hub() as hub, running(driver, hub.address, speech=Speech.V0) as runner:
        visit = await hub.old_visit()
        answer = (await visit.ask("list")).listresponse
        assert "cannot be sent in part" in answer.error
        assert (len(answer.list), runner.connections) == (0, 1)


class Liar(GatedDriver):
    """Answers with what is no answer."""

    answer: object = None

    async def create(self, spec: MachineSpec) -> Machine:
        return self.answer  # type: ignore[return-value]  # that is the point

    async def list(self) -> Sequence[Machine]:
        return self.answer  # type: ignore[return-value]  # that is the point


@pytest.mark.parametrize("answer", [None, 3, "m-1", [1, 2], {"a": 1}, Machine(name="m-1", machine_id="")])
async def test_answers_that_are_none_are_errors_and_never_an_empty_list(answer: object) -> None:
    """An empty list says that all machines are gone."""
    driver = Liar()
    driver.answer = answer
    async with small_hub() as hub, running(driver, hub.address, speech=Speech.V0):
        visit = await hub.old_visit()
        assert (await visit.ask("list")).listresponse.error
        assert (await visit.ask("create", name="m-1")).createresponse.error


async def test_a_list_from_an_iterator_is_sent_whole() -> None:
    driver = Liar()
    driver.answer = (Machine(name=f"m-{number}", machine_id=f"{number}") for number in range(3))
    async with small_hub() as hub, running(driver, hub.address, speech=Speech.V0):
        visit = await hub.old_visit()
        assert [one.machineName for one in (await visit.ask("list")).listresponse.list] == ["m-0", "m-1", "m-2"]


async def test_an_unencodable_answer_is_an_error_for_its_caller() -> None:
    driver = Liar()
    driver.answer = Machine(name="m-1", machine_id="half a character: \ud800")
    async with small_hub() as hub, running(driver, hub.address, speech=Speech.V0):
        visit = await hub.old_visit()
        assert "UnicodeEncodeError" in (await visit.ask("create", name="m-1")).createresponse.error


async def test_an_error_with_half_a_character_is_sent_without_it() -> None:
    driver = GatedDriver()
    driver.fails = MachineError(Code.RESOURCE_EXHAUSTED, "no more of \ud800")
    async with small_hub() as hub, running(driver, hub.address, speech=Speech.V0):
        visit = await hub.old_visit()
        assert "no more of ?" in (await visit.ask("create", name="m-1")).createresponse.error
