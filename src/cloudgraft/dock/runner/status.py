"""From what a driver raises to the status that its hub is told."""

from __future__ import annotations

import logging
import secrets
import traceback
from datetime import timedelta

from cloudgraft.dock.protocol.codes import Code, code_of, retry_after_of
from cloudgraft.dock.protocol.messages import Status
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError
from cloudgraft.sdk.secrecy import redacted

__all__ = ["MachineError", "status_of"]

log = logging.getLogger("cloudgraft.dock")


class MachineError(Exception):
    """For authors who think in machine codes: raise it with the code that the hub is to see.

    The errors of :mod:`cloudgraft.sdk` do as well; each has its code.
    """

    def __init__(self, code: Code, message: str, *, retry_after: float | None = None) -> None:
        """``retry_after`` is in seconds."""
        if code is Code.OK:
            raise InvalidArgumentError("OK is not an error: return the answer instead")
        super().__init__(redacted(message))
        self.code = code
        self.message = redacted(message)
        self.retry_after = retry_after


def status_of(error: BaseException) -> Status:
    """How the call ended. An exception that nobody meant to be seen stays here: it may hold anything."""
    if isinstance(error, MachineError):
        seconds = error.retry_after
        return _status(error.code, error.message, None if seconds is None else timedelta(seconds=seconds))
    if isinstance(error, CloudgraftError):
        return _status(code_of(error), error.message, retry_after_of(error))
    incident = secrets.token_hex(4)
    told = redacted("".join(traceback.format_exception(error)))
    log.error("the driver raised an unexpected exception (id %s)\n%s", incident, told)
    return _status(Code.UNKNOWN, f"unexpected {type(error).__name__} (id {incident}): the driver's log has the rest")


def _status(code: Code, message: str, retry_after: timedelta | None = None) -> Status:
    # Once more: what is a secret may have become known after the error was made.
    text = redacted(message).encode("utf-8", "replace").decode()  # half a character cannot be sent
    return Status(code=code, message=text, retry_after=retry_after)
