"""Maps the errors of libcloud's clouds to ours.

Libcloud's own exceptions are not used: some have lost the status, some are bare ``Exception``, some cannot even be
printed. The recorded traffic decides: the status and text of the last response, and whether a change was accepted
before. After an accepted change, no error may claim that nothing was done.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

import requests
from libcloud.common.types import MalformedResponseError

from cloudgraft.drivers.common.error_table import ErrorTable, Known, error_of_status, retry_after
from cloudgraft.drivers.common.requests_calls import error_of_request
from cloudgraft.drivers.common.secrets import error_without
from cloudgraft.drivers.libcloud.wire import Exchange, Wire
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
)

_QUOTA: Final = "ask the cloud for a higher limit, or let go of something else"
_STOCK: Final = "try another zone or another shape"
_KEYS: Final = "look at key and secretFile"
_LONGEST: Final = 600  # characters of a cloud's message that ours repeats
_TELLING: Final = 12  # characters in base64 that are not there by chance

ERRORS: Final = ErrorTable(
    # EC2 and what speaks like it
    Known(code="InsufficientInstanceCapacity", error=OutOfStockError, fix=_STOCK),
    Known(code="InsufficientCapacity", error=OutOfStockError, fix=_STOCK),
    Known(code="InstanceLimitExceeded", error=QuotaExceededError, fix=_QUOTA),
    Known(code="VcpuLimitExceeded", error=QuotaExceededError, fix=_QUOTA),
    Known(code="RequestLimitExceeded", error=RateLimitedError),
    Known(code="Throttling", error=RateLimitedError),
    Known(code="AuthFailure", error=AuthenticationError, fix=_KEYS),
    Known(code="InvalidClientTokenId", error=AuthenticationError, fix=_KEYS),
    Known(code="SignatureDoesNotMatch", error=AuthenticationError, fix=_KEYS),
    Known(
        code="RequestExpired",
        error=AuthenticationError,
        fix="the clock of this machine is wrong, or the credentials have expired",
    ),
    Known(code="UnauthorizedOperation", error=PermissionDeniedError, fix="allow the key this action"),
    Known(code="IdempotentParameterMismatch", error=AlreadyExistsError),
    Known(code="InvalidInstanceID.NotFound", error=NotFoundError),
    Known(code="InvalidInstanceID.Malformed", error=NotFoundError),
    Known(text="InvalidAMIID", error=InvalidArgumentError, fix="look at machine.image"),
    # Outscale's own: a type, or a number where the type says too little
    Known(code="TooManyResources (QuotaExceded)", error=QuotaExceededError, fix=_QUOTA),
    Known(code="5063", error=NotFoundError),
    # Kubernetes, for KubeVirt
    Known(code="AlreadyExists", error=AlreadyExistsError),
    Known(status=403, text="exceeded quota", error=QuotaExceededError, fix=_QUOTA),
    Known(status=409, text="uid in precondition", error=NotFoundError),
    Known(code="Expired", error=ConflictError),
    # Google
    Known(code="ZONE_RESOURCE_POOL_EXHAUSTED", error=OutOfStockError, fix=_STOCK),
    Known(code="ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", error=OutOfStockError, fix=_STOCK),
    Known(code="QUOTA_EXCEEDED", error=QuotaExceededError, fix=_QUOTA),
    Known(code="quotaExceeded", error=QuotaExceededError, fix=_QUOTA),
    Known(code="rateLimitExceeded", error=RateLimitedError),
    Known(code="invalid_grant", error=AuthenticationError, fix="look at secretFile, and at this machine's clock"),
    Known(code="RESOURCE_ALREADY_EXISTS", error=AlreadyExistsError),
    Known(code="alreadyExists", error=AlreadyExistsError),
    # Azure
    Known(code="SkuNotAvailable", error=OutOfStockError, fix=_STOCK),
    Known(code="AllocationFailed", error=OutOfStockError, fix=_STOCK),
    Known(code="ZonalAllocationFailed", error=OutOfStockError, fix=_STOCK),
    Known(code="OverconstrainedAllocationRequest", error=OutOfStockError, fix=_STOCK),
    Known(code="OverconstrainedZonalAllocationRequest", error=OutOfStockError, fix=_STOCK),
    Known(code="QuotaExceeded", error=QuotaExceededError, fix=_QUOTA),
    Known(code="OperationNotAllowed", status=409, text="quota", error=QuotaExceededError, fix=_QUOTA),
    Known(code="SubnetIsFull", error=QuotaExceededError, fix="make the subnet larger, or take another one"),
    Known(code="PropertyChangeNotAllowed", error=AlreadyExistsError),
    Known(code="ResourceGroupNotFound", error=PreconditionError, fix="look at project"),
    Known(code="SubscriptionNotFound", error=PreconditionError, fix="look at project"),
    Known(code="unauthorized_client", error=AuthenticationError, fix=_KEYS),
    Known(text="AADSTS90002", error=AuthenticationError, fix="there is no such tenant; look at domain"),
    # CloudSigma
    Known(status=402, error=QuotaExceededError, fix="the account has not enough money"),
    Known(text="cannot provide enough resources", error=OutOfStockError, fix=_STOCK),
    # CloudStack
    Known(status=431, text="entity does not exist", error=NotFoundError),
    Known(status=431, text="unable to find a virtual machine", error=NotFoundError),
    # OpenStack: the last server of a page is gone
    Known(status=400, text="marker [", error=ConflictError),
    # by what they say
    Known(text="label must be unique", error=AlreadyExistsError),
    Known(status=429, error=RateLimitedError),
    Known(status=401, error=AuthenticationError, fix=_KEYS),
    Known(text="quota exceeded", error=QuotaExceededError, fix=_QUOTA),
    Known(text="exceed your droplet limit", error=QuotaExceededError, fix=_QUOTA),
    Known(text="account limit", error=QuotaExceededError, fix=_QUOTA),
    Known(text="limit reached", error=QuotaExceededError, fix=_QUOTA),
    Known(text="limit exceeded", error=QuotaExceededError, fix=_QUOTA),
    Known(text="limit_exceeded", error=QuotaExceededError, fix=_QUOTA),
    Known(text="maximum number of resources", error=QuotaExceededError, fix=_QUOTA),
    Known(text="resource limit", error=QuotaExceededError, fix=_QUOTA),
    Known(text="no valid host was found", error=OutOfStockError, fix=_STOCK),
    Known(text="insufficient capacity", error=OutOfStockError, fix=_STOCK),
    Known(text="insufficient server capacity", error=OutOfStockError, fix=_STOCK),
    Known(text="does not have capacity", error=OutOfStockError, fix=_STOCK),
    Known(text="size is not available in this region", error=OutOfStockError, fix=_STOCK),
    Known(text="plan is not available", error=OutOfStockError, fix=_STOCK),
    Known(text="sold out", error=OutOfStockError, fix=_STOCK),
)


def error_of(error: Exception, wire: Wire, what: str) -> CloudgraftError:
    """Returns the exception for whatever a call of libcloud's has raised."""
    if isinstance(error, CloudgraftError):
        return error
    last = wire.last
    if last is None:
        return _without_request(error, what)
    if isinstance(error, requests.RequestException):
        found = error_of_request(error, what, is_change=last.is_change)
    else:
        found = _of_answer(last, error, what)
    if wire.is_accepted and not isinstance(found, DeadlineError):
        return DeadlineError(f"{found.message}. The cloud had accepted it before: whether it was done is not known")
    return found


def _without_request(error: Exception, what: str) -> CloudgraftError:
    """Libcloud refused before anything was sent."""
    if isinstance(error, requests.RequestException):
        return error_of_request(error, what, is_change=False)
    return InvalidArgumentError(f"{what}: libcloud refuses it: {_printed(error)}")


def _of_answer(last: Exchange, error: Exception, what: str) -> CloudgraftError:
    response = last.response
    if response is None or response.ok:
        # Said yes, in a form that libcloud cannot read: half an answer, another version, an unknown word.
        unknown = DeadlineError if last.is_change else UnavailableError
        return unknown(f"{what}: libcloud cannot read the answer: {_printed(error)}")
    code, text = said(response.content)
    return ERRORS.error(
        f"{what}: {text[:_LONGEST] or response.reason} (HTTP {response.status_code})",
        said=text,
        status=response.status_code,
        code=code,
        is_change=last.is_change,
        retry_after=retry_after(response.headers),
    )


def job_failure(what: str, code: str, text: str, status: int | None = None) -> CloudgraftError:
    """Returns the exception for work that a cloud accepted, and that it then says has failed for good."""
    row = ERRORS.find(code=code, text=text, status=status)
    message = f"{what}: {text[:_LONGEST]}" + (f" ({code})" if code else "")
    if row is not None or (status is not None and 400 <= status < 500):
        return ERRORS.error(message, said=text, code=code, status=status, is_change=False)
    found = error_of_status(status, message, is_change=False)
    return UnavailableError(message) if isinstance(found, InternalError) else found


def without_user_data(error: CloudgraftError, user_data: str) -> CloudgraftError:
    """The same error without user data: as it is, and in base64, since some clouds repeat what they refuse."""
    encoded = base64.b64encode(user_data.encode()).decode()

    def masked(found: re.Match[str]) -> str:
        text = unquote(found[0])
        is_part = any(text[at : at + _TELLING] in encoded for at in range(len(text) - _TELLING + 1))
        return "[user data]" if is_part else found[0]

    message = re.sub(rf"[A-Za-z0-9+/=%]{{{_TELLING},}}", masked, error.message)
    return error_without(type(error)(message, retry_after=error.retry_after), user_data)


def _printed(error: Exception) -> str:
    """What it says. Libcloud's errors may have anything for a message, and then cannot be printed.

    One of them has the whole answer in it, and so the user data of machines that a list shows.
    """
    try:
        text = str(error.value if isinstance(error, MalformedResponseError) else error)
    except TypeError:
        text = str(getattr(error, "message", ""))
    return f"{type(error).__name__} {text[:_LONGEST]}".rstrip()


# -- what clouds say ---------------------------------------------------------------------------------------------------


def said(body: bytes) -> tuple[str, str]:
    """The code and the words of a refusal, whatever its form: EC2's XML, everybody's own JSON, or a page of a proxy."""
    text = body.decode("utf-8", "replace")
    try:
        data = json.loads(text)
    except ValueError:
        code, message = re.search(r"<Code>([^<]*)</Code>", text), re.search(r"<Message>([^<]*)</Message>", text)
        if code:
            return code[1], f"{code[1]}: {message[1] if message else ''}"
        return "", " ".join(re.sub(r"<[^>]*>", " ", text).split())
    leaves = list(_leaves(data))
    codes = [
        value for key, value in leaves if key in ("code", "reason", "id", "error", "error_name") and " " not in value
    ]
    words = [value for key, value in leaves if key in _WORDS] or [value for _, value in leaves]
    known = [code for code in codes if ERRORS.find(code=code)]
    return next(iter([*known, *codes]), ""), "; ".join(dict.fromkeys(words))


_WORDS: Final = ("message", "detail", "errortext", "reason", "error_description", "error", "errors")


def _leaves(data: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(data, dict):
        for name, value in data.items():
            yield from _leaves(value, str(name))
    elif isinstance(data, list):
        for value in data:
            yield from _leaves(value, key)
    elif isinstance(data, str) and data:
        yield key, data
