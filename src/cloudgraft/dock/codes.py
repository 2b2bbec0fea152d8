"""The codes with which a driver that dialled in tells how a call ended: gRPC's own, and one more."""

from __future__ import annotations

import enum

__all__ = ["Code"]


class Code(enum.IntEnum):
    """0 to 16 are gRPC's; 17 is the machine controller's own."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16
    UNINITIALIZED = 17  # the machine is there, but not initialised
