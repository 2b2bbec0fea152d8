"""A small autoscaler: the calls of the real one's main loop, through the service, with demand that varies."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from google.protobuf.message import Message

from cloudgraft.sdk.errors import CloudgraftError, StatusCode
from cloudgraft.sdk.types import Instance, InstanceState, NodeGroup, NodeRef
from cloudgraft.wire import externalgrpc as wire
from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.simulation.kubernetes import SimKubernetes, SimNode
from tests.simulation.loop import VirtualLoop

_PROVISION = 15 * 60.0  # --max-node-provision-time
_UNREADY = 20 * 60.0  # --scale-down-unready-time
_BACKOFF = 5 * 60.0
_UNNEEDED = 10 * 60.0
_FAKE = "k8s.io/cluster-autoscaler/fake-node-reason"


class AutoscalerWitness(Protocol):
    """Who is told of what the autoscaler asked for, and what it was answered."""

    def trace(self, who: str, what: str) -> None: ...

    def on_deletion_asked(self, group: str, nodes: list[NodeRef]) -> None: ...

    def on_deletion_refused(self, nodes: list[NodeRef], *, since: float) -> None: ...

    def on_increase(self, group: str, delta: int, *, before: int) -> None: ...

    def on_answered(self, who: str, rpc: str, group: str, request: Message) -> None: ...

    def on_groups(self, groups: Mapping[str, NodeGroup]) -> None: ...

    def on_owner(self, node: SimNode, group: str) -> None: ...

    def full_check(self) -> None: ...


class Autoscaler:
    """Grows and shrinks the groups of one server."""

    def __init__(
        self,
        name: str,
        loop: VirtualLoop,
        call: Callable[[str, Message], Any],
        kubernetes: SimKubernetes,
        *,
        demand: Callable[[str, float], int],
        dice: random.Random,
        witness: AutoscalerWitness,
        period: float,
    ) -> None:
        self.name = name
        self.is_active = True
        self._loop = loop
        self._call = call
        self._kubernetes = kubernetes
        self._demand = demand
        self._dice = dice
        self._witness = witness
        self._period = period
        self._loops = 0
        self._backed_off: dict[str, float] = {}
        self._first_seen: dict[str, float] = {}
        self._unneeded: dict[str, float] = {}
        self._owner: dict[str, str] = {}  # node uid -> group

    async def run(self) -> None:
        """Loops until the run ends."""
        while True:
            await asyncio.sleep(self._period * self._dice.uniform(0.8, 1.2))
            if self.is_active and not self._kubernetes.is_away:
                try:
                    await self._pass()
                except CloudgraftError as error:
                    self._witness.trace(self.name, f"loop ends: {error.status.name}")
            self._witness.full_check()

    async def _ask(self, rpc: str, request: Message, group: str = "") -> Any:
        try:
            answer = await self._call(rpc, request)
        except CloudgraftError as error:
            self._witness.trace(self.name, f"{rpc} {group} {error.status.name}")
            raise
        if rpc not in ("NodeGroupNodes", "NodeGroupTargetSize", "NodeGroupForNode"):
            self._witness.trace(self.name, f"{rpc} {group} OK")
        self._witness.on_answered(self.name, rpc, group, request)
        return answer

    async def _pass(self) -> None:
        self._loops += 1
        await self._ask("Refresh", pb.RefreshRequest())
        answer = await self._ask("NodeGroups", pb.NodeGroupsRequest())
        groups = {g.id: wire.node_group_from_pb(g) for g in answer.nodeGroups}
        self._witness.on_groups(groups)
        await self._look_at_nodes()
        for group in groups.values():
            try:
                await self._scale(group)
            except CloudgraftError as error:
                if error.status is StatusCode.UNAVAILABLE:
                    raise

    async def _look_at_nodes(self) -> None:
        nodes = list(self._kubernetes.nodes.values())
        known = {node.node.uid for node in nodes}
        self._owner = {uid: group for uid, group in self._owner.items() if uid in known}
        for found in nodes:
            if found.node.uid in self._owner and self._loops % 20:
                continue
            request = pb.NodeGroupForNodeRequest(node=wire.node_ref_to_pb(_ref(found)))
            answer = await self._ask("NodeGroupForNode", request)
            self._witness.on_owner(found, answer.nodeGroup.id)
            if answer.nodeGroup.id:
                self._owner[found.node.uid] = answer.nodeGroup.id

    async def _scale(self, group: NodeGroup) -> None:
        now = self._loop.time()
        answer = await self._ask("NodeGroupTargetSize", pb.NodeGroupTargetSizeRequest(id=group.id), group.id)
        target = answer.targetSize
        listed = await self._ask("NodeGroupNodes", pb.NodeGroupNodesRequest(id=group.id), group.id)
        instances = [wire.instance_from_pb(i) for i in listed.instances]
        failed = [i for i in instances if i.error is not None]
        if failed:
            self._backed_off[group.id] = now + _BACKOFF
            await self._delete(group.id, [_fake(i, "create-error") for i in failed])
            return
        if await self._delete_unregistered(group.id, instances, now):
            return
        nodes = [n for n in self._kubernetes.nodes.values() if self._owner.get(n.node.uid) == group.id]
        ids = {i.id for i in instances if i.state is not InstanceState.DELETING}
        nodes = [n for n in nodes if n.node.provider_id in ids]
        unready = [n for n in nodes if n.unready_since is not None and now - n.unready_since > _UNREADY]
        if unready:
            await self._delete(group.id, [_ref(unready[0])])
            return
        wanted = min(group.max_size, max(group.min_size, self._demand(group.id, now)))
        if target < wanted:
            self._unneeded.pop(group.id, None)
            if now >= self._backed_off.get(group.id, 0.0):
                delta = wanted - target
                request = pb.NodeGroupIncreaseSizeRequest(id=group.id, delta=delta)
                self._witness.on_increase(group.id, delta, before=target)
                await self._ask("NodeGroupIncreaseSize", request, group.id)
        elif target > wanted:
            await self._shrink(group.id, target - wanted, nodes, now)
        else:
            self._unneeded.pop(group.id, None)

    async def _delete_unregistered(self, group: str, instances: list[Instance], now: float) -> bool:
        registered = {n.node.provider_id for n in self._kubernetes.nodes.values()}
        waiting = [i for i in instances if i.state is not InstanceState.DELETING and i.id not in registered]
        names = {f"{group}/{i.id}" for i in waiting}
        for key in [k for k in self._first_seen if k.startswith(f"{group}/") and k not in names]:
            del self._first_seen[key]
        late = [i for i in waiting if now - self._first_seen.setdefault(f"{group}/{i.id}", now) > _PROVISION]
        if late:
            await self._delete(group, [_fake(i, "unregistered") for i in late])
        return bool(late)

    async def _shrink(self, group: str, count: int, nodes: list[SimNode], now: float) -> None:
        if now - self._unneeded.setdefault(group, now) < _UNNEEDED:
            return
        if self._dice.random() < 0.1:
            request = pb.NodeGroupDecreaseTargetSizeRequest(id=group, delta=-1)
            await self._ask("NodeGroupDecreaseTargetSize", request, group)
            return
        if nodes:
            chosen = self._dice.sample(sorted(nodes, key=lambda n: n.node.name), min(count, len(nodes), 3))
            await self._delete(group, [_ref(n) for n in chosen])

    async def _delete(self, group: str, nodes: list[NodeRef]) -> None:
        began = self._loop.time()
        self._witness.on_deletion_asked(group, nodes)
        request = pb.NodeGroupDeleteNodesRequest(id=group, nodes=[wire.node_ref_to_pb(n) for n in nodes])
        try:
            await self._ask("NodeGroupDeleteNodes", request, group)
        except CloudgraftError as error:
            if error.status is StatusCode.FAILED_PRECONDITION:
                self._witness.on_deletion_refused(nodes, since=began)
            raise


def _ref(found: SimNode) -> NodeRef:
    return NodeRef(name=found.node.name, provider_id=found.node.provider_id)


def _fake(instance: Instance, reason: str) -> NodeRef:
    return NodeRef(name=instance.id, provider_id=instance.id, annotations={_FAKE: reason})
