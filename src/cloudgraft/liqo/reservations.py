"""Manages the reservations of our machines: reserve, act, confirm; release when the machine is gone.

An unconfirmed reservation expires, so that a process that dies leaks nothing. A slice exists before its reservation is
confirmed, so a confirmed one without a slice belongs to a machine that is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from cloudgraft.discovery.model import Market, Reservation, ReservationState, Resources
from cloudgraft.liqo.placement import ClusterError
from cloudgraft.liqo.slices import Slice
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    CloudgraftError,
    NotFoundError,
    OutOfStockError,
    PermissionDeniedError,
)

log = logging.getLogger("cloudgraft.liqo")


class MachineReservations:
    """The reservations of one consumer."""

    def __init__(self, market: Market, consumer: Callable[[], Awaitable[str]], seconds: float) -> None:
        """``consumer`` returns the id of our own cluster, ``seconds`` is how long resources are held."""
        self._market = market
        self._consumer = consumer
        self._seconds = seconds
        self._refused: set[str] = set()  # reservations of another client, each logged once

    async def held(self, name: str) -> Sequence[Reservation]:
        """The reservations of a machine."""
        owner = await self._owner(name)
        return [one for one in await self._market.reservations(owner) if one.owner == owner]

    async def reserve(self, cluster: str, resources: Resources, name: str) -> Reservation:
        """Reserves resources for a machine. Raises ClusterError when they are no longer free."""
        owner = await self._owner(name)
        try:
            return await self._market.reserve(cluster, resources, owner=owner, seconds=self._seconds)
        except (OutOfStockError, NotFoundError, AlreadyExistsError) as error:
            raise ClusterError(error.message, cools=False) from error

    async def settle(self, one: Slice, *, level: int = logging.WARNING) -> None:
        """Confirms the reservation of a granted slice. The slice counts, even if this fails.

        The hold may have expired meanwhile. If discovery is away, this is done later.
        """
        try:
            held = await self.held(one.name)
            kept = next((each for each in held if each.cluster == one.cluster), None)
            if kept is None or kept.state is not ReservationState.CONFIRMED:
                await self._confirm(kept, one)
            for each in held:
                if each.cluster != one.cluster:
                    await self._market.release(each.id)
        except (CloudgraftError, ClusterError) as error:
            log.log(level, "cannot confirm the reservation of %s in cluster %s: %s", one.name, one.cluster, error)

    async def _confirm(self, kept: Reservation | None, one: Slice) -> None:
        try:
            if kept is not None:
                await self._market.confirm(kept.id)
                return
        except NotFoundError:
            pass  # it expired at this very moment
        renewed = await self.reserve(one.cluster, one.asked, one.name)
        await self._market.confirm(renewed.id)

    async def release(self, name: str) -> None:
        """Releases all reservations of a machine. Raises when discovery is away; maintenance retries."""
        for one in await self.held(name):
            await self._market.release(one.id)

    async def forget(self, name: str) -> None:
        """Releases, if that is possible now."""
        try:
            await self.release(name)
        except CloudgraftError as error:
            log.info("the reservation of %s is released later: %s", name, error.message)

    async def everything(self) -> Sequence[Reservation]:
        """All reservations for machines of our cluster."""
        return await self._market.reservations(await self._owner(""))

    async def clusters(self) -> set[str]:
        """The clusters with reservations for machines of our cluster."""
        return {one.cluster for one in await self.everything()}

    async def tidy(self, reserved: Sequence[Reservation], slices: Sequence[Slice]) -> None:
        """Reconciles reservations with the slices; ``slices`` were listed after ``reserved`` was."""
        by_name = {one.name: one for one in slices}
        prefix = await self._owner("")
        for each in reserved:
            name = each.owner.removeprefix(prefix)
            is_stale = name not in by_name or by_name[name].cluster != each.cluster
            if is_stale and each.state is ReservationState.CONFIRMED:
                log.info("releasing the reservation of %s in cluster %s: the machine is gone", name, each.cluster)
                await self._give_back(each)
        confirmed = {(each.owner, each.cluster) for each in reserved if each.state is ReservationState.CONFIRMED}
        for one in slices:
            if not one.is_deleting and one.is_granted and (f"{prefix}{one.name}", one.cluster) not in confirmed:
                await self.settle(one, level=logging.DEBUG)

    async def _give_back(self, one: Reservation) -> None:
        """Releases one. Skips another client's, which must not block the rest."""
        try:
            await self._market.release(one.id)
        except PermissionDeniedError as error:
            level = logging.DEBUG if one.id in self._refused else logging.WARNING
            self._refused.add(one.id)
            log.log(
                level, "cannot release the reservation of %s in cluster %s: %s", one.owner, one.cluster, error.message
            )

    async def _owner(self, name: str) -> str:
        return f"{await self._consumer()}/{name}"
