"""Maps the errors of EC2 and botocore to ours."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from cloudgraft.drivers.common.error_table import ErrorTable, Known, retry_after
from cloudgraft.drivers.common.secrets import cut
from cloudgraft.drivers.common.urllib3_calls import root_cause, was_never_sent
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    AuthenticationError,
    CloudgraftError,
    ConflictError,
    DeadlineError,
    InvalidArgumentError,
    NotFoundError,
    OutOfStockError,
    PermissionDeniedError,
    PreconditionError,
    QuotaExceededError,
    RateLimitedError,
    UnavailableError,
)

log: Final = logging.getLogger("cloudgraft.drivers")

NO_ADDRESS: Final = "InsufficientFreeAddressesInSubnet"
_ENCODED: Final = "Encoded authorization failure message:"
_LONGEST: Final = 600  # characters of AWS's message
_WHO: Final = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.MetadataRetrievalError,
    boto.TokenRetrievalError,
    boto.SSOError,
    boto.LoginError,
)
_FILES: Final = (boto.ProfileNotFound, boto.ConfigParseError, boto.ConfigNotFound, boto.InvalidConfigError)

_QUOTA: Final = "ask AWS for a higher limit (Service Quotas), or set a lower maxSize"
_STOCK: Final = "let another zone or another shape have a group of its own, and the autoscaler will turn to it"
_CLOCK: Final = "is the clock of this machine right? Signatures are only good for minutes"
_KEY: Final = "check the access key: is it of this account, and active? See accessKeyIdFile, profile and assumeRole"
_POLICY: Final = "the required permissions are in docs/how-to/use-ec2.md"
_SHAPE: Final = "set machine.shape to an instance type"
_GROUPS: Final = "set machine.securityGroups to ids of the VPC"
_TEMPLATE: Final = "set machine.launchTemplate to one of this region"
_RATE: Final = "see `engine: {callsPerSecond: …}` of the cloud; others in the account count too"
# Errors before the request is sent, with our error and advice.
_UNSENT: Final[Sequence[tuple[tuple[type[Exception], ...], type[CloudgraftError], str]]] = (
    ((boto.ParamValidationError,), InvalidArgumentError, ""),
    (_WHO, AuthenticationError, f"; {_KEY}"),
    (_FILES, PreconditionError, ""),
    ((boto.EndpointConnectionError, boto.ConnectTimeoutError), UnavailableError, ". Nothing was done"),
)

ERRORS: Final = ErrorTable(
    # The account may not have more.
    Known(code="VcpuLimitExceeded", error=QuotaExceededError, fix=_QUOTA),
    Known(code="InstanceLimitExceeded", error=QuotaExceededError, fix=_QUOTA),
    Known(code="MaxSpotInstanceCountExceeded", error=QuotaExceededError, fix=_QUOTA),
    Known(code="VolumeLimitExceeded", error=QuotaExceededError, fix=_QUOTA),
    Known(code="MaxIOPSLimitExceeded", error=QuotaExceededError, fix=_QUOTA),
    Known(code="NetworkInterfaceLimitExceeded", error=QuotaExceededError, fix=_QUOTA),
    Known(code="AddressLimitExceeded", error=QuotaExceededError, fix=_QUOTA),
    Known(code="ResourceLimitExceeded", error=QuotaExceededError, fix=_QUOTA),
    Known(code="LimitExceeded", error=QuotaExceededError, fix=_QUOTA),
    # The cloud has no more.
    Known(code="InsufficientInstanceCapacity", error=OutOfStockError, fix=_STOCK),
    Known(code="InsufficientHostCapacity", error=OutOfStockError, fix=_STOCK),
    Known(code="InsufficientReservedInstanceCapacity", error=OutOfStockError, fix=_STOCK),
    Known(code="ReservationCapacityExceeded", error=OutOfStockError, fix=_STOCK),
    Known(code="InsufficientVolumeCapacity", error=OutOfStockError, fix=_STOCK),
    Known(code="InsufficientCapacity", error=OutOfStockError, fix=_STOCK),
    Known(code="InsufficientAddressCapacity", error=OutOfStockError, fix=_STOCK),
    Known(code=NO_ADDRESS, error=OutOfStockError, fix="add another subnet of the same zone to machine.subnets"),
    Known(
        code="SpotMaxPriceTooLow",
        error=OutOfStockError,
        fix="raise machine.spotMaxPrice, or leave it out: the on-demand price is then the limit",
    ),
    # Too many calls.
    Known(code="RequestLimitExceeded", error=RateLimitedError, fix=_RATE),
    Known(code="Throttling", error=RateLimitedError, fix=_RATE),
    Known(code="ThrottlingException", error=RateLimitedError, fix=_RATE),
    Known(code="RequestThrottled", error=RateLimitedError, fix=_RATE),
    Known(code="EC2ThrottledException", error=RateLimitedError, fix=_RATE),
    # Who calls.
    Known(
        code="AuthFailure",
        text="Not authorized for images",
        error=InvalidArgumentError,
        fix="set machine.image to an AMI of this region that exists, and that the account may use",
    ),
    Known(code="AuthFailure", error=AuthenticationError, fix=f"{_KEY}; {_CLOCK}"),
    Known(code="InvalidClientTokenId", error=AuthenticationError, fix=_KEY),
    Known(code="UnrecognizedClientException", error=AuthenticationError, fix=_KEY),
    Known(code="MissingAuthenticationToken", error=AuthenticationError, fix=_KEY),
    Known(code="ExpiredToken", error=AuthenticationError, fix="the temporary key has expired: write a new one"),
    Known(code="RequestExpired", error=AuthenticationError, fix=_CLOCK),
    Known(code="SignatureDoesNotMatch", error=AuthenticationError, fix=f"is the secret key right? Or: {_CLOCK}"),
    Known(code="IncompleteSignature", error=AuthenticationError, fix=_KEY),
    # What the caller may do.
    Known(code="UnauthorizedOperation", error=PermissionDeniedError, fix=_POLICY),
    Known(code="AccessDenied", error=PermissionDeniedError, fix=_POLICY),
    Known(code="AccessDeniedException", error=PermissionDeniedError, fix=_POLICY),
    Known(code="OptInRequired", error=PermissionDeniedError, fix="the account must subscribe to the image or region"),
    Known(code="PendingVerification", error=PermissionDeniedError, fix="AWS is still verifying the account: wait"),
    Known(code="Blocked", error=PermissionDeniedError, fix="AWS has blocked the account: ask its support"),
    Known(
        code="OperationNotPermitted",
        error=PreconditionError,
        fix="is it protected from termination? Then switch that off for the instance, in AWS's console",
    ),
    # One name, one instance.
    Known(code="IdempotentParameterMismatch", error=AlreadyExistsError),
    Known(code="IdempotentInstanceTerminated", error=PreconditionError),
    # What is not there.
    Known(code="InvalidInstanceID.NotFound", error=NotFoundError),
    Known(code="InvalidInstanceID.Malformed", error=NotFoundError),
    Known(code="InvalidAMIID.NotFound", error=InvalidArgumentError, fix="set machine.image to an AMI of this region"),
    Known(code="InvalidAMIID.Malformed", error=InvalidArgumentError, fix="set machine.image to an AMI's id, ami-…"),
    Known(code="InvalidAMIID.Unavailable", error=InvalidArgumentError, fix="set machine.image to an AMI that is ready"),
    Known(code="InvalidInstanceType", error=InvalidArgumentError, fix=_SHAPE),
    Known(code="InvalidInstanceType.NotFound", error=InvalidArgumentError, fix=_SHAPE),
    Known(code="InvalidSubnetID.NotFound", error=InvalidArgumentError, fix="set machine.subnets to ids of this region"),
    Known(code="InvalidGroup.NotFound", error=InvalidArgumentError, fix=_GROUPS),
    Known(code="InvalidSecurityGroupID.NotFound", error=InvalidArgumentError, fix=_GROUPS),
    Known(
        code="VPCIdNotSpecified",
        error=InvalidArgumentError,
        fix="the region has no default VPC: set machine.subnets, or a launchTemplate that has one",
    ),
    Known(code="InvalidKeyPair.NotFound", error=InvalidArgumentError, fix="set machine.keyName to a key of the region"),
    Known(
        code="InvalidParameterValue",
        text="iamInstanceProfile",
        error=InvalidArgumentError,
        fix="set machine.iamInstanceProfile to the name or ARN of an instance profile, which is not that of its role",
    ),
    Known(code="InvalidLaunchTemplateName.NotFoundException", error=InvalidArgumentError, fix=_TEMPLATE),
    Known(code="InvalidLaunchTemplateId.NotFound", error=InvalidArgumentError, fix=_TEMPLATE),
    Known(
        code="Unsupported",
        error=InvalidArgumentError,
        fix="not every zone has every instance type: choose another machine.zone, subnet or machine.shape",
    ),
    Known(code="ConcurrentTagAccess", error=ConflictError),
)


@contextmanager
def our_errors(what: str, *, is_change: bool = False, table: ErrorTable = ERRORS) -> Iterator[None]:
    """Converts exceptions of the calls within to our errors. ``what`` names the action in the message."""
    try:
        yield
    except boto.ClientError as error:
        raise _refusal(error, what, table, is_change=is_change) from None
    except (boto.BotoCoreError, ResponseParserError) as error:
        raise _failure(error, what, is_change=is_change) from None


def code_of(error: boto.ClientError) -> str:
    """Returns AWS's error code."""
    return str(error.response.get("Error", {}).get("Code", ""))


def _failure(error: Exception, what: str, *, is_change: bool) -> CloudgraftError:
    """Returns the exception for a request without a response that botocore can read."""
    why = f"{what}: {type(error).__name__}: {cut(' '.join(str(error).split()), _LONGEST)}"
    for kinds, kind, rest in _UNSENT:
        if isinstance(error, kinds):
            return kind(f"{why}{rest}")
    if isinstance(error, boto.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return UnavailableError(f"{why}; see caFile. Nothing was done")
    if isinstance(error, boto.ProxyConnectionError):
        cause = root_cause(error.kwargs["error"])
        why = f"{why}: {type(cause).__name__}: {cause}; see HTTPS_PROXY and NO_PROXY of the environment"
        if was_never_sent(cause):
            return UnavailableError(f"{why}. Nothing was done")
    if is_change:
        return DeadlineError(f"{why}; whether it was done is not known")
    return UnavailableError(why)


def _refusal(error: boto.ClientError, what: str, table: ErrorTable, *, is_change: bool) -> CloudgraftError:
    answer: Mapping[str, Any] = error.response.get("ResponseMetadata", {})
    code = code_of(error)
    said = _said(error, code)
    return table.error(
        f"{what}: {code}: {said}",
        said=said,
        status=answer.get("HTTPStatusCode"),
        code=code,
        is_change=is_change,
        retry_after=retry_after(answer.get("HTTPHeaders", {})),
    )


def _said(error: boto.ClientError, code: str) -> str:
    """Returns AWS's message without parts that are useless, or not for every reader."""
    text = str(error.response.get("Error", {}).get("Message", ""))
    if code == "SignatureDoesNotMatch":
        return "the signature is wrong"  # its text repeats the request, with the session token
    text, _, encoded = text.partition(_ENCODED)
    if encoded:
        log.warning(
            "AWS refused a call; decode the reason with `aws sts decode-authorization-message`",
            extra={"encoded_message": encoded.strip()},
        )
    return cut(text.strip(), _LONGEST)
