"""The main loop of the real autoscaler, with the Go server and with cloudgraft in turn; see :mod:`bench.loop_report`.

Each turn starts a new autoscaler on the same Kubernetes API, which has the nodes of the fleet and nothing else.
Its first loops are not counted: they fill its caches, and the ready replies. What is counted is what it says itself.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml
from lightkube.models.core_v1 import NodeCondition, NodeSpec, NodeStatus
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node

from bench.engine_fleet import Seed, make_seed
from bench.transport_measure import fleet_of
from bench.transport_processes import (
    GO,
    NATIVE,
    Peer,
    Programs,
    build_programs,
    cloudgraft_peer,
    go_peer,
)
from cloudgraft.certs.authority import Bundle
from e2e.autoscaler import Autoscaler
from e2e.build import build, recipes_for
from e2e.control_plane import ControlPlane, control_plane
from e2e.kubernetes import Cluster, connected
from e2e.modules import AUTOSCALERS, CONTROL_PLANES, NEWEST_CONTROL_PLANE, NEWEST_RELEASE
from e2e.waiting import eventually

_MAIN: Final = re.compile(
    r'^cluster_autoscaler_function_duration_seconds_(sum|count)\{function="main"\} (\S+)', re.MULTILINE
)
_OBSERVE_EVERY: Final = "10s"  # cloudgraft's default
_PATIENCE: Final = 600.0  # seconds for the loops of one turn; at 5,000 nodes one takes many
_NAMESPACE: Final = "bench"
_PROFILED_LOOPS: Final = 8
_LEAST_PROFILED: Final = 20  # seconds
_RUN_ONCE: Final = r"StaticAutoscaler\)\.RunOnce"
_PROVIDER: Final = "cloudprovider/externalgrpc"
_ACCOUNTED: Final = re.compile(r"accounting for ([0-9.]+)s")
_FLAGS: Final[Mapping[str, str]] = {
    "v": "1",
    "profiling": "true",
    "scan-interval": "100ms",
    "scale-down-unneeded-time": "24h",  # every node is a candidate, as in a cluster that has too many; none goes
    "scale-down-unready-time": "24h",
    "namespace": _NAMESPACE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopPlan:
    """How much to measure."""

    nodes: int = 1000
    groups: int = 20
    rounds: int = 3
    loops: int = 15  # per server and round
    first_loops: int = 3  # which are not counted
    kinds: Sequence[str] = (GO, NATIVE)


@dataclass(slots=True, kw_only=True)
class LoopSide:
    """One server. Times in seconds, one figure per round."""

    kind: str
    main: list[float] = field(default_factory=list)  # mean of the loops
    calls: list[float] = field(default_factory=list)  # per loop
    own: list[float] = field(default_factory=list)  # processor time of the loop outside of the provider, per loop
    hits: float | None = None  # share of the reads that the native transport answered without Python

    @property
    def seconds(self) -> float:
        """The median over the rounds."""
        return statistics.median(self.main)


async def measure_loops(
    directory: Path, plan: LoopPlan, certificates: Path, tell: Callable[[str], None]
) -> list[LoopSide]:
    """All rounds on one control plane. Raises e2e.build.CannotBuildError where there is no Go."""
    tell("building the autoscaler, a control plane and the Go server (a quarter of an hour, the first time) ...")
    programs = build_programs()
    release = AUTOSCALERS[NEWEST_RELEASE]
    binaries = {
        name: path
        for wanted in (release, CONTROL_PLANES[NEWEST_CONTROL_PLANE])
        for recipe in recipes_for(wanted)
        for name, path in build(recipe, tell).items()
    }
    seed = await make_seed(
        directory / "seed", machines=plan.nodes, groups=plan.groups, events=plan.nodes, in_cloud=True
    )
    fleet = directory / "fleet.json"
    fleet.write_text(json.dumps(fleet_of(seed)), "utf-8")
    seeds = {kind: seed.copy(directory / kind) for kind in plan.kinds if kind != GO}
    with ExitStack() as stack:
        plane = stack.enter_context(control_plane(binaries, directory / "plane", runs_pods=False))
        tell(f"making {plan.nodes:,} nodes ...")
        cluster = stack.enter_context(connected(plane.kubeconfig, _NAMESPACE))
        cluster.prepare()
        _make_nodes(cluster, json.loads(fleet.read_text("utf-8"))["nodes"])
        rig = _Rig(plan, programs, fleet, seeds, certificates, plane, binaries["cluster-autoscaler"], directory)
        for number in range(plan.rounds):
            turn = number % len(plan.kinds)
            for kind in (*plan.kinds[turn:], *plan.kinds[:turn]):
                tell(f"round {number + 1} of {plan.rounds}, {kind} ...")
                rig.turn(kind)
        return list(rig.sides.values())


def _make_nodes(cluster: Cluster, nodes: Sequence[Mapping[str, object]]) -> None:
    """Ready, empty, and alike but for their names and labels. Nobody looks after them, so they stay as they are."""
    capacity = {"cpu": "2", "memory": "4Gi", "pods": "110", "ephemeral-storage": "20Gi"}
    ready = NodeCondition(type="Ready", status="True", reason="KubeletReady", message="")
    for node in nodes:
        metadata = ObjectMeta(
            name=str(node["name"]), labels=_texts(node["labels"]), annotations=_texts(node["annotations"])
        )
        status = NodeStatus(capacity=dict(capacity), allocatable=dict(capacity), conditions=[ready])
        cluster.client.create(Node(metadata=metadata, spec=NodeSpec(providerID=str(node["providerID"])), status=status))
        # The API server taints every new node as not ready, and here is no controller that would take that off.
        cluster.client.patch(Node, str(node["name"]), {"spec": {"taints": None}})


def _texts(value: object) -> dict[str, str]:
    assert isinstance(value, Mapping)
    return {str(key): str(text) for key, text in value.items()}


@dataclass(slots=True)
class _Rig:
    plan: LoopPlan
    programs: Programs
    fleet: Path
    seeds: Mapping[str, Seed]
    certificates: Path
    plane: ControlPlane
    binary: Path
    directory: Path
    sides: dict[str, LoopSide] = field(default_factory=dict)

    def turn(self, kind: str) -> None:
        """Starts one server and one autoscaler, and measures its loops."""
        side = self.sides.setdefault(kind, LoopSide(kind=kind))
        with self._peer(kind) as peer:
            with self._autoscaler(peer) as autoscaler:
                self._wait(autoscaler, self.plan.first_loops)
                before, calls, lookups = autoscaler.main(), peer.calls(), peer.lookups()
                self._wait(autoscaler, before.count + self.plan.loops)
                after, calls_after, lookups_after = autoscaler.main(), peer.calls(), peer.lookups()
                side.own.append(self._own_work(autoscaler, (after.seconds - before.seconds) / self.plan.loops))
            loops = after.count - before.count
            side.main.append((after.seconds - before.seconds) / loops)
            side.calls.append((calls_after - calls) / loops)
            hits, misses = (new - old for new, old in zip(lookups_after, lookups, strict=True))
            if hits + misses:
                side.hits = hits / (hits + misses)

    def _own_work(self, autoscaler: _Measured, seconds_a_loop: float) -> float:
        """Profiles some more loops. Go's profiler samples the processor: what a loop waits for is not in it."""
        path, before = self.directory / "autoscaler.pprof", autoscaler.main()
        path.write_bytes(autoscaler.profile(max(_LEAST_PROFILED, round(_PROFILED_LOOPS * seconds_a_loop))))
        loops = autoscaler.main().count - before.count
        chosen = [f"-focus={_RUN_ONCE}", f"-ignore={_PROVIDER}", "-nodefraction=0"]  # small ones count too
        command = ["go", "tool", "pprof", "-top", "-unit=s", *chosen, str(path)]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        accounted = _ACCOUNTED.search(told)
        if accounted is None or not loops:
            raise RuntimeError(f"the profile of the autoscaler has no main loop: {told[:500]}")
        return float(accounted[1]) / loops

    def _peer(self, kind: str) -> AbstractContextManager[Peer]:
        if kind == GO:
            return go_peer(self.programs, self.fleet, self.certificates)
        return cloudgraft_peer(kind, self.seeds[kind], _OBSERVE_EVERY, self.certificates)

    @contextmanager
    def _autoscaler(self, peer: Peer) -> Iterator[_Measured]:
        files = Bundle.at(self.certificates)
        config = {
            "address": peer.server.address,
            "key": str(files.client_key),
            "cert": str(files.client_cert),
            "cacert": str(files.ca_cert),
        }
        path = self.directory / "cloud-config.yaml"
        path.write_text(yaml.safe_dump(config), "utf-8")
        autoscaler = _Measured(
            self.binary,
            AUTOSCALERS[NEWEST_RELEASE],
            self.directory,
            kubeconfig=self.plane.kubeconfig,
            cloud_config=path,
            flags=_FLAGS,
        )
        autoscaler.start()
        try:
            yield autoscaler
        finally:
            autoscaler.stop()

    def _wait(self, autoscaler: _Measured, loops: int) -> None:
        def check() -> None:
            autoscaler.check()
            self.plane.check()

        what = f"{loops} loops of the autoscaler ({autoscaler.log})"
        eventually(autoscaler.loops, lambda seen: seen >= loops, what, seconds=_PATIENCE, check=check)


@dataclass(frozen=True, slots=True)
class _Main:
    """The autoscaler's own metric: main loops so far, and their total time."""

    count: int
    seconds: float


class _Measured(Autoscaler):
    """An autoscaler that is asked how long its loops take."""

    def main(self) -> _Main:
        with urllib.request.urlopen(self.metrics, timeout=30.0) as answer:
            found = dict(_MAIN.findall(answer.read().decode()))
        return _Main(int(float(found["count"])), float(found["sum"]))

    def profile(self, seconds: int) -> bytes:
        """Its processor profile of so many seconds, in pprof's form."""
        url = self.metrics.replace("/metrics", f"/debug/pprof/profile?seconds={seconds}")
        with urllib.request.urlopen(url, timeout=seconds + 30.0) as answer:
            content: bytes = answer.read()
        return content
