"""Flaws of a section: all of them, each at its place, in one error."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from cloudgraft.sdk import FlawedError, Flaws, InvalidArgumentError, Quantity
from cloudgraft.sdk.secrecy import hide, unhide


def test_nothing_is_raised_when_there_is_nothing_wrong() -> None:
    flaws = Flaws()
    flaws.expect(True, "size", "must be there")
    with flaws.at("memory"):
        Quantity("4Gi")
    flaws.raise_any()


def test_all_flaws_are_in_one_error_in_the_order_in_which_they_were_found() -> None:
    flaws = Flaws()
    flaws.tell((), "says two things")
    flaws.expect("", "name", "must not be empty")
    with flaws.at(("disks", 1, "size")):
        raise InvalidArgumentError("must not be negative")
    with pytest.raises(InvalidArgumentError) as caught:
        flaws.raise_any()
    assert caught.value.message == "says two things; name: must not be empty; disks[1].size: must not be negative"


def test_numbers_and_times_of_any_kind_are_told_by_their_keys() -> None:
    flaws = Flaws()
    flaws.expect_positive(one=1, half=0.5, price=Decimal("0.01"), wait=timedelta(milliseconds=1), unsaid=None)
    flaws.expect_not_negative(none=0, wait=timedelta(0), unsaid=None)
    flaws.raise_any()
    flaws.expect_positive(count=0, price=Decimal(0), wait=timedelta(0), pause=timedelta(microseconds=-1))
    flaws.expect_not_negative(count=-1, part=-0.5, delay=timedelta(microseconds=-1))
    with pytest.raises(FlawedError) as caught:
        flaws.raise_any()
    positive, not_negative = "must be more than zero", "must not be negative"
    assert [(flaw.path[0], flaw.message) for flaw in caught.value.flaws] == [
        *((key, positive) for key in ("count", "price", "wait", "pause")),
        *((key, not_negative) for key in ("count", "part", "delay")),
    ]


def test_flaws_of_an_inner_section_are_seen_from_the_outer_one() -> None:
    inner, outer = Flaws(), Flaws()
    inner.tell("size", "is too small")
    inner.tell("kind", "is not known")
    with outer.at(("shapes", "a")):
        inner.raise_any()
    with pytest.raises(FlawedError) as caught:
        outer.raise_any()
    assert [flaw.path for flaw in caught.value.flaws] == [("shapes", "a", "size"), ("shapes", "a", "kind")]
    assert str(caught.value.below("clouds")).startswith("clouds.shapes.a.size: is too small")


def test_a_message_that_names_its_key_does_so_once() -> None:
    flaws = Flaws()
    with flaws.at("provider"):
        raise InvalidArgumentError("provider: there is no such cloud")
    with pytest.raises(FlawedError, match=r"^provider: there is no such cloud$"):
        flaws.raise_any()


def test_other_errors_are_not_taken_for_flaws() -> None:
    flaws = Flaws()
    with pytest.raises(KeyError), flaws.at("size"):
        raise KeyError("a bug")


def test_it_can_be_made_anew_with_other_words_as_every_error_can() -> None:
    flaws = Flaws()
    flaws.tell("size", "is too small")
    with pytest.raises(FlawedError) as caught:
        flaws.raise_any()
    anew = type(caught.value)(f"a group: {caught.value.message}", retry_after=2.0)
    assert (str(anew), anew.retry_after) == ("a group: size: is too small", 2.0)
    assert [str(flaw) for flaw in anew.flaws] == [str(anew)]


def test_no_flaw_shows_what_is_hidden() -> None:
    flaws = Flaws()
    hide("swordfish-77")
    try:
        flaws.tell("password", "'swordfish-77' is too short")
        with pytest.raises(FlawedError) as caught:
            flaws.raise_any()
    finally:
        unhide("swordfish-77")
    assert [flaw.message for flaw in caught.value.flaws] == ["'[secret]' is too short"]
