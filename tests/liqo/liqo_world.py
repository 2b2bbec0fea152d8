"""A consumer and some providers, each a small API server on a real port, with the fake Liqo between them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from cloudgraft.demo.fake_liqo import Member, guard_names, playing, settle
from cloudgraft.kube.connect import connect
from cloudgraft.liqo.driver import LiqoDriver
from cloudgraft.liqo.options import DiscoveryOptions, LiqoOptions, Timeouts
from cloudgraft.sdk.driver import MachineSpec
from e2e.scripted_liqo import JsonScript, ScriptedLiqo
from tests.conditions import until
from tests.kube_api import Json, KubeApi
from tests.liqo.liqo_market import NO_NETWORK, MemoryMarket

SIZES: dict[str, dict[str, str | int | float]] = {
    "S": {"cpu": 2, "memory": "4Gi", "pods": 20},
    "M": {"cpu": "4", "memory": "16Gi", "pods": 50},
}
QUICK = Timeouts(
    api=timedelta(seconds=20),
    peering=timedelta(seconds=20),
    slice=timedelta(seconds=20),
    removal=timedelta(seconds=20),
)


def spec(name: str = "node-1", shape: str = "S", **settings: object) -> MachineSpec:
    tags = {"cloudgraft-cluster": "Prod 1", "cloudgraft-cluster-id": "abc", "cloudgraft-group": "g/1"}
    machine = {"shape": shape, **settings}
    return MachineSpec(name=name, group="g/1", settings=machine, tags={**tags, "cloudgraft-name": name})


@dataclass
class World:
    """All of it."""

    directory: Path
    consumer: KubeApi
    providers: dict[str, KubeApi]
    market: MemoryMarket
    script: JsonScript

    def options(self, **changes: Any) -> LiqoOptions:
        given: dict[str, Any] = {
            "discovery": DiscoveryOptions(address="https://nowhere.invalid"),
            "sizes": SIZES,
            "kubeconfig": self.consumer.kubeconfig(self.directory),
            "timeouts": QUICK,
            "currency": "EUR",
            "allowed_networks": ["127.0.0.0/8"],
            **changes,
        }
        return LiqoOptions(**given)

    def driver(self, **changes: Any) -> LiqoDriver:
        return LiqoDriver(self.options(**changes), self.market)

    @asynccontextmanager
    async def started(self, **changes: Any) -> AsyncIterator[LiqoDriver]:
        driver = self.driver(**changes)
        await driver.start()
        try:
            yield driver
        finally:
            await driver.close()

    def objects(self, plural: str, *, at: str = "") -> list[Json]:
        api = self.providers[at] if at else self.consumer
        return list(api.store.items(plural))

    def names(self, plural: str, *, at: str = "") -> list[str]:
        return sorted(one["metadata"]["name"] for one in self.objects(plural, at=at))

    def slices(self) -> list[str]:
        """As cluster/name."""
        return sorted(
            f"{one['spec']['providerClusterID']}/{one['metadata']['name']}" for one in self.objects("resourceslices")
        )

    def node(self, name: str) -> Json | None:
        return next((one for one in self.objects("nodes") if one["metadata"]["name"] == name), None)

    def reserved(self) -> list[str]:
        """As cluster/owner, sorted, with their states."""
        return sorted(f"{one.cluster}:{one.owner}:{one.state.value}" for one in self.market.reserved.values())

    async def has_node(self, name: str) -> None:
        def is_there() -> bool:
            node = self.node(name)
            return node is not None and node["spec"].get("providerID") == f"liqo://{name}"

        await until(is_there, what=f"the node {name} with its providerID")

    async def is_ready(self, name: str) -> None:
        def told() -> bool:
            conditions = ((self.node(name) or {}).get("status") or {}).get("conditions") or ()
            return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

        await until(told, what=f"the node {name} is ready")


@contextmanager
def running(directory: Path, providers: Sequence[str]) -> Iterator[tuple[KubeApi, dict[str, KubeApi]]]:
    consumer = KubeApi()
    remote: dict[str, KubeApi] = {}
    for name in providers:
        home = directory / f"tls-{name}"
        home.mkdir()
        remote[name] = KubeApi.secure(home)
    guard_names(consumer)
    for api in (consumer, *remote.values()):
        api.start()
    try:
        yield consumer, remote
    finally:
        for api in (consumer, *remote.values()):
            api.stop()


@asynccontextmanager
async def world_of(directory: Path, *providers: str) -> AsyncIterator[World]:
    """Providers cost 1, 2, 3 … an hour, in their order, and have no network unless a test says so."""
    async with AsyncExitStack() as stack:
        consumer, remote = stack.enter_context(running(directory, providers))
        market = MemoryMarket()
        members: list[Member] = []
        for number, (name, api) in enumerate([("consumer", consumer), *remote.items()]):
            home = directory / f"fake-{name}"
            home.mkdir()
            client = connect(api.kubeconfig(home))
            stack.push_async_callback(client.close)
            await settle(client, name)
            members.append(Member(id=name, client=client))
            if api is not consumer:
                market.add(name, api.kubeconfig_text(), price=str(number), network=NO_NETWORK)
        script = JsonScript()
        await stack.enter_async_context(playing(ScriptedLiqo(members[0], members[1:], script=script)))
        yield World(directory=directory, consumer=consumer, providers=remote, market=market, script=script)


def pretty(value: object) -> str:
    """For the message of a failed assertion."""
    return json.dumps(value, indent=1, default=str)
