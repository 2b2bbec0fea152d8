"""A long way at random: whatever is asked, lost, late or restarted, fronts answer as the engine itself does.

The routes are the real ones; only sockets and TLS are left out, so that thousands of steps cost little.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cloudgraft.engine.groups.specs import Money
from cloudgraft.nodemanager.api.app import manager_app
from cloudgraft.nodemanager.front.provider import ManagerLink, NodeManagerProvider
from cloudgraft.nodemanager.manager import Manager
from cloudgraft.nodemanager.snapshot import Revision, Snapshot
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, NotFoundError
from cloudgraft.sdk.provider import Provider
from cloudgraft.sdk.types import AutoscalingOptions, NodeRef
from cloudgraft.store.journal import JournalUnavailableError
from cloudgraft.store.records import Change
from cloudgraft.web.authentication import AuditLog, Gatekeeper
from cloudgraft.web.client import Answer, WebClient
from tests.engine.engine_rig import Rig, fake, group, real, running
from tests.nodemanager.managed import PATIENCE, patient

PRICE = Money(amount=Decimal("0.07"), currency="EUR")
POOL = (group("a", price=PRICE), group("b"), group("c", machine={"shape": "large"}, price=PRICE))
START, END = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 3, tzinfo=UTC)


class NearClient(WebClient):
    """Asks an application in this process, and loses answers when told to."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.loses = 0
        super().__init__("http://127.0.0.1")

    def _open(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=self._world.app))

    async def request(self, method: str, path: str, **how: Any) -> Answer:
        answer = await super().request(method, path, **how)
        if method == "POST" and self.loses:
            self.loses -= 1
            raise DeadlineError("the answer was lost")
        return answer


class LateLink(ManagerLink):
    """Keeps snapshots back, to give them when others have overtaken them."""

    def __init__(self, client: WebClient) -> None:
        super().__init__(client, timeout=PATIENCE)
        self.late: list[Snapshot] = []
        self.is_late = False

    async def news(self, since: Revision | None, wait: float) -> Snapshot | None:
        snapshot = await super().news(since, wait)
        if self.is_late and snapshot is not None:
            self.late.append(snapshot)
            raise DeadlineError("the answer is late")
        return snapshot


class World:
    """An engine, a manager that may be replaced, and two fronts that are read by hand."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self.rig = rig
        self.random = random.Random(seed)
        self.app: Any = None
        self.nodes: set[tuple[str, str]] = set()  # name and providerID
        self.replace_manager()
        self.clients = [NearClient(self) for _ in range(2)]
        self.links = [LateLink(client) for client in self.clients]
        self.fronts = [NodeManagerProvider(link, settings=patient()) for link in self.links]

    def replace_manager(self) -> None:
        """As after a restart: another process, which knows nothing of what its predecessor told."""
        self.manager = Manager(self.rig.engine, self.rig.provider)
        self.rig.engine.fleet._watchers[:-1] = []
        self.app = manager_app(self.manager, gatekeeper=Gatekeeper(secure=False), audit=AuditLog())
        for client in getattr(self, "clients", ()):
            client._http = client._open()

    # -- steps -------------------------------------------------------------------------------------------------------

    async def step(self) -> str:
        name = self.random.choice([name for name in dir(self) if name.startswith("do_")])
        try:
            await getattr(self, name)()
        except CloudgraftError as error:
            return f"{name}: {error.slug}"
        return name

    def _front(self) -> NodeManagerProvider:
        return self.random.choice(self.fronts)

    async def _known_group(self, provider: Provider) -> str:
        return self.random.choice([one.id for one in await provider.node_groups()])

    async def do_increase(self) -> None:
        who = self.random.choice([*self.fronts, self.rig.provider])
        one, delta = await self._known_group(who), self.random.randint(1, 3)
        await who.increase_size(one, delta)
        assert await who.target_size(one) == await self.rig.provider.target_size(one)  # R27

    async def do_delete(self) -> None:
        who = self.random.choice([*self.fronts, self.rig.provider])
        one = await self._known_group(who)
        there = list(await who.instances(one))
        some = self.random.sample(there, min(len(there), self.random.randint(1, 3)))
        if some:
            await who.delete_nodes(one, [self.random.choice([fake, real])(instance) for instance in some])
            assert await who.target_size(one) == await self.rig.provider.target_size(one)  # R27

    async def do_decrease(self) -> None:
        await self._front().decrease_target_size(await self._known_group(self._front()), -1)

    async def do_turn(self) -> None:
        await self.rig.turn(self.random.choice([0, 5, 10, 40]))

    async def do_age(self) -> None:
        self.rig.clock.advance(self.random.choice([60, 31 * 60]))

    async def do_read(self) -> None:
        await self._front()._read(0.0)

    async def do_refresh(self) -> None:
        front = self._front()
        await front._link.refresh(PATIENCE)
        await front._read(0.0)
        front._views.publish()

    async def do_lose_answers(self) -> None:
        self.random.choice(self.clients).loses = self.random.randint(1, 2)

    async def do_be_late(self) -> None:
        link = self.random.choice(self.links)
        link.is_late = not link.is_late

    async def do_arrive_late(self) -> None:
        front, link = self.random.choice(list(zip(self.fronts, self.links, strict=True)))
        self.random.shuffle(link.late)
        for _ in range(min(2, len(link.late))):
            front._views.take(link.late.pop())

    async def do_configure(self) -> None:
        count = self.random.randint(1, len(POOL))
        chosen = [replace(one, max_size=self.random.randint(3, 9)) for one in self.random.sample(POOL, count)]
        self.rig.groups = chosen
        self.rig.engine.reconfigure(self.rig.desired_state())

    async def do_trouble(self) -> None:
        troubles: list[dict[str, object]] = [{}, {"stock": {"small": 0}}]
        self.rig.chaos(**self.random.choice(troubles))

    async def do_restart(self) -> None:
        if self.random.random() < 0.3:
            self.replace_manager()

    async def do_doubt(self) -> None:
        """A commit whose outcome nobody knows: the journal is read again, and what was denied is taken back."""
        journal, write = self.rig.engine.journal, self.rig.engine.journal.write

        async def written(change: Change) -> None:
            await write(change)
            raise JournalUnavailableError("the connection broke", is_ambiguous=True)

        journal.write = written  # type: ignore[method-assign]  # a journal that breaks at the worst moment
        try:
            await self.rig.provider.increase_size(await self._known_group(self.rig.provider), 1)
        finally:
            journal.write = write  # type: ignore[method-assign]  # and is well again

    # -- comparing ---------------------------------------------------------------------------------------------------

    async def compare(self) -> None:
        """Each front reads once, at a Refresh, and answers all there is to ask like the engine."""
        for front, link in zip(self.fronts, self.links, strict=True):
            link.is_late, link._client.loses = False, 0  # type: ignore[attr-defined]  # it is one of ours
            await front.refresh()
            for record in self.rig.engine.fleet.machines.values():
                for id_ in filter(None, (record.placeholder, record.provider_id)):
                    self.nodes |= {(id_, id_), ("some-node", id_), (id_, "")}
                self.nodes |= {(record.name, ""), (record.name, "another")}
            assert await self._answers(front) == await self._answers(self.rig.provider)

    async def _answers(self, provider: Provider) -> Mapping[str, object]:
        found: dict[str, object] = {"groups": tuple(await provider.node_groups())}
        for one in await provider.node_groups():
            found[one.id] = (
                await provider.target_size(one.id),
                sorted(await provider.instances(one.id), key=lambda instance: instance.id),
                await provider.template(one.id),
                await provider.options(one.id, AutoscalingOptions()),
            )
        for name, id_ in self.nodes:
            found[f"{name} {id_}"] = await provider.node_group_for_node(NodeRef(name=name, provider_id=id_))
        for declared in POOL:
            try:
                price = await provider.node_price(NodeRef(name=f"template-node-for-{declared.id}-1"), START, END)
            except NotFoundError:
                continue
            found[f"price of {declared.id}"] = price
        return found


async def walk(directory: Path, seed: int, steps: int) -> None:
    rig = Rig(directory, groups=POOL)
    async with running(rig):
        world = World(rig, seed)
        taken: list[str] = []
        for front in world.fronts:
            await front._read(0.0)
        try:
            for number in range(steps):
                taken.append(await world.step())
                if number % 5 == 4:
                    await world.compare()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, after {taken[-12:]}: {error}") from error
        finally:
            for client in world.clients:
                await client.close()


async def test_fronts_answer_as_the_engine_does_whatever_happens(tmp_path: Path) -> None:
    await walk(tmp_path, seed=7, steps=60)


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(30))
async def test_fronts_answer_as_the_engine_does_on_every_way(tmp_path: Path, seed: int) -> None:
    await walk(tmp_path, seed=seed, steps=300)
