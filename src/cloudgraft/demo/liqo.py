"""Plays the demo of remote clusters as nodes: real discovery, engine and driver, and a fake Liqo."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Final

from cloudgraft.certs.authority import create_bundle, issue_client
from cloudgraft.demo.checks import StoryError
from cloudgraft.demo.fake_kubernetes import KubeApi
from cloudgraft.demo.fake_liqo import FakeLiqo, Member, guard_names, playing, settle
from cloudgraft.discovery.api.app import discovery_app
from cloudgraft.discovery.client import DiscoveryClient
from cloudgraft.discovery.model import ClusterSpec, Network, NetworkMode, PriceList
from cloudgraft.discovery.service import Discovery
from cloudgraft.discovery.store.vault import Vault, new_key
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.groups.desired import CloudDeclaration, DesiredState, GroupDeclaration
from cloudgraft.engine.groups.specs import CloudSettings
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.kube.connect import connect
from cloudgraft.liqo.driver import LiqoDriver
from cloudgraft.liqo.options import DiscoveryOptions, LiqoOptions, Timeouts
from cloudgraft.sdk import NodeRef
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.store.sql import SqlJournal
from cloudgraft.web.authentication import AuditLog, ClientRule, Gatekeeper
from cloudgraft.web.client import ClientTls
from cloudgraft.web.listener import WebListener, WebTls

# -- discovery server --------------------------------------------------------------------------------------------------
# The real one, on a loopback port, with mTLS and a database on disk.


CURRENCY: Final = "EUR"
_MANAGER, _OPERATOR = "node-manager", "operator"
_SHARED: Final = {"cpu": Quantity("16"), "memory": Quantity("64Gi"), "pods": Quantity("200")}


@dataclass(frozen=True, slots=True)
class DemoMarket:
    """A discovery server, and its clients."""

    address: str
    options: DiscoveryOptions  # for the driver
    operator: DiscoveryClient
    manager: DiscoveryClient  # sees reservations

    async def announce(self, cluster: str, price: str, kubeconfig: str) -> None:
        """Announces a cluster that shares resources from now on."""
        network = Network(mode=NetworkMode.DISABLED)
        await self.operator.put_cluster(ClusterSpec(id=cluster, capacity=_SHARED, network=network))
        await self.operator.set_credentials(cluster, kubeconfig)
        await self.price({cluster: price})

    async def price(self, prices: Mapping[str, str]) -> None:
        """Sets the clusters' prices, per node and hour."""
        for cluster, price in prices.items():
            offer = PriceList(currency=CURRENCY, fixed_per_node=Decimal(price))
            await self.operator.set_prices(cluster, [offer])

    async def reserved(self) -> int:
        """Reservations that are alive."""
        return len(await self.manager.reservations(""))


@asynccontextmanager
async def open_market(directory: Path) -> AsyncIterator[DemoMarket]:
    """Serves while the block lasts. Keys and database are in the directory."""
    async with AsyncExitStack() as stack:
        bundle = create_bundle(directory, hosts=["127.0.0.1"], client_name=_MANAGER)
        operator = issue_client(directory, _OPERATOR)
        core = Discovery(Discovery.sqlite(directory / "discovery.db"), vault=Vault.parse(new_key(), where="the demo"))
        await core.open()
        stack.push_async_callback(core.close)
        rules = [ClientRule(name=name, role=name, certificate=name) for name in (_MANAGER, _OPERATOR)]
        app = discovery_app(core, gatekeeper=Gatekeeper(rules, secure=True), audit=AuditLog(directory / "audit.log"))
        files = WebTls(cert=bundle.server_cert, key=bundle.server_key, client_ca=bundle.ca_cert)
        listener = WebListener(app, listen="127.0.0.1:0", tls=files)
        await listener.open()
        stack.push_async_callback(listener.close)
        pairs = (operator, (bundle.client_cert, bundle.client_key))
        clients = [
            DiscoveryClient(listener.url, tls=ClientTls(ca=bundle.ca_cert, cert=cert, key=key)) for cert, key in pairs
        ]
        for client in clients:
            stack.push_async_callback(client.close)
        options = DiscoveryOptions(
            address=listener.url, ca_file=bundle.ca_cert, cert_file=bundle.client_cert, key_file=bundle.client_key
        )
        yield DemoMarket(listener.url, options, *clients)


# -- world -------------------------------------------------------------------------------------------------------------
# The demo's clusters: our own and three remote ones, with a fake Liqo between them, and the real engine.


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
    """The demo's world. The engine runs step by step, so that the demo does not wait."""

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
        """Our current slices."""
        return len(self.apis[HOME].store.items("resourceslices"))

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        """Runs the engine until a condition holds. Raises StoryError when it never does."""
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


# -- the story ---------------------------------------------------------------------------------------------------------
# Each step is printed when it has really happened.


Tell = Callable[[str, str], None]  # a word for what it is, and a line
_PRICES: Final = {"berlin": "0.06", "milan": "0.10", "paris": "0.08"}
_LATER: Final = {"berlin": "0.09", "paris": "0.03"}


async def play(tell: Tell) -> None:
    """Plays the story, in a temporary directory. Raises StoryError when a check fails."""
    with tempfile.TemporaryDirectory(prefix="cloudgraft-demo-") as scratch:
        async with open_world(Path(scratch), _PRICES) as world:
            tell("start", f"discovery serves on {world.market.address} over mTLS")
            tell("start", f"a node of 2 cpu and 4Gi costs, per hour: {_price_list(_PRICES)}")
            await _Story(world, tell).play()


def _price_list(prices: dict[str, str]) -> str:
    return ", ".join(f"{cluster} {price} {CURRENCY}" for cluster, price in sorted(prices.items()))


class _Story:
    def __init__(self, world: LiqoWorld, tell: Tell) -> None:
        self._world = world
        self._tell = tell

    async def play(self) -> None:
        await self._grow("berlin", "it is the cheapest")
        await self._world.market.price(_LATER)
        self._tell("prices", f"change: {_price_list(_PRICES | _LATER)}")
        await self._grow("paris", "it is the cheapest now")
        await self._lose("paris")
        await self._grow("berlin", "paris did not answer, so the next was asked in the same order")
        await self._return("paris")
        await self._shrink()
        await self._end()

    async def _grow(self, expected: str, why: str) -> None:
        before = {node.name for node in self._world.nodes()}
        await self._world.provider.increase_size(GROUP, 1)
        self._tell("scale-out", "the autoscaler asks for one more node")

        def new() -> list[VirtualNode]:
            return [node for node in self._world.nodes() if node.name not in before]

        await self._world.until(lambda: any(node.ready and node.provider_id for node in new()), "a node that is ready")
        (node,) = new()
        if node.cluster != expected:
            raise StoryError(f"the node came from {node.cluster}, not from {expected}")
        peered = ", ".join(self._world.peered())
        self._tell("node", f"{node.name} is ready: a slice of {node.cluster}: {why} (peered: {peered})")

    async def _lose(self, cluster: str) -> None:
        await asyncio.to_thread(self._world.apis[cluster].stop)
        self._tell("fault", f"{cluster} dies: its API does not answer any more")
        await self._world.until(lambda: not all(node.ready for node in self._world.nodes()), "a node that is not ready")
        self._tell("fault", f"the node of {cluster} is not ready any more; discovery has not heard of it yet")

    async def _return(self, cluster: str) -> None:
        self._world.apis[cluster].start()
        self._tell("fault", f"{cluster} is back")
        await self._world.until(lambda: all(node.ready for node in self._world.nodes()), "all nodes ready")

    async def _shrink(self) -> None:
        nodes = self._world.nodes()
        self._tell("scale-in", f"work ends: the autoscaler drains {len(nodes)} nodes and deletes them")
        refs = [NodeRef(name=node.name, provider_id=node.provider_id) for node in nodes]
        await self._world.provider.delete_nodes(GROUP, refs)
        await self._world.until(lambda: not self._world.nodes() and not self._world.slices(), "no node, no slice")
        self._tell("scale-in", "every slice is given back, and every node is gone")

    async def _end(self) -> None:
        await self._world.until(lambda: not self._world.peered(), "no peering")
        self._tell("unpeer", "the peerings are not needed any more: they are taken down on both sides")
        async with asyncio.timeout(_PATIENCE):
            while await self._world.market.reserved():
                await self._world.engine.turn()
                await asyncio.sleep(_STEP)
        self._tell("end", "no node, no slice, no peering and no reservation is left behind")
