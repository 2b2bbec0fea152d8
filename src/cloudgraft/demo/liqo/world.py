"""The demo's clusters: our own and three remote ones, with Liqo played between them, before the real engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from cloudgraft.demo.checks import StoryError
from cloudgraft.demo.fake_kubernetes import KubeApi
from cloudgraft.demo.fake_liqo import FakeLiqo, Member, guard_names, playing, settle
from cloudgraft.demo.liqo.market import CURRENCY, DemoMarket, open_market
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.groups.desired import CloudDeclaration, DesiredState, GroupDeclaration
from cloudgraft.engine.groups.specs import CloudSettings
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.kube.credentials import connect
from cloudgraft.liqo.driver import LiqoDriver
from cloudgraft.liqo.options import LiqoOptions, Timeouts
from cloudgraft.store.sql import SqlJournal

__all__ = ["GROUP", "HOME", "LiqoWorld", "VirtualNode", "open_world"]

HOME: Final = "home"
GROUP: Final = "remote"
_CLOUD: Final = "liqo"
_PATIENCE: Final = 60.0  # real seconds for what takes one or two
_STEP: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualNode:
    """A node of our cluster that is a slice of a remote one."""

    name: str
    cluster: str
    provider_id: str
    ready: bool


@dataclass(frozen=True, slots=True)
class LiqoWorld:
    """All of it. The engine is turned by hand, so that the demo goes as fast as things happen."""

    market: DemoMarket
    apis: Mapping[str, KubeApi]
    engine: Engine
    provider: EngineProvider

    def nodes(self) -> list[VirtualNode]:
        """The virtual nodes that our cluster has, oldest first."""
        found = sorted(self.apis[HOME].store.items("nodes"), key=lambda node: int(node["metadata"]["resourceVersion"]))
        return [
            VirtualNode(
                name=node["metadata"]["name"],
                cluster=node["metadata"]["labels"]["liqo.io/remote-cluster-id"],
                provider_id=node["spec"].get("providerID", ""),
                ready=any(
                    each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"]
                ),
            )
            for node in found
        ]

    def peered(self) -> list[str]:
        """The remote clusters that know us as a tenant."""
        return sorted(name for name, api in self.apis.items() if name != HOME and api.store.items("tenants"))

    def slices(self) -> int:
        """What we ask of others at present."""
        return len(self.apis[HOME].store.items("resourceslices"))

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        """Turns the engine until something holds. Raises StoryError when it never does."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _PATIENCE
        while not holds():
            if loop.time() > end:
                raise StoryError(f"the demo waited in vain: {what}")
            await self.engine.turn()
            await asyncio.sleep(_STEP)


@asynccontextmanager
async def open_world(directory: Path, prices: Mapping[str, str]) -> AsyncIterator[LiqoWorld]:
    """Everything runs while the block lasts; ``prices`` has a remote cluster for each key."""
    async with AsyncExitStack() as stack:
        apis: dict[str, KubeApi] = {}
        members: list[Member] = []
        for name in (HOME, *prices):
            home = directory / name
            home.mkdir()
            apis[name] = KubeApi.secure(home)
            apis[name].start()
            stack.callback(apis[name].stop)
            client = connect(apis[name].kubeconfig(home))
            stack.push_async_callback(client.close)
            await settle(client, name)
            members.append(Member(id=name, client=client))
        guard_names(apis[HOME])
        await stack.enter_async_context(playing(FakeLiqo(members[0], members[1:], dead_after=1.0)))
        market = await stack.enter_async_context(open_market(directory / "discovery"))
        for name, price in prices.items():
            await market.announce(name, price, apis[name].kubeconfig_text())
        engine = _engine(directory, market, directory / HOME / "kubeconfig")
        provider = EngineProvider(engine)
        await provider.start()
        stack.push_async_callback(provider.close)
        world = LiqoWorld(market, apis, engine, provider)
        await engine.turn()
        yield world


def _engine(directory: Path, market: DemoMarket, kubeconfig: Path) -> Engine:
    seconds = timedelta(seconds=1)
    options = LiqoOptions(
        discovery=market.options,
        sizes={"S": {"cpu": 2, "memory": "4Gi", "pods": 20}},
        kubeconfig=kubeconfig,
        currency=CURRENCY,
        allowed_networks=["127.0.0.0/8"],
        timeouts=Timeouts(api=10 * seconds, peering=30 * seconds, slice=20 * seconds, removal=20 * seconds),
        unpeer_after=seconds,
        look_every=seconds,
    )
    clouds = {_CLOUD: CloudDeclaration(settings=CloudSettings(name=_CLOUD), make=lambda: LiqoDriver(options))}
    group = GroupDeclaration(id=GROUP, cloud=_CLOUD, min_size=0, max_size=5, machine={"shape": "S"})
    desired_state = DesiredState(cluster="demo", clouds=clouds, groups=[group])
    return Engine(desired_state, SqlJournal.sqlite(directory / "journal.db"), is_stepped=True)
