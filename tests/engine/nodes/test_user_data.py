"""What machines are told when they boot: made right before the call, and taken back once it is of no use any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.engine.groups.desired import Joining
from cloudgraft.engine.groups.specs import EngineSettings, GuardLimits
from cloudgraft.engine.machines.outcomes import NotAsked, after
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.joining.claims import NewMachine
from cloudgraft.sdk.driver import DriverTraits, Machine, MachineSpec
from cloudgraft.sdk.errors import (
    CloudgraftError,
    DeadlineError,
    InternalError,
    PermissionDeniedError,
    UnavailableError,
)
from cloudgraft.sdk.types import Taint
from cloudgraft.store.records import Presence, State
from tests.conditions import until
from tests.engine.clusters import MemoryCluster, MemoryUserData
from tests.engine.engine_rig import fake
from tests.engine.makers import NOW, a_record
from tests.engine.scripted_cloud import TEMPLATE, Case, Cloud, declaration, desired_state, group, live, stepped

MINUTE = 60.0
TAINT = Taint(key="dedicated")
GROUP = group(template=replace(TEMPLATE, labels={"pool": "lab"}, taints=(TAINT,)), machine={"size": "s"})


class Recording(Cloud):
    """Remembers what machines were told."""

    def __init__(self, traits: DriverTraits | None = None) -> None:
        super().__init__(traits)
        self.told: dict[str, str] = {}

    async def create(self, spec: MachineSpec) -> Machine:
        self.told[spec.name] = spec.user_data
        return await super().create(spec)


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture
def user_data() -> MemoryUserData:
    return MemoryUserData()


@pytest.fixture
def cloud() -> Recording:
    return Recording(DriverTraits(provider_id="cloud://{name}", user_data_limit=4096))


@pytest.fixture
async def case(
    tmp_path: Path, cluster: MemoryCluster, user_data: MemoryUserData, cloud: Recording
) -> AsyncIterator[Case]:
    async with stepped(tmp_path, desired_state({"a": cloud}, GROUP), cluster=cluster, user_data=user_data) as made:
        yield made


async def test_a_machine_is_created_with_user_data_of_its_own(
    case: Case, cloud: Recording, user_data: MemoryUserData
) -> None:
    """The providerID is in it where the driver can tell it beforehand."""
    (name,) = await case.grow()
    assert cloud.told == {name: f"join as {name}"}
    (asked,) = user_data.made
    labels = {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "pool": "lab"}
    assert asked == NewMachine(
        name=name,
        group="g",
        cloud="a",
        provider_id=f"cloud://{name}",
        labels=labels,
        taints=(TAINT,),
        settings={"size": "s"},
        user_data_limit=4096,
    )


async def test_a_denied_token_fails_the_machine_and_asks_nothing_of_the_cloud(
    case: Case, cloud: Recording, user_data: MemoryUserData
) -> None:
    user_data.error = PermissionDeniedError("secrets may not be created in kube-system")
    await case.provider.increase_size("g", 1)
    await case.turns(2)
    (instance,) = await case.provider.instances("g")
    assert instance.error is not None
    assert (instance.error.code, instance.error.error_class) == ("user_data", 99)
    assert instance.error.message == "its user data could not be made: secrets may not be created in kube-system"
    assert cloud.told == {}
    (record,) = case.machines()
    assert (record.presence, record.attempts, record.ordered_at) == (Presence.NONE, 0, None)


@pytest.mark.parametrize("error", [UnavailableError("away"), DeadlineError("slow"), InternalError("a bug")])
async def test_what_may_pass_is_tried_again_without_settling_anything(
    case: Case, cloud: Recording, user_data: MemoryUserData, error: CloudgraftError
) -> None:
    """An unknown outcome there is none here: the cloud was not asked."""
    user_data.error = error
    await case.provider.increase_size("g", 1)
    await case.turns(2, 1)
    assert (cloud.told, case.records(State.CREATING)) == ({}, 1)
    user_data.error = None
    await case.turns(3, MINUTE)
    assert case.records(State.RUNNING) == 1
    assert len({machine.name for machine in user_data.made}) == 1, "the same name, for the same text"


async def test_when_time_is_up_it_is_told_what_was_missing(case: Case, user_data: MemoryUserData) -> None:
    user_data.error = UnavailableError("the API server is away")
    await case.provider.increase_size("g", 1)
    await case.turns(12, MINUTE)
    (instance,) = await case.provider.instances("g")
    assert instance.error is not None
    assert "its user data could not be made: the API server is away" in instance.error.message


async def test_a_machine_of_a_group_that_is_not_configured_any_more_is_not_created_without_user_data(
    case: Case, cloud: Recording, user_data: MemoryUserData
) -> None:
    """Nobody knows any more what to tell it: it would cost money, and never join."""
    user_data.error = UnavailableError("away")
    await case.provider.increase_size("g", 1)
    await case.turns(2, 1)
    case.engine.reconfigure(desired_state({"a": cloud}, group("other")))
    await case.engine.refresh()
    user_data.error = None
    await case.turns(3, MINUTE)
    assert (cloud.told, case.records(State.FAILED)) == ({}, 1)
    (instance,) = await case.provider.instances("g")
    assert instance.error is not None
    assert "its group is no longer configured" in instance.error.message


async def test_attempts_that_never_reached_the_cloud_use_up_no_guard(
    tmp_path: Path, user_data: MemoryUserData, cloud: Recording
) -> None:
    settings = EngineSettings(guards=GuardLimits(max_creates_per_hour=2))
    plan = desired_state({"a": cloud}, GROUP, settings=settings)
    async with stepped(tmp_path, plan, user_data=user_data) as case:
        user_data.error = UnavailableError("away")
        await case.provider.increase_size("g", 1)
        await case.turns(6, MINUTE)
        user_data.error = None
        await case.turns(3, MINUTE)
        assert case.records(State.RUNNING) == 1


async def test_the_time_for_user_data_is_half_of_the_time_for_the_call(tmp_path: Path) -> None:
    """The other half is the cloud's: a call that is given up on the way has an outcome that nobody knows."""

    class Hanging(MemoryUserData):
        async def make(self, machine: NewMachine) -> str:
            self.made.append(machine)
            await asyncio.Event().wait()
            return ""

    cloud, hanging = Recording(), Hanging()
    settings = replace(declaration("a", cloud).settings, create_timeout=timedelta(milliseconds=20))
    plan = desired_state({"a": cloud}, GROUP)
    plan = replace(plan, clouds={"a": replace(plan.clouds["a"], settings=settings)})
    async with live(tmp_path, plan, user_data=hanging) as engine:
        await EngineProvider(engine).increase_size("g", 1)
        (name,) = engine.fleet.machines
        observer = engine.workers["a"].observer
        await until(lambda: "was not made within 0.01 s" in observer.observation(name).calls.trouble)
        assert cloud.told == {}


def test_what_was_found_meanwhile_is_not_forgotten() -> None:
    """A list may have shown a machine of an earlier call while user data was made for the next."""
    found = a_record(state=State.BOOTING, presence=Presence.PRESENT)
    assert after(found, NotAsked(UnavailableError("away")), NOW) is None


def test_one_that_is_being_deleted_holds_nothing() -> None:
    record = a_record(state=State.DELETING, presence=Presence.UNKNOWN)
    made = after(record, NotAsked(PermissionDeniedError("no")), NOW)
    assert made is not None
    assert (made.record.state, made.record.presence, made.kind) == (State.DELETING, Presence.NONE, None)


# -- taking it back ----------------------------------------------------------------------------------------------------


async def test_credentials_are_taken_back_once_when_the_node_has_joined(
    case: Case, cluster: MemoryCluster, user_data: MemoryUserData
) -> None:
    (name,) = await case.grow()
    await case.turns(3)
    assert user_data.settled == []
    cluster.join(name)
    await case.turns(3)
    assert user_data.settled == [name]


async def test_credentials_of_a_machine_that_failed_are_taken_back(case: Case, user_data: MemoryUserData) -> None:
    user_data.error = PermissionDeniedError("half done")
    await case.provider.increase_size("g", 1)
    await case.turns(3)
    assert user_data.settled == [record.name for record in case.machines()]


async def test_credentials_of_a_machine_that_is_deleted_before_it_joined_are_taken_back(
    case: Case, user_data: MemoryUserData
) -> None:
    (name,) = await case.grow()
    (instance,) = await case.provider.instances("g")
    await case.provider.delete_nodes("g", [fake(instance)])
    await case.turns(3)
    assert user_data.settled == [name]


async def test_taking_back_is_tried_a_few_times_and_then_left(
    case: Case, cluster: MemoryCluster, user_data: MemoryUserData, caplog: pytest.LogCaptureFixture
) -> None:
    """They run out by themselves."""
    user_data.settle_error = RuntimeError("no")
    (name,) = await case.grow()
    cluster.join(name)
    with caplog.at_level(logging.WARNING, "cloudgraft.engine"):
        await case.turns(20, MINUTE)
    assert user_data.settled == [name] * 5
    assert sum("were not revoked" in record.message for record in caplog.records) == 1


async def test_taking_back_waits_for_an_api_server_that_is_away(
    case: Case, user_data: MemoryUserData, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten minutes of that must not leave credentials behind, nor a warning for every machine."""
    user_data.settle_error = UnavailableError("away")
    (name,) = await case.grow()
    (instance,) = await case.provider.instances("g")
    await case.provider.delete_nodes("g", [fake(instance)])
    with caplog.at_level(logging.WARNING, "cloudgraft.engine"):
        await case.turns(30, MINUTE)
    user_data.settled, user_data.settle_error = [], None
    await case.turns(5, MINUTE)
    assert user_data.settled == [name]
    assert not [record for record in caplog.records if "taken back" in record.message]


async def test_after_a_restart_they_are_taken_back_of_those_that_are_due(
    tmp_path: Path, case: Case, cluster: MemoryCluster, user_data: MemoryUserData, cloud: Recording
) -> None:
    joined, waiting, gone = await case.grow(3)
    user_data.settle_error = RuntimeError("crashed before it could")
    cluster.join(joined)
    instance = next(i for i in await case.provider.instances("g") if i.id == f"cloud://{gone}")
    await case.provider.delete_nodes("g", [fake(instance)])
    await case.turns(4, 1)
    await case.engine.close()
    user_data.settled, user_data.settle_error = [], None
    plan = desired_state({"a": cloud}, GROUP)
    async with stepped(tmp_path, plan, cluster=cluster, user_data=user_data, clock=case.clock) as again:
        await again.turns(3)
        assert sorted(user_data.settled) == sorted([joined, gone])
        assert again.engine.fleet.machines[waiting].state is State.RUNNING
    user_data.settled = []
    case.clock.advance(25 * 60 * MINUTE)
    async with stepped(tmp_path, plan, cluster=cluster, user_data=user_data, clock=case.clock) as later:
        await later.turns(3)
        assert user_data.settled == [], "what is a day old has run out"


async def test_taking_back_holds_nothing_up(tmp_path: Path, cluster: MemoryCluster) -> None:
    class Hanging(MemoryUserData):
        async def settle(self, name: str) -> None:
            self.settled.append(name)
            await asyncio.Event().wait()

    user_data = Hanging()
    async with live(tmp_path, desired_state({"a": Recording()}, GROUP), cluster=cluster, user_data=user_data) as engine:
        provider = EngineProvider(engine)
        await provider.increase_size("g", 6)
        await until(lambda: len(cluster.claims) == 6)
        cluster.join(*cluster.claims)
        await until(lambda: len(user_data.settled) == 4)  # at a time
        await provider.increase_size("g", 1)
        await until(lambda: len(user_data.made) == 7)


async def test_other_user_data_is_used_from_the_next_refresh_on(
    case: Case, cloud: Recording, cluster: MemoryCluster, user_data: MemoryUserData
) -> None:
    other = MemoryUserData()
    case.engine.reconfigure(desired_state({"a": cloud}, GROUP), Joining(cluster=cluster, user_data=other))
    await case.grow()
    assert (len(user_data.made), len(other.made)) == (1, 0)
    await case.engine.refresh()
    await case.grow()
    assert (len(user_data.made), len(other.made)) == (1, 1)
    case.engine.reconfigure(desired_state({"a": cloud}, GROUP), Joining())
    await case.engine.refresh()
    (last,) = await case.grow()
    assert cloud.told[last] == ""
