"""Faults at Hetzner: the right error, no second request, complete lists, no secret in a message."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.drivers.hetzner.driver import HetznerDriver
from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    ConflictError,
    DeadlineError,
    InvalidArgumentError,
    OutOfStockError,
    PermissionDeniedError,
    PreconditionError,
    QuotaExceededError,
    RateLimitedError,
    UnavailableError,
)
from clouds.servers.hetzner_fake import FakeHetzner, Fault, Kind
from tests.drivers.hetzner.hetzner_stage import hetzner_driver, spec
from tests.drivers.slow_server import HEAD, slow_server

SECRET = "token: K10abcdef::server:very-secret-indeed"
_MARKED = {"server_type": "cx23", "image": "ubuntu-24.04", "labels": {"cloudgraft-cluster-id": "c1"}}


def test_wrong_credentials_are_called_so_and_not_shown(fake: FakeHetzner, tmp_path: Path) -> None:
    wrong = "wrong-" + "w" * 58
    driver = hetzner_driver(fake, tmp_path, token=wrong)
    for call in (driver.list, lambda: driver.create(spec("m-1"))):
        with pytest.raises(AuthenticationError, match="tokenFile") as caught:
            call()
        assert wrong not in str(caught.value)


def test_a_token_that_may_only_read_can_list_and_nothing_else(fake: FakeHetzner, tmp_path: Path) -> None:
    driver = hetzner_driver(fake, tmp_path, token=fake.read_only_token)
    assert driver.list() == []
    with pytest.raises(PermissionDeniedError, match="Read & Write"):
        driver.create(spec("m-1"))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"shape": "cx99"}, "machine.shape: the project has no 'cx99'"),
        ({"image": "plan9"}, "machine.image: the project has no 'plan9' for x86"),
        ({"image": 12345}, "image not found"),
        ({"location": "mars1"}, "location not found"),
        ({"shape": "cx11"}, "unsupported location for server type"),
        ({"networks": ["none"]}, "machine.networks: the project has no 'none'"),
        ({"networks": [99]}, "network not found"),
        ({"sshKeys": ["none"]}, "ssh_key not found"),
    ],
)
def test_what_the_project_does_not_have_is_named(
    fake: FakeHetzner, driver: HetznerDriver, settings: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        driver.create(spec("m-1", **settings))
    assert not fake.project.ever


def test_quota_and_stock_have_their_own_errors(fake: FakeHetzner, driver: HetznerDriver) -> None:
    fake.project.limit = 0
    with pytest.raises(QuotaExceededError, match="higher limit"):
        driver.create(spec("m-1"))
    fake.project.limit = None
    fake.project.sold_out = {"cx23"}
    with pytest.raises(OutOfStockError, match="another server type"):
        driver.create(spec("m-1"))


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (412, "placement_error", OutOfStockError),
        (423, "locked", ConflictError),
        (409, "conflict", ConflictError),
        (403, "maintenance", UnavailableError),
        (422, "invalid_input", InvalidArgumentError),
        (500, "server_error", DeadlineError),
        (503, "unavailable", DeadlineError),
        (422, "service_error", DeadlineError),
        (502, "bad_gateway", DeadlineError),
        (504, "timeout", DeadlineError),
        (502, "", DeadlineError),
    ],
)
def test_an_error_has_its_class_and_a_create_is_never_repeated(
    fake: FakeHetzner, driver: HetznerDriver, status: int, code: str, error: type[CloudgraftError]
) -> None:
    fake.faults.order(Fault(kind=Kind.ERROR, method="POST", status=status, code=code))
    with pytest.raises(error) as caught:
        driver.create(spec("m-1", user_data=SECRET))
    assert type(caught.value) is error
    assert fake.count("POST", "/servers") == 1


def test_rate_limit_says_when_to_retry(fake: FakeHetzner, driver: HetznerDriver) -> None:
    for headers, least, most in (
        ({"RateLimit-Reset": str(int(time.time()) + 30)}, 25.0, 30.0),
        ({"RateLimit-Reset": str(int(time.time()) + 3600)}, 60.0, 60.0),  # one more is allowed each second
        ({"RateLimit-Reset": "0"}, 1.0, 1.0),
        ({"Retry-After": "7"}, 7.0, 7.0),
    ):
        fake.faults.order(Fault(kind=Kind.ERROR, status=429, code="rate_limit_exceeded", headers=headers))
        with pytest.raises(RateLimitedError, match="observeEvery") as caught:
            driver.list()
        assert caught.value.retry_after is not None
        assert least <= caught.value.retry_after <= most


@pytest.mark.parametrize(
    "kind", [Kind.RESET_AFTER, Kind.HANG_AFTER, Kind.HALF_BODY, Kind.GARBAGE, Kind.EMPTY, Kind.ERROR_AFTER]
)
def test_a_create_whose_answer_is_lost_is_unknown_and_is_in_the_list(
    fake: FakeHetzner, driver: HetznerDriver, tmp_path: Path, kind: Kind
) -> None:
    hasty = hetzner_driver(fake, tmp_path, timeout=timedelta(seconds=0.3))
    fake.faults.order(Fault(kind=kind, method="POST"))
    with pytest.raises(DeadlineError):
        (hasty if kind is Kind.HANG_AFTER else driver).create(spec("m-1", image=161547269))
    assert len(fake.requests) == 1, "only what hangs has little time"
    assert fake.count("POST", "/servers") == 1
    assert [machine.name for machine in driver.list()] == ["m-1"]


def test_where_nobody_listens_nothing_was_done(fake: FakeHetzner, tmp_path: Path) -> None:
    driver = hetzner_driver(fake, tmp_path, endpoint="http://127.0.0.1:9/v1")
    for call in (driver.list, lambda: driver.create(spec("m-1", image=161547269))):
        with pytest.raises(UnavailableError, match="Nothing was done"):
            call()


@pytest.mark.parametrize("kind", [Kind.RESET, Kind.HANG, Kind.HALF_BODY, Kind.GARBAGE, Kind.EMPTY, Kind.ERROR])
@pytest.mark.parametrize("page", [1, 2])
def test_a_list_that_breaks_is_an_error_and_never_a_part(
    fake: FakeHetzner, tmp_path: Path, kind: Kind, page: int
) -> None:
    driver = hetzner_driver(fake, tmp_path, timeout=timedelta(seconds=0.3 if kind is Kind.HANG else 30))
    for number in range(60):
        fake.project.create({"name": f"m-{number}", **_MARKED})
    fake.faults.order(Fault(kind=kind, path="/servers", page=page, times=-1, status=503, code="unavailable"))
    with pytest.raises(UnavailableError):
        driver.list()


def test_half_a_page_is_read_again_and_then_is_an_error(fake: FakeHetzner, driver: HetznerDriver) -> None:
    for number in range(60):
        fake.project.create({"name": f"m-{number}", **_MARKED})
    fake.faults.order(Fault(kind=Kind.SHORT_PAGE, path="/servers", page=2))
    assert len(driver.list()) == 60
    fake.faults.order(Fault(kind=Kind.SHORT_PAGE, path="/servers", page=1, times=-1))
    with pytest.raises(UnavailableError, match="of 60 entries the API has shown 59"):
        driver.list()


def test_a_list_ends_when_its_time_is_over(fake: FakeHetzner, tmp_path: Path) -> None:
    driver = hetzner_driver(fake, tmp_path, list_timeout=timedelta(microseconds=1))
    with pytest.raises(UnavailableError, match="takes too long"):
        driver.list()


def test_a_delete_whose_answer_is_lost_is_unknown(fake: FakeHetzner, driver: HetznerDriver) -> None:
    made = driver.create(spec("m-1"))
    fake.faults.order(Fault(kind=Kind.RESET_AFTER, method="DELETE"))
    with pytest.raises(DeadlineError):
        driver.delete(made)
    driver.delete(made)
    assert not fake.project.alive()


def test_an_answer_that_trickles_is_given_up(fake: FakeHetzner, tmp_path: Path) -> None:
    """A byte now and then would hold one of the driver's few threads for ever."""
    with slow_server(HEAD) as url:
        driver = hetzner_driver(fake, tmp_path, endpoint=f"{url}v1", timeout=timedelta(seconds=0.3))
        with pytest.raises(DeadlineError):
            driver.create(spec("m-1", image=161547269))


def test_nothing_is_ordered_after_slow_lookups(fake: FakeHetzner, driver: HetznerDriver) -> None:
    """The engine has given the call up by then, and may believe a list that has no server."""
    driver._preparation = -1.0  # as if a minute had passed
    with pytest.raises(UnavailableError, match="Nothing was done"):
        driver.create(spec("m-1"))
    assert not fake.project.ever


def test_a_machine_without_an_id_is_not_taken_for_gone(driver: HetznerDriver) -> None:
    with pytest.raises(PreconditionError, match="no id"):
        driver.delete(Machine(name="m-1", machine_id=""))


def test_a_locked_server_is_to_be_deleted_later(fake: FakeHetzner, driver: HetznerDriver) -> None:
    made = driver.create(spec("m-1"))
    fake.project.set("m-1", locked=True)
    with pytest.raises(ConflictError):
        driver.delete(made)


def test_too_long_names_and_too_large_user_data_are_refused_before_any_call(
    fake: FakeHetzner, driver: HetznerDriver
) -> None:
    for wrong, why in (
        (spec("m" * 64), "63"),
        (spec("under_score"), "host name"),
        (spec("m-1", user_data="ü" * 16385), "32770 bytes"),
        (spec("m-1", group="g" * 64), "too long"),
        (spec("m-1", group="\ud800"), "no proper text"),
    ):
        with pytest.raises(InvalidArgumentError, match=why):
            driver.create(wrong)
    assert not fake.requests
    driver.create(spec("m" * 63, user_data="u" * 32768))


def test_user_data_is_in_no_error(fake: FakeHetzner, driver: HetznerDriver) -> None:
    fake.faults.order(Fault(kind=Kind.ERROR, method="POST", status=422, code="invalid_input", message=f"bad {SECRET}"))
    with pytest.raises(InvalidArgumentError) as caught:
        driver.create(spec("m-1", user_data=SECRET))
    assert SECRET not in str(caught.value)


def test_machines_of_another_cluster_show_its_marks_and_are_not_touched(
    fake: FakeHetzner, driver: HetznerDriver
) -> None:
    ours, theirs = driver.create(spec("m-1", cluster="c1")), driver.create(spec("m-2", cluster="c2"))
    driver.delete(ours)
    (left,) = driver.list()
    assert (left.machine_id, left.tags["cloudgraft-cluster-id"]) == (theirs.machine_id, "c2")


def test_recreated_resource_is_found_by_its_name(fake: FakeHetzner, driver: HetznerDriver) -> None:
    driver.create(spec("m-1", networks=["nodes"]))
    fake.faults.order(Fault(kind=Kind.ERROR, method="POST", status=404, code="not_found", message="network not found"))
    with pytest.raises(InvalidArgumentError, match="network not found"):
        driver.create(spec("m-2", networks=["nodes"]))
    driver.create(spec("m-2", networks=["nodes"]))
    assert fake.count("GET", "/networks") == 2
