"""A router in the configuration file: other clouds of the file by their names, checked before anything is started."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudgraft.app.engine_wiring import desired_state
from cloudgraft.config import ConfigError, load
from cloudgraft.conformance.driver import DriverSettings, Trouble
from cloudgraft.conformance.report import Status
from cloudgraft.drivers.router.driver import RouterDriver, drivers_within
from cloudgraft.drivers.router.share import SharedDriver
from cloudgraft.sdk.driver import Driver, MachineSpec
from cloudgraft.simcloud.driver import SimulatedDriver
from tests.conformance.judging import judged

SHAPES = {"any": [{"cloud": "rack", "machine": {"shape": "small"}}, {"cloud": "burst", "machine": {"shape": "medium"}}]}
TROUBLES: Mapping[Trouble, Mapping[str, Any]] = {
    Trouble.QUOTA: {"quota": 0},
    Trouble.STOCK_OUT: {"stock": {"small": 0, "medium": 0}},
    Trouble.AWAY: {"url": "http://127.0.0.1:9"},
}
NOT_JUDGED = [
    "a_crash_in_mid_create_adds_one_at_most",  # see the test that kills a server
    "a_list_has_every_page",
    "a_lost_answer_is_an_unknown_outcome",  # its clouds' drivers answer for that
    "a_second_create_adds_nothing",  # this and the rest: a create is not idempotent
    "a_second_create_is_answered_as_declared",
    "of_two_with_one_name_one_is_deleted",
    "two_creates_of_one_name_at_once",
]


def document(**changes: Any) -> dict[str, Any]:
    """Two simulated clouds in this process, a router over them, and a group of it."""
    capacity = {"cpu": "1", "memory": "1Gi", "pods": 100, "ephemeral-storage": "10Gi"}
    clouds: dict[str, Any] = {
        "rack": {"driver": "simulated", "bootTime": "20ms", "deleteTime": "0s"},
        "burst": {"driver": "simulated", "bootTime": "20ms", "deleteTime": "0s"},
        "any": {"driver": "router", "shapes": SHAPES},
    }
    for name, more in changes.pop("clouds", {}).items():
        clouds[name] = {**clouds.get(name, {}), **more}
    group = {"id": "g", "cloud": "any", "maxSize": 9, "machine": {"shape": "any"}, "template": {"capacity": capacity}}
    group |= changes.pop("group", {})
    return {"cluster": "c", "clouds": clouds, "nodeGroups": [group], **changes}


def plan(directory: Path, **changes: Any) -> Any:
    file = directory / "cloudgraft.yaml"
    file.write_text(yaml.safe_dump(document(**changes), sort_keys=False), "utf-8")
    return desired_state(load(file))


def problems(directory: Path, **changes: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        plan(directory, **changes)
    return "\n".join(str(problem) for problem in raised.value.problems)


@pytest.mark.thorough
async def test_conformance_is_passed_over_two_simulated_clouds(tmp_path: Path) -> None:
    """The first has room for some of the machines only, so that both are used."""
    made = plan(tmp_path, clouds={"rack": {"stock": {"small": 2}}})
    # Drivers come and go, and the clouds live in them: one is kept, as their own workers do in a server.
    kept = [made.clouds[name].make() for name in ("rack", "burst")]
    for driver in kept:
        await driver.start()

    def troubled(trouble: Trouble) -> Driver | None:
        options = TROUBLES.get(trouble)
        if options is None:
            return None
        home = tmp_path / trouble.name
        home.mkdir(exist_ok=True)
        driver: Driver = plan(home, clouds={"rack": options, "burst": options}).clouds["any"].make()
        return driver

    settings = DriverSettings(machine={"shape": "any"}, at_once=4, interruptions=2, troubled=troubled)
    report = await judged(made.clouds["any"].make, settings)
    skipped = sorted(result.check for result in report.results if result.status is Status.SKIPPED)
    for driver in kept:
        await driver.close()
    assert skipped == NOT_JUDGED


async def test_a_cloud_and_the_routers_over_it_have_one_driver_that_lives_as_long_as_any_of_them(
    tmp_path: Path,
) -> None:
    first = plan(tmp_path)
    rack, any_ = first.clouds["rack"].make(), first.clouds["any"].make()
    assert isinstance(rack, SharedDriver)
    assert isinstance(any_, RouterDriver)
    await rack.start()
    await any_.start()
    machine = await any_.create(MachineSpec(name="m-1", group="g", settings={"shape": "any"}))
    assert [f"rack/{one.machine_id}" for one in await rack.list()] == [machine.machine_id]
    again = plan(tmp_path)  # a reload, which changed nothing for the cloud
    assert again.clouds["rack"].fingerprint == first.clouds["rack"].fingerprint
    other = again.clouds["rack"].make()
    await other.start()
    assert other.inner is rack.inner
    assert next(iter(drivers_within(any_))) is rack.inner
    assert list(drivers_within(rack)) == list(drivers_within(rack.inner)) == [rack.inner]
    await any_.close()
    await rack.close()
    assert [one.name for one in await other.list()] == ["m-1"], "it is still needed"
    inner = other.inner
    await other.close()
    assert other.inner is not inner
    assert isinstance(other.inner, SimulatedDriver)
    changed = plan(tmp_path, clouds={"rack": {"quota": 1}})
    assert changed.clouds["any"].fingerprint != first.clouds["any"].fingerprint, "its router is made anew as well"


def test_what_a_template_says_goes_into_the_machines_of_the_group(tmp_path: Path) -> None:
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    template = {**document()["nodeGroups"][0]["template"], "labels": {"pool": "any"}, "taints": [taint]}
    (group,) = plan(tmp_path, group={"template": template}).groups
    assert group.machine == {"shape": "any", "labels": {"pool": "any"}, "taints": [taint]}


def test_mistakes_are_told_with_their_places_and_all_at_once(tmp_path: Path) -> None:
    shapes = {
        "any": [{"cloud": "rak", "machine": {"shape": "small"}}, {"cloud": "rack", "machine": {"shap": "small"}}],
        "other": [{"cloud": "second", "machine": {"shape": "any"}}],
    }
    clouds = {"any": {"shapes": shapes, "coolDwn": "1m"}, "second": {"driver": "router", "shapes": SHAPES}}
    told = problems(tmp_path, clouds=clouds)
    assert "clouds.any.coolDwn" in told
    told = problems(tmp_path, clouds={**clouds, "any": {"shapes": shapes}})
    for part in (
        "clouds.any.shapes.any[0].cloud: there is no cloud 'rak'",
        "did you mean rack",
        "clouds.any.shapes.any[1].machine.shap",
        "clouds.any.shapes.other[0].cloud: second is a router",
    ):
        assert part in told, told


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"shapes": {}}, "shapes: must not be empty"),
        ({"shapes": {"any": []}}, "shapes.any: names no cloud"),
        ({"shapes": {"any": [SHAPES["any"][0], SHAPES["any"][0]]}}, "names the cloud rack twice"),
        ({"order": "dearest"}, "clouds.any.order"),
        ({"coolDown": "-1s"}, "coolDown"),
    ],
)
def test_what_can_never_work_is_refused(tmp_path: Path, options: dict[str, Any], expected: str) -> None:
    assert expected in problems(tmp_path, clouds={"any": options})


def test_a_group_names_a_shape_of_its_router(tmp_path: Path) -> None:
    told = problems(tmp_path, group={"machine": {"shape": "anny"}})
    assert "nodeGroups[0].machine.shape: the router any has no shape 'anny'" in told
    assert "any" in told.partition("anny")[2]


def test_labels_and_taints_of_one_cloud_that_the_template_does_not_promise_are_refused(tmp_path: Path) -> None:
    own = {"shape": "small", "labels": {"pool": "rack"}, "taints": [{"key": "k", "value": "v"}]}
    shapes = {"any": [{"cloud": "rack", "machine": own}, SHAPES["any"][1]]}
    told = problems(tmp_path, clouds={"any": {"shapes": shapes}})
    assert "nodeGroups[0].template.labels: differs from what cloud rack gives to nodes of shape any: pool=rack" in told
    assert (
        "nodeGroups[0].template.taints: differs from what cloud rack gives to nodes of shape any: k=v:NoSchedule"
        in told
    )
    taints = [{"key": "k", "value": "v", "effect": "NoSchedule"}]
    template = {**document()["nodeGroups"][0]["template"], "labels": {"pool": "rack"}, "taints": taints}
    plan(tmp_path, clouds={"any": {"shapes": shapes}}, group={"template": template})


def test_a_cloud_that_hangs_must_be_given_up_before_the_list_of_all_is(tmp_path: Path) -> None:
    """Law 6."""
    told = problems(tmp_path, clouds={"any": {"listTimeout": "60s"}})
    assert "listTimeout" in told
    assert "less than engine.listTimeout of this cloud, which is 60s" in told
    plan(tmp_path, clouds={"any": {"listTimeout": "60s", "engine": {"listTimeout": "2m"}}})


def test_a_guard_of_one_cloud_that_its_router_would_pass_by_is_refused(tmp_path: Path) -> None:
    """Law 10."""
    clouds: dict[str, Any] = {"burst": {"engine": {"guards": {"maxMachines": 5}}}}
    told = problems(tmp_path, clouds=clouds)
    assert (
        "clouds.any.engine: has no maxMachines, and that of cloud burst does not count what this router makes" in told
    )
    plan(tmp_path, clouds={**clouds, "any": {"engine": {"guards": {"maxMachines": 7}}}})
    plan(tmp_path, clouds=clouds, guards={"maxMachines": 9})


def test_a_router_over_a_cloud_that_is_only_observed_is_only_observed_too(tmp_path: Path) -> None:
    """Else it would make machines there."""

    def observed(**changes: Any) -> dict[str, bool]:
        return {name: cloud.settings.observe_only for name, cloud in plan(tmp_path, **changes).clouds.items()}

    assert observed() == {"rack": False, "burst": False, "any": False}
    one = {"burst": {"engine": {"observeOnly": True}}}
    assert observed(clouds=one) == {"rack": False, "burst": True, "any": True}
    assert observed(clouds={"any": {"engine": {"observeOnly": True}}}) == {"rack": False, "burst": False, "any": True}
    assert observed(observeOnly=True) == {"rack": True, "burst": True, "any": True}


@pytest.mark.parametrize("where", ["file", "cloud"])
def test_observe_only_is_true_or_false(tmp_path: Path, where: str) -> None:
    if where == "file":
        assert "observeOnly: must be true or false" in problems(tmp_path, observeOnly="yes, please")
    else:
        told = problems(tmp_path, clouds={"rack": {"engine": {"observeOnly": 1}}})
        assert "clouds.rack.engine.observeOnly: must be true or false" in told


def test_the_guard_of_deletions_is_read_for_all_clouds_and_for_one(tmp_path: Path) -> None:
    clouds = {"rack": {"engine": {"guards": {"maxDeletesPerHour": 2}}}}
    made = plan(tmp_path, clouds=clouds, guards={"maxDeletesPerHour": 5})
    assert made.settings.guards.max_deletes_per_hour == 5
    assert made.clouds["rack"].settings.guards.max_deletes_per_hour == 2
    assert "guards.maxDeletesPerHour" in problems(tmp_path, guards={"maxDeletesPerHour": -1})
