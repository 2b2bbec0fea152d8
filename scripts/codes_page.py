"""Renders the reference page of the machine codes from the table in :mod:`cloudgraft.dock.protocol.codes`."""

from __future__ import annotations

from collections.abc import Iterator

from cloudgraft.dock.protocol.codes import Code, Meaning, Verb, encode, meaning_of
from cloudgraft.sdk.errors import CloudgraftError, NotFoundError, Retry, UnsupportedError
from scripts.errors_page import create_again, delete_again


def codes_page() -> str:
    """The whole page, in Markdown."""
    lines = [
        "# Machine codes",
        "",
        "A driver that [dials in](../how-to/let-drivers-dial-in.md) reports with these codes how a call ended. 0 to 16",
        "are gRPC's own; 17 is one more. The meaning of a code depends on the call. It decides whether and when the",
        "call is retried, and what the autoscaler sees. A number that is not in the table counts as 2, UNKNOWN.",
        "",
        "*Nothing was made* is only believed where the driver cannot have meant anything else. After every other code",
        "two complete lists must show that there is no such machine before it is created again.",
        "",
        "Drivers that speak the protocol of 2018 have room for text only. Text of this form has a code, and any other",
        "text counts as 2, UNKNOWN:",
        "",
        "```text",
        encode(Code.RESOURCE_EXHAUSTED, "no more machines of this type in zone a"),
        "```",
        "",
        "The errors are those of [the one table](errors.md).",
        "",
    ]
    for verb in (Verb.CREATE, Verb.DELETE, Verb.LIST, Verb.SHAPES, Verb.PRICES):
        lines += [f"## {verb.value}", "", *_table(verb), ""]
    return "\n".join(lines)


def _table(verb: Verb) -> Iterator[str]:
    is_create = verb is Verb.CREATE
    yield "| code | meaning | error | retried |" + (" the autoscaler sees |" if is_create else "")
    yield "|---|---|---|---|" + ("---|" if is_create else "")
    for code in Code:
        meaning = meaning_of(code, verb)
        yield _row(code, meaning, meaning.error, verb)
        if meaning.with_retry_after is not None:
            yield _row(code, meaning, meaning.with_retry_after, verb, has_retry_after=True)


def _row(
    code: Code, meaning: Meaning, error: type[CloudgraftError] | None, verb: Verb, *, has_retry_after: bool = False
) -> str:
    label = f"{code.value} {code.name}" + (" with `retry_after`" if has_retry_after else "")
    why = "closed or overloaded, and it says until when; nothing was made" if has_retry_after else meaning.why
    name = f"`{error.__name__}`" if error is not None else "none"
    row = f"| {label} | {why} | {name} | {_again(error, verb)} |"
    return f"{row} {_reported(error)} |" if verb is Verb.CREATE else row


def _again(error: type[CloudgraftError] | None, verb: Verb) -> str:
    if error is None:
        return "no need"
    if verb is Verb.CREATE:
        return create_again(error)
    if verb is Verb.DELETE:
        return "no need" if error is NotFoundError else delete_again(error)
    return "no" if error is UnsupportedError and verb is not Verb.LIST else "with the next look at the cloud"


def _reported(error: type[CloudgraftError] | None) -> str:
    if error is None:
        return "nothing but that it is coming"
    if error.retry is not Retry.NO or not error.nothing_done:
        return "`deadline`, class 99, if it never comes"
    return f"`{error.slug}`, class {error.error_class.value}, at once"
