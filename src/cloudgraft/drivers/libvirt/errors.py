"""Maps libvirt's errors to ours. Its codes are numbers; here they have the names of its documentation.

The numbers are written out, so that the table can be read and tested where libvirt is not installed.
"""

from __future__ import annotations

from typing import Final

from cloudgraft.drivers.common.error_table import ErrorTable, Known
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    AuthenticationError,
    CloudgraftError,
    DeadlineError,
    InvalidArgumentError,
    NotFoundError,
    OutOfStockError,
    PermissionDeniedError,
    PreconditionError,
    UnavailableError,
    UnsupportedError,
)

GONE: Final = 42
NO_NETWORK: Final = 43
NO_POOL: Final = 49
NO_VOLUME: Final = 50
NOT_NOW: Final = 55
NO_METADATA: Final = 80
_CODES: Final = {
    1: "VIR_ERR_INTERNAL_ERROR",
    2: "VIR_ERR_NO_MEMORY",
    3: "VIR_ERR_NO_SUPPORT",
    8: "VIR_ERR_INVALID_ARG",
    9: "VIR_ERR_OPERATION_FAILED",
    27: "VIR_ERR_XML_ERROR",
    28: "VIR_ERR_DOM_EXIST",
    29: "VIR_ERR_OPERATION_DENIED",
    35: "VIR_ERR_XML_DETAIL",
    38: "VIR_ERR_SYSTEM_ERROR",
    GONE: "VIR_ERR_NO_DOMAIN",
    NO_NETWORK: "VIR_ERR_NO_NETWORK",
    45: "VIR_ERR_AUTH_FAILED",
    NO_POOL: "VIR_ERR_NO_STORAGE_POOL",
    NO_VOLUME: "VIR_ERR_NO_STORAGE_VOL",
    NOT_NOW: "VIR_ERR_OPERATION_INVALID",
    67: "VIR_ERR_CONFIG_UNSUPPORTED",
    68: "VIR_ERR_OPERATION_TIMEOUT",
    74: "VIR_ERR_ARGUMENT_UNSUPPORTED",
    79: "VIR_ERR_AUTH_CANCELLED",
    NO_METADATA: "VIR_ERR_NO_DOMAIN_METADATA",
    84: "VIR_ERR_OPERATION_UNSUPPORTED",
    88: "VIR_ERR_ACCESS_DENIED",
    91: "VIR_ERR_CPU_INCOMPATIBLE",
    92: "VIR_ERR_XML_INVALID_SCHEMA",
    94: "VIR_ERR_AUTH_UNAVAILABLE",
}
_LOG: Final = "the host's log of this machine says more: /var/log/libvirt/qemu, or ~/.cache/libvirt/qemu/log"
_OPTIONS: Final = "look at domainType, arch, machineType, cpuMode, firmware and seedBus of the cloud"
_CREDENTIALS: Final = "look at uri, username and passwordFile, and at the keys or certificates of the user we run as"
_NO_BRIDGE: Final = "look at `bridge` in networks: it must be on the host, and allowed in its /etc/qemu/bridge.conf"

ERRORS = ErrorTable(
    Known(error=OutOfStockError, text="No space left on device", fix="make room in the storage pool"),
    Known(error=OutOfStockError, text="Disk quota exceeded", fix="make room in the storage pool"),
    Known(error=OutOfStockError, text="Cannot allocate memory", fix="the host has not enough memory left"),
    Known(error=OutOfStockError, code="VIR_ERR_NO_MEMORY", fix="the host has not enough memory left"),
    Known(error=AuthenticationError, code="VIR_ERR_AUTH_FAILED", fix=_CREDENTIALS),
    Known(error=AuthenticationError, code="VIR_ERR_AUTH_CANCELLED", fix=_CREDENTIALS),
    Known(error=AuthenticationError, code="VIR_ERR_AUTH_UNAVAILABLE", fix=_CREDENTIALS),
    Known(error=AuthenticationError, code="VIR_ERR_SYSTEM_ERROR", text="Permission denied (", fix=_CREDENTIALS),
    Known(
        error=AuthenticationError,
        code="VIR_ERR_SYSTEM_ERROR",
        text="Host key verification failed",
        fix="put the host's key into known_hosts of the user we run as",
    ),
    Known(
        error=PermissionDeniedError,
        code="VIR_ERR_SYSTEM_ERROR",
        text="sock': Permission denied",
        fix="the user we run as must be in the group libvirt",
    ),
    Known(error=PermissionDeniedError, code="VIR_ERR_ACCESS_DENIED", fix="the host's polkit rules must allow it"),
    Known(error=PermissionDeniedError, code="VIR_ERR_OPERATION_DENIED", fix="the uri must not be read-only"),
    Known(
        error=PreconditionError,
        code="VIR_ERR_SYSTEM_ERROR",
        text="Cannot read CA certificate",
        fix="put certificates for TLS there, or name their directory in the uri: ?pkipath=…",
    ),
    Known(error=AlreadyExistsError, text="already exists with uuid", fix="another made a machine of this name"),
    Known(error=AlreadyExistsError, text="is already defined with uuid", fix="this machine was renamed by hand"),
    Known(error=AlreadyExistsError, code="VIR_ERR_DOM_EXIST"),
    Known(error=NotFoundError, code="VIR_ERR_NO_DOMAIN"),
    Known(error=InvalidArgumentError, code="VIR_ERR_NO_STORAGE_POOL", fix="look at pool and imagePool of the cloud"),
    Known(error=InvalidArgumentError, code="VIR_ERR_NO_STORAGE_VOL", fix="look at image of the group or of the cloud"),
    Known(error=InvalidArgumentError, code="VIR_ERR_NO_NETWORK", fix="look at networks of the group or of the cloud"),
    Known(error=InvalidArgumentError, text="bridge helper", fix=_NO_BRIDGE),
    Known(error=InvalidArgumentError, text="Cannot get interface MTU", fix=_NO_BRIDGE),
    Known(error=UnavailableError, text="cannot acquire state change lock", fix="another works on this machine"),
    Known(error=UnavailableError, text="is still being allocated", fix="a copy of its image is still being made"),
    Known(error=UnavailableError, text="pool has asynchronous jobs", fix="the storage pool is busy"),
    Known(error=PreconditionError, text="unexpectedly closed the monitor", fix=_LOG),
    Known(error=PreconditionError, text="exited while connecting to monitor", fix=_LOG),
    Known(error=InvalidArgumentError, code="VIR_ERR_CONFIG_UNSUPPORTED", fix=_OPTIONS),
    Known(error=InvalidArgumentError, code="VIR_ERR_ARGUMENT_UNSUPPORTED", fix=_OPTIONS),
    Known(error=InvalidArgumentError, code="VIR_ERR_CPU_INCOMPATIBLE", fix=_OPTIONS),
    Known(error=InvalidArgumentError, code="VIR_ERR_XML_ERROR", fix=_OPTIONS),
    Known(error=InvalidArgumentError, code="VIR_ERR_XML_DETAIL", fix=_OPTIONS),
    Known(error=InvalidArgumentError, code="VIR_ERR_XML_INVALID_SCHEMA", fix=_OPTIONS),
    Known(error=InvalidArgumentError, code="VIR_ERR_INVALID_ARG", fix=_OPTIONS),
    Known(error=PreconditionError, code="VIR_ERR_OPERATION_INVALID", fix="something on the host is not as it must be"),
    Known(error=UnsupportedError, code="VIR_ERR_NO_SUPPORT", fix="this libvirt, or this kind of pool, cannot do it"),
    Known(error=UnsupportedError, code="VIR_ERR_OPERATION_UNSUPPORTED", fix="this kind of pool cannot do it"),
)


def error_of(code: int, message: str, what: str, *, is_change: bool) -> CloudgraftError:
    """Returns the exception for an error of libvirt. ``what`` names the action; ``is_change``: it changes something.

    What no row names leaves a change open: a connection that broke has no row, and the host may well have done it.
    """
    name = _CODES.get(code, f"VIR_ERR_{code}")
    error = ERRORS.error(f"{what}: {message}", said=message, is_change=is_change, code=name)
    if isinstance(error, DeadlineError):
        return DeadlineError(f"{error.message}; whether it was done is not known")
    return error
