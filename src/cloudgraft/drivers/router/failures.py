"""Decides after which refusals the next backend is asked, and which error to raise when all refuse.

The router asks another cloud only after an error that proves that nothing was done (law 3). Of those:

- out of stock, quota exceeded, unavailable, credentials or permission refused, wrong state: ask the next backend;
- a rate limit or a conflict is temporary: the engine retries, and no more expensive cloud is used;
- an invalid request, or a name that is taken: a person has to look, and the next cloud would hide it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    DeadlineError,
    ErrorClass,
    InternalError,
    OutOfStockError,
    PermissionDeniedError,
    PreconditionError,
    QuotaExceededError,
    Retry,
    UnavailableError,
    error_from_slug,
)

_LONGEST_HINT: Final = 3600.0  # seconds: the cap for a cloud's retry-after, as in the engine
_PASSED_ON: Final = (
    OutOfStockError,
    QuotaExceededError,
    UnavailableError,
    AuthenticationError,
    PermissionDeniedError,
    PreconditionError,
)


def may_pass_on(error: CloudgraftError) -> bool:
    """Returns whether to ask the next backend. An author's own class may declare that the outcome is unknown."""
    return isinstance(error, _PASSED_ON) and error.retry is not Retry.SETTLE_FIRST


def hinted(error: CloudgraftError) -> float | None:
    """Returns the retry-after of a cloud in seconds, capped; None when it is not a valid time.

    Drivers are written by others, and a header may contain anything.
    """
    seconds: object = error.retry_after
    if not isinstance(seconds, int | float) or not seconds >= 0:  # excludes NaN
        return None
    return min(seconds, _LONGEST_HINT)


def located(error: CloudgraftError, cloud: str) -> CloudgraftError:
    """Returns the same error with the name of its cloud."""
    return _class_of(error)(f"{cloud}: {error.message}", retry_after=hinted(error))


def put_off(error: CloudgraftError, seconds: float) -> CloudgraftError:
    """Returns the same error for a call that was not made, because the cloud's retry-after is not over.

    The message says so, because its text may be about another machine.
    """
    return _class_of(error)(f"the pause that it asked for is not over: {error.message}", retry_after=seconds)


def refused_by_all(refusals: Mapping[str, CloudgraftError]) -> CloudgraftError:
    """Combines all refusals into one error: with the most helpful class, and every reason in the text.

    If any cloud is out of stock or quota, the error is of that class, so that the autoscaler tries another group at
    once. Otherwise temporary errors come before those that a person must fix.
    """
    message = "; ".join(f"{cloud}: {error.message}" for cloud, error in refusals.items())
    errors = list(refusals.values())
    waits = [wait for error in errors if (wait := hinted(error)) is not None]
    wait = min(waits, default=None)
    if any(error.error_class is ErrorClass.OUT_OF_RESOURCES for error in errors):
        is_quota = all(isinstance(error, QuotaExceededError) for error in errors)
        return (QuotaExceededError if is_quota else OutOfStockError)(message, retry_after=wait)
    if any(isinstance(error, UnavailableError) for error in errors):
        return UnavailableError(message, retry_after=wait)
    return _class_of(errors[0])(message, retry_after=wait)


def _class_of(error: CloudgraftError) -> type[CloudgraftError]:
    """Returns our class for an error: an author's own class may need more arguments than a message.

    An unknown outcome stays unknown, whatever the author's class.
    """
    found = error_from_slug(error.slug) or InternalError
    return found if error.retry is not Retry.SETTLE_FIRST or found.retry is Retry.SETTLE_FIRST else DeadlineError
