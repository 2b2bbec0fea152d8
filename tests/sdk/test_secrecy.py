"""What was hidden is shown nowhere."""

from __future__ import annotations

import json

import pytest

from cloudgraft.sdk import UnavailableError, hide, secrecy
from cloudgraft.sdk.secrecy import redacted, unhide


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


def test_a_secret_that_has_expired_is_forgotten() -> None:
    hide("expired-token")
    unhide("expired-token", "never-hidden")
    assert redacted("expired-token and never-hidden") == "expired-token and never-hidden"


def test_what_two_have_hidden_stays_hidden_until_both_are_done() -> None:
    hide("shared-token")
    hide("shared-token")
    unhide("shared-token")
    assert redacted("shared-token") == "[secret]"
    unhide("shared-token")
    unhide("shared-token")
    hide("shared-token")
    assert redacted("shared-token") == "[secret]"
    unhide("shared-token")
    assert redacted("shared-token") == "shared-token"


def test_a_year_of_tokens_does_not_slow_a_log_line() -> None:
    before = len(secrecy._hidden)
    for number in range(500):
        hide(f"token-{number:010}")
        unhide(f"token-{number:010}")
    assert len(secrecy._hidden) == before
