"""The agent, against a Kubernetes API over HTTP and a discovery server over TLS."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.discovery.agent.agent import Agent, AgentSettings, cluster_id_of
from cloudgraft.discovery.agent.measure import Rules
from cloudgraft.discovery.client import DiscoveryClient
from cloudgraft.discovery.model import ClusterSpec, Heartbeat, Need, PriceList, Strategy
from cloudgraft.discovery.service import Discovery
from cloudgraft.kube.client import KubeClient
from cloudgraft.kube.connect import connect
from cloudgraft.sdk.errors import NotFoundError, PreconditionError, UnavailableError
from cloudgraft.sdk.quantity import Quantity
from tests.conditions import until
from tests.discovery.web.discovery_server import ServedDiscovery
from tests.kube_api import KubeApi

SETTINGS = AgentSettings(spec=ClusterSpec(id="turin", labels={"country": "italy"}), every=0.02)


def add_node(api: KubeApi, name: str, *, cpu: str = "4") -> None:
    api.store.create(
        "nodes",
        "",
        {
            "metadata": {"name": name},
            "status": {
                "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
    )
    untainted: Any = lambda old: {**old, "spec": {}}  # noqa: E731 - new nodes have a taint until somebody removes it
    api.store.patch(("nodes", "", name), untainted)


def add_pod(api: KubeApi, name: str, node: str, *, labels: dict[str, str] | None = None) -> None:
    """It asks for 1 cpu while it starts, half of one and a sidecar's 250m later, and an overhead of 50m."""
    asks = {"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    init = [
        {"name": "sidecar", "restartPolicy": "Always", "resources": {"requests": {"cpu": "250m"}}},
        {"name": "first", "resources": {"requests": {"cpu": "1"}}},
    ]
    spec = {
        "nodeName": node,
        "containers": [{"name": "c", **asks}],
        "initContainers": init,
        "overhead": {"cpu": "50m"},
    }
    api.store.create("pods", "default", {"metadata": {"name": name, "labels": labels or {}}, "spec": spec})


def add_id(api: KubeApi, id_: str, name: str = "liqo-clusterid-configmap") -> None:
    labels = {"app.kubernetes.io/name": "clusterid-configmap"}
    api.store.create(
        "configmaps", "default", {"metadata": {"name": name, "labels": labels}, "data": {"CLUSTER_ID": id_}}
    )


@pytest.fixture
async def kube(api: KubeApi, tmp_path: Path) -> AsyncIterator[KubeClient]:
    client = connect(api.kubeconfig(tmp_path))
    yield client
    await client.close()


@asynccontextmanager
async def working(
    kube: KubeClient, register: DiscoveryClient | Discovery, settings: AgentSettings = SETTINGS
) -> AsyncIterator[Agent]:
    agent = Agent(kube, register, settings)
    task = asyncio.create_task(agent.run())
    try:
        yield agent
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_what_is_measured_is_known_to_discovery_over_tls(
    api: KubeApi, kube: KubeClient, town: ServedDiscovery
) -> None:
    """Step 0 of the original, which it never had: a remote cluster announces itself."""
    add_node(api, "a")
    add_pod(api, "own", "a")
    add_pod(api, "theirs", "a", labels={"offloading.liqo.io/origin": "prod"})
    prices = PriceList(currency="EUR", unit={"cpu": Decimal("0.02")})
    secret = town.directory / "peering.kubeconfig"
    secret.write_text("kind: Config\n")
    settings = replace(SETTINGS, prices=prices, credentials_file=secret)
    async with town.as_("turin") as client, town.as_("manager") as manager, working(kube, client, settings) as agent:
        await until(lambda: agent.heartbeats >= 2)
        found = await manager.cluster("turin")
        # 1 cpu and a sidecar of 250m while it starts, and 50m on top: 1300m for each of the two pods.
        assert found.free == {"cpu": Quantity("1400m"), "memory": Quantity("6Gi"), "pods": Quantity(108)}
        assert found.spec.capacity["cpu"] == Quantity(4)
        assert found.spec.labels == {"country": "italy"}
        assert list(await manager.prices("turin")) == [prices]
        assert await manager.credentials("turin") == "kind: Config\n"
        add_node(api, "b")
        await until(lambda: is_free(manager, "5400m"))


async def is_free(register: Any, cpu: str) -> bool:
    cluster = await register.cluster("turin")
    shared = cluster.spec.capacity.get("cpu", Quantity(0))
    return bool(cluster.free.get("cpu") == Quantity(cpu) and shared >= cluster.free["cpu"])


async def test_an_agent_does_not_undo_what_an_operator_said(api: KubeApi, kube: KubeClient, core: Discovery) -> None:
    add_node(api, "a")
    async with working(kube, core) as agent:
        await until(lambda: agent.heartbeats >= 1)
        known = await core.cluster("turin")
        await core.put_cluster(replace(known.spec, cordoned=True))
        add_node(api, "b")  # makes the agent declare the cluster anew
        await until(lambda: is_free(core, "8"))
        assert (await core.cluster("turin")).spec.cordoned


async def test_a_cluster_that_was_removed_is_announced_again(api: KubeApi, kube: KubeClient, core: Discovery) -> None:
    add_node(api, "a")
    settings = replace(SETTINGS, prices=PriceList(currency="EUR"))
    async with working(kube, core, settings) as agent:
        await until(lambda: agent.heartbeats >= 1)
        await core.delete_cluster("turin")
        await until(lambda: is_there(core))
        await until(lambda: has_prices(core))


async def test_nothing_is_on_offer_of_a_cluster_of_which_nothing_was_measured_yet(
    api: KubeApi, kube: KubeClient, core: Discovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its agent dies after it has declared the cluster, or its heartbeats are refused."""
    add_node(api, "a")
    add_pod(api, "own", "a")
    need = Need(resources={"cpu": Quantity(1)}, strategy=Strategy.FIRST_FIT)
    take, refused = core.heartbeat, list[str]()

    async def refuse(cluster: str, beat: Heartbeat) -> None:
        if await is_known(core):
            refused.append(cluster)
            raise UnavailableError("not now")
        await take(cluster, beat)

    monkeypatch.setattr(core, "heartbeat", refuse)
    async with working(kube, core):
        await until(lambda: bool(refused), what="the cluster is declared")
        assert await core.search(need) == []
        monkeypatch.setattr(core, "heartbeat", take)
        await until(lambda: is_free(core, "2700m"))
        assert [one.cluster for one in await core.search(need)] == ["turin"]


async def is_known(core: Discovery) -> bool:
    try:
        await core.cluster("turin")
    except NotFoundError:
        return False
    return True


async def test_a_start_of_an_agent_takes_no_prices_away_that_an_operator_laid_over_its_own(
    api: KubeApi, kube: KubeClient, core: Discovery
) -> None:
    add_node(api, "a")
    first, second = (PriceList(currency="EUR", unit={"cpu": Decimal(price)}) for price in ("0.02", "0.03"))
    special = PriceList(currency="EUR", unit={"cpu": Decimal("0.01")})
    for own, told in ((first, [first]), (first, [first, special]), (second, [second, special])):
        async with working(kube, core, replace(SETTINGS, prices=own)) as agent:
            await until(lambda agent=agent: agent.heartbeats >= 1)  # type: ignore[misc]
            assert list(await core.prices("turin")) == told
        await core.set_prices("turin", [own, special])


async def test_prices_of_the_agents_file_count_also_when_only_their_end_was_changed(
    api: KubeApi, kube: KubeClient, core: Discovery
) -> None:
    """The former list began at the same moment: left where it is, it would lie over the new one, and count."""
    add_node(api, "a")
    now = datetime.now(UTC)
    first = PriceList(currency="EUR", unit={"cpu": Decimal("0.02")}, valid_to=now + timedelta(days=1))
    second = PriceList(currency="EUR", unit={"cpu": Decimal("0.03")}, valid_to=now + timedelta(days=2))
    ended = PriceList(currency="EUR", unit={"cpu": Decimal("0.04")}, valid_to=now - timedelta(days=1))
    special = replace(ended, valid_from=now, valid_to=now + timedelta(hours=1))
    await core.put_cluster(SETTINGS.spec)
    await core.set_prices("turin", [first, ended, special])
    async with working(kube, core, replace(SETTINGS, prices=second)) as agent:
        await until(lambda: agent.heartbeats >= 1)
        assert list(await core.prices("turin")) == [second, special]


async def test_prices_that_an_operator_lays_on_top_while_the_agent_tells_its_own_are_not_lost(
    api: KubeApi, kube: KubeClient, town: ServedDiscovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_node(api, "a")
    own, special = (PriceList(currency="EUR", unit={"cpu": Decimal(price)}) for price in ("0.02", "0.01"))
    async with town.as_("turin") as client, town.as_("boss") as boss:
        tell, tries = client.set_prices, list[str]()

        async def slowly(cluster: str, prices: Sequence[PriceList], *, revision: int | None = None) -> None:
            tries.append(cluster)
            if len(tries) == 1:
                await boss.add_prices(cluster, special)
            await tell(cluster, prices, revision=revision)

        monkeypatch.setattr(client, "set_prices", slowly)
        await boss.put_cluster(SETTINGS.spec)
        await boss.set_prices("turin", [replace(own, currency="USD")])
        async with working(kube, client, replace(SETTINGS, prices=own)):
            await until(lambda: len(tries) >= 2, what="it is told again")

            async def is_priced() -> bool:
                return list(await boss.prices("turin")) == [own, special]

            await until(is_priced)


async def is_there(core: Discovery) -> bool:
    try:
        return (await core.cluster("turin")).last_heartbeat is not None
    except NotFoundError:
        return False


async def has_prices(core: Discovery) -> bool:
    return bool(await core.prices("turin"))


async def test_changed_credentials_are_handed_in_again(
    api: KubeApi, kube: KubeClient, core: Discovery, tmp_path: Path
) -> None:
    add_node(api, "a")
    file = tmp_path / "c"
    file.write_text("one")
    async with working(kube, core, replace(SETTINGS, credentials_file=file)) as agent:
        await until(lambda: agent.heartbeats >= 1)
        assert await core.credentials("turin") == "one"
        file.write_text("two")

        async def is_two() -> bool:
            return await core.credentials("turin") == "two"

        await until(is_two)


async def test_discovery_that_is_away_is_told_once_and_found_again(
    api: KubeApi, kube: KubeClient, certs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "cloudgraft.agent")
    add_node(api, "a")
    (tmp_path / "t").mkdir()
    town = ServedDiscovery(certs, tmp_path / "t")
    async with town.running(), town.as_("turin") as client, working(kube, client) as agent:
        await until(lambda: agent.heartbeats >= 1)
        address = town.server.listener.address
        await town.server.listener.close(0)
        await until(lambda: len(troubles(caplog)) >= 2, seconds=30)
        warned = [record for record in troubles(caplog) if record.levelno == logging.WARNING]
        assert len(warned) == 1
        before = agent.heartbeats
        town.server.listener._listen = address
        await town.server.listener.open()
        await until(lambda: agent.heartbeats > before, seconds=30)


def troubles(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if "rejected the heartbeat" in record.getMessage()]


async def test_a_cluster_whose_own_api_was_never_heard_is_not_announced(
    api: KubeApi, kube: KubeClient, core: Discovery, caplog: pytest.LogCaptureFixture
) -> None:
    api.denied = {("list", "pods")}
    add_node(api, "a")
    async with working(kube, core) as agent:
        await until(lambda: any("does not respond" in record.getMessage() for record in caplog.records))
        assert agent.heartbeats == 0
        assert list(await core.clusters()) == []
        api.denied = set()
        await until(lambda: agent.heartbeats >= 1)


async def test_the_id_comes_from_liqos_config_map(api: KubeApi, kube: KubeClient) -> None:
    with pytest.raises(PreconditionError, match="has none"):
        await cluster_id_of(kube)
    add_id(api, "turin")
    api.store.create("configmaps", "default", {"metadata": {"name": "other"}, "data": {"CLUSTER_ID": "wrong"}})
    assert await cluster_id_of(kube) == "turin"
    add_id(api, "milan", "second")
    with pytest.raises(PreconditionError, match="milan, turin"):
        await cluster_id_of(kube)


async def test_an_agent_measures_by_its_rules(api: KubeApi, kube: KubeClient, core: Discovery) -> None:
    add_node(api, "a")
    async with working(kube, core, replace(SETTINGS, rules=Rules(only=frozenset({"cpu"})))) as agent:
        await until(lambda: agent.heartbeats >= 1)
        assert (await core.cluster("turin")).free == {"cpu": Quantity(4)}


async def test_credentials_that_are_refused_silence_no_heartbeat(
    api: KubeApi, kube: KubeClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A server without a vault, or a file that is gone: the cluster stays Ready, and the trouble is told once."""
    add_node(api, "a")
    file = tmp_path / "c"
    file.write_text("token: nobody-is-to-see-this")
    core = Discovery(Discovery.sqlite(tmp_path / "no-vault.db"), gather=0.0)
    await core.open()
    try:
        async with working(kube, core, replace(SETTINGS, credentials_file=file)) as agent:
            await until(lambda: agent.heartbeats >= 5)
            warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
            assert len([message for message in warned if "vault" in message]) == 1
            assert "nobody-is-to-see-this" not in caplog.text
    finally:
        await core.close()
