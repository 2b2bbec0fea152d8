"""What each of the codes 0 to 17 means as the end of each call: one table, and the text form of 2018."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import pytest

from cloudgraft.dock.protocol.codes import (
    Code,
    Verb,
    code_from,
    code_of,
    decode,
    encode,
    error_of,
    meaning_of,
    retry_after_of,
)
from cloudgraft.sdk import errors
from cloudgraft.sdk.errors import CloudgraftError, ErrorClass, Retry, StatusCode, error_table
from scripts.codes_page import codes_page

# What the engine does after a create: fails it at once (class 1 or 99), tries again, or has a list settle it first.
FAILS, SOLD_OUT, AGAIN, SETTLE, GOOD = "fails", "sold out", "again", "settle", "good"
CREATES: Final = {
    Code.OK: GOOD,
    Code.CANCELLED: SETTLE,
    Code.UNKNOWN: SETTLE,
    Code.INVALID_ARGUMENT: FAILS,
    Code.DEADLINE_EXCEEDED: SETTLE,
    Code.NOT_FOUND: FAILS,
    Code.ALREADY_EXISTS: SETTLE,
    Code.PERMISSION_DENIED: FAILS,
    Code.RESOURCE_EXHAUSTED: SOLD_OUT,
    Code.FAILED_PRECONDITION: FAILS,
    Code.ABORTED: SETTLE,
    Code.OUT_OF_RANGE: SETTLE,
    Code.UNIMPLEMENTED: FAILS,
    Code.INTERNAL: SETTLE,
    Code.UNAVAILABLE: SETTLE,
    Code.DATA_LOSS: SETTLE,
    Code.UNAUTHENTICATED: FAILS,
    Code.UNINITIALIZED: GOOD,
}
# A delete is always tried again, but for the one that says that the machine is gone.
GONE, LATER, LOOK = "gone", "later", "look first"
DELETES: Final = {
    Code.OK: GOOD,
    Code.CANCELLED: LOOK,
    Code.UNKNOWN: LOOK,
    Code.INVALID_ARGUMENT: LATER,
    Code.DEADLINE_EXCEEDED: LOOK,
    Code.NOT_FOUND: GONE,
    Code.ALREADY_EXISTS: LATER,
    Code.PERMISSION_DENIED: LATER,
    Code.RESOURCE_EXHAUSTED: LATER,
    Code.FAILED_PRECONDITION: LATER,
    Code.ABORTED: LATER,
    Code.OUT_OF_RANGE: LATER,
    Code.UNIMPLEMENTED: LATER,
    Code.INTERNAL: LOOK,
    Code.UNAVAILABLE: LATER,
    Code.DATA_LOSS: LOOK,
    Code.UNAUTHENTICATED: LATER,
    Code.UNINITIALIZED: LATER,
}


def after_create(error: CloudgraftError | None) -> str:
    if error is None:
        return GOOD
    if error.retry is Retry.SETTLE_FIRST or isinstance(error, errors.AlreadyExistsError):
        return SETTLE
    if error.retry is Retry.YES:
        return AGAIN
    return SOLD_OUT if error.error_class is ErrorClass.OUT_OF_RESOURCES else FAILS


def after_delete(error: CloudgraftError | None) -> str:
    if error is None:
        return GOOD
    if isinstance(error, errors.NotFoundError):
        return GONE
    return LOOK if error.retry is Retry.SETTLE_FIRST else LATER


def test_the_codes_are_those_of_grpc_and_one_more() -> None:
    """Their numbers are on the wire. An enumeration cannot be extended, so that they are written down twice."""
    assert {code.name: int(code) for code in Code} == {
        **{status.name: int(status) for status in StatusCode},
        "UNINITIALIZED": 17,
    }


@pytest.mark.parametrize("code", Code, ids=lambda code: code.name)
def test_what_a_code_means_for_each_call(code: Code) -> None:
    """Law 3: where it is in doubt whether a machine was made, a list settles it. Law 7: quota and stock are class 1."""
    assert after_create(error_of(code, "x", Verb.CREATE)) == CREATES[code]
    assert after_delete(error_of(code, "x", Verb.DELETE)) == DELETES[code]
    for verb in (Verb.LIST, Verb.SHAPES, Verb.PRICES):
        error = error_of(code, "x", verb)
        assert (error is None) == (code is Code.OK), "no failed question counts as an empty answer"
        assert isinstance(error, errors.UnsupportedError) == (code is Code.UNIMPLEMENTED)
        assert error is None or error.error_class is ErrorClass.OTHER


@pytest.mark.parametrize("verb", Verb, ids=lambda verb: verb.value)
def test_every_code_says_why(verb: Verb) -> None:
    for code in Code:
        assert meaning_of(code, verb).why
        error = error_of(code, "", verb)
        assert error is None or code.name in error.message, "a driver that says nothing is not quoted with nothing"


def test_a_driver_that_says_when_to_come_again_knows_that_nothing_was_made() -> None:
    told = error_of(Code.UNAVAILABLE, "x", Verb.CREATE, timedelta(seconds=45))
    assert isinstance(told, errors.UnavailableError)
    assert told.retry_after == 45
    sold_out = error_of(Code.RESOURCE_EXHAUSTED, "x", Verb.CREATE, timedelta(minutes=10))
    assert after_create(sold_out) == SOLD_OUT, "law 7: the autoscaler goes elsewhere at once all the same"
    assert after_create(error_of(Code.ABORTED, "x", Verb.CREATE, timedelta(seconds=1))) == SETTLE
    assert after_create(error_of(Code.UNAVAILABLE, "x", Verb.CREATE, timedelta(0))) == SETTLE


def test_no_driver_is_left_alone_for_longer_than_an_hour() -> None:
    """What it says may be a mistake of units, and nobody could take it back."""
    for given, kept in ((timedelta(minutes=59), 59 * 60), (timedelta(days=300_000), 3600)):
        error = error_of(Code.UNAVAILABLE, "x", Verb.LIST, given)
        assert error is not None
        assert error.retry_after == kept


@pytest.mark.parametrize("kind", error_table(), ids=lambda kind: kind.slug)
def test_an_error_of_the_sdk_comes_through_as_no_more_than_it_was(kind: type[CloudgraftError]) -> None:
    """Nothing that leaves the outcome open arrives as "nothing was done", and the class of the autoscaler stays."""
    error = kind("x")
    there = error_of(code_of(error), error.message, Verb.CREATE, retry_after_of(error))
    assert there is not None
    if isinstance(error, errors.ConflictError):  # its code is also that of a call that is under way
        assert after_create(there) == SETTLE
    else:
        assert after_create(there) == after_create(error)
    assert there.error_class is error.error_class


@pytest.mark.parametrize("hint", [-1.0, 0.0, float("inf"), float("nan"), 30.0])
def test_a_hint_of_a_driver_is_a_time_that_makes_sense(hint: float) -> None:
    wait = retry_after_of(errors.UnavailableError("x", retry_after=hint))
    assert wait is not None
    assert timedelta(0) < wait <= timedelta(days=1)
    assert retry_after_of(errors.QuotaExceededError("x")) is None


def test_an_undefined_number_is_unknown() -> None:
    assert [code_from(number) for number in (-1, 18, 10**9)] == [Code.UNKNOWN] * 3
    assert [code_from(number) for number in range(18)] == list(Code)


# -- as text -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", Code, ids=lambda code: code.name)
@pytest.mark.parametrize("message", ["", "no more", "a [nested [one]] and [another]", "odd ] brackets [", "[["])
def test_what_is_written_as_text_is_read_again(code: Code, message: str) -> None:
    got, text = decode(encode(code, message))
    assert got is code
    assert text.replace("(", "[").replace(")", "]") == message


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("machine codes error: code = [NotFound] message = [gone]", Code.NOT_FOUND),
        ("wrapped: machine codes error: code = [Uninitialized] message = [later] ", Code.UNINITIALIZED),
        ("machine codes error: code = [Canceled] message = []", Code.CANCELLED),
    ],
)
def test_the_machine_controllers_own_words(text: str, code: Code) -> None:
    assert decode(text)[0] is code


@pytest.mark.parametrize(
    "text",
    [
        "",
        "quota exceeded",
        "no image [ubuntu] in [eu]",
        "[NotFound] [gone]",
        "machine codes error: code = [NotFound]",
        "machine codes error: code = [NotFound] message = [a] more = [b]",
        "machine codes error: code = [NotFound] message = [a",
        "machine codes error: code = NotFound] message = [a]",
        "machine codes error: code = [Nonsense] message = [a]",
        "machine codes error: code = [5] message = [a]",
        "[" * 10_000,
    ],
)
def test_any_other_text_is_an_error_of_which_nothing_is_known(text: str) -> None:
    """A text that is only nearly right must not be taken for "gone"."""
    assert decode(text) == (Code.UNKNOWN, text)


def test_the_page_has_every_code_of_every_call() -> None:
    page = codes_page()
    for verb in Verb:
        section = page.partition(f"## {verb.value}\n")[2].partition("\n## ")[0]
        assert all(f"| {code.value} {code.name} |" in section for code in Code)
