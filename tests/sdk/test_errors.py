"""The one table of errors."""

from __future__ import annotations

import pytest

from cloudgraft import sdk
from cloudgraft.sdk import errors
from cloudgraft.sdk.errors import CloudgraftError, StatusCode, error_from_slug, error_from_status, error_table


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
