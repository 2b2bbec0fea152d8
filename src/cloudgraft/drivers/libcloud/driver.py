"""Implements the driver ``libcloud``: machines of a cloud that libcloud supports.

Libcloud is not thread-safe: it stores a response on the connection, where another thread reads it. So each thread has
its own libcloud driver, created in that thread, since creating one may call the cloud. The adapter knows how to talk to
a cloud; each one creates in one call, or removes what a failed create left behind.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

from cloudgraft.drivers.common.listing import RecentDeletions
from cloudgraft.drivers.libcloud.adapter import adapter_of
from cloudgraft.drivers.libcloud.errors import error_of, without_user_data
from cloudgraft.drivers.libcloud.options import LibcloudOptions, MachineSettings
from cloudgraft.drivers.libcloud.wire import Wire
from cloudgraft.sdk.blocking import BlockingDriver
from cloudgraft.sdk.driver import Machine, MachineSpec, Price, Shape
from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionError,
    UnsupportedError,
)
from cloudgraft.sdk.list_budget import bounded

T = TypeVar("T")
_DEBUG: Final = "LIBCLOUD_DEBUG"
_LIST_ATTEMPTS: Final = 10
_DELETE_LIMIT: Final = timedelta(seconds=110)
_LINGERS: Final = timedelta(seconds=30)  # for which a machine counts as deleting: Nova may still show it as before


@dataclasses.dataclass(slots=True, kw_only=True)
class _ThreadState:
    """The objects of one thread."""

    wire: Wire
    cloud: Any
    secret: str


class LibcloudDriver(BlockingDriver):
    """One account of a cloud that Apache Libcloud supports, such as DigitalOcean or Vultr."""

    Options = LibcloudOptions
    MachineSettings = MachineSettings

    def __init__(self, options: LibcloudOptions) -> None:
        """Makes no request yet. Refuses options that the cloud does not support."""
        self._options = options
        self._adapter = adapter_of(options)
        declared = self._adapter.traits
        delay = declared.list_delay if options.list_delay is None else options.list_delay
        self.traits = dataclasses.replace(declared, provider_id_by=options.providerIDBy, list_delay=delay)
        self._file = self._adapter.secret_file()
        self._lock = threading.Lock()
        self._threads = threading.local()
        self._wires: list[Wire] = []
        self._deleted = RecentDeletions(_LINGERS)

    def start(self) -> None:
        """Reads the secret; makes no request."""
        if os.environ.get(_DEBUG):
            raise PreconditionError(f"unset {_DEBUG}: it makes libcloud write keys and user data to a file")
        self._secret()

    def close(self) -> None:
        """Closes idle connections."""
        with self._lock:
            for wire in self._wires:
                wire.close()

    def create(self, spec: MachineSpec) -> Machine:
        """Orders one machine."""
        settings = self._adapter.checked(spec)
        try:
            return self._call(
                f"create {spec.name}",
                self._adapter.create_limit,
                lambda mine: self._adapter.create(mine.cloud, mine.wire, spec, settings),
            )
        except CloudgraftError as error:
            if isinstance(error, NotFoundError):  # something that the create names; it cannot be the machine itself
                error = InvalidArgumentError(f"{error.message}; check machine.shape, image, zone and networks")
            raise without_user_data(error, spec.user_data) from None

    def delete(self, machine: Machine) -> None:
        """Deletes it; a missing one is not an error."""
        try:
            self._call(f"delete {machine.name}", _DELETE_LIMIT, lambda mine: self._adapter.delete(mine.cloud, machine))
        except NotFoundError:
            return
        self._deleted.add(machine.machine_id)

    def list(self) -> Sequence[Machine]:
        """Returns every machine of the account that may be ours.

        In some clouds a deletion between two pages makes the next one unreadable. Then all are read again.
        """
        until = time.monotonic() + self._options.list_timeout.total_seconds()
        for _ in range(_LIST_ATTEMPTS - 1):
            with contextlib.suppress(ConflictError):
                return self._listed(until)
        return self._listed(until)

    def _listed(self, until: float) -> Sequence[Machine]:
        machines = self._call(
            "list the machines",
            timedelta(seconds=until - time.monotonic()),
            lambda mine: [*map(self._adapter.machine, bounded(self._adapter.nodes(mine.cloud)))],
        )
        return list({machine.machine_id: self._deleted.shown(machine) for machine in machines}.values())

    def shapes(self) -> Sequence[Shape]:
        """Returns the machine types, each once."""
        found = self._call(
            "list the machine types",
            self._options.list_timeout,
            lambda mine: [*map(self._adapter.shape, bounded(self._adapter.sizes(mine.cloud)))],
        )
        return list({shape.name: shape for shape in found}.values())

    def prices(self) -> Sequence[Price]:
        """Returns prices of clouds that publish them: libcloud's own tables are old, and 0 in them means unknown."""
        if not self._adapter.has_prices:
            raise UnsupportedError(f"{self._options.provider} does not show its prices through libcloud")
        found = self._call(
            "list the prices",
            self._options.list_timeout,
            lambda mine: [*map(self._adapter.price, self._adapter.sizes(mine.cloud))],
        )
        return list({price.shape: price for price in found if price is not None}.values())

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _call(self, what: str, limit: timedelta, call: Callable[[_ThreadState], T]) -> T:
        """Makes a call in this thread; logs in again, once, when the cloud no longer accepts the login."""
        is_fresh = not hasattr(self._threads, "mine")
        try:
            return self._attempt(what, limit, call)
        except AuthenticationError:
            self._forget()
            if is_fresh:
                raise
        return self._attempt(what, limit, call)

    def _attempt(self, what: str, limit: timedelta, call: Callable[[_ThreadState], T]) -> T:
        secret = self._secret()
        mine: _ThreadState | None = getattr(self._threads, "mine", None)
        if mine is not None and mine.secret != secret:
            self._forget()
            mine = None
        wire = mine.wire if mine is not None else self._wire()
        wire.begin(limit)
        try:
            if mine is None:
                mine = _ThreadState(wire=wire, cloud=self._adapter.connect(wire, secret), secret=secret)
                self._threads.mine = mine
            return call(mine)
        except Exception as error:  # noqa: BLE001 - libcloud may raise anything, KeyError and Exception too
            raise error_of(error, wire, what) from None
        finally:
            if mine is None:
                self._drop(wire)

    def _wire(self) -> Wire:
        options = self._options
        wire = Wire(
            connect_timeout=options.connect_timeout,
            timeout=options.timeout,
            ca_file=options.ca_file,
            changes=self._adapter.is_change,
            route=options.endpoint if self._adapter.is_routed else "",
        )
        with self._lock:
            self._wires.append(wire)
        return wire

    def _forget(self) -> None:
        mine: _ThreadState | None = getattr(self._threads, "mine", None)
        if mine is None:
            return
        del self._threads.mine
        self._adapter.let_go(mine.cloud)
        self._drop(mine.wire)

    def _drop(self, wire: Wire) -> None:
        wire.close()
        with self._lock:
            self._wires.remove(wire)

    def _secret(self) -> str:
        with self._lock:
            return self._file.read()
