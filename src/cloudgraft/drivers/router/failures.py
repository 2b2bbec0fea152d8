"""Decides after which refusals the next backend is asked, and which error to raise when all refuse.

Only an error that says for certain that nothing was done may be followed by a call to another cloud (law 3). Of those:

- out of stock, over quota, away, credentials or rights refused, not in this state: the next backend is asked;
- a rate limit or a conflict passes in a moment: the engine makes the call again, and no dearer cloud is used for it;
- a request that makes no sense, or a name that is taken: a person has to look, and the next cloud would hide it.
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

__all__ = ["hinted", "located", "may_pass_on", "put_off", "refused_by_all"]

_LONGEST_HINT: Final = 3600.0  # seconds: a cloud that asks for more is taken to be mistaken, as the engine takes it
_PASSED_ON: Final = (
    OutOfStockError,
    QuotaExceededError,
    UnavailableError,
    AuthenticationError,
    PermissionDeniedError,
    PreconditionError,
)


def may_pass_on(error: CloudgraftError) -> bool:
    """Whether the next backend may be asked. An author's own class may say of itself that the outcome is unknown."""
    return isinstance(error, _PASSED_ON) and error.retry is not Retry.SETTLE_FIRST


def hinted(error: CloudgraftError) -> float | None:
    """Seconds for which a cloud asked to be left alone, within reason; None for what is no time.

    Drivers are written by others, and a header may say anything.
    """
    seconds: object = error.retry_after
    if not isinstance(seconds, int | float) or not seconds >= 0:  # so that NaN is no time
        return None
    return min(seconds, _LONGEST_HINT)


def located(error: CloudgraftError, cloud: str) -> CloudgraftError:
    """The same error, which says in which cloud it happened."""
    return _class_of(error)(f"{cloud}: {error.message}", retry_after=hinted(error))


def put_off(error: CloudgraftError, seconds: float) -> CloudgraftError:
    """The same error once more, for a call that was not made: the cloud wants to be left alone for so much longer.

    It says so, because its words may be about another machine.
    """
    return _class_of(error)(f"the pause that it asked for is not over: {error.message}", retry_after=seconds)


def refused_by_all(refusals: Mapping[str, CloudgraftError]) -> CloudgraftError:
    """The one error that stands for all of them: the class is the one that helps most, the text has every reason.

    Where any cloud is out of stock or quota, that is what the autoscaler is told, so that it tries another group at
    once. Else what passes by itself comes before what a person must put right.
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
    """The class of ours that it counts as: an author's own may want more than a message.

    What is unknown stays unknown, whatever an author's class is called.
    """
    found = error_from_slug(error.slug) or InternalError
    return found if error.retry is not Retry.SETTLE_FIRST or found.retry is Retry.SETTLE_FIRST else DeadlineError
