"""Classifies error texts without a code, which is all that drivers of 2018 send.

The class decides what the autoscaler sees: class 1 for quota and stock, class 99 for the rest. It never decides whether
a machine exists (law 3): a driver of 2018 reports a create that was refused and one that timed out in the same way. The
page ``docs/reference/machine-codes.md`` is generated from this table. A cloud's ``errorTexts`` go before it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Final

from cloudgraft.dock.protocol.codes import Verb
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    AuthenticationError,
    CloudgraftError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfStockError,
    PermissionDeniedError,
    QuotaExceededError,
    RateLimitedError,
    UnavailableError,
    error_from_slug,
    error_table,
)

# In this order: the first text that an error contains decides, so names of errors go before plain words.
TEXTS: Final[Mapping[type[CloudgraftError], tuple[str, ...]]] = {
    RateLimitedError: (
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "RequestThrottled",
        "EC2ThrottledException",
        "TooManyRequests",
        "rateLimitExceeded",
        "userRateLimitExceeded",
        "rate limit",
        "too many requests",
    ),
    OutOfStockError: (
        "Insufficient*Capacity",
        "InsufficientFreeAddressesInSubnet",
        "ReservationCapacityExceeded",
        "SpotMaxPriceTooLow",
        "ZONE_RESOURCE_POOL_EXHAUSTED",
        "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
        "SkuNotAvailable",
        "AllocationFailed",
        "ZonalAllocationFailed",
        "OverconstrainedAllocationRequest",
        "OperationDenied.NoStock",
        "No valid host was found",
        "out of stock",
        "insufficient capacity",
        "not enough capacity",
    ),
    QuotaExceededError: (
        "*LimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "QUOTA_EXCEEDED",
        "QuotaExceeded",
        "QuotaExceeded.*",
        "quota exceeded",
        "exceeds quota",
        "exceeded quota",
        "exceeding quota limits",
        "Quota",
        "limit exceeded",
    ),
    InvalidArgumentError: (
        "Not authorized for images",  # of AWS, with the code AuthFailure: the image is another account's, or gone
        "InvalidAMIID*",
        "InvalidInstanceType*",
        "InvalidSubnetID*",
        "InvalidSubnet*",
        "InvalidGroup*",
        "InvalidSecurityGroupID*",
        "InvalidKeyPair*",
        "InvalidBlockDeviceMapping*",
        "InvalidParameter*",
        "MissingParameter",
        "UnknownParameter",
        "VPCIdNotSpecified",
        "Unsupported",
        "UnsupportedOperation",
        "InvalidArgument",
        "invalid value",
    ),
    AuthenticationError: (
        "AuthFailure",
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "MissingAuthenticationToken",
        "SignatureDoesNotMatch",
        "IncompleteSignature",
        "InvalidAccessKeyId*",
        "ExpiredToken",
        "RequestExpired",
        "NoCredentialProviders",
        "EmptyStaticCreds",
        "InvalidAuthenticationToken",
        "invalid_grant",
        "invalid_client",
        "Unauthenticated",
        "authentication failed",
        "Authentication required",
    ),
    PermissionDeniedError: (
        "UnauthorizedOperation",
        "AccessDenied*",
        "OptInRequired",
        "PendingVerification",
        "Blocked",
        "AuthorizationFailed",
        "Forbidden*",
        "PermissionDenied",
        "permission denied",
        "access denied",
    ),
    AlreadyExistsError: ("alreadyExists", "already exists", "IdempotentParameterMismatch"),
    NotFoundError: ("*.NotFound", "ResourceNotFound", "ImageNotFound", "not found", "could not be found"),
    DeadlineError: (
        "deadline exceeded",
        "context deadline exceeded",
        "request canceled",
        "i/o timeout",
        "TLS handshake timeout",
        "timed out",
        "timeout",
        "connection reset by peer",
        "EOF",
    ),
    UnavailableError: (
        "Unavailable",
        "ServiceUnavailable",
        "InternalError",  # of AWS
        "no such host",
        "connection refused",
        "network is unreachable",
        "no route to host",
    ),
}

_WILD: Final = re.compile(r"\\\*")
_AROUND: Final = "A-Za-z0-9_"  # a text matches only as whole words


class TextClasses:
    """The classes of error texts: those of one cloud's configuration, then the table above."""

    def __init__(self, own: Mapping[str, str] | None = None) -> None:
        """``own``: texts and the names of their errors, which :func:`check_texts` has accepted."""
        found = {text: error_from_slug(slug) for text, slug in (own or {}).items()}
        self._own = tuple((_pattern(text), error) for text, error in found.items() if error is not None)

    def own(self, text: str) -> type[CloudgraftError] | None:
        """The error of the configuration for a text; None where it has none."""
        return next((error for pattern, error in self._own if pattern.search(text)), None)


def error_of_text(text: str, verb: Verb) -> type[CloudgraftError]:
    """The error that the table gives for a text; InternalError for one that is not in it.

    A delete never becomes NotFoundError, which means that the machine is gone: the text may be about anything else.
    """
    found = next((error for pattern, error in _compiled() if pattern.search(text)), InternalError)
    return InternalError if verb is Verb.DELETE and found is NotFoundError else found


def check_texts(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields each wrong text of a configuration, and what is wrong with it."""
    for text, slug in texts.items():
        if not text.strip(" *"):
            yield text, "would match every error: write a word of the error that is meant"
        elif error_from_slug(slug) is None:
            names = ", ".join(error.slug for error in error_table())
            yield text, f"{slug!r} is no error; the errors are {names}"


@functools.cache
def _compiled() -> tuple[tuple[re.Pattern[str], type[CloudgraftError]], ...]:
    return tuple((_pattern(text), error) for error, texts in TEXTS.items() for text in texts)


def _pattern(text: str) -> re.Pattern[str]:
    """Matches the text as whole words, in upper or lower case. ``*`` is any run of letters, digits and dots."""
    body = _WILD.sub("[A-Za-z0-9_.]*", re.escape(text.strip()))
    return re.compile(rf"(?<![{_AROUND}]){body}(?![{_AROUND}])", re.IGNORECASE)
