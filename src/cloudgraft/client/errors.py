"""Maps a failed call from gRPC's status to an error of the sdk.

A cloudgraft server sends, with the status, the exact name of its error and a retry-after; a foreign server sends the
status alone. Both become an error of :mod:`cloudgraft.sdk.errors`. Plugins and drivers use the same mapping.
"""

from __future__ import annotations

import math
from typing import Final

import grpc
import grpc.aio

from cloudgraft.sdk.errors import (
    CloudgraftError,
    InternalError,
    InvalidArgumentError,
    StatusCode,
    UnsupportedError,
    error_from_slug,
    error_from_status,
)

ERROR_KEY: Final = "cloudgraft-error"
RETRY_AFTER_KEY: Final = "cloudgraft-retry-after"
FINAL_KEY: Final = "cloudgraft-final"
_TOO_LARGE: Final = "received message larger than max"


class NotImplementedByProtocolError(UnsupportedError):
    """The autoscaler's interface has this method, but its protocol has no call for it, so no server can answer it.

    Raised where the Go client returns ``ErrNotImplemented`` without a call.
    """


def error_from_rpc(error: grpc.aio.AioRpcError) -> CloudgraftError:
    """The error of the sdk for a failed call, with the other side's message.

    The name in the trailing metadata decides, if it is known and fits the status; else the status does.
    """
    status = status_of(error)
    message = error.details() or f"the call failed with status {status.name} and without a message"
    if status is StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in message.lower():
        return _too_large(message)
    metadata = _metadata(error)
    named = error_from_slug(metadata.get(ERROR_KEY, ""))
    kind = named if named is not None and named.status is status else error_from_status(status)
    failure = kind(message, retry_after=_seconds(metadata.get(RETRY_AFTER_KEY)))
    return failure.as_final() if FINAL_KEY in metadata else failure


def status_of(error: BaseException) -> StatusCode:
    """The status on the wire, for an error of gRPC or for its sdk error.

    The sdk has fewer errors than gRPC has codes, so the class alone does not determine it.
    """
    if isinstance(error, grpc.aio.AioRpcError):
        return StatusCode(error.code().value[0])
    if isinstance(error.__cause__, grpc.aio.AioRpcError):
        return status_of(error.__cause__)
    return error.status if isinstance(error, CloudgraftError) else StatusCode.UNKNOWN


def is_answer(error: CloudgraftError) -> bool:
    """Whether the error is the answer of a cloudgraft server: then nothing is wrong with the connection."""
    cause = error.__cause__
    return isinstance(cause, grpc.aio.AioRpcError) and ERROR_KEY in _metadata(cause)


def _too_large(message: str) -> CloudgraftError:
    # gRPC's code for it is the one for quotas, but no quota is exhausted.
    if "CLIENT:" in message:
        return InternalError(f"the server's answer is too large for the autoscaler, which takes 4 MiB: {message}")
    return InvalidArgumentError(f"the request is too large for the server: {message}")


def _metadata(error: grpc.aio.AioRpcError) -> dict[str, str]:
    return {key: value for key, value in error.trailing_metadata() or () if isinstance(value, str)}


def _seconds(text: str | None) -> float | None:
    """A valid number of seconds, or None: the other side may send anything."""
    try:
        seconds = float(text or "")
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
