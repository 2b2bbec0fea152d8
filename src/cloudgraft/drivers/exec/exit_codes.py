"""What a script says by its exit code. The one table; docs/reference/exec-driver.md shows it, and a test compares.

The numbers are large on purpose: a script that ends because a program in it failed (``set -e``) hands on that program's
code, and those of curl, ssh, apt, Perl and all the others are below 128 or above 250. Were 6 "the quota is reached, and
nothing was done", then a curl that does not find its host would say so.
"""

from __future__ import annotations

from typing import Final

from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    AuthenticationError,
    CloudgraftError,
    ConflictError,
    DeadlineError,
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

__all__ = ["EXIT_CODES", "error_of"]

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
    """The class of an exit code; of any other end when it is None.

    Where the script ``changes`` something, what the table does not know leaves the outcome open, and a list settles it
    (law 3). A script that only looks has done nothing, however it ended.
    """
    unknown = DeadlineError if changes else UnavailableError
    return unknown if code is None else EXIT_CODES.get(code, unknown)
