"""A random walk of an engine behind the native transport. After every step, both ways to each answer are compared."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from cloudgraft.engine.operations.adoption import adopt
from cloudgraft.sdk.errors import CloudgraftError, StatusCode
from cloudgraft.sdk.types import AutoscalingOptions, NodeRef
from cloudgraft.server.serve import Running, ServeOptions, Transport, running
from cloudgraft.service.cloud_provider import Call
from cloudgraft.service.gate import Gate
from cloudgraft.store.records import Scope, State
from cloudgraft.wire.externalgrpc import SERVICE
from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.conditions import until
from tests.engine.engine_rig import Rig, group

GROUPS = ("a", "b", "c")
Answer = tuple[str, bytes]  # the status, and the message or nothing


@dataclass(frozen=True, slots=True)
class Difference:
    """The listener said something else than the service."""

    step: str
    rpc: str
    through_listener: Answer
    from_service: Answer


class Walk:
    """One engine, and the steps that can happen to it."""

    def __init__(self, rig: Rig, up: Running, channel: grpc.aio.Channel, dice: random.Random) -> None:
        self.rig = rig
        self._up = up
        self._channel = channel
        self._dice = dice
        self._strangers: list[str] = []  # machine ids
        self._seen: set[tuple[str, str]] = set()  # providerIDs and names that were ever asked for
        self.steps: dict[str, Callable[[], Awaitable[None]]] = {
            "increase": self._increase,
            "delete": self._delete,
            "decrease": self._decrease,
            "time": self._time,
            "trouble": self._trouble,
            "machine lost": self._machine_lost,
            "bounds": self._bounds,
            "options": self._options,
            "group comes or goes": self._group_comes_or_goes,
            "pause": self._pause,
            "stranger": self._stranger,
            "adoption": self._adoption,
            "reload": self._reload,
            "leader": self._leader,
        }

    async def compare(self, step: str) -> Difference | None:
        """Asks every question twice through the listener, the second time for a ready reply, and once directly."""
        for rpc, request in self._questions():
            data = request.SerializeToString()
            expected = await self._ask_service(rpc, data)
            for _ in range(2):
                answer = await self._ask_listener(rpc, data)
                if answer != expected:
                    return Difference(step, rpc, answer, expected)
        return None

    def _questions(self) -> list[tuple[str, Any]]:
        fleet = self.rig.engine.fleet
        for record in fleet.machines.values():
            ids = (record.provider_id, record.placeholder, "")
            self._seen.update((id_, name) for id_ in ids for name in (record.name, "some-node"))
        nodes = self._dice.sample(sorted(self._seen), min(12, len(self._seen)))
        questions: list[tuple[str, Any]] = [("NodeGroups", pb.NodeGroupsRequest())]
        for provider_id, name in nodes:
            node = pb.ExternalGrpcNode(providerID=provider_id, name=name)
            labels = [f"label-{number}" for number in range(4)]
            self._dice.shuffle(labels)  # as Go writes maps: in another order each time
            node.labels.update(dict.fromkeys(labels, "x"))
            questions.append(("NodeGroupForNode", pb.NodeGroupForNodeRequest(node=node)))
        for id_ in GROUPS:
            questions += [
                ("NodeGroupTargetSize", pb.NodeGroupTargetSizeRequest(id=id_)),
                ("NodeGroupNodes", pb.NodeGroupNodesRequest(id=id_)),
                ("NodeGroupTemplateNodeInfo", pb.NodeGroupTemplateNodeInfoRequest(id=id_)),
                ("NodeGroupGetOptions", pb.NodeGroupAutoscalingOptionsRequest(id=id_)),
            ]
        return questions

    async def _ask_service(self, rpc: str, data: bytes) -> Answer:
        try:
            return "OK", await self._up.service.handle_bytes(rpc, data, Call())
        except CloudgraftError as error:
            return StatusCode(error.status).name, b""

    async def _ask_listener(self, rpc: str, data: bytes) -> Answer:
        call: Any = self._channel.unary_unary(f"/{SERVICE}/{rpc}")
        try:
            return "OK", await call(data, timeout=30)
        except grpc.aio.AioRpcError as error:
            return error.code().name, b""

    async def _has_ready_replies(self) -> bool:
        before = self.hits
        for _ in range(2):
            await self._ask_listener("NodeGroups", b"")
        return self.hits > before

    @property
    def hits(self) -> float:
        return lookups(self._up, "hit")

    # -- steps ---------------------------------------------------------------------------------------------------------

    async def step(self) -> str:
        """One of them; a refusal of the engine is a step too."""
        names = sorted(self.steps)
        name = self._dice.choices(names, [1 if name == "leader" else 8 for name in names])[0]  # that one takes a second
        try:
            await self.steps[name]()
        except CloudgraftError as error:
            return f"{name}: {error.message}"
        return name

    async def _increase(self) -> None:
        await self.rig.provider.increase_size(self._dice.choice(GROUPS), self._dice.randint(1, 3))

    async def _delete(self) -> None:
        records = [record for record in self.rig.records() if record.state is not State.GONE]
        if records:
            record = self._dice.choice(sorted(records, key=lambda r: r.name))
            node = NodeRef(name=record.name, provider_id=record.provider_id or record.placeholder)
            await self.rig.provider.delete_nodes(record.group, [node])

    async def _decrease(self) -> None:
        await self.rig.provider.decrease_target_size(self._dice.choice(GROUPS), -self._dice.randint(1, 2))

    async def _time(self) -> None:
        await self.rig.settle(self._dice.randint(1, 4), self._dice.choice([1.0, 10.0, 60.0, 2000.0]))

    async def _trouble(self) -> None:
        troubles: list[dict[str, object]] = [{}, {"quota": 1}, {"dies": 0.5}, {"empty_lists": 1.0}]
        self.rig.chaos(**self._dice.choice(troubles))

    async def _machine_lost(self) -> None:
        machines = sorted(self.rig.cloud.machines(), key=lambda machine: machine.name)
        if machines:
            self.rig.cloud.vanish(self._dice.choice(machines).machine_id)

    async def _bounds(self) -> None:
        await self._change(max_size=self._dice.randint(3, 9))

    async def _options(self) -> None:
        await self._change(options=AutoscalingOptions(scale_down_utilization_threshold=self._dice.random()))

    async def _change(self, **changes: Any) -> None:
        chosen = self._dice.choice(self.rig.groups)
        groups = [replace(one, **changes) if one is chosen else one for one in self.rig.groups]
        await self.rig.reconfigure(*groups)

    async def _group_comes_or_goes(self) -> None:
        present = {one.id: one for one in self.rig.groups}
        id_ = self._dice.choice(GROUPS[1:])
        if present.pop(id_, None) is None:
            present[id_] = group(id_)
        await self.rig.reconfigure(*present.values())

    async def _pause(self) -> None:
        id_ = self._dice.choice(GROUPS)
        await self.rig.pause(Scope.GROUP, id_) if self._dice.random() < 0.5 else await self.rig.resume(Scope.GROUP, id_)

    async def _stranger(self) -> None:
        """Somebody makes a machine in our cloud; its node is asked for, and is not ours."""
        self._strangers.append(self.rig.place(f"by-hand-{len(self._strangers)}", {}))
        machine = self.rig.cloud.get(self._strangers[-1])
        self._seen.update((machine.provider_id, name) for name in (machine.name, "some-node"))

    async def _adoption(self) -> None:
        """An operator makes it ours."""
        if self._strangers:
            chosen = self._dice.choice(self._strangers)
            await adopt(self.rig.engine, self._dice.choice(GROUPS), [chosen], is_dry_run=False)

    async def _reload(self) -> None:
        """The journal is read again, as after a write of unknown outcome, and lacks a machine."""
        engine = self.rig.engine
        contents = await engine.journal.load()
        engine._load(replace(contents, machines=contents.machines[1:]))
        difference = await self.compare("reload")
        engine._load(contents)
        if difference is not None:
            raise _FoundError(difference)

    async def _leader(self) -> None:
        """This process finds out that it does not lead, and leads again."""
        engine = self.rig.engine
        engine._leadership.fence("a test")
        difference = await self.compare("leader")
        await until(lambda: not engine.trouble())
        await until(self._has_ready_replies, what="ready replies are used again")
        if difference is not None:
            raise _FoundError(difference)


def lookups(up: Running, result: str) -> float:
    """How often a ready reply was there, or was not."""
    registry = up.service.metrics.registry
    return registry.get_sample_value("cloudgraft_ready_reply_lookups_total", {"result": result}) or 0.0


class _FoundError(Exception):
    def __init__(self, difference: Difference) -> None:
        super().__init__(f"{difference}")
        self.difference = difference


async def walk(directory: Path, seed: int, steps: int) -> tuple[Difference | None, float]:
    """The first difference of a walk, if there is one; and the share of reads that a ready reply was there for."""
    rig = Rig(directory, groups=[group(id_) for id_ in GROUPS])
    options = ServeOptions(listen="127.0.0.1:0", transport=Transport.NATIVE)
    async with running(rig.provider, options, gate=Gate(rig.engine.check_open)) as up:
        async with grpc.aio.insecure_channel(up.address) as channel:
            walker = Walk(rig, up, channel, random.Random(seed))
            await rig.provider.refresh()
            difference = None
            try:
                for _ in range(steps):
                    step = await walker.step()
                    difference = await walker.compare(step)
                    if difference is not None:
                        break
            except _FoundError as found:
                difference = found.difference
        hits, misses = lookups(up, "hit"), lookups(up, "miss")
    return difference, hits / max(1.0, hits + misses)
