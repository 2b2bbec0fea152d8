"""CloudSigma: a create has several steps, and may stop after each; over a socket."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cloudgraft.drivers.libcloud.cloudsigma import Cloudsigma
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    CloudgraftError,
    ConflictError,
    DeadlineError,
    InvalidArgumentError,
    OutOfStockError,
    PermissionDeniedError,
    QuotaExceededError,
    UnavailableError,
)
from clouds.servers.libcloud_cases import CLOUDS
from clouds.servers.libcloud_cloudsigma import IMAGE, FakeCloudsigma
from clouds.servers.libcloud_fake import Answer, Asked, Fake
from tests.drivers.libcloud.libcloud_driving import NAME, TAGS, driver, opened, spec

SIGMA = "CLOUDSIGMA"
OLD = "2020-01-01T00:00:00+00:00"


@pytest.fixture
def sigma() -> Iterator[Fake]:
    with opened(SIGMA) as fake:
        yield fake


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cloudsigma, "pause", 0.01)


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes only while the driver pauses: what is done within a limit does not depend on this machine."""
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    module = "cloudgraft.drivers.libcloud"
    monkeypatch.setattr(f"{module}.cloudsigma.time", SimpleNamespace(sleep=sleep, monotonic=lambda: now))
    monkeypatch.setattr(f"{module}.wire.time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(Cloudsigma, "pause", 10.0)


def cloud_of(fake: Fake) -> FakeCloudsigma:
    assert isinstance(fake.cloud, FakeCloudsigma)
    return fake.cloud


def calls(asked: list[Asked]) -> list[str]:
    return [
        " ".join(
            [one.method, one.path.removeprefix("/api/2.0"), *(f"{k}={one.query[k]}" for k in KEYS if k in one.query)]
        )
        for one in asked
    ]


KEYS = ("name", "do", "recurse")


def told(status: int, kind: str, message: str) -> Answer:
    return Answer(status, [{"error_type": kind, "error_message": message, "error_point": None}])


# -- create ------------------------------------------------------------------------------------------------------------


def test_a_drive_is_cloned_a_server_made_and_started_and_both_go_together(sigma: Fake, tmp_path: Path) -> None:
    one = driver(SIGMA, sigma, tmp_path)
    made = one.create(spec(SIGMA))
    assert calls(sigma.asked) == [
        f"GET /servers/detail/ name={NAME}",
        f"GET /drives/detail/ name={NAME}",
        f"POST /drives/{IMAGE}/action/ do=clone",
        "GET /drives/d0000000-101/",
        "POST /servers/",
        "POST /servers/50000000-102/action/ do=start",
    ]
    clone = sigma.asked[2].body
    assert clone["meta"].pop("cloudgraft-made")
    assert clone == {"name": NAME, "size": 20 * 1024**3, "meta": TAGS}
    assert made.state is MachineState.PENDING
    assert made.tags == TAGS  # and no user data
    (listed,) = one.list()
    assert listed.addresses == ("94.26.101.149",)
    before = len(sigma.asked)
    one.delete(listed)
    assert calls(sigma.asked[before:]) == [
        "GET /servers/50000000-102/",
        "POST /servers/50000000-102/action/ do=stop",
        "GET /servers/50000000-102/",
        "DELETE /servers/50000000-102/ recurse=all_drives",
    ]
    assert (cloud_of(sigma).machines, cloud_of(sigma).drives) == ({}, {})


def test_keys_and_a_firewall_are_in_the_order(sigma: Fake, tmp_path: Path) -> None:
    machine = {**CLOUDS[SIGMA].machine, "shape": "medium-3", "sshKeys": ["key-1"], "securityGroups": ["wall"]}
    del machine["diskSize"]
    driver(SIGMA, sigma, tmp_path).create(spec(SIGMA, settings=machine))
    order = sigma.sent("POST", "/servers/")[0].body
    assert order["pubkeys"] == ["key-1"]
    assert [nic.get("firewall_policy") for nic in order["nics"]] == ["wall", None]
    assert (order["cpu"], order["smp"], order["mem"]) == (8000, 4, 8192 * 1024**2)
    assert sigma.sent("POST", "clone")[0].body["size"] == 80 * 1024**3


STEPS = ["clone", "/servers/", "start"]


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("step", STEPS)
def test_interrupted_create_is_continued(sigma: Fake, tmp_path: Path, step: str, *, is_done: bool) -> None:
    one = driver(SIGMA, sigma, tmp_path)
    fault: dict[str, Any] = {"is_reset": True} if is_done else {"answer": told(500, "backend", "it fell over")}
    with sigma.trouble(method="POST", path=step, **fault), pytest.raises(DeadlineError):
        one.create(spec(SIGMA))
    seen = [machine.name for machine in one.list()]
    assert seen == ([NAME] if step == "start" and is_done else [])  # half of one must not be taken for one
    again = driver(SIGMA, sigma, tmp_path).create(spec(SIGMA))  # of a program that was started anew
    (listed,) = one.list()
    assert (listed.machine_id, listed.state) == (again.machine_id, MachineState.RUNNING)
    cloud = cloud_of(sigma)
    assert (len(cloud.machines), len(cloud.drives)) == (1, 1)
    assert listed.tags == TAGS


def test_a_second_create_is_the_first_machine(sigma: Fake, tmp_path: Path) -> None:
    one = driver(SIGMA, sigma, tmp_path)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(one.create, [spec(SIGMA)] * 4))
    assert len({machine.machine_id for machine in made}) == 1
    assert (len(cloud_of(sigma).machines), len(cloud_of(sigma).drives)) == (1, 1)


def test_a_clone_without_marks_is_marked(sigma: Fake, tmp_path: Path) -> None:
    cloud_of(sigma).drops_meta = True
    driver(SIGMA, sigma, tmp_path).create(spec(SIGMA))
    (drive,) = cloud_of(sigma).drives.values()
    assert {**drive["meta"], "cloudgraft-made": ""} == {"os": "linux", **TAGS, "cloudgraft-made": ""}


@pytest.mark.parametrize(
    ("step", "answer", "error"),
    [
        ("clone", told(402, "billing", "not enough funds"), QuotaExceededError),
        ("clone", told(503, "backend", "We currently cannot provide enough resources"), OutOfStockError),
        ("clone", told(404, "notexist", "Object does not exist"), InvalidArgumentError),
        ("/servers/", told(400, "validation", "mem is too small"), InvalidArgumentError),
        ("/servers/", told(403, "permission", "not allowed"), PermissionDeniedError),
        ("start", told(402, "billing", "not enough funds"), QuotaExceededError),
        ("start", told(503, "backend", "We currently cannot provide enough resources"), OutOfStockError),
    ],
)
def test_what_is_refused_leaves_nothing_behind(
    sigma: Fake, tmp_path: Path, step: str, answer: Answer, error: type[CloudgraftError]
) -> None:
    one = driver(SIGMA, sigma, tmp_path)
    with sigma.trouble(method="POST", path=step, answer=answer), pytest.raises(CloudgraftError) as caught:
        one.create(spec(SIGMA))
    assert type(caught.value) is error
    assert "a-very-secret-token" not in caught.value.message
    assert (cloud_of(sigma).machines, cloud_of(sigma).drives) == ({}, {})


def test_rate_limit_midway_leaves_the_create_to_be_continued(sigma: Fake, tmp_path: Path) -> None:
    one = driver(SIGMA, sigma, tmp_path)
    for _ in range(2):  # also when the drive was there before
        with sigma.trouble(method="POST", path="/servers/", answer=Answer(429)), pytest.raises(DeadlineError):
            one.create(spec(SIGMA))
    one.create(spec(SIGMA))
    assert len(sigma.sent("POST", "clone")) == 1


def test_a_drive_that_went_bad_is_removed(sigma: Fake, tmp_path: Path) -> None:
    bad = Answer(200, {"uuid": "d0000000-101", "name": NAME, "status": "unavailable", "meta": {}, "mounted_on": []})
    fault = sigma.trouble(method="GET", path="/drives/d0000000-101/", answer=bad)
    with fault, pytest.raises(UnavailableError, match="its drive is unavailable"):
        driver(SIGMA, sigma, tmp_path).create(spec(SIGMA))
    assert cloud_of(sigma).drives == {}


@pytest.mark.usefixtures("by_hand")
def test_a_clone_without_end_is_given_up_and_not_forgotten(
    sigma: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = driver(SIGMA, sigma, tmp_path)
    cloud_of(sigma).is_cloning = True
    monkeypatch.setattr(Cloudsigma, "create_limit", timedelta(minutes=2))
    with pytest.raises(DeadlineError):
        one.create(spec(SIGMA))
    assert one.list() == []
    monkeypatch.setattr(Cloudsigma, "made_within", timedelta(0))
    (left,) = one.list()
    assert (left.name, left.state, left.tags) == (NAME, MachineState.FAILED, {"os": "linux", **TAGS})


@pytest.mark.usefixtures("by_hand")
def test_a_drive_without_marks_gets_them_while_it_is_cloned(
    sigma: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody would ever find it, when the create is not called again."""
    one = driver(SIGMA, sigma, tmp_path)
    cloud_of(sigma).is_cloning = cloud_of(sigma).drops_meta = True
    monkeypatch.setattr(Cloudsigma, "create_limit", timedelta(minutes=2))
    with pytest.raises(DeadlineError):
        one.create(spec(SIGMA))
    assert one.list() == []
    monkeypatch.setattr(Cloudsigma, "made_within", timedelta(0))
    (left,) = one.list()
    assert (left.state, left.tags) == (MachineState.FAILED, {"os": "linux", **TAGS})
    one.delete(left)
    assert cloud_of(sigma).drives == {}


@pytest.mark.usefixtures("by_hand")
def test_marks_refused_during_cloning_are_set_later(
    sigma: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = driver(SIGMA, sigma, tmp_path)
    cloud_of(sigma).is_cloning = cloud_of(sigma).drops_meta = True
    busy = told(400, "validation", "The drive is cloning_dst")
    with monkeypatch.context() as hurried, sigma.trouble(method="PUT", path="/drives/", answer=busy):
        hurried.setattr(Cloudsigma, "create_limit", timedelta(minutes=2))
        with pytest.raises(DeadlineError, match="the next create continues it"):
            one.create(spec(SIGMA))
    cloud_of(sigma).is_cloning = False
    one.create(spec(SIGMA))
    (drive,) = cloud_of(sigma).drives.values()
    assert TAGS.items() <= drive["meta"].items()
    assert len(sigma.sent("POST", "clone")) == 1


# -- what others have --------------------------------------------------------------------------------------------------


def meanwhile(fake: Fake, action: str, status: str) -> None:
    """Another has told a server so, just before we do."""
    answer = fake.cloud.answer

    def quicker(asked: Asked) -> Answer:
        if asked.query.get("do") == action:
            for server in fake.cloud.machines.values():
                server["status"] = status
        return answer(asked)

    fake.cloud.answer = quicker  # type: ignore[method-assign]


def test_a_server_that_another_has_started_is_the_machine(sigma: Fake, tmp_path: Path) -> None:
    meanwhile(sigma, "start", "running")
    made = driver(SIGMA, sigma, tmp_path).create(spec(SIGMA))
    assert list(cloud_of(sigma).machines) == [made.machine_id]


def test_a_server_that_stops_by_itself_is_deleted(sigma: Fake, tmp_path: Path) -> None:
    one = driver(SIGMA, sigma, tmp_path)
    one.create(spec(SIGMA))
    (made,) = one.list()
    meanwhile(sigma, "stop", "stopped")
    one.delete(made)
    assert (cloud_of(sigma).machines, cloud_of(sigma).drives) == ({}, {})


def test_server_started_by_another_is_not_removed_after_a_refusal(sigma: Fake, tmp_path: Path) -> None:
    one = driver(SIGMA, sigma, tmp_path)
    answer, refused = sigma.cloud.answer, told(400, "validation", "no")

    def twice(asked: Asked) -> Answer:
        """Another program makes the server and starts it, and then ours is refused."""
        found = answer(asked)
        if asked.method == "POST" and asked.path.endswith("/servers/"):
            for server in sigma.cloud.machines.values():
                server["status"] = "running"
            return refused
        return found

    sigma.cloud.answer = twice  # type: ignore[method-assign]
    with pytest.raises(DeadlineError, match="started by another"):
        one.create(spec(SIGMA))
    assert [machine.state for machine in one.list()] == [MachineState.RUNNING]


@pytest.mark.parametrize("step", ["/servers/", "start"])
def test_what_another_cluster_made_by_this_name_is_not_touched(sigma: Fake, tmp_path: Path, step: str) -> None:
    one = driver(SIGMA, sigma, tmp_path)
    with sigma.trouble(method="POST", path=step, answer=told(500, "backend", "no")), pytest.raises(DeadlineError):
        one.create(spec(SIGMA, tags={**TAGS, "cloudgraft-cluster-id": "zzzzzzzzzz"}))
    before = len(sigma.asked)
    with pytest.raises(AlreadyExistsError, match="other marks"):
        one.create(spec(SIGMA))
    assert {asked.method for asked in sigma.asked[before:]} == {"GET"}


def test_a_server_of_this_name_without_marks_is_not_ours(sigma: Fake, tmp_path: Path) -> None:
    one = driver(SIGMA, sigma, tmp_path)
    one.create(spec(SIGMA))
    (server,) = cloud_of(sigma).machines.values()
    server["meta"] = {}
    with pytest.raises(AlreadyExistsError, match="not ours"):
        one.create(spec(SIGMA))


def test_a_volume_that_hangs_on_a_server_stays(sigma: Fake, tmp_path: Path) -> None:
    one, cloud = driver(SIGMA, sigma, tmp_path), cloud_of(sigma)
    made = one.create(spec(SIGMA))
    volume = {"uuid": "data", "name": "pvc-1", "status": "mounted", "meta": {}, "mounted_on": [{"uuid": "x"}]}
    cloud.drives["data"] = volume
    cloud.machines[made.machine_id]["drives"].append({"boot_order": None, "drive": {"uuid": "data"}})
    one.delete(made)
    assert (cloud.machines, list(cloud.drives)) == ({}, ["data"])
    assert one.list() == []


# -- list --------------------------------------------------------------------------------------------------------------


def test_abandoned_drive_is_listed_and_deleted(sigma: Fake, tmp_path: Path) -> None:
    one, cloud = driver(SIGMA, sigma, tmp_path), cloud_of(sigma)
    refused = told(500, "backend", "no")
    with sigma.trouble(method="POST", path="/servers/", answer=refused), pytest.raises(DeadlineError):
        one.create(spec(SIGMA))
    cloud.drives["theirs"] = {**cloud.drives["d0000000-101"], "uuid": "theirs", "name": "data", "meta": {}}
    assert one.list() == []  # for now
    cloud.drives["d0000000-101"]["meta"]["cloudgraft-made"] = OLD
    (left,) = one.list()
    assert (left.name, left.state, left.provider_id) == (NAME, MachineState.FAILED, None)
    assert "never was, or is gone" in left.reason
    one.delete(left)
    assert list(cloud.drives) == ["theirs"]
    one.delete(left)  # gone already


def test_drive_with_a_server_is_never_a_leftover(sigma: Fake, tmp_path: Path) -> None:
    one, cloud = driver(SIGMA, sigma, tmp_path), cloud_of(sigma)
    one.create(spec(SIGMA))
    (server,), (drive,) = cloud.machines.values(), cloud.drives.values()
    drive["meta"]["cloudgraft-made"] = OLD
    server["name"] = "renamed"
    (renamed,) = one.list()
    assert renamed.tags == TAGS
    server["name"] = NAME
    drive |= {"status": "unmounted", "mounted_on": []}  # taken off
    assert [machine.state for machine in one.list()] == [MachineState.RUNNING]
    drive |= {"status": "mounted", "mounted_on": [{"uuid": server["uuid"]}]}
    server["name"] = "renamed"
    one.delete(replace(renamed, name=NAME))  # as the journal knows it
    assert (cloud.machines, cloud.drives) == ({}, {})


def test_a_server_that_was_deleted_by_hand_leaves_a_drive_that_goes_too(sigma: Fake, tmp_path: Path) -> None:
    one, cloud = driver(SIGMA, sigma, tmp_path), cloud_of(sigma)
    made = one.create(spec(SIGMA))
    cloud.machines.clear()
    (drive,) = cloud.drives.values()
    drive |= {"status": "unmounted", "mounted_on": []}
    one.delete(made)
    assert cloud.drives == {}


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("stopped", MachineState.STOPPED),
        ("unavailable", MachineState.FAILED),
        ("a-new-word", MachineState.PENDING),
    ],
)
def test_no_word_of_cloudsigmas_breaks_a_list(sigma: Fake, tmp_path: Path, status: str, state: MachineState) -> None:
    one = driver(SIGMA, sigma, tmp_path)
    one.create(spec(SIGMA))
    (server,) = cloud_of(sigma).machines.values()
    server["status"] = status
    (listed,) = one.list()
    assert listed.state is state


def test_abandoned_server_that_was_never_started_is_listed(sigma: Fake, tmp_path: Path) -> None:
    one = driver(SIGMA, sigma, tmp_path)
    refused = told(500, "backend", "no")
    with sigma.trouble(method="POST", path="start", answer=refused), pytest.raises(DeadlineError):
        one.create(spec(SIGMA))
    assert one.list() == []
    (server,) = cloud_of(sigma).machines.values()
    server["meta"]["cloudgraft-made"] = OLD
    assert [machine.state for machine in one.list()] == [MachineState.STOPPED]


def test_a_young_server_that_was_seen_to_run_and_was_stopped_is_shown(sigma: Fake, tmp_path: Path) -> None:
    driver(SIGMA, sigma, tmp_path).create(spec(SIGMA))
    another = driver(SIGMA, sigma, tmp_path)  # a program that did not make it
    another.list()
    (server,) = cloud_of(sigma).machines.values()
    server["status"] = "stopped"
    assert [machine.state for machine in another.list()] == [MachineState.STOPPED]


def test_pages_are_read_to_the_last_one_and_counted(sigma: Fake, tmp_path: Path) -> None:
    one = driver(SIGMA, sigma, tmp_path)
    names = [f"lab-{number}" for number in range(7)]
    for name in names:
        one.create(spec(SIGMA, name=name))
    cloud_of(sigma).most = 3
    before = len(sigma.asked)
    assert sorted(machine.name for machine in one.list()) == names
    assert [asked.query["offset"] for asked in sigma.asked[before:]] == ["0", "3", "6"] * 2
    short = Answer(200, {"meta": {"total_count": 4}, "objects": []})
    with sigma.trouble(method="GET", path="/servers/detail/", answer=short), pytest.raises(ConflictError):
        one.list()


@pytest.mark.usefixtures("by_hand")
def test_a_server_that_does_not_stop_is_tried_again(
    sigma: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = driver(SIGMA, sigma, tmp_path)
    one.create(spec(SIGMA))
    (made,) = one.list()
    monkeypatch.setattr("cloudgraft.drivers.libcloud.driver._DELETE_LIMIT", timedelta(minutes=2))
    running = Answer(200, {**cloud_of(sigma).machines[made.machine_id], "status": "running"})
    with sigma.trouble(method="GET", path=f"/servers/{made.machine_id}/", answer=running), pytest.raises(DeadlineError):
        one.delete(made)
    assert len(sigma.sent("POST", "stop")) == 1
    one.delete(Machine(name=made.name, machine_id=made.machine_id))
    assert (cloud_of(sigma).machines, cloud_of(sigma).drives) == ({}, {})


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"shape": "huge"}, "there is: small-1"), ({"securityGroups": ["a", "b"]}, "takes one of machine.securityGroups")],
)
def test_what_cloudsigma_cannot_do_is_refused_before(
    sigma: Fake, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        driver(SIGMA, sigma, tmp_path).create(spec(SIGMA, settings={**CLOUDS[SIGMA].machine, **changes}))
    assert sigma.asked == []


def test_a_region_that_libcloud_does_not_know_is_refused(sigma: Fake, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"there is: .*zrh"):
        driver(SIGMA, sigma, tmp_path, region="moon")
