"""Law 9: what a machine is told when it boots is in no message, however a script or a receiver repeats it."""

from __future__ import annotations

import base64
import json
import time

import pytest

from cloudgraft.drivers.common.json_fields import QUOTED, shown
from cloudgraft.drivers.common.secrets import cut, error_without, without
from cloudgraft.sdk.errors import RateLimitedError
from cloudgraft.sdk.secrecy import hide, unhide

USER_DATA = '#cloud-config\n  token: "abcdef.0123456789abcdef"\nshort\n'
BASE64 = base64.b64encode(USER_DATA.encode()).decode()


@pytest.mark.parametrize(
    "said",
    [
        USER_DATA,
        json.dumps({"userData": USER_DATA}),
        'bad line: token: "abcdef.012345678…',
        '…cdef.0123456789abcdef" is no token',
        f"Invalid input for field user_data. Value: {BASE64}.",
        cut(f"Value: {BASE64}", 60),
    ],
)
def test_no_line_of_user_data_is_in_a_message(said: str) -> None:
    told = without(said, USER_DATA)
    assert "[user data]" in told
    assert "012345678" not in told
    assert BASE64[:20] not in told


def test_long_user_data_is_taken_out_soon() -> None:
    large = "x" * 60_000
    began = time.process_time()
    assert "xxxxxx" not in without(cut(f"Value: {large}", 600), large)
    assert "eHh4eHh4" not in without(cut(f"Value: {base64.b64encode(large.encode()).decode()}", 600), large)
    assert time.process_time() - began < 1.0


def test_what_is_cut_shows_it_and_has_no_half_of_a_secret() -> None:
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 3) == "ab…"
    secret = "s3cret-" * 8
    hide(secret)
    try:
        assert "s3cret" not in cut("x" * 50 + secret, 60)
    finally:
        unhide(secret)


def test_an_error_keeps_its_class_and_its_hint() -> None:
    error = RateLimitedError("#cloud-config is too much", retry_after=3.0)
    told = error_without(error, USER_DATA)
    assert (type(told), told.message, told.retry_after) == (RateLimitedError, "[user data] is too much", 3.0)
    assert error_without(told, USER_DATA) is told


def test_a_secret_that_a_message_would_cut_is_hidden_before() -> None:
    secret = "s3cret-" * 8
    hide(secret)
    try:
        assert "s3cret" not in shown("x" * (QUOTED - 20) + secret)
    finally:
        unhide(secret)
