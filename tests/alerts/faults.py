"""Real servers, each with one kind of fault, and the alerts that it must fire.

A scenario is an async context manager that yields a :class:`Stage`. Its fault begins with :attr:`Stage.strike`, once
Prometheus has scraped the server: no rule can see an increase of a counter from before the first scrape.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, Final

import grpc
import psycopg

from cloudgraft.certs.authority import create_bundle, issue_client
from cloudgraft.client import Address, CloudConfig, Connection, RemoteProvider
from cloudgraft.dock.runner import DockRunner, RunnerOptions, RunnerSettings
from cloudgraft.engine.nodes import drift
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.wire.externalgrpc import RPCS
from tests.conditions import until
from tests.dock.driver.connected_driver import CLASS, KEY
from tests.engine.scripted_cloud import Cloud as MemoryCloud
from tests.kube_api import KubeApi
from tests.postgres import PostgresServer
from tests.serve import child
from tests.serve.served_clouds import Cloud
from tests.serve.servers import Server, running
from tests.serve.settings import FAST, configuration, postgresql, simulated, small
from tests.simcloud.sim_process import call

_PRICE: Final = {"hourly": "1", "currency": "EUR"}
_METHOD: Final = "/clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider/NodeGroups"
_SLOW_CALLS: Final = 3
_ABOVE_WARNING: Final = 4  # idle connections; the alert begins at 0.4 of the 8 that are allowed


async def _nothing() -> None:
    """The fault is there from the beginning."""


@dataclass(frozen=True)
class Stage:
    """A running server: where its metrics are, and how its fault begins."""

    ops: str
    strike: Callable[[], Awaitable[object]] = _nothing


@dataclass(frozen=True)
class Scenario:
    """A server with a fault, and the alerts that this fault must fire."""

    name: str
    run: Callable[[Path], AbstractAsyncContextManager[Stage]]
    fires: frozenset[str]


async def _stage(server: Server, strike: Callable[[], Awaitable[object]] = _nothing) -> Stage:
    line = await asyncio.to_thread(server.wait_for, lambda line: line.get("event") == "serving")
    return Stage(str(line["ops"]), strike)


@asynccontextmanager
async def _repeated(what: Callable[[], Awaitable[object]], pause: float = 0.2) -> AsyncIterator[None]:
    """Repeats a call in the background; errors are what some scenarios ask for."""

    async def go_on() -> None:
        while True:
            with contextlib.suppress(CloudgraftError, grpc.RpcError):
                await what()
            await asyncio.sleep(pause)

    task = asyncio.create_task(go_on())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


@contextmanager
def _kubernetes() -> Iterator[KubeApi]:
    api = KubeApi()
    api.start()
    try:
        yield api
    finally:
        api.stop()


# -- nothing is wrong --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def healthy(directory: Path) -> AsyncIterator[Stage]:
    """Machines join, and an autoscaler calls."""
    with _kubernetes() as api, Cloud(directory, "--kubeconfig", str(api.kubeconfig(directory))) as cloud:
        text = configuration(
            {"sim": simulated(cloud.url)},
            [small(price=_PRICE)],
            kubernetes={"kubeconfig": str(directory / "kubeconfig")},
            guards={"maxMachines": 100, "maxSpendPerDay": {"amount": "1000", "currency": "EUR"}},
        )
        with Server(directory / "c.yaml", text) as server:
            async with server.connected() as provider, _repeated(provider.refresh):
                await provider.increase_size("small", 1)
                await running(provider, "small", 1)
                yield await _stage(server, lambda: provider.increase_size("small", 1))


# -- clouds ------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def refusing_cloud(directory: Path) -> AsyncIterator[Stage]:
    """Creates fail and are tried again; a machine with our marks is not in the journal; no client calls."""
    with (
        Cloud(directory) as cloud,
        Server(directory / "c.yaml", configuration({"sim": simulated(cloud.url)}, [small()])) as server,
    ):

        async def strike() -> None:
            async with server.connected() as provider:
                await provider.increase_size("small", 1)
                await running(provider, "small", 1)
                (machine,) = cloud.ledger()
                tags = {**machine["tags"], "cloudgraft-name": "stranger"}
                call(cloud.url, "POST", "/machines", {"name": "stranger", "shape": "small", "tags": tags})
                cloud.chaos(create={"unavailable": 1.0}, retryAfter=0)
                await provider.increase_size("small", 1)

        yield await _stage(server, strike)


@asynccontextmanager
async def vanished_cloud(directory: Path) -> AsyncIterator[Stage]:
    """The cloud was listed, and is gone."""
    with (
        Cloud(directory) as cloud,
        Server(directory / "c.yaml", configuration({"sim": simulated(cloud.url)}, [small()])) as server,
    ):
        await until(server.is_ready, what="the cloud was listed")
        yield await _stage(server, lambda: asyncio.to_thread(cloud.kill))


@asynccontextmanager
async def slow_cloud(directory: Path) -> AsyncIterator[Stage]:
    """A create takes 90 % of its time, and the machine never boots."""
    with Cloud(directory) as cloud:
        cloud.chaos(create={"latency": 1.8}, neverBoots=1.0)
        text = configuration({"sim": simulated(cloud.url, {"createTimeout": "2s"})}, [small()])
        with Server(directory / "c.yaml", text) as server:
            async with server.connected() as provider:
                yield await _stage(server, lambda: provider.increase_size("small", 1))


@asynccontextmanager
async def short_cloud(directory: Path) -> AsyncIterator[Stage]:
    """All that a guard allows is used, and one machine more was asked for."""
    guards = {"maxMachines": 3, "maxSpendPerDay": {"amount": "3.5", "currency": "EUR"}}
    with Cloud(directory) as cloud:
        text = configuration({"sim": simulated(cloud.url)}, [small(price=_PRICE)], guards=guards)
        with Server(directory / "c.yaml", text) as server:
            async with server.connected() as provider:
                yield await _stage(server, lambda: provider.increase_size("small", 4))


@asynccontextmanager
async def absent_driver(directory: Path) -> AsyncIterator[Stage]:
    """A driver that dials in was there, and left."""
    said = {"kind": KEY.kind, "apiVersion": KEY.api_version}
    template = {"instanceType": "small", "capacity": {"cpu": 2, "memory": "4Gi"}}
    dock: dict[str, Any] = {"listen": "127.0.0.1:0", "classes": {CLASS: {**said, "nodeTemplate": template}}}
    cloud = {"driver": "dock", **said, "machineClass": CLASS, "engine": FAST}
    with Server(directory / "c.yaml", configuration({"acme": cloud}, [small(cloud="acme")], dock=dock)) as server:
        line = await asyncio.to_thread(server.says, "serving drivers that dial in")
        settings = RunnerSettings(first_wait=0.05, longest_wait=0.2)
        options = RunnerOptions(
            address=str(line["address"]), kind=KEY.kind, api_version=KEY.api_version, settings=settings
        )
        runner = DockRunner(MemoryCloud(), options)
        await runner.start()
        try:
            await until(server.is_ready, what="the driver was listed")
            yield await _stage(server, lambda: runner.stop(0))
        finally:
            await runner.stop(0)


# -- the server --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def besieged_server(directory: Path) -> AsyncIterator[Stage]:
    """A certificate for one day, many connections, and a client that may not call and does not give up."""
    bundle = create_bundle(directory / "certs", hosts=["127.0.0.1"], days=1)
    stranger = issue_client(directory / "certs", "somebody-else")
    names = {"cert": bundle.server_cert, "key": bundle.server_key, "clientCA": bundle.ca_cert}
    tls = {**{key: str(path) for key, path in names.items()}, "allowedClients": ["cluster-autoscaler-grpc-client"]}
    server_section = {"listen": "127.0.0.1:0", "ops": "127.0.0.1:0", "tls": tls, "limits": {"connections": 8}}
    text = configuration({"sim": {"driver": "simulated"}}, [small()], server=server_section)
    with Server(directory / "c.yaml", text) as server:
        ca = bundle.ca_cert.read_bytes()
        address = await asyncio.to_thread(lambda: server.address)
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(_ABOVE_WARNING):
                config = CloudConfig(
                    address=Address.parse(address),
                    cert=str(bundle.client_cert),
                    key=str(bundle.client_key),
                    cacert=str(bundle.ca_cert),
                    grpc_timeout=timedelta(seconds=20),
                )
                provider = RemoteProvider(await stack.enter_async_context(Connection(config)))
                await stack.enter_async_context(_repeated(provider.refresh))
            credentials = grpc.ssl_channel_credentials(ca, stranger[1].read_bytes(), stranger[0].read_bytes())
            channel = await stack.enter_async_context(grpc.aio.secure_channel(address, credentials))
            request = RPCS["NodeGroups"].request().SerializeToString()
            refused: Any = channel.unary_unary(_METHOD)
            await stack.enter_async_context(_repeated(lambda: _call(refused, request)))
            yield await _stage(server)


async def _call(method: Any, request: bytes) -> None:
    await method(request, timeout=20)


@asynccontextmanager
async def leaderless_server(directory: Path) -> AsyncIterator[Stage]:
    """Its database locks a table, so that a call waits, and is then stopped."""
    with PostgresServer.started() as postgres, Cloud(directory) as cloud:
        url = postgres.database()
        text = configuration({"sim": simulated(cloud.url)}, [small()], store=postgresql(url, lease="20s"))
        with Server(directory / "c.yaml", text) as server:
            await until(server.is_ready, what="it leads", seconds=30)
            yield await _stage(server, lambda: _disturb(postgres, url, server))


async def _disturb(postgres: PostgresServer, url: str, server: Server) -> None:
    holding, released = threading.Event(), threading.Event()
    holder = asyncio.create_task(asyncio.to_thread(_hold_machines, url, holding, released))
    await asyncio.to_thread(holding.wait)
    async with server.connected() as provider:
        # The journal waits for the lock, and gives up after 3 seconds; the calls come one after the other.
        calls = (provider.increase_size("small", 1) for _ in range(_SLOW_CALLS))
        await asyncio.gather(*calls, return_exceptions=True)
    released.set()
    await holder
    await asyncio.to_thread(postgres.stop)


def _hold_machines(url: str, holding: threading.Event, released: threading.Event) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(b"LOCK TABLE machines")
        holding.set()
        released.wait(20)


# -- nodes -------------------------------------------------------------------------------------------------------------


def run_with_settled_nodes(log: Pipe, arguments: list[str]) -> None:
    """`cloudgraft serve` where a node counts as settled at once: it must otherwise be ten minutes old."""
    vars(drift)["SETTLED"] = 0.0
    child.run(log, arguments)


@asynccontextmanager
async def drifting_nodes(directory: Path) -> AsyncIterator[Stage]:
    """The template promises a label that nodes do not get."""
    with _kubernetes() as api, Cloud(directory, "--kubeconfig", str(api.kubeconfig(directory))) as cloud:
        machine = {"shape": "small", "labels": {"pool": "other"}}
        text = configuration(
            {"sim": simulated(cloud.url)},
            [small(machine=machine, template={"labels": {"pool": "lab"}})],
            kubernetes={"kubeconfig": str(directory / "kubeconfig"), "labelNodes": False},
        )
        with Server(directory / "c.yaml", text, target=run_with_settled_nodes) as server:
            async with server.connected() as provider, _repeated(provider.refresh):
                await provider.increase_size("small", 1)
                await running(provider, "small", 1)
                yield await _stage(server)


SCENARIOS: Final = (
    Scenario("healthy", healthy, frozenset()),
    Scenario(
        "refusing-cloud",
        refusing_cloud,
        frozenset({"CloudgraftCreatesFail", "CloudgraftOrphans", "CloudgraftNobodyGetsIn"}),
    ),
    Scenario("vanished-cloud", vanished_cloud, frozenset({"CloudgraftCloudDown", "CloudgraftListTooOld"})),
    Scenario("slow-cloud", slow_cloud, frozenset({"CloudgraftCallsNearTimeout", "CloudgraftRequestTooOld"})),
    Scenario(
        "short-cloud",
        short_cloud,
        frozenset({"CloudgraftMachinesFail", "CloudgraftGuardNearlyUsed", "CloudgraftSpendNearLimit"}),
    ),
    Scenario("absent-driver", absent_driver, frozenset({"CloudgraftDriverAway"})),
    Scenario(
        "besieged-server",
        besieged_server,
        frozenset({"CloudgraftCertificateExpires", "CloudgraftRefusesClients", "CloudgraftConnectionsNearLimit"}),
    ),
    Scenario("leaderless-server", leaderless_server, frozenset({"CloudgraftNoLeader", "CloudgraftSlowAnswers"})),
    Scenario("drifting-nodes", drifting_nodes, frozenset({"CloudgraftTemplateDrift"})),
)
