"""What was hidden is shown nowhere."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote, unquote

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


@pytest.mark.xdist_group("secrecy")  # in one process, one after another
@pytest.mark.parametrize("turn", ["first", "second"])
def test_what_one_test_hides_is_not_hidden_in_the_next(turn: str) -> None:
    assert redacted("boot from swordfish") == "boot from swordfish"
    hide("boot", "swordfish")
    assert redacted("boot from swordfish") == "[secret] from [secret]", turn


def test_the_longer_of_two_secrets_goes_first() -> None:
    hide("swordfish", "swordfish-2")
    assert redacted("swordfish-2 and swordfish") == "[secret] and [secret]"


@pytest.fixture
def hidden() -> Iterator[Callable[[str], None]]:
    """Hides for one test: short words are also in the messages of others."""
    values: list[str] = []

    def hide_here(value: str) -> None:
        values.append(value)
        hide(value)

    yield hide_here
    unhide(*values)


@pytest.mark.parametrize(
    "text",
    [
        "login with 5up3r failed",
        "https://admin:5up3r@lab",
        '{"password": "5up3r"}',
        "pw=5up3r&x=1",
        "('5up3r',)",
        "5up3r",
    ],
)
def test_a_secret_of_five_characters_is_hidden(text: str, hidden: Callable[[str], None]) -> None:
    hidden("5up3r")
    assert redacted(text) == text.replace("5up3r", "[secret]")


@pytest.mark.parametrize("secret", ["1234", "a!b?c", "+abc", "p@ss", "aé;b"])
def test_a_short_secret_is_hidden_where_it_stands_alone(secret: str, hidden: Callable[[str], None]) -> None:
    hidden(secret)
    assert redacted(f"sent {secret} to {secret}") == "sent [secret] to [secret]"
    assert redacted(f"sent {json.dumps(secret)}") == 'sent "[secret]"'


def test_a_short_secret_is_left_within_a_longer_word(hidden: Callable[[str], None]) -> None:
    hidden("1234")
    assert redacted("machine i-0a1234b2 on port 51234, pod_1234") == "machine i-0a1234b2 on port 51234, pod_1234"


@pytest.mark.parametrize("short", ["", "a", "12", "abc"])
def test_what_is_too_short_to_be_a_secret_is_left(short: str, hidden: Callable[[str], None]) -> None:
    hidden(short)
    assert redacted("a token of 12 abc") == "a token of 12 abc"


def test_a_short_secret_that_has_expired_is_forgotten() -> None:
    hide("5up3r")
    unhide("5up3r")
    assert redacted("5up3r") == "5up3r"


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


def standard(data: bytes) -> str:
    return base64.b64encode(data).decode()


def url_safe(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()


def unpadded(data: bytes) -> str:
    return standard(data).rstrip("=")


def in_a_query(data: bytes) -> str:
    return quote(standard(data), safe="")


def in_escaped_json(data: bytes) -> str:
    return standard(data).replace("/", "\\/")


BASE64 = [standard, url_safe, unpadded, in_a_query, in_escaped_json]


@pytest.mark.parametrize("encoded", BASE64)
@pytest.mark.parametrize(
    "secret", ["swordfish", "swordfish!", "swordfish!?", "~?>~?>~?>", "Schlüssel", "пароль", "5up3r", "1234"]
)
def test_base64_of_a_secret_is_hidden(
    secret: str, encoded: Callable[[bytes], str], hidden: Callable[[str], None]
) -> None:
    hidden(secret)
    shown = redacted(f"sent {encoded(secret.encode())} to it")
    assert shown.replace("=", "").replace("%3D", "") == "sent [secret] to it"


@pytest.mark.parametrize("encoded", BASE64)
@pytest.mark.parametrize("secret", ["swordfish", "~?>~?>~?>", "5up3r", "1234"])
@pytest.mark.parametrize("user", ["", "a", "me", "bob", "root", "admin@pam"])
def test_no_bit_of_a_secret_is_left_in_the_header_of_basic_authentication(
    user: str, secret: str, encoded: Callable[[bytes], str], hidden: Callable[[str], None]
) -> None:
    hidden(secret)
    shown = redacted(f"Authorization: Basic {encoded(f'{user}:{secret}'.encode())}, 401")
    rest = shown.removeprefix("Authorization: Basic ").removesuffix(", 401")
    before, mask, after = unquote(rest).partition("[secret]")
    assert mask
    assert after.strip("=") == ""
    # What is left in front is determined by the user alone.
    known = f"{user}:".encode()
    assert before == standard(known)[: len(known) * 8 // 6]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_secret_with_an_umlaut_is_hidden_however_the_header_is_encoded(
    encoding: str, hidden: Callable[[str], None]
) -> None:
    hidden("Schlüssel")
    assert "[secret]" in redacted(standard("me:Schlüssel".encode(encoding)))


def test_a_secret_in_the_middle_of_what_was_encoded_is_hidden(hidden: Callable[[str], None]) -> None:
    hidden("swordfish")
    document = b'{"user": "me", "password": "swordfish", "zone": "north"}'
    shown = redacted(standard(document))
    before, _, after = shown.partition("[secret]")
    assert document.startswith(base64.b64decode(before[: len(before) // 4 * 4]))
    assert document.endswith(base64.b64decode(after[len(after) % 4 :]))
    assert "swordfish" not in shown


def test_a_short_secret_makes_no_text_unreadable(hidden: Callable[[str], None]) -> None:
    text = Path(secrecy.__file__).read_text("utf-8")
    for short in ("1234", "abcd", "pool", "0000", "5up3r"):
        hidden(short)
    assert redacted(text) == text


def test_what_is_no_secret_any_more_is_shown_in_base64_too() -> None:
    hide("expired-token")
    unhide("expired-token")
    text = standard(b"me:expired-token")
    assert redacted(text) == text


@pytest.fixture
def many() -> Iterator[list[str]]:
    """So many that they are not looked for one by one."""
    values = [f"token-{number:06}-{number * 7919:x}" for number in range(1000)]
    hide(*values)
    yield values
    unhide(*values)


def test_one_of_very_many_secrets_is_hidden(many: list[str]) -> None:
    for value in (many[0], many[500], many[-1]):
        assert redacted(f"it said {value}.") == "it said [secret]."
        assert redacted(f"it said {unpadded(value.encode())}.") == "it said [secret]."
    assert redacted("it said token-and nothing else") == "it said token-and nothing else"


def test_one_of_very_many_secrets_is_hidden_wherever_it_stands_in_a_long_text(many: list[str]) -> None:
    for place in range(secrecy._PIECE - 30, secrecy._PIECE + 5):
        assert redacted("." * place + many[7] + "." * 10) == "." * place + "[secret]" + "." * 10
