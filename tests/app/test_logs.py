"""What the log shows, and what it must never show."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from cloudgraft.app import logs
from cloudgraft.config.section import hide_secrets
from cloudgraft.sdk.secrecy import redacted
from tests.cli.log_state import log_as_before

SECRET = "hunter2"  # by name: the source line of a call stands in its traceback


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    with log_as_before():
        yield


def crash(password: str) -> None:
    raise ValueError("it broke")


def refuse(sent: str) -> None:
    raise ValueError(f"refused: {sent!r} {sent}")


def logged(log_format: str, *, verbosity: int = 2) -> str:
    stream = io.StringIO()
    logs.configure(verbosity, log_format, stream)
    log = logging.getLogger("cloudgraft.test")
    try:
        crash(SECRET)
    except ValueError:
        log.exception("a call failed", extra={"node": "a\x1b[2J\nforged", "count": 3})
    log.info("started")
    log.debug("looked")
    logging.getLogger("cloudgraft.service").debug("called")
    return stream.getvalue()


@pytest.mark.parametrize("log_format", logs.FORMATS)
def test_tracebacks_show_no_local_variables(log_format: str) -> None:
    text = logged(log_format)
    assert SECRET not in text
    assert "ValueError: it broke" in text
    assert "crash" in text


def test_a_terminal_never_gets_control_characters_from_a_name() -> None:
    text = logged("console")
    assert "\x1b" not in text
    assert "a\\x1b[2J\\nforged" in text


def test_json_is_one_object_a_line_with_all_values() -> None:
    first = json.loads(logged("json").splitlines()[0])
    assert (first["event"], first["count"], first["level"], first["logger"]) == (
        "a call failed",
        3,
        "error",
        "cloudgraft.test",
    )


@pytest.mark.parametrize(
    ("verbosity", "shown"),
    [
        (0, []),
        (1, ["a call failed"]),
        (2, ["a call failed", "started"]),
        (3, ["a call failed", "started"]),
        (4, ["a call failed", "started", "called"]),
        (5, ["a call failed", "started", "looked", "called"]),
    ],
)
def test_the_levels_are_those_of_the_autoscaler(verbosity: int, shown: list[str]) -> None:
    lines = logged("json", verbosity=verbosity).splitlines()
    assert [json.loads(line)["event"] for line in lines] == shown


@pytest.mark.parametrize("log_format", logs.FORMATS)
@pytest.mark.parametrize(
    ("options", "secret"),
    [
        ({"apiToken": "tok-31337-a"}, "tok-31337-a"),
        ({"auth": {"password": 'pa"ss\nword'}}, 'pa"ss\nword'),
        ({"env": {"LAB_SECRET_KEY": "tok-31337-b"}}, "tok-31337-b"),
        ({"credentials": {"user": "robert", "parts": ["tok-31337-c"]}}, "tok-31337-c"),
    ],
)
def test_what_an_option_names_a_secret_is_not_in_a_librarys_message(
    log_format: str, options: dict[str, object], secret: str
) -> None:
    """Nor in its traceback: many a library tells what it has sent."""
    hide_secrets(options)
    stream = io.StringIO()
    logs.configure(2, log_format, stream)
    try:
        refuse(secret)
    except ValueError:
        logging.getLogger("cloudgraft.test").exception("it said %s", secret, extra={"sent": secret})
    assert "tok-31337" not in stream.getvalue()
    assert "ss" not in stream.getvalue().split("refused")[1].splitlines()[0]
    assert "[secret]" in stream.getvalue()


def test_where_a_secret_is_may_be_told() -> None:
    hide_secrets({"tokenFile": "/etc/lab/token-file", "secretName": "lab-secret-name", "tls": {"key": "server.key"}})
    hide_secrets({"envFiles": {"LAB_TOKEN": "/etc/lab/token.txt"}})
    told = "/etc/lab/token-file lab-secret-name server.key /etc/lab/token.txt"
    assert redacted(told) == told
