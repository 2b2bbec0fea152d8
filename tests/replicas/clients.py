"""Clients that call all replicas at once, and write down what they asked and what they were answered."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from cloudgraft.client import Address, CloudConfig, Connection, RemoteProvider
from cloudgraft.sdk import AutoscalingOptions, CloudgraftError, InstanceState, NodeRef
from cloudgraft.sdk.errors import DeadlineError, UnavailableError
from tests.conditions import until
from tests.replicas.cluster import GROUPS, Cluster, Replica
from tests.replicas.history import History, Kind, Operation

T = TypeVar("T")

_PATIENCE = timedelta(seconds=5)
_MOST = 8  # machines in a group
# Words of refusals that come before anything was done. All other errors leave it open.
_REFUSALS = ("not the leader", "still reading the journal", "the journal is being read", "onnection refused")
_PLACEHOLDER = "cloudgraft://sim/"


@dataclass(slots=True)
class Notes:
    """What all clients of a run wrote down."""

    history: History = field(default_factory=History)
    calls: Counter[str] = field(default_factory=Counter)  # by RPC and outcome
    wrong: list[str] = field(default_factory=list)  # answers that are wrong whatever happened before
    numbers: Iterator[int] = field(default_factory=itertools.count)
    answering: Replica | None = None  # the replica that answered last
    suspect: Replica | None = None  # a replica that is to be called often, whoever answers
    ended: Counter[str] = field(default_factory=Counter)  # calls, whatever came of them, by replica
    changed: Counter[tuple[str, str]] = field(default_factory=Counter)  # changes that were answered, by replica, group

    def by_name(self, names: dict[str, str]) -> History:
        """The history with machines by their names, whichever id they had when they were listed or deleted."""

        def name(id_: str) -> str:
            return names.get(id_, id_.removeprefix(_PLACEHOLDER))

        operations = [replace(o, names=frozenset(map(name, o.names))) for o in self.history.operations]
        return History(operations, self.history.failovers)


@dataclass(slots=True)
class Client:
    """One client of one group. It mostly stays with the replica that answered last, itself or another client."""

    cluster: Cluster
    notes: Notes
    group: str
    dice: random.Random
    connections: dict[str, RemoteProvider] = field(default_factory=dict)
    listed: list[str] = field(default_factory=list)  # ids of the last list, without what is being deleted
    unsure: str = ""  # the id of a machine whose deletion may or may not have been taken in
    is_over: bool = False

    async def run(self) -> None:
        """Calls until it is over."""
        calls = (self._increase, self._delete, self._decrease, self._target, self._list, self._find, self._other)
        while not self.is_over:
            if self.cluster.is_failing_over:
                await self._look_again()
            call = self.dice.choices(calls, (4, 4, 1, 6, 6, 2, 2))[0]
            await (self._delete if self.unsure else call)()

    async def _look_again(self) -> None:
        """Changes nothing before it has a list of after the failover: else far too many pasts explain what follows."""
        while not self.is_over:
            has_settled = not self.cluster.is_failing_over
            if await self._list() and has_settled:
                return

    async def settle(self) -> None:
        """Reads until it was answered, so that what was done last is looked at too."""
        for call in (self._target, self._list):
            await until(call, what="the last read is answered", seconds=60)

    async def close(self) -> None:
        """Closes all connections."""
        for provider in self.connections.values():
            await provider.close()

    # -- calls -------------------------------------------------------------------------------------------------------

    async def _increase(self) -> None:
        if len(self.listed) > _MOST:
            return
        delta = self.dice.choice((1, 1, 2))
        await self._change(Kind.INCREASE, lambda p: p.increase_size(self.group, delta), amount=delta)

    async def _decrease(self) -> None:
        await self._change(Kind.DECREASE, lambda p: p.decrease_target_size(self.group, -1), amount=1)

    async def _delete(self) -> None:
        """As the autoscaler does, a deletion whose answer was lost is asked for again: it is idempotent."""
        if not self.unsure and not self.listed:
            return
        victim = self.unsure or self.dice.choice(self.listed)
        nodes = [NodeRef(name=victim, provider_id=victim)]
        is_known = await self._change(
            Kind.DELETE, lambda p: p.delete_nodes(self.group, nodes), names=frozenset({victim})
        )
        self.unsure = "" if is_known else victim
        self.listed = [id_ for id_ in self.listed if id_ != victim]

    async def _target(self) -> bool:
        begin = time.monotonic()
        answer = await self._ask("TargetSize", lambda p: p.target_size(self.group))
        if answer is not None:
            self._note(Kind.TARGET, begin, time.monotonic(), amount=answer)
        return answer is not None

    async def _list(self) -> bool:
        begin = time.monotonic()
        answer = await self._ask("Nodes", lambda p: p.instances(self.group))
        if answer is not None:
            self.listed = [instance.id for instance in answer if instance.state is not InstanceState.DELETING]
            self._note(Kind.INSTANCES, begin, time.monotonic(), names=frozenset(self.listed))
        return answer is not None

    async def _find(self) -> None:
        if not self.listed:
            return
        id_, begin = self.dice.choice(self.listed), time.monotonic()
        found: list[str | None] = []

        async def ask(provider: RemoteProvider) -> bool:
            group = await provider.node_group_for_node(NodeRef(name=id_, provider_id=id_))
            found.append(group.id if group else None)
            return True

        if await self._ask("NodeGroupForNode", ask) and found == [None]:
            self._note(Kind.ABSENT, begin, time.monotonic(), names=frozenset({id_}))
        elif found and found[0] not in (self.group, None):
            self.notes.wrong.append(f"NodeGroupForNode({id_}) is {found[0]}, not {self.group}")

    async def _other(self) -> None:
        """Calls whose answers do not depend on the state of a group: they are counted, and must be the same always."""
        now = datetime.now(UTC)

        async def groups(provider: RemoteProvider) -> bool:
            shown = tuple(sorted(group.id for group in await provider.node_groups()))
            if shown != GROUPS:
                self.notes.wrong.append(f"NodeGroups shows {shown}")
            return True

        calls: dict[str, Callable[[RemoteProvider], Awaitable[object]]] = {
            "Refresh": lambda p: p.refresh(),
            "NodeGroups": groups,
            "TemplateNodeInfo": lambda p: p.template(self.group),
            "GetOptions": lambda p: p.options(self.group, AutoscalingOptions()),
            "GPULabel": lambda p: p.gpu_label(),
            "GetAvailableGPUTypes": lambda p: p.gpu_types(),
            "PricingNodePrice": lambda p: p.node_price(NodeRef(name="x"), now, now + timedelta(hours=1)),
        }
        name = self.dice.choice(list(calls))
        await self._ask(name, calls[name])

    # -- what all calls have in common ---------------------------------------------------------------------------------

    async def _change(self, kind: Kind, call: Callable[[RemoteProvider], Awaitable[None]], **about: object) -> bool:
        """Makes a change and writes it down, unless it was refused; False when its outcome is unknown."""
        begin = time.monotonic()
        outcome = "ok"
        try:
            await self._called(call, is_change=True)
        except CloudgraftError as error:
            outcome = _outcome(error)
        self.notes.calls[f"{kind.value} {outcome}"] += 1
        if outcome != "refused":
            self._note(kind, begin, time.monotonic() if outcome == "ok" else math.inf, **about)
        return outcome != "unknown"

    async def _ask(self, what: str, call: Callable[[RemoteProvider], Awaitable[T]]) -> T | None:
        outcome, answer = "ok", None
        try:
            answer = await self._called(call)
        except CloudgraftError as error:
            outcome = _outcome(error)
        self.notes.calls[f"{what} {outcome}"] += 1
        return answer

    def _note(self, kind: Kind, begin: float, end: float, **about: object) -> None:
        number = next(self.notes.numbers)
        operation = Operation(number=number, group=self.group, kind=kind, begin=begin, end=end, **about)  # type: ignore[arg-type]
        self.notes.history.add(operation)

    async def _called(self, call: Callable[[RemoteProvider], Awaitable[T]], *, is_change: bool = False) -> T:
        """Calls a replica: mostly the one that answered last, now and then any other, and often a suspect."""
        living = [replica for replica in self.cluster.replicas if replica.address]
        replica = self.notes.answering
        if self.notes.suspect in living and self.dice.random() < 0.4:
            replica = self.notes.suspect
        elif replica not in living or self.dice.random() < 0.1:
            await asyncio.sleep(0.05)  # not as fast as possible while nobody leads
            replica = self.dice.choice(living) if living else None
        if replica is None:
            raise UnavailableError("not the leader: no replica is alive")
        try:
            answer = await call(self._connection(replica.address))
        except (UnavailableError, DeadlineError):
            if self.notes.answering is replica:
                self.notes.answering = None
            raise
        finally:
            self.notes.ended[replica.name] += 1
        self.notes.answering = replica
        self.notes.changed[replica.name, self.group] += is_change
        return answer

    def _connection(self, address: str) -> RemoteProvider:
        if address not in self.connections:
            config = CloudConfig(address=Address.parse(address), grpc_timeout=_PATIENCE)
            self.connections[address] = RemoteProvider(Connection(config))
        return self.connections[address]


def _outcome(error: CloudgraftError) -> str:
    if isinstance(error, UnavailableError | DeadlineError):
        return "refused" if any(word in error.message for word in _REFUSALS) else "unknown"
    return "refused"


@contextlib.asynccontextmanager
async def calling(cluster: Cluster, notes: Notes, seed: int, per_group: int = 3) -> AsyncIterator[None]:
    """Clients at work; at the end each has read everything once more."""
    clients = [
        Client(cluster, notes, group, random.Random(f"{seed} {group} {number}"))
        for group in GROUPS
        for number in range(per_group)
    ]
    tasks = [asyncio.create_task(client.run()) for client in clients]
    try:
        yield
    finally:
        for client in clients:
            client.is_over = True
        await asyncio.gather(*tasks)
        try:
            await asyncio.gather(*(client.settle() for client in clients))
        finally:
            for client in clients:
                await client.close()
