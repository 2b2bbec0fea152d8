"""Maps the errors of Hetzner's API to ours, with what a person can do about them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

from cloudgraft.drivers.common.error_table import ErrorTable, Known, retry_after
from cloudgraft.drivers.common.secrets import cut
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    AuthenticationError,
    CloudgraftError,
    ConflictError,
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

_READ_ONLY: Final = "make an API token with the permission Read & Write, and put it into tokenFile"
_ELSEWHERE: Final = "another server type or location may have room"
_SETTINGS: Final = "check the group's machine section"
_LESS: Final = "let cloudgraft list less often, with engine.observeEvery of the cloud, or let Hetzner raise the limit"

ERRORS: Final = ErrorTable(
    Known(code="unauthorized", error=AuthenticationError, fix="put a token of this project into tokenFile"),
    Known(code="forbidden", error=PermissionDeniedError, fix=_READ_ONLY),
    Known(code="token_readonly", error=PermissionDeniedError, fix=_READ_ONLY),
    Known(
        code="resource_limit_exceeded",
        error=QuotaExceededError,
        fix="ask for a higher limit in the console, under Limits, or delete what the project does not need",
    ),
    Known(code="resource_unavailable", error=OutOfStockError, fix=_ELSEWHERE),
    Known(code="placement_error", error=OutOfStockError, fix=f"{_ELSEWHERE}; a placement group takes ten servers"),
    Known(code="no_subnet_available", error=OutOfStockError, fix="give the network a larger subnet"),
    Known(code="ip_not_available", error=OutOfStockError, fix="give the network a larger subnet"),
    Known(code="rate_limit_exceeded", error=RateLimitedError, fix=_LESS),
    Known(code="uniqueness_error", error=AlreadyExistsError),
    Known(code="locked", error=ConflictError),  # another action is in progress
    Known(code="conflict", error=ConflictError),
    Known(code="protected", error=PreconditionError, fix="remove its protection in the console, or with hcloud"),
    Known(code="resource_locked", error=PreconditionError, fix="only Hetzner's support can unlock it"),
    Known(code="maintenance", error=UnavailableError),
    Known(code="not_found", error=NotFoundError),
    Known(code="invalid_input", error=InvalidArgumentError, fix=_SETTINGS),
    Known(code="invalid_server_type", error=InvalidArgumentError, fix="take another machine.shape"),
    Known(code="unsupported_error", error=InvalidArgumentError, fix=_SETTINGS),
    Known(code="networks_overlap", error=InvalidArgumentError, fix="take other machine.networks"),
    Known(code="incompatible_network_type", error=InvalidArgumentError, fix="take other machine.networks"),
    Known(code="private_net_only_server", error=InvalidArgumentError, fix="firewalls need a public address"),
    Known(code="json_error", error=InvalidArgumentError),
    Known(code="deprecated_api_endpoint", error=UnsupportedError, fix="this release of cloudgraft is too old for it"),
)

# Whatever the status: the API itself does not know the outcome.
_UNSURE: Final = frozenset({"server_error", "service_error", "unknown_error", "unavailable", "bad_gateway", "timeout"})
# The limit refills by one request per second; RateLimit-Reset says when it is full, up to an hour later.
_LONGEST_PAUSE: Final = 60.0  # seconds
_LONGEST_QUOTE: Final = 300  # characters of a response that is not from the API


def error_of_answer(
    what: str, status: int, headers: Mapping[str, str], body: bytes, *, is_change: bool
) -> CloudgraftError:
    """Returns the exception for an error response."""
    code, text = _read(body, status)
    return ERRORS.error(
        f"{what}: {text}",
        said=text,
        is_change=is_change,
        status=None if code in _UNSURE else status,
        code=code,
        retry_after=_pause(headers) if status == 429 else retry_after(headers),
    )


def _read(body: bytes, status: int) -> tuple[str, str]:
    """Returns the API's code and message. A response of a proxy has no code."""
    try:
        error: Any = json.loads(body)["error"]
        code, message = str(error["code"]), str(error["message"])
    except (ValueError, TypeError, KeyError):
        quoted = cut(" ".join(body.decode("utf-8", "replace").split()), _LONGEST_QUOTE)
        return "", f"the answer was {status} {quoted}".rstrip()
    details = error.get("details") or {}
    fields = details.get("fields") if isinstance(details, dict) else None
    names = [str(field["name"]) for field in fields or () if isinstance(field, dict) and "name" in field]
    where = f", in {', '.join(names)}" if names else ""
    return code, f"{message} ({code}{where})"


def _pause(headers: Mapping[str, str]) -> float | None:
    if (seconds := retry_after(headers)) is not None:
        return seconds
    reset = next((value for key, value in headers.items() if key.lower() == "ratelimit-reset"), "")
    try:
        return min(max(1.0, float(reset) - time.time()), _LONGEST_PAUSE)
    except ValueError:
        return None
