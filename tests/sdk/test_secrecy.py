"""What was hidden is shown nowhere."""

from __future__ import annotations

import json

import pytest

from cloudgraft.sdk import UnavailableError, hide
from cloudgraft.sdk.secrecy import redacted


def test_an_error_does_not_say_what_was_hidden() -> None:
    hide("correct horse")
    error = UnavailableError("https://admin:correct horse@lab.example answered 503")
    assert error.message == str(error) == "https://admin:[secret]@lab.example answered 503"


@pytest.mark.parametrize("form", [str, repr, json.dumps, lambda value: "https://x/?p=a%22b%5Cc%C3%A9%20d"])
def test_it_is_found_however_it_is_written(form: object) -> None:
    secret = 'a"b\\cé d'
    hide(secret)
    assert callable(form)
    shown = redacted(f"sent {form(secret)}")
    assert "[secret]" in shown
    assert "b" not in shown.replace("[secret]", "")


def test_the_longer_of_two_secrets_goes_first() -> None:
    hide("swordfish", "swordfish-2")
    assert redacted("swordfish-2 and swordfish") == "[secret] and [secret]"


@pytest.mark.parametrize("short", ["", "a", "token"])
def test_what_is_too_short_to_be_a_secret_is_left(short: str) -> None:
    hide(short)
    assert redacted("a token of esteem") == "a token of esteem"
