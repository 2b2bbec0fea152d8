"""Maps OpenStack's errors to ours, by HTTP status and text: it has no codes.

The same rows classify the failure of a server that Nova accepted and then could not build: see ``failure_of``.
"""

from __future__ import annotations

import json
from typing import Final

import requests
from keystoneauth1 import exceptions as keystone

from cloudgraft.drivers.common.error_table import ErrorTable, Known, retry_after
from cloudgraft.drivers.common.requests_calls import error_of_request
from cloudgraft.drivers.common.secrets import cut
from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    ConflictError,
    DeadlineError,
    InvalidArgumentError,
    OutOfStockError,
    PermissionDeniedError,
    PreconditionError,
    QuotaExceededError,
    RateLimitedError,
    UnavailableError,
    UnsupportedError,
)

_QUOTA: Final = "raise the project's quota, or delete something else"
_NO_ROOM: Final = "no host has room for this flavour now, or none has what it requires (zone, server group, GPU)"
_ADDRESSES: Final = "the network has no free addresses; give it another subnet"
_LONGEST: Final = 600  # characters of the cloud's message that ours repeats

ERRORS: Final = ErrorTable(
    Known(text="quota exceeded", error=QuotaExceededError, fix=_QUOTA),
    Known(text="quota_exceeded", error=QuotaExceededError, fix=_QUOTA),
    Known(text="maximum number of ports exceeded", error=QuotaExceededError, fix=_QUOTA),
    Known(text="maximum number of volumes", error=QuotaExceededError, fix=_QUOTA),
    Known(text="VolumeLimitExceeded", error=QuotaExceededError, fix=_QUOTA),
    Known(text="VolumeSizeExceedsAvailableQuota", error=QuotaExceededError, fix=_QUOTA),
    Known(text="No valid host was found", error=OutOfStockError, fix=_NO_ROOM),
    Known(text="Exhausted all hosts available", error=OutOfStockError, fix=_NO_ROOM),
    Known(text="Insufficient compute resources", error=OutOfStockError, fix=_NO_ROOM),
    Known(text="No more IP addresses", error=OutOfStockError, fix=_ADDRESSES),
    Known(text="No fixed IP addresses available", error=OutOfStockError, fix=_ADDRESSES),
    Known(status=413, error=RateLimitedError),
    Known(status=429, error=RateLimitedError),
    Known(status=401, error=AuthenticationError, fix="check user, password or application credential, and project"),
    Known(status=403, text="Policy doesn't allow", error=PermissionDeniedError, fix="give the user the role `member`"),
    Known(
        status=403,
        text="Only volume-backed servers are allowed",
        error=InvalidArgumentError,
        fix="this flavour has no disk: set machine.bootVolume",
    ),
    Known(
        status=406,
        text="not supported by the API",
        error=UnsupportedError,
        fix="this driver needs the compute API 2.69, from the release Stein (2019) on",
    ),
    Known(status=400, text="Can not find requested image", error=InvalidArgumentError, fix="check machine.image"),
    Known(status=400, text="image", error=InvalidArgumentError, fix="check machine.image and machine.bootVolume"),
    Known(status=400, text="Flavor", error=InvalidArgumentError, fix="check machine.shape"),
    Known(status=400, text="key_name", error=InvalidArgumentError, fix="check machine.keyPair"),
    Known(status=400, text="Security group", error=InvalidArgumentError, fix="check machine.securityGroups"),
    Known(status=409, text="security_groups found", error=InvalidArgumentError, fix="name the group by its id"),
    Known(status=404, text="Security group", error=InvalidArgumentError, fix="check machine.securityGroups"),
    Known(status=400, text="availability zone", error=InvalidArgumentError, fix="check machine.zone"),
    Known(status=400, text="server group", error=InvalidArgumentError, fix="check machine.serverGroup"),
    Known(status=400, text="volume type", error=InvalidArgumentError, fix="check machine.bootVolume.type"),
    Known(status=400, text="network", error=InvalidArgumentError, fix="check machine.networks"),
    Known(
        status=409,
        text="Multiple possible networks",
        error=InvalidArgumentError,
        fix="choose with machine.networks",
    ),
    Known(status=400, text="marker [", error=ConflictError),  # the last server of a page is gone: read the list again
    Known(status=409, text="is locked", error=PreconditionError, fix="the server is locked: unlock it in the cloud"),
)


def error_of_answer(response: requests.Response, what: str, *, is_change: bool) -> CloudgraftError:
    """Returns the exception for an error response."""
    after = retry_after(response.headers)
    said = _message(response)
    is_page = response.content.lstrip()[:1] != b"{"
    return _error(response.status_code, said, what, is_change=is_change, after=after, is_page=is_page)


def error_of_library(error: keystone.ClientException, what: str, *, is_change: bool) -> CloudgraftError:
    """Returns the exception for an error of keystoneauth.

    keystoneauth wraps the errors of requests, and reports all timeouts as connection timeouts: the real cause is in
    their context.
    """
    if isinstance(error, keystone.HttpError):  # of Keystone, for a token
        after = float(error.retry_after) or None
        return _error(error.http_status, str(error.message), what, is_change=is_change, after=after)
    if isinstance(error.__context__, requests.RequestException):
        return error_of_request(error.__context__, what, is_change=is_change)
    if isinstance(error, (keystone.EndpointNotFound, keystone.DiscoveryFailure)):
        return PreconditionError(f"{what}: {error}; check region, interface and authUrl")
    if isinstance(error, keystone.AuthorizationFailure):
        return AuthenticationError(f"{what}: {error}")
    return DeadlineError(f"{what}: {error}") if is_change else UnavailableError(f"{what}: {error}")


def _error(
    status: int, said: str, what: str, *, is_change: bool, after: float | None, is_page: bool = False
) -> CloudgraftError:
    message = f"{what}: {cut(said, _LONGEST)} (HTTP {status})"
    return ERRORS.error(message, said=said, status=status, is_change=is_change, retry_after=after, is_page=is_page)


def failure_of(text: str) -> str:
    """Returns the slug of our error for a server's failure; empty when no row matches."""
    row = ERRORS.find(text=text)
    return row.error.slug if row is not None else ""


def _message(response: requests.Response) -> str:
    """Returns the message in a response. Every service wraps it in a key of its own; proxies respond with a page."""
    try:
        body = json.loads(response.content)
    except ValueError:
        return " ".join(response.text.split()) or str(response.reason)
    for value in (body, *body.values()) if isinstance(body, dict) else ():
        if isinstance(value, dict) and isinstance(value.get("message"), str):
            return value["message"] or str(response.reason)
    return str(response.reason)
