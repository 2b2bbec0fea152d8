"""What stands in for a driver that cannot be made, so that its cloud is down and all others are not."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from cloudgraft.engine.groups.desired import CloudDeclaration
from cloudgraft.sdk.driver import Driver, DriverTraits, Machine, MachineSpec
from cloudgraft.sdk.errors import CloudgraftError, PreconditionError

__all__ = ["NoDriver", "made"]

log = logging.getLogger("cloudgraft.engine")


class NoDriver(Driver):
    """Refuses everything, and says why."""

    traits = DriverTraits(complete_list=False)

    def __init__(self, why: str) -> None:
        self._why = why

    async def create(self, spec: MachineSpec) -> Machine:
        """Not possible."""
        raise PreconditionError(self._why)

    async def delete(self, machine: Machine) -> None:
        """Not possible."""
        raise PreconditionError(self._why)

    async def list(self) -> Sequence[Machine]:
        """Not possible."""
        raise PreconditionError(self._why)


def made(name: str, declared: CloudDeclaration) -> Driver:
    """The cloud's driver; one that cannot be made is this cloud's trouble, and nobody else's (law 6)."""
    try:
        return declared.make()
    except Exception as error:
        log.exception("a driver cannot be made", extra={"cloud": name})
        known = error.message if isinstance(error, CloudgraftError) else f"{type(error).__name__}, see the log"
        return NoDriver(f"its driver cannot be made ({known}); correct that, and change the cloud or restart")
