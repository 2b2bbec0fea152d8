"""Renders the reference page of the errors from :mod:`cloudgraft.sdk.errors` and :mod:`cloudgraft.sdk.http_errors`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from cloudgraft.sdk.errors import CloudgraftError, NotFoundError, Retry, UnavailableError, error_table
from cloudgraft.sdk.http_errors import HttpCall, http_error

_CALLS: Final[tuple[HttpCall, ...]] = ("create", "delete", "list")
# One status of each kind, with the kind's name on the page. None: the request was sent and no response came.
_ANSWERS: Final[tuple[tuple[int | None, str], ...]] = (
    (400, "400, 413, 422, any other 4xx"),
    (401, "401"),
    (403, "403"),
    (404, "404"),
    (405, "405, 501"),
    (408, "408"),
    (409, "409"),
    (429, "429"),
    (500, "500, 502, 503, 504, any other 5xx"),
    (None, "none: no answer in time, a lost connection, half an answer"),
    (200, "a success whose body makes no sense"),
)


_PAGE: Final = """\
# Errors

Raise one of these from `cloudgraft.sdk` in a provider or driver. Any other exception counts as a bug: the caller gets
`INTERNAL` with an id, the log has the details under it, and the outcome counts as unknown.

## What an error promises, and what the engine does then

**A wrong promise buys machines twice.** Where *nothing was done* is **yes**, the engine believes it: it creates the
machine again, or reports it as failed, and does not look for it. Raise such an error from `create` or `delete` only
when the cloud certainly did not act. When you are not certain, raise `DeadlineError`: the engine then looks for the
machine in the list before it does anything.

| error | meaning | nothing was done | create is tried again | delete is tried again |
|---|---|---|---|---|
{promises}

A failed `list` changes nothing, whatever its error. The engine lists again, uses no half list, and keeps what it knew.

## Which HTTP answers belong to which error

For the author of a driver. `cloudgraft.sdk.http_error(call, status, message)` returns the error of this table. Look at
the cloud's own error codes first: a quota is a `QuotaExceededError` and a stock-out an `OutOfStockError`, whatever the
status, when the answer comes from the cloud itself and not from a proxy.

| the answer's status | to create | to delete | to list |
|---|---|---|---|
{answers}
| none: the request was never sent (connection refused, unknown host, no TLS) | {away} | {away} | {away} |

- **A 5xx to a create is no promise**, and neither is a 503. A server may fail after it acted, and a proxy answers 502,
  503 or 504 when it lost the server's answer. `UnavailableError` for a 503 to a create or delete is right only where
  the cloud's documentation promises that the answer comes before the cloud acts.
- `NotFoundError` from `delete` means that the machine is gone. A 404 for the whole API, such as after a wrong URL, is a
  `PreconditionError`: otherwise every machine would count as deleted.
- A 409 to a create mostly means that the name is taken. The machine may be ours, from a call whose answer was lost:
  `AlreadyExistsError` promises nothing. Where the cloud reports another conflict, raise `ConflictError`.
- `Retry-After` goes into `retry_after`, in seconds.

## On the wire

The *name* travels with the gRPC status in the trailing metadata key `cloudgraft-error`, because some errors share a
status. It is also the error's code in scripts, HTTP endpoints and plugins. The *class* is what the autoscaler gets for
an instance that could not be created. The *HTTP status* is the one that cloudgraft's own HTTPS servers answer with; it
says nothing about the answers of a cloud.

| error | name | gRPC status | HTTP status of cloudgraft's servers | autoscaler's class |
|---|---|---|---|---|
{wire}
"""


def errors_page() -> str:
    """The whole page, in Markdown."""
    return _PAGE.format(
        promises="\n".join(_promises()),
        answers="\n".join(_answers()),
        away=f"`{UnavailableError.__name__}`",
        wire="\n".join(_wire()),
    )


def _promises() -> Iterator[str]:
    for cls in error_table():
        nothing = "**yes**" if cls.nothing_done else "no"
        gone = "no need: the machine is gone" if cls is NotFoundError else delete_again(cls)
        yield f"| `{cls.__name__}` | {_first_sentence(cls)} | {nothing} | {create_again(cls)} | {gone} |"


def _first_sentence(cls: type[CloudgraftError]) -> str:
    text = " ".join((cls.__doc__ or "").split()).replace("``", "`")
    return re.split(r"\.(?: |$)", text)[0]


def _answers() -> Iterator[str]:
    for status, words in _ANSWERS:
        kinds = [type(http_error(call, status, "")) for call in _CALLS]
        yield f"| {words} | {' | '.join(f'`{kind.__name__}`' for kind in kinds)} |"


def _wire() -> Iterator[str]:
    for cls in error_table():
        yield (
            f"| `{cls.__name__}` | `{cls.slug}` | {cls.status.value} {cls.status.name} | {cls.http_status} "
            f"| {cls.error_class.value} {cls.error_class.name} |"
        )


def create_again(error: type[CloudgraftError]) -> str:
    """Says whether and when the engine creates a machine again after this error."""
    if not error.nothing_done:
        return "after lists have shown that it is not there"
    return "after a wait" if error.retry is Retry.YES else "no: the machine has failed"


def delete_again(error: type[CloudgraftError]) -> str:
    """Says when the engine deletes a machine again after this error."""
    return "after a list has shown it again, and a wait" if error.retry is Retry.SETTLE_FIRST else "after a wait"
