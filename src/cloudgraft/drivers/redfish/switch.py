"""The controllers of all hosts: each is asked in a thread, and so many at once as the options allow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, ParamSpec, TypeVar

from cloudgraft.drivers.common.section import read_section
from cloudgraft.drivers.common.user_data import error_without
from cloudgraft.drivers.hosts.assignments import Assignment
from cloudgraft.drivers.hosts.showing import age
from cloudgraft.drivers.hosts.switch import PowerState
from cloudgraft.drivers.redfish.bmc import Bmc, Order, Seen
from cloudgraft.drivers.redfish.capacity import shortfall
from cloudgraft.drivers.redfish.options import LONGEST_CREATE, Auth, MachineSettings, RedfishHost, RedfishOptions
from cloudgraft.drivers.redfish.seeds import Seeds
from cloudgraft.sdk.driver import MachineSpec
from cloudgraft.sdk.errors import CloudgraftError, PreconditionError, UnavailableError
from cloudgraft.sdk.threads import BlockingPool

__all__ = ["Controllers"]

P = ParamSpec("P")
T = TypeVar("T")
_MEDIA: Final = "media"  # the note that something was put in
_LOOK: Final = 45.0  # seconds in which all are asked for a list, at most: the engine waits a minute
_GRACE: Final = 3.0  # seconds in which sessions are ended
_PATIENCE: Final = 2.0  # seconds for which a look waits while another call talks to the same controller


class Controllers:
    """Switches hosts."""

    can_tell = True
    longest_on = LONGEST_CREATE

    def __init__(self, options: RedfishOptions) -> None:
        self._options = options
        self._pool = BlockingPool("redfish", threads=options.concurrency)
        self._turns = asyncio.Semaphore(options.concurrency)
        self._bmcs: dict[str, tuple[RedfishHost, Bmc]] = {}
        self._old: list[Bmc] = []  # of hosts of which the inventory says something else by now; a call may use one
        self._seeds = Seeds(options.seed_directory, options.seed_url) if options.seed_directory else None

    def start(self) -> None:
        """Looks whether there is a place for seeds. No controller is asked: one that is away stops nobody."""
        if self._seeds is not None:
            self._seeds.check()

    async def close(self) -> None:
        """Ends the sessions. What runs ends with its timeouts."""
        bmcs = [*self._old, *(bmc for _, bmc in self._bmcs.values())]
        self._old, self._bmcs = [], {}
        if self._options.auth is Auth.SESSION:
            with suppress(TimeoutError, UnavailableError):
                async with asyncio.timeout(_GRACE):
                    await asyncio.gather(*(self._run(bmc.close) for bmc in bmcs))
        self._pool.close()

    # -- what a driver of hosts asks for ---------------------------------------------------------------------------

    def notes(self, spec: MachineSpec) -> Mapping[str, str]:
        """Whether something is put in, which must be taken out at the end."""
        settings = read_section(MachineSettings, spec.settings)
        if self._seeds is not None:
            self._seeds.expect_name(spec.name)
        return {_MEDIA: "inserted"} if settings.image or spec.user_data else {}

    async def on(self, host: RedfishHost, spec: MachineSpec, *, is_first: bool) -> None:
        """Puts in what it boots from, and switches it on."""
        settings = read_section(MachineSettings, spec.settings)
        try:
            await self._run(self._switch_on, self._bmc(host), spec, settings, is_first)
        except CloudgraftError as error:
            raise error_without(error, spec.user_data) from None

    def _switch_on(self, bmc: Bmc, spec: MachineSpec, settings: MachineSettings, is_first: bool) -> None:  # noqa: FBT001 - handed to a thread by its place
        seed = self._seeds.put(spec.name, spec.user_data) if self._seeds and spec.user_data else ""
        bmc.switch_on(
            Order(
                is_first=is_first,
                image=settings.image,
                seed=seed,
                boot=settings.boot_target,
                http_boot_url=settings.http_boot_url,
            )
        )

    async def off(self, host: RedfishHost, assignment: Assignment) -> bool:
        """Lets it shut down by itself, and takes its power away when that takes too long. False: it is still at it."""
        await self._run(self._forget_seed, assignment)
        bmc = self._bmc(host)
        seen = await self._run(bmc.look)
        told = age(assignment.stopping_since) if assignment.stopping_since else None
        if seen.power is PowerState.OFF:
            return await self._keep_down(bmc, assignment)
        if told is not None and told < self._options.graceful_time:
            return False
        is_forced = told is not None or not self._options.graceful_time
        await self._run(_switch_off, bmc, is_forced)
        return True

    async def _keep_down(self, bmc: Bmc, assignment: Assignment) -> bool:
        """One that looks off may be on its way up; a controller that thinks so too refuses to switch it off."""
        if age(assignment.since) < self._options.power_on_time:
            try:
                await self._run(_switch_off, bmc, True)
            except CloudgraftError:
                return True
        return True

    async def state(self, host: RedfishHost) -> PowerState:
        """Whether it is on: one request."""
        return (await self.look(host)).power

    async def free_state(self, host: RedfishHost) -> PowerState:
        """The same; raises PreconditionError when it holds less than its shape says."""
        seen = await self.look(host)
        declared = self._options.shapes.get(host.shape)
        missing = shortfall(seen, declared.capacity()) if declared is not None else ""
        if missing:
            raise PreconditionError(f"it has {missing}, which its shape {host.shape} says")
        return seen.power

    async def clear(self, host: RedfishHost, assignment: Assignment) -> None:
        """Takes out the media, and removes the image with user data."""
        await self._run(self._forget_seed, assignment)
        if _MEDIA in assignment.notes:
            await self._run(self._bmc(host).clear)

    # -- beside that -----------------------------------------------------------------------------------------------

    async def look(self, host: RedfishHost) -> Seen:
        """What the controller tells, in a time in which a list can be made of all of them."""
        try:
            async with asyncio.timeout(_LOOK):
                return await self._run(self._bmc(host).look, _PATIENCE)
        except TimeoutError:
            raise UnavailableError(f"state of {host.id}: there was no answer in {_LOOK:g} s") from None

    def _bmc(self, host: RedfishHost) -> Bmc:
        """One for each host, made anew when the inventory says something else of it."""
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


def _switch_off(bmc: Bmc, is_forced: bool) -> None:  # noqa: FBT001 - handed to a thread by its place
    bmc.switch_off(is_forced=is_forced)
