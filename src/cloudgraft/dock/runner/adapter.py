"""Adapts an sdk driver to the runner: async calls, the current machine class, errors as status codes."""

from __future__ import annotations

import contextvars
import logging
import secrets
import traceback
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final, Protocol, runtime_checkable

from cloudgraft.dock.protocol.codes import Code, code_of, retry_after_of
from cloudgraft.dock.protocol.messages import MachineClass, Secret, Status
from cloudgraft.sdk.blocking import BlockingDriver
from cloudgraft.sdk.driver import Driver, Machine, MachineSpec, Price, Shape
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError
from cloudgraft.sdk.event_loop import BlockingPool
from cloudgraft.sdk.secrecy import redacted

# -- Blocking drivers --------------------------------------------------------------------------------------------------


_CLASSES: Final = 8  # threads


class ThreadedDriver(Driver):
    """As ``sdk.blocking.as_driver``, with the caller's context in the thread: ``current_class()`` works there.

    A thread cannot be stopped: a list that hangs keeps its thread long after its caller has timed out. So changes and
    reads have separate threads, and neither can exhaust those of the other.
    """

    def __init__(self, inner: BlockingDriver, threads: int) -> None:
        """``threads`` is the number for changes, and as many again for reads."""
        name = type(inner).__name__
        self._inner = inner
        self._changes = BlockingPool(name, threads=threads, waiting=threads)
        self._reads = BlockingPool(f"{name} (reads)", threads=threads, waiting=threads)
        self._rest = BlockingPool(f"{name} (classes)", threads=_CLASSES)
        self.traits = inner.traits
        self.MachineSettings = inner.MachineSettings

    async def create(self, spec: MachineSpec) -> Machine:
        """See :meth:`Driver.create`."""
        return await self._changes.run(self._inner.create, spec)

    async def delete(self, machine: Machine) -> None:
        """See :meth:`Driver.delete`."""
        await self._changes.run(self._inner.delete, machine)

    async def list(self) -> Sequence[Machine]:
        """See :meth:`Driver.list`."""
        return await self._reads.run(self._inner.list)

    async def shapes(self) -> Sequence[Shape]:
        """See :meth:`Driver.shapes`."""
        return await self._reads.run(self._inner.shapes)

    async def prices(self) -> Sequence[Price]:
        """See :meth:`Driver.prices`."""
        return await self._reads.run(self._inner.prices)

    async def use(
        self, call: Callable[[MachineClass, Secret | None], None], machine_class: MachineClass, secret: Secret | None
    ) -> None:
        """Calls the inner driver's ``use`` in a thread."""
        await self._rest.run(call, machine_class, secret)

    async def start(self) -> None:
        """See :meth:`Driver.start`."""
        await self._rest.run(self._inner.start)
        self.traits = self._inner.traits  # start() may have learned more about the cloud

    async def close(self) -> None:
        """Closes the driver in a new thread: the others may all hang, and then closing matters most."""
        for pool in (self._changes, self._reads, self._rest):
            pool.close()
        last = BlockingPool("close", threads=1)
        try:
            await last.run(self._inner.close)
        finally:
            last.close()


# -- The driver as the runner sees it ----------------------------------------------------------------------------------


CLASS_OF_THIS_CALL: Final[contextvars.ContextVar[MachineClass | None]] = contextvars.ContextVar(
    "cloudgraft_machine_class", default=None
)
Use = Callable[[MachineClass, Secret | None], Awaitable[None]]


@runtime_checkable
class DockedDriver(Protocol):
    """Optional methods of a driver whose credentials come from its hub."""

    def use(self, machine_class: MachineClass, secret: Secret | None) -> Awaitable[None] | None:
        """Called before the first operation of a class, and again when the class or its secret has changed.

        Keep what the class needs, by ``machine_class.name``: one driver may serve several classes, and
        :func:`current_class` returns the class of each call. ``secret`` is None when the class names none.
        A driver without this method never receives a secret.
        """


def current_class() -> MachineClass | None:
    """The machine class of the current call; None when the driver has no ``use`` and the call is not a create."""
    return CLASS_OF_THIS_CALL.get()


class Docked:
    """An async driver with the optional methods of :class:`DockedDriver`."""

    def __init__(self, driver: Driver | BlockingDriver, *, places: int) -> None:
        """``places`` is the number of concurrent operations: that many changes, and as many reads."""
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


# -- Errors as status codes --------------------------------------------------------------------------------------------


log = logging.getLogger("cloudgraft.dock")


class MachineError(Exception):
    """For authors who think in machine codes: raise it with the code that the hub should get.

    The errors of :mod:`cloudgraft.sdk` work as well; each has its code.
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
    """Returns the status for an error. Hides the text of an unexpected exception, which may contain anything."""
    if isinstance(error, MachineError):
        seconds = error.retry_after
        return _status(error.code, error.message, None if seconds is None else timedelta(seconds=seconds))
    if isinstance(error, CloudgraftError):
        return _status(code_of(error), error.message, retry_after_of(error))
    incident = secrets.token_hex(4)
    trace = redacted("".join(traceback.format_exception(error)))
    log.error("the driver raised an unexpected exception (id %s)\n%s", incident, trace)
    return _status(Code.UNKNOWN, f"unexpected {type(error).__name__} (id {incident}): the driver's log has the rest")


def _status(code: Code, message: str, retry_after: timedelta | None = None) -> Status:
    # Redact again: a secret may have become known after the error was created.
    text = redacted(message).encode("utf-8", "replace").decode()  # half a character cannot be sent
    return Status(code=code, message=text, retry_after=retry_after)
