"""Maps the errors of EC2 Auto Scaling to ours, also those that it only records about a launch."""

from __future__ import annotations

import functools
import re
from typing import Final

from cloudgraft.drivers.common.error_table import ErrorTable, Known
from cloudgraft.drivers.ec2 import errors as ec2
from cloudgraft.sdk.errors import (
    ConflictError,
    ErrorClass,
    InvalidArgumentError,
    NotFoundError,
    OutOfStockError,
    PermissionDeniedError,
    PreconditionError,
    QuotaExceededError,
    RateLimitedError,
)
from cloudgraft.sdk.types import InstanceError

_VALIDATION: Final = "ValidationError"
_LIMITS: Final = "check MinSize and MaxSize of the Auto Scaling group"
_POLICY: Final = "the required permissions are in docs/how-to/use-ec2-auto-scaling-groups.md"
_RATE: Final = "set a longer `interval`; others in the account count too"
_CODE: Final = re.compile(r"\b([A-Z][A-Za-z]+(?:\.[A-Z][A-Za-z]+)?) - ")
_LONGEST: Final = 600  # characters of AWS's message
FAILED: Final = "launch_failed"  # for failures without a row

ERRORS: Final = ErrorTable(
    Known(code=_VALIDATION, text="not found", error=NotFoundError),
    Known(code=_VALIDATION, text="above max", error=PreconditionError, fix=_LIMITS),
    Known(code=_VALIDATION, text="below min", error=PreconditionError, fix=_LIMITS),
    Known(code=_VALIDATION, text="min size constraint", error=PreconditionError, fix=_LIMITS),
    Known(code="ScalingActivityInProgress", error=ConflictError),
    Known(code="ResourceContention", error=ConflictError),
    Known(code="ResourceInUse", error=ConflictError),
    Known(code="AccessDenied", error=PermissionDeniedError, fix=_POLICY),
    Known(code="UnauthorizedOperation", error=PermissionDeniedError, fix=_POLICY),
    Known(code="Throttling", error=RateLimitedError, fix=_RATE),
    Known(code="RequestLimitExceeded", error=RateLimitedError, fix=_RATE),
)

# Auto Scaling's messages about a launch without a code of EC2.
LAUNCHES: Final = ErrorTable(
    Known(text="UnfulfillableCapacity", error=OutOfStockError),
    Known(text="sufficient capacity", error=OutOfStockError),
    Known(text="no Spot capacity", error=OutOfStockError),
    Known(text="Spot price is lower", error=OutOfStockError),
    Known(text="vCPU capacity than your current", error=QuotaExceededError),
    Known(text="Max spot instance count", error=QuotaExceededError),
    Known(text="instance(s) are already running", error=QuotaExceededError),
    Known(text="launch template", error=InvalidArgumentError),
    Known(text="does not exist", error=InvalidArgumentError),
)


# Converts exceptions to our errors, by Auto Scaling's own rows before those of EC2.
our_errors = functools.partial(ec2.our_errors, table=ErrorTable(*ERRORS.rows, *ec2.ERRORS.rows))


def failure_of(message: str) -> InstanceError:
    """Returns why an instance failed to launch, from Auto Scaling's message (R35)."""
    found = _CODE.search(message)
    row = ec2.ERRORS.find(code=found[1]) if found else None
    row = row or LAUNCHES.find(text=message)
    return InstanceError(
        code=row.error.slug if row else FAILED,
        message=" ".join(message.split())[:_LONGEST] or "the launch failed, and AWS does not say why",
        error_class=row.error.error_class if row else ErrorClass.OTHER,
    )
