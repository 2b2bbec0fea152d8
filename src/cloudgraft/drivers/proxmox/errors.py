"""Maps the errors of Proxmox VE to ours, with what a person can do about them.

Proxmox has no error codes: an error is a sentence, in the status line of the response or as a task's exit status, and
most come as 500. The table knows the sentences that prove that nothing was done. Any other 500 to a change leaves the
outcome unknown.
"""

from __future__ import annotations

import json
from typing import Any, Final

from requests import Response

from cloudgraft.drivers.common.error_table import ErrorTable, Known, retry_after
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
    UnavailableError,
)

_ROOM: Final = "make room on the storage, or let machines be made on another one"
_SHARED: Final = "put the template's disks on a shared storage, or a template of the same name on every node"
_SEEDS: Final = "let seedStorage name a storage of files that takes ISO images"
_LONGEST_QUOTE: Final = 300  # characters of a response that is not from Proxmox

ERRORS: Final = ErrorTable(
    Known(status=401, error=AuthenticationError, fix="look at user, and at what is in tokenFile or passwordFile"),
    Known(
        text="for modifying tag",
        error=PermissionDeniedError,
        fix="our marks are tags: let user-tag-access in the datacenter's options be free",
    ),
    Known(text="permission check failed", error=PermissionDeniedError, fix="give the user, or its token, that right"),
    Known(text="config file already exists", error=AlreadyExistsError),
    Known(text="failed: file exists", error=AlreadyExistsError),  # the same, when it is on another node
    Known(text="no quorum", error=UnavailableError, fix="bring nodes back, until more than half of them are there"),
    Known(status=595, error=UnavailableError, fix="the node that was to do it cannot be reached"),
    Known(text="is locked (", error=ConflictError),  # another operation on this machine is in progress
    Known(text="can't lock file", error=ConflictError),
    Known(text="is running - destroy failed", error=ConflictError),  # it is starting
    Known(text="no space left on device", error=OutOfStockError, fix=_ROOM),
    Known(text="not enough free space", error=OutOfStockError, fix=_ROOM),
    Known(text="insufficient free space", error=OutOfStockError, fix=_ROOM),
    Known(text="out of space", error=OutOfStockError, fix=_ROOM),
    Known(text="cannot allocate memory", error=OutOfStockError, fix="the node is full; let memoryReserve be larger"),
    Known(text="linked clone feature is not supported", error=InvalidArgumentError, fix="say machine.fullClone: true"),
    Known(text="vm uses local storage", error=InvalidArgumentError, fix=_SHARED),
    Known(text="clone to non-shared storage", error=InvalidArgumentError, fix=_SHARED),
    Known(text="does not support vm images", error=InvalidArgumentError, fix="take another storage"),
    Known(text="can't upload to storage type", error=InvalidArgumentError, fix=_SEEDS),
    Known(text="does not support 'iso' content", error=InvalidArgumentError, fix=_SEEDS),
    Known(text="is not available on node", error=InvalidArgumentError, fix="take another storage, or other nodes"),
    Known(text="shrinking disks is not supported", error=InvalidArgumentError, fix="let the shape's disk be larger"),
    Known(text="vcpus allowed per vm", error=InvalidArgumentError, fix="take a machine.shape with fewer CPUs"),
    Known(text="bridge '", error=InvalidArgumentError, fix="look at machine.bridge, and at the networks of the nodes"),
    Known(text="protection mode enabled", error=PreconditionError, fix="take the protection off the machine"),
    Known(text="configuration file 'nodes/", error=NotFoundError),
    Known(text="is not online", error=UnavailableError, fix="look at the storage"),
    Known(text="storage '", error=InvalidArgumentError, fix="look at storage and seedStorage"),
    Known(text="pool '", error=InvalidArgumentError, fix="make the pool, or name another"),
    Known(text="no such cluster node", error=InvalidArgumentError, fix="look at nodes"),
    Known(text="no such user", error=AuthenticationError, fix="look at user"),
)


def error_of_answer(what: str, response: Response, *, is_change: bool) -> CloudgraftError:
    """Returns the exception for an error response."""
    status = response.status_code
    text = _read(status, response.reason or "", response.content)
    pause = retry_after(response.headers)
    return ERRORS.error(f"{what}: {text} ({status})", said=text, is_change=is_change, status=status, retry_after=pause)


def error_of_task(what: str, exit_status: str) -> CloudgraftError:
    """Returns the exception for a task that failed. It has ended, so its outcome is known.

    An unknown error is final and not retried: a start that QEMU refuses is refused each time.
    """
    row = ERRORS.find(text=exit_status)
    message = f"{what}: {exit_status}"
    if row is None:
        return PreconditionError(message)
    return row.error(f"{message}; {row.fix}" if row.fix else message)


def _read(status: int, reason: str, body: bytes) -> str:
    """Returns Proxmox's message, with those about single parameters. A proxy responds in another format."""
    try:
        answer: Any = json.loads(body)
        message = str(answer.get("message") or reason).strip()
        errors = answer.get("errors") or {}
        more = ", ".join(f"{key}: {' '.join(str(value).split())}" for key, value in errors.items())
    except (ValueError, AttributeError):
        quoted = " ".join(body[:_LONGEST_QUOTE].decode("utf-8", "replace").split())
        return " ".join(f"{reason} {quoted}".split()) or f"the answer was {status}"
    return f"{message} ({more})" if more else message or f"the answer was {status}"
