"""Maps the end of a run to an error: by its exit code, and by the error that the script printed."""

from __future__ import annotations

import codecs
from typing import Final

from cloudgraft.drivers.common.machine_json import error_from_json, parse_json
from cloudgraft.drivers.common.secrets import CUT, without
from cloudgraft.drivers.exec.runner import STDERR_KEPT, Finished, Stop
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    AuthenticationError,
    CloudgraftError,
    ConflictError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfStockError,
    PermissionDeniedError,
    PreconditionError,
    QuotaExceededError,
    RateLimitedError,
    UnavailableError,
    UnsupportedError,
)
from cloudgraft.sdk.secrecy import redacted

# -- exit codes --------------------------------------------------------------------------------------------------------
# The meaning of exit codes, in one table; docs/reference/exec-driver.md shows it, and a test compares. The numbers are
# large on purpose: a script that ends because a program in it failed (``set -e``) exits with that program's code, and
# the codes of curl, ssh, apt, Perl and all the others are below 128 or above 250. If 6 meant "the quota is reached, and
# nothing was done", a curl that does not find its host would report that.

EXIT_CODES: Final[dict[int, type[CloudgraftError]]] = {
    200: InvalidArgumentError,
    201: NotFoundError,
    202: AlreadyExistsError,
    203: PreconditionError,
    204: ConflictError,
    205: QuotaExceededError,
    206: OutOfStockError,
    207: RateLimitedError,
    208: AuthenticationError,
    209: PermissionDeniedError,
    210: UnavailableError,
    211: UnsupportedError,
}


def error_of(code: int | None, *, changes: bool) -> type[CloudgraftError]:
    """Returns the error class of an exit code; None means any other end.

    When the script ``changes`` something, a code that is not in the table leaves the outcome open, and a list settles
    it (law 3). A script that only reads has done nothing, however it ended.
    """
    unknown = DeadlineError if changes else UnavailableError
    return unknown if code is None else EXIT_CODES.get(code, unknown)


# -- ended runs --------------------------------------------------------------------------------------------------------
# An ended run is a response, or an error with the class and the text that the script chose.

_QUOTED: Final = 1000  # characters of stderr in a message: it becomes part of an event


def failure_of(finished: Finished, what: str, *, changes: bool, secret: str = "") -> CloudgraftError | None:
    """Returns the error of a run; None when it succeeded. No line of ``secret`` may be shown."""
    if finished.cannot_start:
        return UnavailableError(f"{what} cannot be run: {finished.cannot_start}. Nothing was done")
    if finished.code == 0:
        return None
    words = without(printable(finished.stderr), secret)
    said = f"; its last words: {words}" if words else "; it wrote nothing to stderr"
    own = _stated(finished)
    if own is not None:
        return type(own)(f"{what}: {without(own.message, secret)}", retry_after=own.retry_after)
    kind = error_of(finished.code, changes=changes)
    if finished.code in EXIT_CODES:
        return kind(f"{what} {finished.how} ({kind.slug}){said}")
    unknown = ". What it did is not known" if changes else ""
    return kind(f"{what} {finished.how}{unknown}{said}{_advice(finished)}")


def check_success(finished: Finished, what: str, secret: str = "") -> None:
    """Refuses exit code 0 with an error on stdout: one of them is wrong, and it is unclear which."""
    error = _stated(finished)
    if error is not None:
        raise InternalError(
            f"{what} exited with 0, which says that it went well, and printed an error: "
            f"{without(error.message, secret)}. Exit with another code when it did not go well"
        )


def _stated(finished: Finished) -> CloudgraftError | None:
    """Returns the error object on stdout, if there is one: it says more than a number."""
    if not finished.stdout.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{"):
        return None
    try:
        return error_from_json(parse_json(finished.stdout, "it"), "its error object")
    except CloudgraftError:
        return None


def _advice(finished: Finished) -> str:
    if finished.stop is Stop.TOO_MUCH:
        return ". Print one JSON object to stdout, and everything else to stderr"
    if finished.stop is Stop.TIMEOUT:
        return ". If it needs more time, raise its timeout under `timeouts`, and that of the engine"
    return ""


def printable(raw: bytes) -> str:
    """Returns the end of the output on one line. Redacts before it cuts: half a secret would not be recognized."""
    text = redacted(raw.decode("utf-8", "replace"))
    lines = ("".join(c if c.isprintable() else " " for c in line).strip() for line in text.splitlines())
    joined = " / ".join(line for line in lines if line)
    is_cut = len(joined) > _QUOTED or len(raw) >= STDERR_KEPT
    return f"{CUT}{joined[-_QUOTED:]}" if is_cut else joined
