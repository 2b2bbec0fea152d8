"""Implements the driver ``redfish``: create powers a host on through its controller, delete powers it off.

A create sends several requests to one controller: insert media, set the boot device, power on. Before the first one the
driver stores which host the machine has and whether media are inserted (law 2), for a repeated create and a delete. A
failure before power-on leaves the host off: its media are ejected, and it is released. After an unknown outcome the
machine keeps the host, until its controller reports whether it is on.

A delete asks the host to shut down, and forces power off when that takes too long. The host is free when it is off and
its media are ejected. A list asks the controllers of the assigned hosts, one request each, with the concurrency of the
options: no single endpoint knows all hosts. If a controller does not answer, its machine keeps its state, with the
reason.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from cloudgraft.drivers.common.listing import age_of
from cloudgraft.drivers.common.secrets import error_without
from cloudgraft.drivers.common.seed_iso import seed_iso
from cloudgraft.drivers.hosts.assignments import Assignment
from cloudgraft.drivers.hosts.driver import HostsDriver, PowerState, Switch, Times
from cloudgraft.drivers.hosts.inventory import read_inventory
from cloudgraft.drivers.redfish.bmc import Bmc, Seen
from cloudgraft.drivers.redfish.options import (
    LONGEST_CREATE,
    Auth,
    MachineSettings,
    RedfishHost,
    RedfishOptions,
    ShapeOptions,
)
from cloudgraft.sdk.common.event_loop import BlockingPool
from cloudgraft.sdk.driver import MachineSpec, Shape
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError, PreconditionError, UnavailableError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.validation import read_settings

# -- capacity ----------------------------------------------------------------------------------------------------------
# Of hosts, from the options or from their controllers.

_PODS: Final = 110
_SHOWN: Final = 5  # hosts that a message names
_KIB: Final = 1 << 20  # of a GiB


def shortfall(seen: Seen, wanted: Mapping[str, Quantity]) -> str:
    """Describes what a host has less of than its shape; empty when nothing, or when its controller does not report it.

    Memory is compared in whole GiB, as controllers round it.
    """
    cpus, memory = wanted["cpu"], wanted["memory"]
    lacks = []
    if seen.cpus is not None and Quantity(str(seen.cpus)) < cpus:
        lacks.append(f"{seen.cpus} of {cpus} CPUs")
    if seen.memory is not None and Quantity(f"{int(seen.memory) + 1}Gi") <= memory:
        lacks.append(f"{seen.memory} GiB of {memory} memory")
    return " and ".join(lacks)


def declared_shape(name: str, options: ShapeOptions) -> Shape:
    """Returns a shape of the options."""
    capacity = {"pods": Quantity(_PODS), **options.capacity()}
    return Shape(name=name, capacity=capacity, labels={**_labels(name), **options.labels})


def seen_shape(name: str, hosts: Mapping[str, Seen | str]) -> Shape:
    """Returns a shape that only the controllers describe. ``hosts`` has their reports by host, or why there is none.

    One unavailable controller changes nothing. The shape has a problem when hosts differ, or when none reports.
    """
    known = {host: seen for host, seen in hosts.items() if isinstance(seen, Seen)}
    kinds: dict[tuple[Decimal, Decimal], list[str]] = {}
    for host, seen in known.items():
        if seen.cpus is not None and seen.memory is not None:
            kinds.setdefault((seen.cpus, seen.memory), []).append(host)
    if len(kinds) != 1:
        return Shape(name=name, capacity={}, labels=_labels(name), problem=_problem(name, kinds, hosts))
    ((cpus, memory),) = kinds
    capacity = {"cpu": Quantity(str(cpus)), "memory": Quantity(f"{int(memory * _KIB)}Ki"), "pods": Quantity(_PODS)}
    return Shape(name=name, capacity=capacity, labels=_labels(name))


def _problem(name: str, kinds: Mapping[tuple[Decimal, Decimal], Sequence[str]], hosts: Mapping[str, Seen | str]) -> str:
    fix = f"say under shapes what {name} holds"
    if kinds:
        sizes = "; ".join(f"{_some(ids)}: {cpus} CPUs, {memory} GiB" for (cpus, memory), ids in kinds.items())
        return f"the hosts of the shape {name} differ ({sizes}): give them shapes of their own, or {fix}"
    why = next((seen for seen in hosts.values() if isinstance(seen, str)), "the controllers do not tell")
    return f"what the hosts of the shape {name} hold is not known ({_some(list(hosts))}: {why}); {fix}"


def _some(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return f"{', '.join(ids[:_SHOWN])}{more}"


def _labels(name: str) -> Mapping[str, str]:
    return {"kubernetes.io/os": "linux", "node.kubernetes.io/instance-type": name}


# -- seeds -------------------------------------------------------------------------------------------------------------
# Images with user data, in a directory that a web server of the user publishes to the controllers. They hold secrets.
# So only the owner and the group of the directory may read them here, and nobody who reaches the web server can guess
# their names. An image is removed when its machine is ordered to power off.

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")
_TOKEN: Final = 16  # random bytes in a name
_MODE: Final = 0o640  # the web server reads it as the group, which files inherit in a directory with setgid


class Seeds:
    """The directory with the images. Its methods block."""

    def __init__(self, directory: Path, url: str) -> None:
        self._directory = directory
        self._url = url.rstrip("/")

    def check(self) -> None:
        """Raises PreconditionError when the directory cannot be written."""
        if not self._directory.is_dir() or not os.access(self._directory, os.W_OK | os.X_OK):
            raise PreconditionError(f"seedDirectory: {self._directory} is no directory that can be written")

    def expect_name(self, name: str) -> None:
        """Raises InvalidArgumentError for a machine's name that cannot be the name of a file."""
        if not _NAME.fullmatch(name):
            raise InvalidArgumentError(f"the name {name!r} cannot be the name of a file")

    def put(self, name: str, user_data: str) -> str:
        """Writes the image of one machine, replaces an older one, and returns its URL for controllers."""
        self.expect_name(name)
        self.remove(name)
        file = self._directory / f"{name}.{secrets.token_hex(_TOKEN)}.iso"
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(seed_iso(name=name, user_data=user_data))
                os.fchmod(descriptor, _MODE)
        except OSError as error:
            raise PreconditionError(f"seedDirectory: cannot write to {self._directory}: {error.strerror}") from None
        return f"{self._url}/{file.name}"

    def remove(self, name: str) -> None:
        """Removes all images of one machine; there may be none."""
        if not _NAME.fullmatch(name):
            return  # it never had one
        pattern = f"{name}.{'[0-9a-f]' * (2 * _TOKEN)}.iso"
        try:
            for file in self._directory.glob(pattern):
                file.unlink(missing_ok=True)
        except OSError as error:
            raise PreconditionError(f"seedDirectory: cannot remove from {self._directory}: {error.strerror}") from None


# -- controllers -------------------------------------------------------------------------------------------------------

P = ParamSpec("P")
T = TypeVar("T")
_MEDIA: Final = "media"  # the note that media were inserted
_LOOK: Final = 45.0  # seconds for the longest look of a list: the engine waits a minute
_GRACE: Final = 3.0  # seconds to end sessions
_LOCK_WAIT: Final = 2.0  # seconds for which a look waits while another call uses the same controller


class Controllers(Switch[RedfishHost]):
    """Switches hosts through their controllers, in threads and with the concurrency of the options."""

    can_tell = True
    longest_on = LONGEST_CREATE

    def __init__(self, options: RedfishOptions) -> None:
        self._options = options
        self._pool = BlockingPool("redfish", threads=options.concurrency)
        self._turns = asyncio.Semaphore(options.concurrency)
        self._bmcs: dict[str, tuple[RedfishHost, Bmc]] = {}
        self._old: list[Bmc] = []  # of hosts that have changed in the inventory; a call may still use one
        self._seeds = Seeds(options.seed_directory, options.seed_url) if options.seed_directory else None

    def start(self) -> None:
        """Checks the directory for seeds. Calls no controller: an unavailable one must not stop the driver."""
        if self._seeds is not None:
            self._seeds.check()

    async def close(self) -> None:
        """Ends the sessions. Running calls end by their timeouts."""
        bmcs = [*self._old, *(bmc for _, bmc in self._bmcs.values())]
        self._old, self._bmcs = [], {}
        if self._options.auth is Auth.SESSION:
            with suppress(TimeoutError, UnavailableError):
                async with asyncio.timeout(_GRACE):
                    await asyncio.gather(*(self._run(bmc.close) for bmc in bmcs))
        self._pool.close()

    def notes(self, spec: MachineSpec) -> Mapping[str, str]:
        """Returns whether media are inserted, which must be ejected at the end."""
        settings = read_settings(MachineSettings, spec.settings)
        if self._seeds is not None:
            self._seeds.expect_name(spec.name)
        return {_MEDIA: "inserted"} if settings.image or spec.user_data else {}

    async def on(self, host: RedfishHost, spec: MachineSpec, *, is_first: bool) -> None:
        """Inserts its boot media, and powers it on."""
        settings = read_settings(MachineSettings, spec.settings)
        try:
            await self._run(self._switch_on, self._bmc(host), spec, settings, is_first=is_first)
        except CloudgraftError as error:
            raise error_without(error, spec.user_data) from None

    def _switch_on(self, bmc: Bmc, spec: MachineSpec, settings: MachineSettings, *, is_first: bool) -> None:
        seed = self._seeds.put(spec.name, spec.user_data) if self._seeds and spec.user_data else ""
        bmc.switch_on(settings, seed, is_first=is_first)

    async def off(self, host: RedfishHost, assignment: Assignment) -> bool:
        """Orders a shutdown, and forces power off when that takes too long. False: it is still shutting down."""
        await self._run(self._forget_seed, assignment)
        bmc = self._bmc(host)
        seen = await self._run(bmc.look)
        if seen.power is PowerState.OFF:
            # It may be powering on. A controller that says so too refuses to power it off.
            if age_of(assignment.since) < self._options.power_on_time:
                with suppress(CloudgraftError):
                    await self._run(bmc.switch_off, is_forced=True)
            return True
        waited = age_of(assignment.stopping_since) if assignment.stopping_since else None
        if waited is not None and waited < self._options.graceful_time:
            return False
        await self._run(bmc.switch_off, is_forced=waited is not None or not self._options.graceful_time)
        return True

    async def state(self, host: RedfishHost) -> PowerState:
        """Reads its power state, with one request."""
        return (await self.look(host)).power

    async def free_state(self, host: RedfishHost) -> PowerState:
        """Reads the power state; raises PreconditionError when the host has less than its shape."""
        seen = await self.look(host)
        declared = self._options.shapes.get(host.shape)
        missing = shortfall(seen, declared.capacity()) if declared is not None else ""
        if missing:
            raise PreconditionError(f"it has {missing}, which its shape {host.shape} says")
        return seen.power

    async def clear(self, host: RedfishHost, assignment: Assignment) -> None:
        """Ejects the media, and removes the image with user data."""
        await self._run(self._forget_seed, assignment)
        if _MEDIA in assignment.notes:
            await self._run(self._bmc(host).clear)

    async def look(self, host: RedfishHost) -> Seen:
        """Reads the state of a host, quickly enough for a list of all hosts."""
        try:
            async with asyncio.timeout(_LOOK):
                return await self._run(self._bmc(host).look, _LOCK_WAIT)
        except TimeoutError:
            raise UnavailableError(f"state of {host.id}: there was no answer in {_LOOK:g} s") from None

    def _bmc(self, host: RedfishHost) -> Bmc:
        """Returns the controller of a host; a new one when the host has changed in the inventory."""
        known = self._bmcs.get(host.id)
        if known is None or known[0] != host:
            self._old += [known[1]] if known is not None else []
            known = self._bmcs[host.id] = host, Bmc(host, self._options)
        return known[1]

    def _forget_seed(self, assignment: Assignment) -> None:
        if self._seeds is not None:
            self._seeds.remove(assignment.name)

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._turns:
            return await self._pool.run(call, *args, **kwargs)


_REPEATED: Final = timedelta(seconds=10)  # after which a forced power-off of a host that is still on is repeated


class RedfishDriver(HostsDriver[RedfishHost]):
    """Your own servers, switched through their controllers."""

    Options = RedfishOptions
    MachineSettings = MachineSettings

    def __init__(self, options: RedfishOptions) -> None:
        """Reads the inventory; raises InvalidArgumentError when it is invalid. Calls no controller."""
        self.traits = options.traits()
        self._options = options
        self._controllers = Controllers(options)
        self._known_of: dict[str, Seen | str] = {}  # the last report of each host's controller, or why there is none
        super().__init__(
            read_inventory(options.source()),
            options.state_file or Path("redfish-hosts.json"),
            self._controllers,
            Times(
                power_on=options.power_on_time,
                power_off=max(options.graceful_time, _REPEATED),
                rise=options.power_on_time,
            ),
        )

    async def shapes(self) -> Sequence[Shape]:
        """Returns the shapes of the options, and other shapes of hosts as their controllers describe them."""
        hosts = await asyncio.to_thread(self._inventory.current)
        shapes = [declared_shape(name, options) for name, options in self._options.shapes.items()]
        undeclared = [host for host in hosts.values() if host.shape and host.shape not in self._options.shapes]
        await asyncio.gather(*(self._ask(host) for host in undeclared))
        names = dict.fromkeys(host.shape for host in undeclared)
        return shapes + [
            seen_shape(name, {host.id: self._known_of[host.id] for host in undeclared if host.shape == name})
            for name in names
        ]

    async def _ask(self, host: RedfishHost) -> None:
        try:
            self._known_of[host.id] = await self._controllers.look(host)
        except CloudgraftError as error:
            if not isinstance(self._known_of.get(host.id), Seen):
                self._known_of[host.id] = error.message

    def _select(self, spec: MachineSpec) -> Mapping[str, str]:
        settings = read_settings(MachineSettings, spec.settings)
        if spec.user_data and not self._options.seed_url:
            raise InvalidArgumentError(
                "user data cannot be given to a host without seedDirectory and seedUrl: say them, or leave out join"
            )
        shape = settings.shape
        if shape and not any(host.shape == shape for host in self._hosts.values()):
            raise InvalidArgumentError(f"machine.shape: no host is of the shape {shape!r}")
        return settings.select

    def _is_fit(self, host: RedfishHost, spec: MachineSpec) -> bool:
        return spec.settings.get("shape") in (None, "", host.shape)
