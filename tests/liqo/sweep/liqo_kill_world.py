"""Three processes to kill, small API servers with a fake Liqo beneath them, and an autoscaler in miniature on top."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from cloudgraft.client.cloud_config import CloudConfig
from cloudgraft.client.remote import RemoteProvider
from cloudgraft.demo.fake_liqo import Member, guard_names, settle
from cloudgraft.discovery.client import DiscoveryClient
from cloudgraft.discovery.model import ClusterSpec, Network, NetworkMode, PriceList
from cloudgraft.kube.connect import connect
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import InstanceState, NodeRef
from e2e.liqo_programs import FRONT, MANAGER, OPERATOR, Certificates, Discovery, NodeManager
from e2e.processes import Program, free_ports
from e2e.scripted_liqo import ScriptedLiqo
from tests.conditions import until
from tests.kube_api import KubeApi, User
from tests.liqo.sweep.liqo_kill_gate import Gate

HOME, REMOTE = "home", ("berlin", "paris")
GROUP = "remote"
VICTIMS = ("manager", "discovery", "front")
PATIENCE = 90.0  # seconds, on a machine that does much else
_CHILD = "tests.liqo.sweep.liqo_kill_child"
_ROOT = Path(__file__).parents[3]


class KillWorld:
    """All of it; :meth:`close` ends all of it."""

    def __init__(self, directory: Path) -> None:
        self._stack = ExitStack()
        self._directory = directory
        self.is_good = True  # for another test
        self.gate = Gate(directory / "gate")
        self._stack.callback(self.gate.close)
        self.made: set[str] = set()  # names of slices that were ever made
        self.apis = {name: self._api(directory, name) for name in (HOME, *REMOTE)}
        self._play(directory)
        certificates = Certificates(directory / "certs", [FRONT, MANAGER, OPERATOR])
        self._discovery = Discovery(directory, certificates, [], command=self._gated("discovery"))
        self._start(self._discovery)
        self._discovery.ask(self._announce)
        cloud = _cloud(directory, self._discovery, certificates)
        group = {"id": GROUP, "cloud": "liqo", "maxSize": 3, "machine": {"shape": "S"}}
        manager = NodeManager(directory, certificates, cloud=cloud, groups=[group], command=self._gated("manager"))
        self._start(manager)
        front = _Front(directory, manager, certificates)
        self.front_address = front.address
        self._start(front)
        self.programs: dict[str, Program] = {"manager": manager, "discovery": self._discovery, "front": front}

    def close(self) -> None:
        self._stack.close()

    # -- setting up ------------------------------------------------------------------------------------------------

    def _api(self, directory: Path, name: str) -> KubeApi:
        home = directory / name
        home.mkdir()
        api = KubeApi.secure(home)
        api.start()
        self._stack.callback(api.stop)
        api.kubeconfig(home)
        api.kubeconfig(home, user=api.users.add(User("liqo")), name="liqo.kubeconfig")
        self.gate.watch(api, name)
        if name == HOME:
            guard_names(api)
            api.admission.append(lambda resource, _, manifest: self._note(resource.kind, manifest))
        return api

    def _note(self, kind: str, manifest: dict[str, Any]) -> None:
        if kind == "ResourceSlice":
            self.made.add(manifest["metadata"]["name"])

    def _gated(self, name: str) -> list[str]:
        return ["env", f"PYTHONPATH={_ROOT}", sys.executable, "-m", _CHILD, str(self.gate.socket), name]

    def _start(self, program: Program) -> None:
        self._stack.callback(program.stop)
        program.start()

    async def _announce(self, client: DiscoveryClient) -> None:
        shared = {"cpu": Quantity("16"), "memory": Quantity("64Gi"), "pods": Quantity("200")}
        for number, name in enumerate(REMOTE, start=1):
            network = Network(mode=NetworkMode.DISABLED)
            await client.put_cluster(ClusterSpec(id=name, capacity=shared, network=network))
            await client.set_credentials(name, self.apis[name].kubeconfig_text())
            await client.set_prices(name, [PriceList(currency="EUR", fixed_per_node=Decimal(number))])

    def _play(self, directory: Path) -> None:
        """Plays Liqo in a thread: tests have event loops of their own."""
        loop = asyncio.new_event_loop()
        playing = threading.Event()
        task = loop.create_task(_liqo(directory, playing))

        def run() -> None:
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(task)
            playing.set()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()

        def stop() -> None:
            loop.call_soon_threadsafe(task.cancel)
            thread.join()
            loop.close()

        self._stack.callback(stop)
        assert playing.wait(PATIENCE)

    # -- what there is -----------------------------------------------------------------------------------------------

    def slices(self) -> list[str]:
        """As cluster/name."""
        found = self.apis[HOME].store.items("resourceslices")
        return sorted(f"{one['spec']['providerClusterID']}/{one['metadata']['name']}" for one in found)

    def nodes(self) -> dict[str, bool]:
        """The nodes by providerID, with whether they are ready."""
        found: dict[str, bool] = {}
        for node in self.apis[HOME].store.items("nodes"):
            ready = any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])
            found[node["spec"].get("providerID") or f"none: {node['metadata']['name']}"] = ready
        return found

    def peered(self) -> list[str]:
        """What there is of peerings, on either side."""
        labels = "liqo.io/remote-cluster-id"
        found = []
        for name, api in self.apis.items():
            spaces = [one for one in api.store.items("namespaces") if labels in one["metadata"].get("labels", {})]
            found += [f"{name} namespace for {one['metadata']['labels'][labels]}" for one in spaces]
            found += [f"{name} tenant" for _ in api.store.items("tenants")]
        return sorted(found)

    async def reserved(self) -> list[tuple[str, str]]:
        """As cluster and state; none that can be read while discovery is away."""
        try:
            return await asyncio.to_thread(self._discovery.reserved)
        except CloudgraftError as error:
            return [("unknown", error.message)]

    async def _describe(self) -> str:
        """For the message of a failed test."""
        seen = {"slices": self.slices(), "nodes": self.nodes(), "peered": self.peered()}
        return f"{seen}, reserved {await self.reserved()}, steps {self.gate.steps}, logs in {self._directory}"

    # -- the autoscaler ------------------------------------------------------------------------------------------------

    async def scale(self, size: int, reached: Callable[[], bool | Awaitable[bool]], what: str) -> None:
        """Asks for a size, as often as the autoscaler would, until it is reached."""
        async with asyncio.timeout(PATIENCE):
            remote = RemoteProvider.connect(CloudConfig.parse(f"address: {self.front_address}\ngrpc_timeout: 20s"))
            try:
                asking = asyncio.create_task(_keep_asking(remote, size))
                try:
                    await until(reached, what=what, seconds=PATIENCE - 10)
                except AssertionError as error:
                    raise AssertionError(f"{error}; {await self._describe()}") from None
                finally:
                    asking.cancel()
                    await asyncio.wait([asking])
                if not asking.cancelled():
                    asking.result()
            finally:
                await remote.close()


class _Front(Program):
    """``cloudgraft serve`` before the node manager."""

    def __init__(self, directory: Path, manager: NodeManager, certificates: Certificates) -> None:
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        provider = {"type": "node-manager", "address": manager.url, "tls": certificates.client(FRONT)}
        document = {
            "cluster": "sweep",
            "server": {"listen": self.address, "ops": None},
            "providers": [{**provider, "snapshot": {"refreshEvery": "50ms"}}],
            "log": {"level": 4, "format": "json"},
        }
        file = directory / "front.yaml"
        file.write_text(yaml.safe_dump(document), "utf-8")
        command = [sys.executable, "-m", "cloudgraft.cli", "serve", "--config", str(file)]
        super().__init__("front", command, directory / "front.log")


async def _liqo(directory: Path, playing: threading.Event) -> None:
    members = [Member(id=name, client=connect(directory / name / "liqo.kubeconfig")) for name in (HOME, *REMOTE)]
    try:
        for member in members:
            await settle(member.client, member.id)
        playing.set()
        await ScriptedLiqo(members[0], members[1:]).run()
    finally:
        for member in members:
            await member.client.close()


def _cloud(directory: Path, discovery: Discovery, certificates: Certificates) -> dict[str, Any]:
    proofs = certificates.client(MANAGER, ("caFile", "certFile", "keyFile"))
    return {
        "driver": "liqo",
        "discovery": {"address": discovery.url, **proofs},
        "kubeconfig": str(directory / HOME / "kubeconfig"),
        "sizes": {"S": {"cpu": 2, "memory": "4Gi", "pods": 20}},
        "currency": "EUR",
        "allowedNetworks": ["127.0.0.0/8"],
        "unpeerAfter": "500ms",
        "lookEvery": "300ms",
        "coolDown": "1s",
        "engine": {"observeEvery": "300ms", "backoff": {"initial": "200ms", "max": "1s"}},
    }


async def _keep_asking(remote: RemoteProvider, size: int) -> None:
    """A loop as the autoscaler's: what failed is deleted, and what is missing or too much is asked for."""
    while True:
        with suppress(CloudgraftError):  # the next loop does better
            await _ask(remote, size)
        await asyncio.sleep(0.1)


async def _ask(remote: RemoteProvider, size: int) -> None:
    await remote.refresh()
    instances = await remote.instances(GROUP)
    target = await remote.target_size(GROUP)
    failed = [one for one in instances if one.error is not None]
    if failed:
        await remote.delete_nodes(GROUP, [NodeRef(name=one.id, provider_id=one.id) for one in failed])
    elif target < size:
        await remote.increase_size(GROUP, size - target)
    elif target > size:
        there = [one for one in instances if one.state is not InstanceState.DELETING]
        gone = [NodeRef(name=one.id.removeprefix("liqo://"), provider_id=one.id) for one in there[: target - size]]
        await remote.delete_nodes(GROUP, gone)
