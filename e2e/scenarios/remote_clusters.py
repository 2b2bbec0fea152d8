"""Scenario 17: remote clusters as nodes, by Liqo. Cost decides which; everything in between is killed in mid-peering.

Three API servers, ours and two remote ones, serve Liqo's own definitions; the fake Liqo plays its controllers. The
autoscaler calls a front, the front a node manager, that one discovery and all three clusters; every hop has TLS.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from cloudgraft.certs.defaults import DEFAULT_CLIENT
from e2e.control_plane import ControlPlane, control_plane
from e2e.kubernetes import Workload
from e2e.liqo_clusters import GATEWAYS, SLICES, RemoteCluster, count, left_over, prepare
from e2e.liqo_definitions import define, liqo_definitions
from e2e.liqo_kubelet import VirtualKubelet
from e2e.liqo_programs import AGENT, FRONT, MANAGER, OPERATOR, Agent, Certificates, Discovery, FakeLiqo, NodeManager
from e2e.scenarios.scenario import Scenario
from e2e.stage import Stage

__all__ = ["SCENARIO"]

_TAINT: Final = "virtual-node.liqo.io/not-allowed"
_PODS: Final = Workload(name="pods", replicas=0, cpu="1500m", memory="1Gi", tolerates=[_TAINT])
_NETWORKS: Final = {"berlin": "direct", "paris": "consumerGateway"}
_NEVER: Final = 600.0
_READY: Final = {"ready": 4.0}  # as a kubelet needs a while; long enough for the providerID to come first
_GROUP: Final = {"id": "remote", "cloud": "liqo", "minSize": 0, "maxSize": 5, "machine": {"shape": "S"}}


def _run(stage: Stage) -> None:
    remote = _remote_clusters(stage)
    names = [FRONT, MANAGER, OPERATOR, *(AGENT.format(cluster=each) for each in remote)]
    certificates = Certificates(stage.directory / "certs", names)
    liqo = FakeLiqo(
        stage.directory,
        consumer=stage.plane.kubeconfig,
        providers={each.id: each.kubeconfig for each in remote.values()},
    )
    stage.start_program(liqo)
    discovery = _discovery(stage, certificates, remote)
    manager = NodeManager(stage.directory, certificates, cloud=_cloud(stage, discovery, certificates), groups=[_GROUP])
    stage.start_program(manager)
    _front(stage, manager, certificates)
    kubelet = VirtualKubelet(stage.directory, stage.plane.kubeconfig)
    stage.start_program(kubelet)
    play = _Play(stage, remote, liqo, discovery, manager, kubelet)
    play.grow_while_everything_is_killed()
    play.grow_elsewhere()
    play.shrink()
    play.judge()


def _remote_clusters(stage: Stage) -> dict[str, RemoteCluster]:
    definitions, why = liqo_definitions(stage.directory)
    where = stage.directory
    planes = {name: _plane(stage, where / f"plane-{name}") for name in _NETWORKS}
    if definitions is None:
        print(f"scenario 17: small definitions of our own instead of Liqo's: {why}", file=sys.stderr, flush=True)
    else:
        with ThreadPoolExecutor() as pool:
            defining = [pool.submit(define, plane, definitions) for plane in (stage.plane, *planes.values())]
        for future in defining:
            future.result()
    return {name: prepare(plane, name, where, network=_NETWORKS[name]) for name, plane in planes.items()}


def _plane(stage: Stage, directory: Path) -> ControlPlane:
    plane = control_plane(stage.plane.binaries, directory, runs_pods=False)
    return stage.stack.enter_context(plane)


def _discovery(stage: Stage, certificates: Certificates, remote: Mapping[str, RemoteCluster]) -> Discovery:
    discovery = Discovery(stage.directory, certificates, list(remote))
    stage.start_program(discovery)
    for each in remote.values():
        about = {"id": each.id, "kubeconfig": each.kubeconfig, "network": {"mode": each.network}}
        stage.start_program(Agent(stage.directory, certificates, discovery, about))
    stage.until_equal(discovery.ready, set(remote), "the clusters that agents have announced")
    discovery.set_price("berlin", "0.06")
    discovery.set_price("paris", "0.08")
    return discovery


def _cloud(stage: Stage, discovery: Discovery, certificates: Certificates) -> dict[str, Any]:
    return {
        "driver": "liqo",
        "discovery": {
            "address": discovery.url,
            **certificates.client(MANAGER, ("caFile", "certFile", "keyFile")),
        },
        "kubeconfig": str(stage.plane.kubeconfig),
        "sizes": {"S": {"cpu": 2, "memory": "4Gi", "pods": 20}},
        "currency": "EUR",
        "allowedNetworks": ["127.0.0.0/8"],
        "unpeerAfter": "5s",
        "lookEvery": "2s",
        "engine": {"observeEvery": "1s"},
    }


def _front(stage: Stage, manager: NodeManager, certificates: Certificates) -> None:
    """The front has mTLS on both of its sides."""
    provider = {
        "type": "node-manager",
        "address": manager.url,
        "tls": certificates.client(FRONT),
        "snapshot": {"refreshEvery": "200ms"},
    }
    bundle = certificates.bundle
    tls = {**certificates.server, "allowedClients": [DEFAULT_CLIENT]}
    stage.start_server({"cluster": "e2e", "server": {"tls": tls}, "providers": [provider]})
    address = f"localhost:{stage.server.address.rpartition(':')[2]}"
    files = {"cacert": str(bundle.ca_cert), "cert": str(bundle.client_cert), "key": str(bundle.client_key)}
    stage.start_autoscaler(cloud_config={**files, "address": address, "grpc_timeout": "10s"})


class _Play:
    """What happens, and what must come of it."""

    def __init__(
        self,
        stage: Stage,
        remote: Mapping[str, RemoteCluster],
        liqo: FakeLiqo,
        discovery: Discovery,
        manager: NodeManager,
        kubelet: VirtualKubelet,
    ) -> None:
        self._stage = stage
        self._remote = remote
        self._liqo = liqo
        self._discovery = discovery
        self._manager = manager
        self._kubelet = kubelet

    def grow_while_everything_is_killed(self) -> None:
        """The first node is to be a part of the cheaper cluster. The peering is held up, killed in, and let go on."""
        stage, berlin = self._stage, self._remote["berlin"].plane
        self._liqo.tell({"connection": _NEVER, "resources": _NEVER, **_READY})
        stage.cluster.run(_PODS)
        stage.cluster.scale("pods", 1)
        stage.until(lambda: count(berlin, GATEWAYS), "berlin was asked for a network")
        for program in (stage.server, self._manager):
            program.kill()
            program.start()
        self._liqo.tell({"resources": _NEVER, **_READY})
        stage.until(lambda: count(berlin, SLICES), "the slice has come to berlin")
        self._discovery.kill()
        assert not stage.cluster.nodes(), "it was in the middle of it"
        self._discovery.start()
        self._liqo.tell(_READY)
        self._has_grown({"berlin": 1})

    def grow_elsewhere(self) -> None:
        """Prices change, and with them where the next node comes from."""
        self._discovery.set_price("berlin", "0.09")
        self._discovery.set_price("paris", "0.03")
        self._stage.cluster.scale("pods", 2)
        self._has_grown({"berlin": 1, "paris": 1})

    def _has_grown(self, expected: Mapping[str, int]) -> None:
        stage, total = self._stage, sum(expected.values())
        stage.until_equal(stage.cluster.running, total, "the number of pods that run")
        stage.until_equal(self._clusters_of_nodes, dict(expected), "the nodes by cluster")
        confirmed = [(cluster, "confirmed") for cluster, count in sorted(expected.items()) for _ in range(count)]
        stage.until_equal(self._discovery.reserved, confirmed, "what is reserved")
        slices = count(stage.plane, SLICES)
        assert slices == total, f"{slices} slices for {total} nodes"

    def shrink(self) -> None:
        """Work ends. The autoscaler gives the nodes back, and after a grace period nothing is left of any peering."""
        stage = self._stage
        stage.cluster.scale("pods", 0)
        planes = [stage.plane, *(each.plane for each in self._remote.values())]
        stage.eventually(stage.cluster.node_names, _is_empty, "no node is left")
        stage.eventually(self._discovery.reserved, _is_empty, "nothing is reserved")
        stage.eventually(lambda: left_over(planes), _is_empty, "nothing is left of slices and peerings")

    def judge(self) -> None:
        """What the parts have written down meanwhile."""
        machines = self._manager.journal().machines
        assert [row["state"] for row in machines] == ["gone", "gone"], f"the journal has {machines}"
        nodes = self._kubelet.nodes()
        assert len(nodes) == 2, f"nodes that were ever made: {list(nodes)}"
        for name, versions in nodes.items():
            early = [seen for seen in versions if seen.is_ready and seen.provider_id != f"liqo://{name}"]
            assert not early, f"{name} was ready without its providerID"
            taint = f"{_TAINT}=true:NoExecute"
            assert all(seen.cluster and taint in seen.taints for seen in versions), f"{name}: {versions}"
        self._judge_audit()

    def _judge_audit(self) -> None:
        manager = {(line["caller"], line["path"].rpartition(":")[2]) for line in self._manager.audit()}
        wanted = {(FRONT, "increase"), (FRONT, "deleteNodes")}
        assert wanted <= manager, f"the manager's audit log has {manager}"
        discovery = {(line["caller"], line["method"], line["path"]) for line in self._discovery.audit()}
        for cluster in self._remote:
            path = f"/v1/clusters/{cluster}"
            agent = AGENT.format(cluster=cluster)
            wanted_here = {
                (agent, "PUT", path),
                (agent, "PUT", f"{path}/credentials"),
                (OPERATOR, "PUT", f"{path}/prices"),
                (MANAGER, "GET", f"{path}/credentials"),
            }
            assert wanted_here <= discovery, f"not in discovery's audit log: {wanted_here - discovery}"
        reserved = {method for caller, method, path in discovery if caller == MANAGER and "/reservations" in path}
        assert reserved == {"POST", "DELETE"}, f"what the manager did to reservations: {reserved}"

    def _clusters_of_nodes(self) -> dict[str, int]:
        counted: dict[str, int] = {}
        for node in self._stage.cluster.nodes():
            cluster = str(((node.metadata and node.metadata.labels) or {}).get("liqo.io/remote-cluster-id", ""))
            counted[cluster] = counted.get(cluster, 0) + 1
        return counted


def _is_empty(seen: Collection[object]) -> bool:
    return not seen


SCENARIO: Final = Scenario(
    number=17,
    seconds=150,
    title="remote clusters by Liqo; cost decides, and everything is killed in mid-peering",
    run=_run,
)
