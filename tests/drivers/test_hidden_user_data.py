"""Law 9: what a machine is told when it boots is in no message, however a script or a receiver repeats it."""

from __future__ import annotations

import json

import pytest

from cloudgraft.drivers.json_fields import QUOTED, shown
from cloudgraft.drivers.user_data import error_without, without
from cloudgraft.sdk.errors import RateLimitedError
from cloudgraft.sdk.secrecy import hide, unhide

USER_DATA = '#cloud-config\n  token: "abcdef.0123456789abcdef"\nshort\n'


@pytest.mark.parametrize(
    "said",
    [
        USER_DATA,
        json.dumps({"userData": USER_DATA}),
        'bad line: token: "abcdef.012345678…',
        '…cdef.0123456789abcdef" is no token',
    ],
)
def test_no_line_of_user_data_is_in_a_message(said: str) -> None:
    told = without(said, USER_DATA)
    assert "[user data]" in told
    assert "012345678" not in told


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
