"""Maps the faults of vSphere to our errors.

A fault has a class with base classes. The nearest base class in the table decides for a fault that the table does not
name. The table therefore ends with the base classes.
"""

from __future__ import annotations

from typing import Final

from cloudgraft.drivers.common.error_table import ErrorTable, Known
from cloudgraft.drivers.vsphere.pyvmomi import Data
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
    UnavailableError,
    UnsupportedError,
)

_ROOM: Final = "free or add room in the cluster or resource pool"
_SPACE: Final = "free space in the datastore, or name another in `datastore`"

ERRORS: Final = ErrorTable(
    Known(error=OutOfStockError, code="InsufficientResourcesFault", fix=_ROOM),
    Known(error=OutOfStockError, code="NoDiskSpace", fix=_SPACE),
    Known(error=OutOfStockError, code="InsufficientStorageSpace", fix=_SPACE),
    Known(error=OutOfStockError, code="NoCompatibleHost", fix="no host can run it: look at the hosts of the cluster"),
    Known(error=OutOfStockError, code="NoActiveHostInCluster", fix="no host of the cluster is up"),
    Known(error=OutOfStockError, code="ResourceNotAvailable", fix=_ROOM),
    Known(error=QuotaExceededError, code="NotEnoughLicenses", fix="the licence allows no more; look at it in vCenter"),
    Known(error=QuotaExceededError, code="LimitExceeded", fix="a limit of vCenter or of the licence is reached"),
    Known(error=QuotaExceededError, code="InvalidLicense", fix="look at the licence in vCenter"),
    Known(error=AuthenticationError, code="InvalidLogin", fix="look at `user` and at what is in `passwordFile`"),
    Known(error=AuthenticationError, code="NotAuthenticated", fix="vCenter ended the session"),
    Known(error=PermissionDeniedError, code="NoPermission", fix="give the role of `user` this privilege"),
    Known(error=PermissionDeniedError, code="RestrictedVersion", fix="the licence of the host has no write access"),
    Known(error=AlreadyExistsError, code="DuplicateName"),
    Known(error=NotFoundError, code="ManagedObjectNotFound", fix="it was removed in vCenter"),
    Known(error=ConflictError, code="TaskInProgress"),
    Known(error=ConflictError, code="ConcurrentAccess"),
    Known(error=ConflictError, code="ResourceInUse"),
    Known(error=ConflictError, code="FileLocked", fix="something else works on the files, such as a backup"),
    Known(error=ConflictError, code="RequestCanceled", fix="somebody cancelled the task in vCenter"),
    Known(error=InvalidArgumentError, code="InvalidName"),
    Known(error=InvalidArgumentError, code="InvalidFolder", fix="look at `folder`"),
    Known(error=InvalidArgumentError, code="InvalidDatastore", fix="look at `datastore`"),
    Known(error=InvalidArgumentError, code="FileNotFound", fix="look at the files of the template"),
    Known(
        error=InvalidArgumentError, code="VmConfigFault", fix="look at the template, at the shape and at the networks"
    ),
    Known(error=InvalidArgumentError, code="InvalidArgument", fix="look at the machine's settings"),
    Known(error=InvalidArgumentError, code="InvalidRequest"),
    Known(error=UnsupportedError, code="MethodDisabled", fix="vCenter has disabled this for the object"),
    Known(error=UnsupportedError, code="NotSupported"),
    Known(error=PreconditionError, code="InvalidState"),
    Known(error=UnavailableError, code="TooManyConcurrentNativeClones", fix="the storage takes no more at once"),
)


def error_of_fault(fault: Data, what: str, *, is_change: bool) -> CloudgraftError:
    """Returns the exception for a fault of a call or a task."""
    names = [cls.__name__.rpartition(".")[2] for cls in type(fault).__mro__]
    code = next((name for name in names if ERRORS.find(code=name) is not None), names[0])
    return ERRORS.error(f"{what}: {text_of(fault)}", is_change=is_change, code=code)


def text_of(fault: Data) -> str:
    """Describes a fault on one line: its class, its text, and the fields that help a person."""
    name = type(fault).__name__.rpartition(".")[2]
    text = str(fault.msg or "") or "; ".join(str(one.message) for one in fault.faultMessage or () if one.message)
    cause = fault.faultCause
    if not text and cause is not None and cause.msg:
        text = str(cause.msg)
    fields = [f"{label} {value}" for key, label in _FIELDS.items() if (value := getattr(fault, key, None))]
    return " ".join(": ".join(part for part in (name, text, ", ".join(fields)) if part).split())


_FIELDS: Final = {
    "privilegeId": "the privilege",
    "object": "on",
    "invalidProperty": "the property",
    "property": "the property",
    "datastore": "the datastore",
    "name": "the name",
    "reason": "because",
}
