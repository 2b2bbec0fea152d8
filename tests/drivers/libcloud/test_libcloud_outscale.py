"""Outscale's own API: exact requests, ownership and errors; over a socket."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.drivers.libcloud.driver import LibcloudDriver
from cloudgraft.drivers.libcloud.options import LibcloudOptions
from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    DeadlineError,
    InvalidArgumentError,
    OutOfStockError,
    PermissionDeniedError,
    QuotaExceededError,
)
from clouds.servers.libcloud_fake import Answer, Fake
from clouds.servers.libcloud_outscale import refusal
from tests.drivers.libcloud.libcloud_driving import NAME, USER_DATA, driver, opened, spec

CREATE = "/api/v1/CreateVms"


@pytest.fixture
def fake() -> Iterator[Fake]:
    with opened("OUTSCALE") as one:
        yield one


@pytest.fixture
def one(fake: Fake, tmp_path: Path) -> LibcloudDriver:
    return driver("OUTSCALE", fake, tmp_path)


ORDER = {
    "DryRun": False,
    "BootOnCreation": True,
    "BsuOptimized": False,
    "DeletionProtection": False,
    "ImageId": "ami-1",
    "VmType": "tinav5.c2r4p2",
    "ClientToken": NAME,
    "MinVmsCount": 1,
    "MaxVmsCount": 1,
    "UserData": base64.b64encode(USER_DATA.encode()).decode(),
}
MORE = {
    "zone": "eu-west-2b",
    "networks": ["subnet-1"],
    "securityGroups": ["sg-1", "sg-2"],
    "sshKeys": ["admin"],
    "diskSize": 40,
}
SENT = {
    "Placement": {"SubregionName": "eu-west-2b"},
    "SubnetId": "subnet-1",
    "SecurityGroupIds": ["sg-1", "sg-2"],
    "KeypairName": "admin",
    "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Bsu": {"VolumeSize": 40, "DeleteOnVmDeletion": True}}],
}


@pytest.mark.parametrize(("more", "sent"), [({}, {}), (MORE, SENT)])
def test_one_signed_call_makes_a_machine(
    more: dict[str, Any], sent: dict[str, Any], fake: Fake, one: LibcloudDriver
) -> None:
    made = one.create(spec("OUTSCALE", settings={"shape": "tinav5.c2r4p2", "image": "ami-1", **more}))
    (asked,) = fake.asked
    assert (asked.method, asked.path, asked.body) == ("POST", CREATE, {**ORDER, **sent})
    assert asked.headers["host"] == "api.eu-west-2.outscale.com"
    assert (made.name, list(fake.cloud.machines)) == (NAME, [made.machine_id])


def test_a_list_asks_for_whole_pages_and_a_deletion_names_one_machine(fake: Fake, one: LibcloudDriver) -> None:
    made = [one.create(spec("OUTSCALE", name=f"lab-{number}")) for number in range(4)]
    before = len(fake.asked)
    one.list()
    one.delete(made[0])
    first, second, deletion = fake.asked[before:]
    assert (first.path, first.body) == ("/api/v1/ReadVms", {"ResultsPerPage": 1000})
    assert second.body == {"ResultsPerPage": 1000, "NextPageToken": base64.b64encode(b"3").decode()}
    assert (deletion.path, deletion.body) == ("/api/v1/DeleteVms", {"VmIds": [made[0].machine_id]})


def test_repeated_call_after_a_lost_response_makes_no_second_machine(fake: Fake, one: LibcloudDriver) -> None:
    with fake.trouble(method="POST", path=CREATE, is_reset=True), pytest.raises(DeadlineError):
        one.create(spec("OUTSCALE"))
    (listed,) = one.list()
    again = one.create(spec("OUTSCALE"))
    assert (again.name, again.machine_id) == (listed.name, listed.machine_id) == (NAME, *fake.cloud.machines)


def test_a_machine_without_a_token_is_not_ours_whatever_its_name(fake: Fake, one: LibcloudDriver) -> None:
    one.create(spec("OUTSCALE"))
    (ours,) = fake.cloud.machines.values()
    named = [{"Key": "Name", "Value": NAME}]
    fake.cloud.machines["i-1"] = {**ours, "VmId": "i-1", "ClientToken": "", "Tags": named}
    fake.cloud.machines["i-2"] = {key: value for key, value in ours.items() if key != "ClientToken"} | {"VmId": "i-2"}
    fake.cloud.machines["i-3"] = {**ours, "VmId": "i-3", "ClientToken": "web-1", "Tags": named}
    del ours["Tags"]
    found = {machine.machine_id: machine.name for machine in one.list()}
    assert found == {ours["VmId"]: NAME, "i-3": "web-1"}


def test_deleted_machine_is_not_listed_though_the_cloud_shows_it(fake: Fake, one: LibcloudDriver) -> None:
    one.create(spec("OUTSCALE"))
    (machine,) = fake.cloud.machines.values()
    machine["State"] = "terminated"
    assert one.list() == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refusal(400, "TooManyResources (QuotaExceded)", "10042", "the VM quota"), QuotaExceededError),
        (refusal(400, "InsufficientCapacity", "10001"), OutOfStockError),
        (refusal(401, "AccessDenied", "1"), AuthenticationError),
        (refusal(403, "AccessDenied", "4"), PermissionDeniedError),
        (refusal(400, "InvalidResource", "5023", "The ImageId doesn't exist"), InvalidArgumentError),
        (refusal(400, "InvalidParameterValue", "4047"), InvalidArgumentError),
        (refusal(500, "InternalError", "2000"), DeadlineError),
        (Answer(200, {"Errors": [{"Type": "InternalError", "Code": "2000"}]}), DeadlineError),  # no machine
        (Answer(200, {"Vms": []}), DeadlineError),
    ],
)
def test_a_refusal_has_its_class(answer: Answer, error: type[CloudgraftError], fake: Fake, one: LibcloudDriver) -> None:
    with fake.trouble(method="POST", path=CREATE, answer=answer), pytest.raises(CloudgraftError) as caught:
        one.create(spec("OUTSCALE"))
    assert type(caught.value) is error
    assert "a-very-secret-token" not in str(caught.value)


def test_a_deletion_that_is_refused_is_not_done(fake: Fake, one: LibcloudDriver) -> None:
    made = one.create(spec("OUTSCALE"))
    guarded = refusal(400, "OperationNotSupported", "8018", "The VM is protected against deletion")
    with (
        fake.trouble(method="POST", path="DeleteVms", answer=guarded),
        pytest.raises(InvalidArgumentError, match="protected"),
    ):
        one.delete(made)
    assert [machine.machine_id for machine in one.list()] == [made.machine_id]


def test_user_data_may_be_as_long_as_the_cloud_takes_it_and_no_longer(fake: Fake, one: LibcloudDriver) -> None:
    with pytest.raises(InvalidArgumentError, match="user data has 384001 bytes"):
        one.create(spec("OUTSCALE", user_data="x" * 384_001))
    assert fake.asked == []
    one.create(spec("OUTSCALE", user_data="x" * 384_000))
    assert len(fake.asked[0].body["UserData"]) == 500 * 1024


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"key": "k"}, "region is missing"),
        ({"region": "eu-west-2"}, "key is missing"),
        ({"key": "k", "region": "evil.example/"}, "is not a region"),
        ({"key": "k", "region": "x@evil.example"}, "is not a region"),
    ],
)
def test_invalid_options_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        LibcloudDriver(LibcloudOptions(provider="OUTSCALE", secret_file=Path("s"), **given))


@pytest.mark.parametrize("many", [{"networks": ["a", "b"]}, {"sshKeys": ["a", "b"]}])
def test_more_than_it_takes_is_refused(many: dict[str, list[str]], fake: Fake, one: LibcloudDriver) -> None:
    with pytest.raises(InvalidArgumentError, match="takes one"):
        one.create(spec("OUTSCALE", settings={"shape": "tinav5.c2r4p2", "image": "ami-1", **many}))
    assert fake.asked == []
