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

from cloudgraft.drivers.common.error_table import ErrorTable, Known, retry_after
from cloudgraft.drivers.common.requests_calls import error_of_request
from cloudgraft.drivers.common.secrets import error_without
from cloudgraft.drivers.libcloud.wire import Wire
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

_QUOTA: Final = "ask the cloud for a higher limit, or delete something else"
_STOCK: Final = "try another zone or another shape"
_KEYS: Final = "check key and secretFile"
_LONGEST: Final = 600  # characters of a cloud's message that ours repeats
_TELLING: Final = 12  # characters in base64 that do not match by chance

ERRORS: Final = ErrorTable(
    # EC2, and clouds with its API
    Known(code="InsufficientInstanceCapacity", error=OutOfStockError, fix=_STOCK),
    Known(code="InsufficientCapacity", error=OutOfStockError, fix=_STOCK),
    Known(code="InstanceLimitExceeded", error=QuotaExceededError, fix=_QUOTA),
    Known(code="VcpuLimitExceeded", error=QuotaExceededError, fix=_QUOTA),
    Known(code="RequestLimitExceeded", error=RateLimitedError),
    Known(code="Throttling", error=RateLimitedError),
    Known(code="AuthFailure", error=AuthenticationError, fix=_KEYS),
    Known(code="InvalidClientTokenId", error=AuthenticationError, fix=_KEYS),
    Known(code="SignatureDoesNotMatch", error=AuthenticationError, fix=_KEYS),
    Known(code="RequestExpired", error=AuthenticationError, fix="this machine's clock is wrong, or the key expired"),
    Known(code="UnauthorizedOperation", error=PermissionDeniedError, fix="allow the key this action"),
    Known(code="IdempotentParameterMismatch", error=AlreadyExistsError),
    Known(code="InvalidInstanceID.NotFound", error=NotFoundError),
    Known(code="InvalidInstanceID.Malformed", error=NotFoundError),
    Known(text="InvalidAMIID", error=InvalidArgumentError, fix="check machine.image"),
    # Outscale's own API: a type, or a number where the type is too general
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
    Known(code="invalid_grant", error=AuthenticationError, fix="check secretFile, and this machine's clock"),
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
    Known(code="SubnetIsFull", error=QuotaExceededError, fix="enlarge the subnet, or use another one"),
    Known(code="PropertyChangeNotAllowed", error=AlreadyExistsError),
    Known(code="ResourceGroupNotFound", error=PreconditionError, fix="check project"),
    Known(code="SubscriptionNotFound", error=PreconditionError, fix="check project"),
    Known(code="unauthorized_client", error=AuthenticationError, fix=_KEYS),
    Known(text="AADSTS90002", error=AuthenticationError, fix="there is no such tenant; check domain"),
    # CloudSigma
    Known(status=402, error=QuotaExceededError, fix="the account has not enough credit"),
    Known(text="cannot provide enough resources", error=OutOfStockError, fix=_STOCK),
    # CloudStack
    Known(status=431, text="entity does not exist", error=NotFoundError),
    Known(status=431, text="unable to find a virtual machine", error=NotFoundError),
    # OpenStack: the last server of a page is gone
    Known(status=400, text="marker [", error=ConflictError),
    # Any cloud, by the text
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
    """Returns the exception for any error of a libcloud call."""
    if isinstance(error, CloudgraftError):
        return error
    last = wire.last
    if isinstance(error, requests.RequestException):
        found = error_of_request(error, what, is_change=last is not None and last.is_change)
    elif last is None:  # before anything was sent
        return InvalidArgumentError(f"{what}: libcloud refuses it: {_printed(error)}")
    elif last.response is None or last.response.ok:
        # Accepted, in a form that libcloud cannot read: half a response, another version, an unknown word.
        unknown = DeadlineError if last.is_change else UnavailableError
        found = unknown(f"{what}: libcloud cannot read the response: {_printed(error)}")
    else:
        found = refusal(last.response, what, is_change=last.is_change)
    if wire.is_accepted and not isinstance(found, DeadlineError):
        return DeadlineError(f"{found.message}. The cloud had accepted it before: whether it was done is not known")
    return found


def refusal(response: requests.Response, what: str, *, is_change: bool, code: str = "") -> CloudgraftError:
    """Returns the exception for an error response; ``code`` is for clouds whose code is in a place of its own."""
    found, text = said(response.content)
    is_page = not found and response.content.lstrip()[:1] not in (b"{", b"[")
    return ERRORS.error(
        f"{what}: {text[:_LONGEST] or response.reason} (HTTP {response.status_code})",
        said=text,
        status=response.status_code,
        code=code or found,
        is_change=is_change,
        retry_after=retry_after(response.headers),
        is_page=is_page,
    )


def job_failure(what: str, code: str, text: str, status: int | None = None) -> CloudgraftError:
    """Returns the exception for a job that a cloud accepted, and that then failed for good."""
    message = f"{what}: {text[:_LONGEST]}" + (f" ({code})" if code else "")
    found = ERRORS.error(message, said=text, code=code, status=status, is_change=False)
    return UnavailableError(message) if isinstance(found, InternalError) else found


def without_user_data(error: CloudgraftError, user_data: str) -> CloudgraftError:
    """Returns the error without user data, plain or in base64: some clouds repeat what they refuse."""
    encoded = base64.b64encode(user_data.encode()).decode()

    def masked(found: re.Match[str]) -> str:
        text = unquote(found[0])
        is_part = any(text[at : at + _TELLING] in encoded for at in range(len(text) - _TELLING + 1))
        return "[user data]" if is_part else found[0]

    message = re.sub(rf"[A-Za-z0-9+/=%]{{{_TELLING},}}", masked, error.message)
    return error_without(type(error)(message, retry_after=error.retry_after), user_data)


def _printed(error: Exception) -> str:
    """Returns an error's text. Some of libcloud's errors have no text as a message, and cannot be printed.

    MalformedResponseError has the whole response in it, and so the user data of listed machines.
    """
    try:
        text = str(error.value if isinstance(error, MalformedResponseError) else error)
    except TypeError:
        text = str(getattr(error, "message", ""))
    return f"{type(error).__name__} {text[:_LONGEST]}".rstrip()


def said(body: bytes) -> tuple[str, str]:
    """Returns code and text of an error response in any form: EC2's XML, any JSON, or a page of a proxy."""
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
