"""Faults at AWS, or on the way there, and the driver's errors."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.drivers.ec2.driver import Ec2Driver
from cloudgraft.drivers.ec2.errors import ERRORS
from cloudgraft.sdk.driver import Machine, MachineSpec, MachineState
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    AuthenticationError,
    CloudgraftError,
    DeadlineError,
    InvalidArgumentError,
    OutOfStockError,
    PermissionDeniedError,
    PreconditionError,
    QuotaExceededError,
    RateLimitedError,
    UnavailableError,
)
from clouds.judges.ec2 import driver_for
from clouds.servers.aws_cloud import AwsCloud
from clouds.servers.aws_proxy import Fault, Kind

pytestmark = pytest.mark.xdist_group("ec2")  # moto is started once
NewSpec = Callable[..., MachineSpec]


def made_of(cloud: AwsCloud, spec: MachineSpec) -> list[str]:
    return [one["InstanceId"] for one in cloud.instances(spec.name)]


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status", "error", "words"),
    [
        ("VcpuLimitExceeded", 400, QuotaExceededError, "Service Quotas"),
        ("MaxSpotInstanceCountExceeded", 400, QuotaExceededError, "Service Quotas"),
        ("InsufficientInstanceCapacity", 500, OutOfStockError, "another zone"),
        ("InsufficientFreeAddressesInSubnet", 400, OutOfStockError, "machine.subnets"),
        ("SpotMaxPriceTooLow", 400, OutOfStockError, "spotMaxPrice"),
        ("Throttling", 400, RateLimitedError, "callsPerSecond"),
        ("ExpiredToken", 400, AuthenticationError, "write a new one"),
        ("OptInRequired", 401, PermissionDeniedError, "subscribe"),
        ("Unsupported", 400, InvalidArgumentError, "machine.zone"),
        ("InvalidSomethingNew", 400, InvalidArgumentError, "InvalidSomethingNew"),
        ("InternalError", 500, DeadlineError, "InternalError"),
        ("Unavailable", 503, DeadlineError, "Unavailable"),
    ],
)
def test_a_refusal_has_its_error_and_says_what_to_do(
    cloud: AwsCloud,
    driver: Ec2Driver,
    new_spec: NewSpec,
    code: str,
    status: int,
    error: type[CloudgraftError],
    words: str,
) -> None:
    spec = new_spec()
    cloud.proxy.order(Fault(action="RunInstances", code=code, status=status))
    with pytest.raises(error, match=words) as caught:
        driver.create(spec)
    assert type(caught.value) is error
    assert spec.name in caught.value.message
    assert made_of(cloud, spec) == []


def test_every_row_of_the_table_has_a_code_of_its_own() -> None:
    codes = [(row.code, row.text) for row in ERRORS.rows]
    assert len(set(codes)) == len(codes)
    assert all(code for code, _ in codes)


def test_rate_limit_has_retry_after_and_create_does_not_retry(
    cloud: AwsCloud, driver: Ec2Driver, new_spec: NewSpec
) -> None:
    before = len(cloud.proxy.called("RunInstances"))
    headers = {"Retry-After": "7"}
    cloud.proxy.order(Fault(action="RunInstances", code="RequestLimitExceeded", status=503, headers=headers))
    with pytest.raises(RateLimitedError) as caught:
        driver.create(new_spec())
    assert caught.value.retry_after == 7.0
    assert len(cloud.proxy.called("RunInstances")) == before + 1


def test_encoded_part_of_a_missing_permission_goes_to_the_log(
    cloud: AwsCloud, driver: Ec2Driver, new_spec: NewSpec, caplog: pytest.LogCaptureFixture
) -> None:
    text = (
        "You are not authorized to perform: ec2:RunInstances. Encoded authorization failure message: 4GIOHlTkIaWHQD0Q"
    )
    cloud.proxy.order(Fault(action="RunInstances", code="UnauthorizedOperation", status=403, message=text))
    with caplog.at_level(logging.WARNING), pytest.raises(PermissionDeniedError, match=r"use-ec2\.md") as caught:
        driver.create(new_spec())
    assert "ec2:RunInstances" in caught.value.message
    assert "4GIOHlTkIaWHQD0Q" not in caught.value.message
    assert [record.__dict__["encoded_message"] for record in caplog.records] == ["4GIOHlTkIaWHQD0Q"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"image": "ami-00000000000000000"}, "machine.image"),
        ({"shape": "t3.gigantic"}, "machine.shape"),
        ({"subnets": ["subnet-00000000"]}, "machine.subnets"),
        ({"securityGroups": ["sg-00000000"]}, "machine.securityGroups"),
        ({"launchTemplate": {"name": "none-of-it"}}, "machine.launchTemplate"),
        ({"image": "ami-00000000000000000", "rootVolume": {"size": 20}}, "machine.image"),
    ],
)
def test_what_is_not_there_is_an_invalid_argument_that_names_the_option(
    driver: Ec2Driver, new_spec: NewSpec, settings: dict[str, object], words: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        driver.create(new_spec(**settings))


def test_forbidden_image_is_an_invalid_argument(cloud: AwsCloud, driver: Ec2Driver, new_spec: NewSpec) -> None:
    message = "Not authorized for images: [ami-0123456789abcdef0]"
    cloud.proxy.order(Fault(action="RunInstances", code="AuthFailure", message=message))
    with pytest.raises(InvalidArgumentError, match=r"machine\.image"):
        driver.create(new_spec())


# -- who calls ---------------------------------------------------------------------------------------------------------


def test_wrong_credentials_are_refused_and_hidden(cloud: AwsCloud) -> None:
    key, secret = cloud.proxy.new_key()
    wrong = driver_for(cloud.options("wrong", key, f"{secret}-not"))
    with pytest.raises(AuthenticationError, match="is the secret key right") as caught:
        wrong.list()
    assert secret not in caught.value.message
    unknown = driver_for(cloud.options("unknown", "AKIANOBODYKNOWS", secret))
    with pytest.raises(AuthenticationError, match="check the access key"):
        unknown.list()


def test_a_clock_that_is_wrong_is_suspected(cloud: AwsCloud, driver: Ec2Driver, new_spec: NewSpec) -> None:
    cloud.proxy.clock_ahead = timedelta(hours=1)
    with pytest.raises(AuthenticationError, match="clock of this machine"):
        driver.list()
    with pytest.raises(AuthenticationError, match="clock of this machine"):
        driver.create(new_spec())


def test_a_key_that_was_replaced_in_its_files_is_used_at_once(cloud: AwsCloud) -> None:
    options = cloud.options("turning", "AKIANOBODYKNOWS", "not-a-secret-at-all")
    driver = driver_for(options)
    with pytest.raises(AuthenticationError):
        driver.list()
    for option, value in zip(("accessKeyIdFile", "secretAccessKeyFile"), cloud.proxy.new_key(), strict=True):
        Path(options[option]).write_text(value, "utf-8")
    driver.list()


# -- answers that do not come ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.LOST, Kind.HTML, Kind.HALF, Kind.CUT])
def test_next_create_finds_the_instance_of_an_unreadable_response(
    cloud: AwsCloud, driver: Ec2Driver, new_spec: NewSpec, kind: Kind
) -> None:
    spec = new_spec(user_data="#!/bin/sh\njoin --token abcdef.0123456789abcdef\n")
    cloud.proxy.order(Fault(kind=kind, action="RunInstances", status=502))
    with pytest.raises(DeadlineError) as caught:
        driver.create(spec)
    assert "abcdef.0123" not in caught.value.message
    (made,) = made_of(cloud, spec)
    assert driver.create(spec).machine_id == made
    assert made_of(cloud, spec) == [made]


def test_a_cloud_that_hangs_is_given_up(cloud: AwsCloud, new_spec: NewSpec) -> None:
    driver = driver_for(cloud.account("hanging"), timeout=timedelta(seconds=0.3))
    spec = new_spec()
    cloud.proxy.order(Fault(kind=Kind.HANG, times=None))
    with pytest.raises(DeadlineError, match="whether it was done is not known"):
        driver.create(spec)
    with pytest.raises(UnavailableError):
        driver.list()
    deadline = time.monotonic() + 20.0
    while not made_of(cloud, spec):  # what was given up may still be under way
        assert time.monotonic() < deadline, "it was sent, and is not made"
        time.sleep(0.02)
    assert len(made_of(cloud, spec)) == 1


@pytest.mark.parametrize("kind", [Kind.LOST, Kind.HTML, Kind.HALF])
def test_a_list_is_asked_for_twice_and_then_it_raises(cloud: AwsCloud, driver: Ec2Driver, kind: Kind) -> None:
    cloud.proxy.order(Fault(kind=kind, action="DescribeInstances", status=502))
    driver.list()
    cloud.proxy.order(Fault(kind=kind, action="DescribeInstances", status=502, times=2))
    with pytest.raises(UnavailableError):
        driver.list()


def test_the_second_page_may_break_the_list_too(cloud: AwsCloud, new_spec: NewSpec) -> None:
    driver = driver_for(cloud.account("pages"), page_size=5)
    for _ in range(6):
        driver.create(new_spec())
    assert len(driver.list()) >= 6
    cloud.proxy.order(Fault(kind=Kind.HALF, action="DescribeInstances", after=1, times=None))
    with pytest.raises(UnavailableError):
        driver.list()


def test_where_nobody_listens_nothing_was_done(cloud: AwsCloud, new_spec: NewSpec) -> None:
    driver = driver_for({**cloud.account("away"), "endpointUrl": "http://127.0.0.1:9"})
    with pytest.raises(UnavailableError, match="Nothing was done"):
        driver.create(new_spec())


@pytest.mark.parametrize("status", [200, 502])
def test_html_page_is_neither_an_empty_list_nor_a_refusal(
    cloud: AwsCloud, driver: Ec2Driver, new_spec: NewSpec, status: int
) -> None:
    """As a proxy on the way may answer to everything, and well-formed."""
    page = b"<html><body><p>Please log in</p></body></html>"
    cloud.proxy.order(Fault(kind=Kind.HTML, status=status, page=page, times=None))
    with pytest.raises(UnavailableError):
        driver.list()
    with pytest.raises(DeadlineError):
        driver.create(new_spec())


# -- one name, one instance --------------------------------------------------------------------------------------------


def test_a_create_in_other_words_is_answered_with_the_first_instance(
    cloud: AwsCloud, driver: Ec2Driver, new_spec: NewSpec
) -> None:
    """Such as with a new token to join with: AWS refuses the request, and shows the instance."""
    spec = new_spec(user_data="one")
    first = driver.create(spec)
    again = driver.create(dataclasses.replace(spec, user_data="two"))
    assert again.machine_id == first.machine_id
    assert made_of(cloud, spec) == [first.machine_id]


def test_different_create_of_an_unlisted_instance_raises_already_exists(
    cloud: AwsCloud, driver: Ec2Driver, new_spec: NewSpec
) -> None:
    cloud.proxy.lag = timedelta(hours=1)
    spec = new_spec(user_data="one")
    first = driver.create(spec)
    assert first.machine_id not in {machine.machine_id for machine in driver.list()}
    with pytest.raises(AlreadyExistsError):
        driver.create(dataclasses.replace(spec, user_data="two"))
    cloud.proxy.lag = timedelta(0)
    cloud.proxy.order(Fault(action="DescribeInstances", code="InvalidFilter"))
    with pytest.raises(AlreadyExistsError):
        driver.create(dataclasses.replace(spec, user_data="two"))


def test_a_name_whose_instance_was_terminated_makes_no_second_one(
    cloud: AwsCloud, driver: Ec2Driver, new_spec: NewSpec
) -> None:
    spec = new_spec()
    driver.delete(driver.create(spec))
    with pytest.raises(PreconditionError, match="has been terminated since"):
        driver.create(spec)
    assert made_of(cloud, spec) == []


# -- by hand -----------------------------------------------------------------------------------------------------------


def found(driver: Ec2Driver, machine: Machine) -> Machine | None:
    return next((one for one in driver.list() if one.machine_id == machine.machine_id), None)


def test_renamed_machine_is_still_known_and_terminated_one_is_gone(
    cloud: AwsCloud, driver: Ec2Driver, new_spec: NewSpec
) -> None:
    spec = new_spec()
    machine = driver.create(spec)
    cloud.client.create_tags(Resources=[machine.machine_id], Tags=[{"Key": "Name", "Value": "my-test"}])
    seen = found(driver, machine)
    assert seen is not None
    assert (seen.name, seen.tags["Name"]) == (spec.name, "my-test")
    cloud.client.stop_instances(InstanceIds=[machine.machine_id])
    stopped = found(driver, machine)
    assert stopped is not None
    assert stopped.state is MachineState.STOPPED
    cloud.terminate(machine.machine_id)
    assert found(driver, machine) is None
    driver.delete(machine)


def test_failed_launch_is_listed_with_its_reason_until_deleted(
    cloud: AwsCloud, driver: Ec2Driver, new_spec: NewSpec
) -> None:
    machine = driver.create(new_spec())
    cloud.terminate(machine.machine_id)
    cloud.proxy.break_launch(machine.machine_id, "Server.InsufficientInstanceCapacity", "no room")
    failed = found(driver, machine)
    assert failed is not None
    assert (failed.state, failed.failure, failed.reason) == (MachineState.FAILED, "out_of_stock", "no room")
    driver.delete(machine)
    assert found(driver, machine) is None


def test_instances_without_our_marks_are_not_listed(cloud: AwsCloud, driver: Ec2Driver, new_spec: NewSpec) -> None:
    spec = new_spec()
    other = cloud.client.run_instances(
        ImageId=str(spec.settings["image"]), InstanceType="t3.micro", MinCount=1, MaxCount=1
    )["Instances"][0]["InstanceId"]
    assert other not in {machine.machine_id for machine in driver.list()}
    cloud.terminate(other)
