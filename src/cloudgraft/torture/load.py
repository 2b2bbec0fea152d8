"""Plays the autoscaler: random orders within the bounds of a run, and a check of every answer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

from cloudgraft.client import RemoteProvider
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, UnavailableError
from cloudgraft.sdk.types import Instance, NodeRef
from cloudgraft.torture.plan import Bounds
from cloudgraft.torture.promises import Promise, Seen

_PAUSE = 0.25  # seconds between two orders, at most
_GONE = (UnavailableError, DeadlineError)  # the server was killed


class BrokenPromise(Exception):  # noqa: N818 - what happened, not what went wrong
    """The server's answers contradict each other, or what it answered before."""


class Load:
    """The autoscaler of one run. It survives the server."""

    def __init__(self, group: str, bounds: Bounds, seed: int, note: Callable[[str], None]) -> None:
        self.promise = Promise()
        self.ordered = 0  # machines, by calls that were sent, whether answered or not
        self.change_begins = asyncio.Event()  # set when a change is sent
        self.is_changing = False  # while a change is not answered
        self._group = group
        self._bounds = bounds
        self._dice = random.Random(f"load {seed}")  # noqa: S311 - load, not secrets
        self._note = note

    async def run(self, provider: RemoteProvider, names: Callable[[], Awaitable[dict[str, str]]], left: int) -> None:
        """Makes orders until it is cancelled or the server is gone. ``left`` is the number of kills to come."""
        allowance = self._bounds.may_order(self.ordered, left)
        try:
            while True:
                before = self.ordered
                await self._step(provider, await self.look(provider, names), allowance)
                allowance -= self.ordered - before
                await asyncio.sleep(self._dice.uniform(0.0, _PAUSE))
        except _GONE as error:
            self._note(f"no answer: {error.message}")

    async def look(self, provider: RemoteProvider, names: Callable[[], Awaitable[dict[str, str]]]) -> Seen:
        """One loop of the autoscaler: Refresh, and what the group is like. Raises BrokenPromise."""
        try:
            await provider.refresh()
            group = next(group for group in await provider.node_groups() if group.id == self._group)
            target, instances = await self._read(provider)
        except StopIteration:
            raise BrokenPromise(f"the server does not serve group {self._group} any more") from None
        except _GONE:
            raise
        except CloudgraftError as error:
            raise BrokenPromise(f"a read was answered with {error!r}") from error
        seen = Seen(group, target, instances, await names())
        broken = self.promise.check(seen)
        if broken:
            raise BrokenPromise("; ".join(broken))
        return seen

    async def _read(self, provider: RemoteProvider) -> tuple[int, Sequence[Instance]]:
        """Target and list of the same moment: a machine may disappear between two calls."""
        while True:
            target = await provider.target_size(self._group)
            instances = await provider.instances(self._group)
            if await provider.target_size(self._group) == target:
                return target, instances

    # -- orders --------------------------------------------------------------------------------------------------------

    async def _step(self, provider: RemoteProvider, seen: Seen, allowance: int) -> None:
        room = min(self._bounds.machines - len(seen.instances), allowance)
        choices: dict[str, int] = {"wait": 1}
        if room > 0:
            choices["increase"] = 5
        if seen.wanted:
            choices["delete"] = 3
        if seen.target:
            choices["decrease"] = 1
        if seen.failed:  # as the autoscaler does
            choices = {"delete failed": 1}
        match self._dice.choices(list(choices), list(choices.values()))[0]:
            case "increase":
                await self._increase(provider, seen, self._dice.randint(1, min(3, room)))
            case "delete":
                count = self._dice.randint(1, min(2, len(seen.wanted)))
                await self.delete(provider, seen, self._dice.sample(sorted(seen.wanted), count))
            case "delete failed":
                await self.delete(provider, seen, sorted(seen.failed))
            case "decrease":
                await self._decrease(provider, seen, 1)

    async def _increase(self, provider: RemoteProvider, seen: Seen, count: int) -> None:
        self.ordered += count
        self.promise.begin({seen.target}, {seen.target + count})
        call = provider.increase_size(self._group, count)
        await self._change(f"IncreaseSize {seen.target} + {count}", call, {seen.target + count})

    async def _decrease(self, provider: RemoteProvider, seen: Seen, count: int) -> None:
        """As many as were not ordered yet, which only the server knows."""
        possible = set(range(max(0, seen.target - count), seen.target + 1))
        self.promise.begin(possible, possible)
        call = provider.decrease_target_size(self._group, -count)
        await self._change(f"DecreaseTargetSize {seen.target} - {count}", call, possible)

    async def delete(self, provider: RemoteProvider, seen: Seen, ids: Sequence[str]) -> None:
        """DeleteNodes, all in one call, by the ids of instances."""
        machines = seen.machines(ids)
        after = {seen.target - len(machines)}
        self.promise.begin({seen.target}, after, machines)
        call = provider.delete_nodes(self._group, [NodeRef(name=id_, provider_id=id_) for id_ in ids])
        await self._change(f"DeleteNodes {', '.join(sorted(machines))}", call, after)

    async def _change(self, what: str, call: Awaitable[None], after: set[int]) -> None:
        self._note(what)
        self.is_changing = True
        self.change_begins.set()
        self.change_begins.clear()
        try:
            await call
        except _GONE:
            self._note(f"{what}: no answer, so it was carried out or not")
            raise
        except CloudgraftError as error:
            raise BrokenPromise(f"{what} was answered with {error!r}") from error
        finally:
            self.is_changing = False
        self.promise.answered(after)
