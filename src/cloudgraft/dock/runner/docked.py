"""A driver as its runner sees it: async, with what it can do, and with the machine class that a call is about."""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, runtime_checkable

from cloudgraft.dock.protocol.messages import MachineClass, Secret
from cloudgraft.dock.runner.threads import ThreadedDriver
from cloudgraft.sdk.blocking import BlockingDriver
from cloudgraft.sdk.driver import Driver
from cloudgraft.sdk.errors import InvalidArgumentError

__all__ = ["CLASS_OF_THIS_CALL", "Docked", "DockedDriver", "Use", "current_class"]

CLASS_OF_THIS_CALL: Final[contextvars.ContextVar[MachineClass | None]] = contextvars.ContextVar(
    "cloudgraft_machine_class", default=None
)
Use = Callable[[MachineClass, Secret | None], Awaitable[None]]


@runtime_checkable
class DockedDriver(Protocol):
    """What a driver may have beside create, delete and list, when its credentials come from its hub."""

    def use(self, machine_class: MachineClass, secret: Secret | None) -> Awaitable[None] | None:
        """Called before the first operation of a class, and again when the class or its secret has changed.

        Keep what the class needs, by ``machine_class.name``: one driver may serve several classes, and
        :func:`current_class` tells in each call which one is meant. ``secret`` is None when the class names none.
        A driver without this method never gets to see a secret.
        """


def current_class() -> MachineClass | None:
    """The machine class of the call that runs now; None when the driver has no ``use`` and does not create."""
    return CLASS_OF_THIS_CALL.get()


class Docked:
    """The driver, made async, and what it can do beside the three verbs."""

    def __init__(self, driver: Driver | BlockingDriver, *, places: int) -> None:
        """``places`` is how many operations of one kind may run at a time: changes, and reads beside them."""
        if not isinstance(driver, (Driver, BlockingDriver)):
            raise InvalidArgumentError(f"{driver!r} is not a Driver or BlockingDriver of cloudgraft.sdk")
        base: type = Driver if isinstance(driver, Driver) else BlockingDriver
        self.inner = driver
        self.driver = driver if isinstance(driver, Driver) else ThreadedDriver(driver, places)
        self.name = type(driver).__name__
        self.capabilities = tuple(
            name for name in ("prices", "shapes") if getattr(type(driver), name) is not getattr(base, name)
        )
        self.use = _use_of(driver, self.driver)


def _use_of(inner: object, driver: Driver) -> Use | None:
    if not isinstance(inner, DockedDriver):
        return None
    call = inner.use

    async def use(machine_class: MachineClass, secret: Secret | None) -> None:
        if isinstance(driver, ThreadedDriver):

            def blocking(of: MachineClass, with_: Secret | None) -> None:
                call(of, with_)

            await driver.use(blocking, machine_class, secret)
        elif (waiting := call(machine_class, secret)) is not None:
            await waiting

    return use
