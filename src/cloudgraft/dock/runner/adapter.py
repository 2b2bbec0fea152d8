"""Adapts drivers to the runner: blocking ones, those of 2018, and their errors as status codes."""

from __future__ import annotations

import base64
import contextvars
import json
import logging
import secrets
import threading
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Literal, Protocol, runtime_checkable

from cloudgraft.dock.protocol.codes import Code, code_of, retry_after_of
from cloudgraft.dock.protocol.messages import MachineClass, Secret, Status
from cloudgraft.sdk.blocking import AnyDriver, BlockingDriver, overrides
from cloudgraft.sdk.common.causes import cause
from cloudgraft.sdk.common.event_loop import BlockingPool
from cloudgraft.sdk.driver import Driver, DriverTraits, Idempotency, Machine, MachineSpec, Ownership, Price, Shape
from cloudgraft.sdk.errors import CloudgraftError, InternalError, InvalidArgumentError, NotFoundError
from cloudgraft.sdk.secrecy import redacted

# -- Blocking drivers --------------------------------------------------------------------------------------------------


_CLASSES: Final = 8  # threads


class _ThreadedDriver(Driver):
    """As ``sdk.blocking.as_driver``, with as many threads for reads as for changes.

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
        return await self._changes.run(self._inner.create, spec)

    async def delete(self, machine: Machine) -> None:
        await self._changes.run(self._inner.delete, machine)

    async def list(self) -> Sequence[Machine]:
        return await self._reads.run(self._inner.list)

    async def shapes(self) -> Sequence[Shape]:
        return await self._reads.run(self._inner.shapes)

    async def prices(self) -> Sequence[Price]:
        return await self._reads.run(self._inner.prices)

    async def use(
        self, call: Callable[[MachineClass, Secret | None], object], machine_class: MachineClass, secret: Secret | None
    ) -> None:
        """Calls the inner driver's ``use`` in a thread."""
        await self._rest.run(call, machine_class, secret)

    async def start(self) -> None:
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


OPTIONAL: Final[tuple[Literal["prices", "shapes"], ...]] = ("prices", "shapes")


class Docked:
    """An async driver with the optional methods of :class:`DockedDriver`."""

    def __init__(self, driver: Driver | BlockingDriver, *, places: int) -> None:
        """``places`` is the number of concurrent operations: that many changes, and as many reads."""
        if not isinstance(driver, (Driver, BlockingDriver)):
            raise InvalidArgumentError(f"{driver!r} is not a Driver or BlockingDriver of cloudgraft.sdk")
        self.inner = driver
        self.driver = driver if isinstance(driver, Driver) else _ThreadedDriver(driver, places)
        self.name = type(driver).__name__
        self.capabilities = tuple(name for name in OPTIONAL if overrides(type(driver), name))
        self.use = _use_of(driver, self.driver)


def _use_of(inner: object, driver: Driver) -> Use | None:
    if not isinstance(inner, DockedDriver):
        return None
    call = inner.use

    async def use(machine_class: MachineClass, secret: Secret | None) -> None:
        if isinstance(driver, _ThreadedDriver):
            await driver.use(call, machine_class, secret)
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
    return _status(Code.UNKNOWN, f"unexpected {cause(error)} (id {incident}): the driver's log has the rest")


def _status(code: Code, message: str, retry_after: timedelta | None = None) -> Status:
    # Redact again: a secret may have become known after the error was created.
    text = redacted(message).encode("utf-8", "replace").decode()  # half a character cannot be sent
    return Status(code=code, message=text, retry_after=retry_after)


# -- Drivers of 2018 ---------------------------------------------------------------------------------------------------
# Their interface has Create, Delete and List with class meta, credentials and ids.
# Adapts drivers written to the interface of 2018: Create, Delete and List with class meta, credentials and ids.


@dataclass(frozen=True, slots=True)
class MachineClassMeta:
    """A machine class and its revision."""

    name: str
    revision: int


@dataclass(frozen=True, slots=True)
class SecretMeta:
    """A secret's name and revision."""

    secret_name: str
    namespace: str = ""
    revision: int = 1


class ClassData:
    """Gives a driver of 2018 its classes and secrets: those of the classes that it was called for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._classes: dict[str, tuple[MachineClass, Secret | None]] = {}

    def get_machine_class(self, meta: MachineClassMeta) -> str:
        """Returns the class as JSON."""
        with self._lock:
            found = self._classes.get(meta.name)
        if found is None:
            raise NotFoundError(f"the machine class {meta.name!r} is not known here")
        return found[0].json

    def get_secret(self, meta: SecretMeta) -> str:
        """Returns the secret as JSON of a Kubernetes Secret, with values in base64."""
        with self._lock:
            known = list(self._classes.values())
        for machine_class, secret in known:
            if secret is None or meta.namespace not in {"", secret.namespace}:
                continue
            # A class may name two. The hub returns the values of both for either name, under one of the names.
            if meta.secret_name and meta.secret_name in {secret.name, machine_class.also_named}:
                return _as_kubernetes(replace(secret, name=meta.secret_name))
        raise NotFoundError(f"no machine class of this driver has the secret {meta.secret_name!r}")

    def _keep(self, machine_class: MachineClass, secret: Secret | None) -> None:
        with self._lock:
            self._classes[machine_class.name] = (machine_class, secret)


class Driver2018(Protocol):
    """The interface of 2018. Calls run in threads, several at a time."""

    def create(
        self, machine_class: MachineClassMeta, credentials: str, machine_id: str, machine_name: str
    ) -> tuple[str, str]:
        """Creates a machine; returns providerID and node name. ``credentials`` and ``machine_id`` are empty."""

    def delete(self, machine_class: MachineClassMeta, credentials: str, machine_id: str) -> None:
        """Deletes the machine with that providerID; one that is already gone is not an error."""

    def list(self, machine_class: MachineClassMeta, credentials: str, machine_id: str) -> Mapping[str, str]:
        """Lists all machines of the class, or that one: providerID to name."""


def from_2018(make: Callable[[ClassData], Driver2018], *, traits: DriverTraits | None = None) -> BlockingDriver:
    """Adapts a driver of 2018 for :func:`cloudgraft.dock.run` in either protocol.

    ``make`` is its class, or a function: called once with the object that returns classes and secrets. Without
    ``traits``, assumes the least that such a driver promises: its machines are known by name, a second create of a
    name makes a second machine, and a machine that a list lacks may still exist.
    """
    data = ClassData()
    return _Adapted(make(data), data, traits)


_LEAST = DriverTraits(ownership=Ownership.NAME, idempotency=Idempotency.NONE, complete_list=False)


def ids_are_provider_ids(driver: AnyDriver) -> bool:
    """Whether the ids of a driver's machines are their providerIDs, as those of 2018 are."""
    return isinstance(driver, _Adapted)


class _Adapted(BlockingDriver):
    def __init__(self, inner: Driver2018, data: ClassData, traits: DriverTraits | None) -> None:
        self._inner = inner
        self._data = data
        self.traits = traits or _LEAST

    def use(self, machine_class: MachineClass, secret: Secret | None) -> None:
        self._data._keep(machine_class, secret)  # noqa: SLF001 - the two are one

    def create(self, spec: MachineSpec) -> Machine:
        provider_id, node_name = self._inner.create(_meta(), "", "", spec.name)
        if not provider_id:
            raise InternalError(f"the driver made {spec.name!r} and gave no providerID")
        addresses = (node_name,) if node_name else ()
        return Machine(name=spec.name, machine_id=provider_id, provider_id=provider_id, addresses=addresses)

    def delete(self, machine: Machine) -> None:
        self._inner.delete(_meta(), "", machine.machine_id)

    def list(self) -> Sequence[Machine]:
        found = self._inner.list(_meta(), "", "")
        return [Machine(name=name, machine_id=key, provider_id=key) for key, name in found.items()]


def _meta() -> MachineClassMeta:
    machine_class = current_class()
    if machine_class is None:
        return MachineClassMeta("", 0)
    return MachineClassMeta(machine_class.name, machine_class.revision)


def _as_kubernetes(secret: Secret) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": secret.name, "namespace": secret.namespace},
            "data": {name: base64.b64encode(value).decode() for name, value in secret.data.items()},
        }
    )
