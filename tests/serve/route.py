"""Calls to whichever of several replicas is ready, as a Service of Kubernetes routes them; and what was answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from cloudgraft.client import RemoteProvider
from cloudgraft.sdk import DeadlineError, InstanceState, NodeRef, UnavailableError
from tests.serve.servers import Server, connected


class Route:
    """The replica that is ready; after any failure it is looked for anew."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self.servers = list(servers)

    async def ready(self) -> list[Server]:
        """Those that say so now."""
        return [server for server in self.servers if await self._is_ready(server)]

    async def leader(self) -> Server:
        """Waits for the one that is ready."""
        while True:
            found = await self.ready()
            if len(found) == 1:
                return found[0]
            await asyncio.sleep(0.1)

    async def _is_ready(self, server: Server) -> bool:
        try:
            return await server.is_ready()
        except OSError:  # it was killed
            return False


@dataclass(slots=True)
class Load:
    """An autoscaler that never rests, and remembers what it was told."""

    route: Route
    group: str
    grown: int = 0  # by calls that were answered OK
    perhaps_grown: int = 0  # by calls that failed: they may have been done all the same
    deleted: set[str] = field(default_factory=set)  # ids, by calls that were answered OK
    perhaps_deleted: set[str] = field(default_factory=set)
    answers: int = 0
    failures: int = 0
    is_over: bool = False

    async def run(self) -> None:
        """Calls until it is told that it is over."""
        dice = random.Random(1)
        while not self.is_over:
            leader = await self.route.leader()
            async with connected(leader.address) as provider:
                while not self.is_over and await self._one(provider, dice):
                    pass

    async def _one(self, provider: RemoteProvider, dice: random.Random) -> bool:
        try:
            await dice.choices((self._grow, self._delete, self._read), (3, 2, 4))[0](provider, dice)
        except (UnavailableError, DeadlineError):
            self.failures += 1
            return False
        self.answers += 1
        return True

    async def _grow(self, provider: RemoteProvider, dice: random.Random) -> None:
        if await provider.target_size(self.group) > 12:
            return
        delta = dice.randint(1, 3)
        self.perhaps_grown += delta
        await provider.increase_size(self.group, delta)
        self.perhaps_grown -= delta
        self.grown += delta

    async def _delete(self, provider: RemoteProvider, dice: random.Random) -> None:
        listed = [i.id for i in await provider.instances(self.group) if i.state is InstanceState.RUNNING]
        if not listed:
            return
        victim = dice.choice(listed)
        self.perhaps_deleted.add(victim)
        await provider.delete_nodes(self.group, [NodeRef(name=victim, provider_id=victim)])
        self.deleted.add(victim)

    async def _read(self, provider: RemoteProvider, _: random.Random) -> None:
        """What is read is consistent, whoever answers (law 5)."""
        await provider.refresh()
        before = await provider.target_size(self.group)
        listed = [i for i in await provider.instances(self.group) if i.state is not InstanceState.DELETING]
        if before == await provider.target_size(self.group):
            assert len(listed) == before
