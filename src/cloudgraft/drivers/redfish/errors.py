"""Maps the errors of Redfish controllers to ours, with what a person can do about them.

A controller names an error by a message of a registry, such as ``Base.1.8.InsufficientPrivilege``. Registries have
versions, and vendors have their own registries, so only the last part counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sushy.exceptions import HTTPError, SushyError

from cloudgraft.drivers.common.error_table import ErrorTable, Known
from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    ConflictError,
    InternalError,
    InvalidArgumentError,
    PermissionDeniedError,
    PreconditionError,
    RateLimitedError,
    UnavailableError,
    UnsupportedError,
)

_ACCOUNT: Final = "look at username and passwordFile, and at the account on the controller"
_ROLE: Final = "give the account the role Operator on the controller: it must switch power and virtual media"
_MEDIA: Final = "the controller itself fetches the image: look whether it can reach machine.image and seedUrl"
_SYSTEM: Final = "look at url and system of the host; a controller that has just started may not have it yet"
_LICENSE: Final = "virtual media needs a license on many a controller; without image and seedDirectory none is needed"
_BUSY: Final = "let cloudgraft list less often, with engine.observeEvery of the cloud"
_SESSIONS: Final = "use `auth: basic`, or end sessions on the controller"

ERRORS: Final = ErrorTable(
    Known(code="InsufficientPrivilege", error=PermissionDeniedError, fix=_ROLE),
    Known(code="PasswordChangeRequired", error=AuthenticationError, fix="give the account a new password first"),
    Known(code="NoValidSession", error=AuthenticationError, fix=_ACCOUNT),
    Known(code="AccountForSessionNoLongerExists", error=AuthenticationError, fix=_ACCOUNT),
    Known(code="SessionLimitExceeded", error=RateLimitedError, fix=_SESSIONS),
    Known(code="CreateLimitReachedForResource", error=RateLimitedError, fix=_SESSIONS),
    Known(code="ResourceExhaustion", error=RateLimitedError, fix=_BUSY),
    Known(code="ResourceInUse", error=ConflictError),
    Known(code="ResourceInStandby", error=ConflictError),
    Known(code="InvalidOperationForSystemState", error=ConflictError),  # of HPE
    Known(code="UnableToModifyDuringSystemPOST", error=ConflictError),  # of HPE
    Known(code="ServiceTemporarilyUnavailable", error=UnavailableError),
    Known(code="ServiceShuttingDown", error=UnavailableError),
    Known(text="SYS518", error=UnavailableError),  # of Dell: it is not ready yet
    Known(code="ActionNotSupported", error=UnsupportedError),
    Known(code="ActionParameterNotSupported", error=UnsupportedError),
    Known(code="ActionParameterValueNotInList", error=UnsupportedError),
    Known(code="PropertyValueNotInList", error=UnsupportedError),
    Known(code="PropertyNotWritable", error=UnsupportedError),
    Known(code="AccessDenied", error=InvalidArgumentError, fix=_MEDIA),  # not to us: to the controller, elsewhere
    Known(code="ResourceAtUriUnauthorized", error=InvalidArgumentError, fix=_MEDIA),
    Known(code="CouldNotEstablishConnection", error=InvalidArgumentError, fix=_MEDIA),
    Known(code="SourceDoesNotSupportProtocol", error=InvalidArgumentError, fix=_MEDIA),
    Known(code="ResourceAtUriInUnknownFormat", error=InvalidArgumentError, fix=_MEDIA),
    Known(code="LicenseRequired", error=PreconditionError, fix=_LICENSE),
    Known(code="LicenseKeyRequired", error=PreconditionError, fix=_LICENSE),  # of HPE
    Known(status=401, error=AuthenticationError, fix=_ACCOUNT),
    Known(status=403, error=PermissionDeniedError, fix=_ROLE),
    # Never NotFoundError: a controller that has lost its system for a while does not say that the machine is gone.
    Known(status=404, error=PreconditionError, fix=_SYSTEM),
    Known(status=405, error=UnsupportedError),
)
_CODES: Final = frozenset(row.code for row in ERRORS.rows if row.code)
_LONGEST: Final = 300  # characters of what a controller says


def error_of(error: SushyError, what: str, *, is_change: bool, pause: float | None = None) -> CloudgraftError:
    """Returns the exception for an error of the library. ``pause``: seconds that the controller asks to wait."""
    if isinstance(error, HTTPError):
        code = next((word for word in _words(error) if word in _CODES), "")
        said = " ".join(str(error.detail or error.code).split())[:_LONGEST]
        message = f"{what}: the controller answered {error.status_code}: {said}"
        return ERRORS.error(
            message if not code or code in message else f"{message} ({code})",
            said=said,
            is_change=is_change,
            status=error.status_code,
            code=code,
            retry_after=pause,
        )
    return InternalError(f"{what}: {error}") if is_change else UnavailableError(f"{what}: {error}")


def _words(error: HTTPError) -> Iterator[str]:
    """Yields the names of the messages of a response, the most specific first."""
    info: Any = error.extended_info
    entries = info if isinstance(info, list) else [info]
    for entry in entries:
        if isinstance(entry, dict):
            yield str(entry.get("MessageId", "")).rpartition(".")[2]
    yield str(error.code).rpartition(".")[2]
