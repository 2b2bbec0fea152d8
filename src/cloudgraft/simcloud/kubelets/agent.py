"""Plays the kubelets of all machines: looks, decides, and writes, round after round."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from cloudgraft.kube.attempts import Attempts
from cloudgraft.kube.objects import BOUND_PODS, NODES
from cloudgraft.kube.watched import Watched
from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    DeadlineError,
    RateLimitedError,
    UnavailableError,
)
from cloudgraft.simcloud.kubelets.objects import Simulated
from cloudgraft.simcloud.kubelets.plan import Action, CreateNode, Memory, desired, key_of
from cloudgraft.simcloud.kubelets.writer import NodeWriter

if TYPE_CHECKING:
    from cloudgraft.kube.client import KubeClient

__all__ = ["Booked", "Cloud", "NodeAgent"]

_LOG = logging.getLogger("cloudgraft.simcloud.kubelets.kubelet")
_AT_ONCE: Final = 16  # calls at a time
_PER_ROUND: Final = 250  # actions of a kind: nothing waits for thousands of something else
_NEW_PER_ROUND: Final = 50  # nodes: fewer, or the leases of those that are there would run out over the new ones
_LOOK: Final = 0.1  # seconds between two looks at the cloud
_LONGEST_REST: Final = 1.0  # seconds; then leases may be due, and attempts
# After these the next call would fail in the same way: better to wait for the next round.
_HOPELESS: Final = (UnavailableError, DeadlineError, RateLimitedError, AuthenticationError)


class Booked(Protocol):
    """A machine in the cloud's books."""

    @property
    def provider_id(self) -> str: ...  # noqa: D102 - as in Kubernetes


class Cloud(Protocol):
    """What is asked of the simulated cloud, from a thread of our own."""

    @property
    def revision(self) -> int:
        """Grows whenever :meth:`machines` has something new to tell."""

    def machines(self) -> Sequence[Simulated]:
        """Every machine that is there now, the oldest first."""

    def ledger(self) -> Sequence[Booked]:
        """Every machine that was ever made."""


class NodeAgent:
    """All kubelets of one cloud in one cluster. Everything it does is harmless when it is done twice."""

    def __init__(self, cloud: Cloud, client: KubeClient, *, clock: Callable[[], float] = time.time) -> None:
        self._cloud = cloud
        self._clock = clock
        self._has_news = False
        self._nodes = Watched(client, NODES, on_change=self._note_news)
        self._pods = Watched(client, BOUND_PODS, on_change=self._note_news)
        self._memory = Memory()
        self._writer = NodeWriter(client, self._memory, clock)
        self._attempts = Attempts()
        self._machines: Sequence[Simulated] = ()
        self._revision = -1
        self._told: set[tuple[type[Action], type[CloudgraftError]]] = set()

    async def run(self) -> None:
        """Plays on until cancelled."""
        self._memory.made = {entry.provider_id for entry in self._cloud.ledger()}
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._nodes.run())
            tasks.create_task(self._pods.run())
            tasks.create_task(self._rounds())

    async def _rounds(self) -> None:
        while True:
            await self._wait_for_news()
            if self._nodes.is_synced and self._pods.is_synced:
                self._has_news = False
                await self._carry_out(self._decide())

    async def _wait_for_news(self) -> None:
        """Returns when the cluster or the cloud has changed, and at the latest when leases may be due."""
        loop = asyncio.get_running_loop()
        latest = loop.time() + _LONGEST_REST
        await asyncio.sleep(_LOOK)  # also when there is news already: it seldom comes alone
        while not self._has_news and self._cloud.revision == self._revision and loop.time() < latest:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK)  # the cloud cannot call us: it has no loop, and its news come with time alone

    def _note_news(self) -> None:
        self._has_news = True

    def _decide(self) -> list[Action]:
        memory = self._memory
        revision = self._cloud.revision  # before the machines: what changes in between is seen next time
        if revision != self._revision:
            self._machines = self._cloud.machines()
            memory.made.update(machine.provider_id for machine in self._machines)
            self._revision = revision
        nodes = {node.name: node for node in self._nodes.objects.values()}
        for name in memory.leases.keys() - nodes.keys():
            del memory.leases[name]
        return desired(self._machines, nodes, self._pods.objects.values(), memory, self._clock())

    async def _carry_out(self, actions: Sequence[Action]) -> None:
        """Some of each kind, in order, a few at a time."""
        keyed = {key_of(action): action for action in actions}
        self._attempts.keep_only(keyed)
        now = time.monotonic()
        due = [(key, action) for key, action in keyed.items() if self._attempts.is_due(key, now)]
        work = deque(_some_of_each(due))
        if len(work) < len(due):
            self._has_news = True  # the rest is for the next round
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(_AT_ONCE, len(work))):
                tasks.create_task(self._work_off(work))

    async def _work_off(self, work: deque[tuple[str, Action]]) -> None:
        while work:
            key, action = work.popleft()
            try:
                await self._writer.write(action)
            except CloudgraftError as error:
                self._tell(action, error, failures=self._attempts.failed(key, time.monotonic()))
                if isinstance(error, _HOPELESS):
                    work.clear()
            else:
                self._attempts.succeeded(key, time.monotonic())
                self._told = {entry for entry in self._told if entry[0] is not type(action)}
                _LOG.debug("done: %s", key)

    def _tell(self, action: Action, error: CloudgraftError, *, failures: int) -> None:
        """One warning per kind of trouble, not one per node, and none for a first failure.

        That is often no trouble at all: somebody was faster, or we were, and have not seen it yet.
        """
        entry = (type(action), type(error))
        is_news = failures > 1 and entry not in self._told
        if is_news:
            self._told.add(entry)
        level = logging.WARNING if is_news else logging.DEBUG
        _LOG.log(level, "the simulated kubelet: %s", error, extra={"action": type(action).__name__})


def _some_of_each(due: Sequence[tuple[str, Action]]) -> list[tuple[str, Action]]:
    seen: Counter[type[Action]] = Counter()
    chosen = []
    for key, action in due:
        seen[type(action)] += 1
        if seen[type(action)] <= (_NEW_PER_ROUND if isinstance(action, CreateNode) else _PER_ROUND):
            chosen.append((key, action))
    return chosen
