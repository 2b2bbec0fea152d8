"""The one table of errors."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest

from cloudgraft import sdk
from cloudgraft.sdk import errors
from cloudgraft.sdk.errors import CloudgraftError, StatusCode, error_from_slug, error_from_status, error_table
from cloudgraft.sdk.http_errors import HttpCall


def subclasses() -> set[type[CloudgraftError]]:
    return {cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, CloudgraftError)}


def test_every_class_is_in_the_table_once_and_exported() -> None:
    assert set(error_table()) == subclasses() - {CloudgraftError}
    assert len(error_table()) == len(set(error_table()))
    assert {cls.__name__ for cls in error_table()} <= set(sdk.__all__)


def test_slugs_are_unique_and_lead_back() -> None:
    assert [error_from_slug(cls.slug) for cls in error_table()] == list(error_table())
    assert error_from_slug("from_the_future") is None


@pytest.mark.parametrize("code", [code for code in StatusCode if code is not StatusCode.OK])
def test_every_status_leads_to_an_error(code: StatusCode) -> None:
    assert issubclass(error_from_status(code), CloudgraftError)


@pytest.mark.parametrize("code", [-1, 0, 17, 99])
def test_a_status_that_nobody_defined_is_the_other_sides_bug(code: int) -> None:
    assert error_from_status(code) is errors.InternalError


def test_only_resources_that_ran_out_have_the_class_for_it() -> None:
    """R35."""
    out = {cls for cls in error_table() if cls.error_class is errors.ErrorClass.OUT_OF_RESOURCES}
    assert out == {errors.QuotaExceededError, errors.OutOfStockError}


def test_an_unknown_outcome_is_never_simply_tried_again() -> None:
    """Law 3."""
    for cls in (errors.DeadlineError, errors.InternalError):
        assert cls.retry is errors.Retry.SETTLE_FIRST


def test_each_class_says_what_it_means() -> None:
    for cls in error_table():
        assert cls.meaning
        assert cls.__doc__
        assert 400 <= cls.http_status <= 599


@pytest.mark.parametrize("state", [state for state in sdk.InstanceState if state is not sdk.InstanceState.CREATING])
def test_an_error_that_the_autoscaler_would_never_see_is_refused(state: sdk.InstanceState) -> None:
    """R34."""
    with pytest.raises(errors.InvalidArgumentError, match="state=InstanceState"):
        sdk.Instance(id="a", state=state, error=sdk.InstanceError(code="X", message="m"))


def test_a_class_that_promises_nothing_was_done_says_so() -> None:
    """The author reads it where the class is chosen; an unknown outcome never carries the promise."""
    for cls in error_table():
        words = " ".join((cls.__doc__ or "").split())
        assert ("Nothing was done" in words) == cls.nothing_done, cls
        assert not (cls.nothing_done and cls.retry is errors.Retry.SETTLE_FIRST), cls


@pytest.mark.parametrize("call", ["create", "delete"])
@pytest.mark.parametrize("status", [None, 408, 500, 502, 503, 504, 520, 599])
def test_a_server_error_after_a_change_promises_nothing(call: HttpCall, status: int | None) -> None:
    """Law 3: a 503 taken for "nothing was done" makes the engine buy a second machine."""
    assert type(sdk.http_error(call, status, "m")) is errors.DeadlineError
    assert type(sdk.http_error("list", status, "m")) is errors.UnavailableError


def test_every_status_has_an_error_for_every_call() -> None:
    for call, status in itertools.product(get_args(HttpCall), range(100, 600)):
        error = sdk.http_error(call, status, "m", retry_after=3)
        assert (error.message, error.retry_after) == ("m", 3)
        if 400 <= status < 500 and (call, status) not in {("create", 409), ("create", 408), ("delete", 408)}:
            assert error.nothing_done
    assert type(sdk.http_error("create", 409, "m")) is errors.AlreadyExistsError
    assert type(sdk.http_error("delete", 404, "m")) is errors.NotFoundError
    assert type(sdk.http_error("create", 429, "m")) is errors.RateLimitedError
