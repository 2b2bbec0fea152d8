"""Reports the root cause of a mistake: denied machines take no room from checks, and a list's gap is the list's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from cloudgraft.conformance.driver import judge_driver
from cloudgraft.conformance.driver.denials import Denials
from cloudgraft.conformance.report import Report, Status
from cloudgraft.sdk.blocking import BlockingDriver, as_driver
from cloudgraft.sdk.driver import DriverTraits, Machine, MachineSpec, MachineState
from cloudgraft.sdk.errors import QuotaExceededError, UnavailableError
from tests.conformance.faulty_drivers import (
    SETTINGS,
    Animal,
    FirstPageOnly,
    GoodDriver,
    KeepsMachinesToItself,
    MixesUp,
    ServerErrorIsUnavailable,
    Zoo,
)

LATE = timedelta(seconds=0.05)


class SmallZoo(Zoo):
    def __init__(self, quota: int) -> None:
        super().__init__()
        self.quota = quota

    def add(self, name: str, tags: dict[str, str]) -> Animal:
        if len(self.animals) >= self.quota:
            raise QuotaExceededError(f"no more than {self.quota} animals")
        animal = super().add(name, tags)
        animal.listed_at = time.monotonic() + LATE.total_seconds()
        return animal


class DeniesEveryThird(ServerErrorIsUnavailable):
    """Its zoo is often busy, does it all the same, and shows it late."""

    traits = replace(GoodDriver.traits, list_delay=LATE)

    async def create(self, spec: MachineSpec) -> Machine:
        before = self.zoo.born
        machine = await super().create(spec)
        if before != self.zoo.born and self.zoo.born % 3 == 0:
            raise UnavailableError("HTTP 503")
        return machine

    async def list(self) -> Sequence[Machine]:
        late = {each.ident for each in self.zoo.animals.values() if each.listed_at > time.monotonic()}
        return [machine for machine in await super().list() if machine.machine_id not in late]


async def judged_denier(quota: int, machines: int) -> tuple[Report, Zoo]:
    cloud = SmallZoo(quota)
    settings = replace(
        SETTINGS.within(machines),
        patience=timedelta(seconds=2),
        troubled=lambda trouble: DeniesEveryThird(cloud, trouble),
    )
    return await judge_driver(lambda: DeniesEveryThird(cloud), settings, quick=True), cloud


async def test_denied_machines_take_no_room_from_the_checks() -> None:
    report, cloud = await judged_denier(quota=5, machines=5)
    unclear = {result.check: result.message for result in report.results if result.status is Status.INCONCLUSIVE}
    assert not unclear
    broken = {rule for failure in report.failures for rule in failure.rules}
    assert {"D31", "D37"} <= broken
    assert (report.left_behind, cloud.animals) == ((), {})


async def test_denied_machines_count_as_machines_at_the_same_time() -> None:
    report, cloud = await judged_denier(quota=100, machines=5)
    assert cloud.most <= 5
    assert any("D31" in failure.rules for failure in report.failures)
    assert cloud.animals == {}


def test_a_refusal_for_want_of_room_is_no_machine_to_wait_for() -> None:
    denials = Denials()
    for name, error in (("full", QuotaExceededError("no room")), ("busy", UnavailableError("HTTP 503"))):
        denials.began(name)
        denials.ended(name, error)
    assert denials.unsettled == 1
    denials.settle(time.monotonic())
    assert denials.unsettled == 0


def test_a_list_proves_nothing_about_a_name_while_another_create_of_it_runs() -> None:
    denials = Denials()
    machine = Machine(name="twin", machine_id="i-1")
    denials.began("twin")
    denials.began("twin")
    denials.ended("twin", UnavailableError("HTTP 503"))
    assert not denials.seen([machine])
    denials.ended("twin", None)
    assert not denials.seen([machine])
    assert not denials.proven


async def test_a_new_driver_that_lists_nothing_breaks_the_rule_about_new_drivers() -> None:
    cloud = Zoo()
    report = await judge_driver(lambda: KeepsMachinesToItself(cloud), SETTINGS, only=["D16"])
    assert [failure.rules for failure in report.failures] == [("D16",)]


async def test_a_list_of_one_page_is_named_as_the_cause() -> None:
    cloud = Zoo()
    settings = replace(SETTINGS, at_once=10, page_size=0)
    report = await judge_driver(lambda: FirstPageOnly(cloud), settings)
    first = report.failures[0]
    assert first.rules == ("D27", "D4")
    assert "of 10 machines that create() answered with, the list has 6" in first.message
    assert "every page" in first.message
    assert all(set(failure.rules) == {"D27", "D4"} for failure in report.failures), report.failures


async def test_requests_that_are_mixed_up_are_not_called_a_gap_in_the_list() -> None:
    class NamesMixedUp(MixesUp):
        """The cloud makes each machine under the name of the last request; the answers look right."""

        def make(self, spec: MachineSpec) -> Animal:
            return self.zoo.add(spec.name, dict(spec.tags))

        async def create(self, spec: MachineSpec) -> Machine:
            return replace(await super().create(spec), name=spec.name)

    cloud = Zoo()
    report = await judge_driver(lambda: NamesMixedUp(cloud), SETTINGS, only=["many_creates_at_once"])
    assert [failure.rules for failure in report.failures] == [("D17",)]


class Sleepy(BlockingDriver):
    traits = DriverTraits()

    def create(self, spec: MachineSpec) -> Machine:
        raise UnavailableError("the zoo is closed")

    def delete(self, machine: Machine) -> None:
        raise UnavailableError("the zoo is closed")

    def list(self) -> Sequence[Machine]:
        return []


@pytest.mark.parametrize("make", [Sleepy, lambda: as_driver(Sleepy())], ids=["blocking", "wrapped"])
async def test_a_report_names_the_class_of_the_author(make: type[Sleepy]) -> None:
    report = await judge_driver(make, SETTINGS, only=["list_makes_sense"])
    assert report.server == "Sleepy"


class ShowsWhatIsBeingMade(GoodDriver):
    """Each list has another machine that is being made, with neither name nor marks yet."""

    lists = 0

    async def list(self) -> Sequence[Machine]:
        self.lists += 1
        unfinished = Machine(name="", machine_id=f"unfinished-{self.lists}", state=MachineState.PENDING)
        return [*await super().list(), unfinished]


async def test_a_machine_that_is_being_made_is_not_taken_for_one_of_others() -> None:
    zoo = Zoo()
    report = await judge_driver(lambda: ShowsWhatIsBeingMade(zoo), SETTINGS, only=["others_are_left_alone"])
    assert {result.check: result.message for result in report.results if result.status is not Status.PASSED} == {}
