"""Answers from memory which nodes the cluster has and which machine each of them is, and maintains those nodes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from cloudgraft.joining.claims import Claim, JoinedNode, Stage
from cloudgraft.joining.match import Matches, Problem, ProblemKind, Rivals, matched, rivals
from cloudgraft.joining.node_changes import ClusterSettings, NodeChange, RemoveNode, UpdateNode, node_changes
from cloudgraft.kube.attempts import Attempts
from cloudgraft.kube.objects import NODES, Node, PatchStyle
from cloudgraft.kube.watched import Watched
from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    ConflictError,
    DeadlineError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    UnavailableError,
)

if TYPE_CHECKING:
    from cloudgraft.kube.client import KubeClient

# -- Changes to nodes, made in the background --------------------------------------------------------------------------


_LOG = logging.getLogger("cloudgraft.joining")
_AT_ONCE: Final = 8  # calls at a time
_PER_ROUND: Final = 200  # changes; then it decides again
_PAUSE: Final = 0.05  # seconds before a round, because changes seldom come alone; longer where deciding takes long,
_SHARE: Final = 20  # so that deciding has no more than this part of the time
_BETWEEN_ROUNDS: Final = 1.0  # seconds; then retries may be due, and machines may have been gone long enough
# After these the next call would fail in the same way: better to wait for the next round.
_HOPELESS: Final = (UnavailableError, DeadlineError, RateLimitedError, AuthenticationError)


class NodeMaintenance:
    """Makes changes to nodes. Each is harmless when made twice or too late, and touches only the node it names."""

    def __init__(
        self, client: KubeClient, decide: Callable[[], Sequence[NodeChange]], *, may_act: Callable[[], bool]
    ) -> None:
        """``decide`` returns the changes to make now; none while that is unknown. ``may_act``: whether we may."""
        self._client = client
        self._may_act = may_act
        self._decide = decide
        self._attempts = Attempts()
        self._news = asyncio.Event()
        self._reported: set[tuple[type[NodeChange], type[CloudgraftError]]] = set()
        self.troubles: dict[type[NodeChange], CloudgraftError] = {}  # current failures, by kind

    def wake(self) -> None:
        """Starts a round: there may be something to do."""
        self._news.set()

    async def run(self) -> None:
        """Works on until cancelled."""
        pause = _PAUSE
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_BETWEEN_ROUNDS):
                    await self._news.wait()
            await asyncio.sleep(pause)
            self._news.clear()
            began = time.monotonic()
            changes = self._decide()
            pause = max(_PAUSE, (time.monotonic() - began) * _SHARE)
            await self._carry_out(changes)

    async def _carry_out(self, changes: Sequence[NodeChange]) -> None:
        keyed = {change.key: change for change in changes}
        self._attempts.keep_only(keyed)
        for kind in self.troubles.keys() - {type(change) for change in changes}:
            del self.troubles[kind]
        now = time.monotonic()
        due = [(key, change) for key, change in keyed.items() if self._attempts.is_due(key, now)]
        work = deque(due[:_PER_ROUND])
        if len(work) < len(due):
            self._news.set()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(_AT_ONCE, len(work))):
                tasks.create_task(self._work_off(work))

    async def _work_off(self, work: deque[tuple[str, NodeChange]]) -> None:
        while work and self._may_act():
            key, change = work.popleft()
            try:
                await self._do(change)
            except CloudgraftError as error:
                self._report(change, error, failures=self._attempts.failed(key, time.monotonic()))
                if isinstance(error, _HOPELESS):
                    work.clear()
            else:
                self._attempts.succeeded(key, time.monotonic())
                self._reported = {entry for entry in self._reported if entry[0] is not type(change)}
                self.troubles.pop(type(change), None)

    async def _do(self, change: NodeChange) -> None:
        node = change.node
        if isinstance(change, RemoveNode):
            with suppress(NotFoundError):
                await self._client.delete(NODES, node.name, uid=node.uid)
            _LOG.info("removed node %s: its machine %s is gone", node.name, change.machine)
        elif isinstance(change, UpdateNode):
            # With uid and version: not if it is another node by now, nor if it was changed since we read it.
            patch: dict[str, object] = {"metadata": {"uid": node.uid, "resourceVersion": node.version}}
            if change.labels:
                patch["metadata"] = {"uid": node.uid, "resourceVersion": node.version, "labels": dict(change.labels)}
            if change.provider_id:
                patch["spec"] = {"providerID": change.provider_id}
            await self._client.patch(NODES, node.name, patch, style=PatchStyle.MERGE)
            _LOG.info("node %s is machine %s: %s", node.name, change.machine, _given(change))

    def _report(self, change: NodeChange, error: CloudgraftError, *, failures: int) -> None:
        """Logs one warning per kind of failure, not one per node, and none for a first failure.

        A first failure is often harmless: another client was faster, or we were and have not seen it yet. A node that
        has just joined is changed by many clients, one after another. But a forbidden call stays forbidden on a retry.
        """
        entry = (type(change), type(error))
        tolerated = 4 if isinstance(error, ConflictError) else 1
        is_trouble = failures > tolerated or isinstance(error, PermissionDeniedError)
        is_news = is_trouble and entry not in self._reported
        if is_trouble:
            self.troubles[type(change)] = error
        if is_news:
            self._reported.add(entry)
        level = logging.WARNING if is_news else logging.DEBUG
        _LOG.log(level, "cannot update nodes: %s", error, extra={"change": type(change).__name__})


def _given(change: UpdateNode) -> str:
    parts = [f"providerID {change.provider_id}"] if change.provider_id else []
    parts += [f"label {key}={value}" for key, value in change.labels.items()]
    return ", ".join(parts)


# -- Nodes of the cluster ----------------------------------------------------------------------------------------------


_STALE_AFTER: Final = 90.0  # seconds; the API sends something at least once a minute, and a dead one is noticed in 75 s
_SETTLES: Final = 10.0  # seconds in which problems of a node that has just joined may resolve by themselves
_QUICK: Final = 0.005  # seconds; after a match that took longer, the next one waits
_REST: Final = 20  # times as long as it took
_AFTER_A_BUG: Final = 5.0  # seconds
_WHAT: Final[dict[type[NodeChange], str]] = {
    UpdateNode: "nodes get neither providerID nor labels",
    RemoveNode: "nodes of machines that are gone are not removed",
}


class Cluster:
    """Watches the nodes, matches them to machines, and has them maintained. Nothing here waits for the Kubernetes API.

    While the API is unavailable, nothing is done; afterwards all missed changes are made.
    """

    def __init__(
        self,
        client: KubeClient,
        settings: ClusterSettings,
        *,
        clock: Callable[[], float] = time.time,
        stale_after: float = _STALE_AFTER,
        settles: float = _SETTLES,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._stale_after = stale_after
        self._settles = settles
        self._nodes: Watched[Node] = Watched(client, NODES, on_change=self._note_news)
        self._may_act: Callable[[], bool] = lambda: True
        self._maintenance = NodeMaintenance(client, self._decide, may_act=self._is_leading)
        self._claims: dict[str, tuple[Claim, ...]] = {}  # by cloud
        self._since: dict[str, float] = {}  # when each machine was first claimed, by name
        self._gone_since: dict[str, float] = {}
        self._matches: Matches | None = None
        self._has_changed = False  # something since they were found
        self._matched_at = self._took = 0.0
        self._in_the_way: list[Problem] = []
        self._first_seen: dict[Problem, float] = {}
        self._reported: set[Problem] = set()
        self._listeners: list[Callable[[], None]] = []

    async def run(self) -> None:
        """Watches and works until cancelled. A bug does not end it: it is logged, and the watch restarts."""
        while True:
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._nodes.run())
                    tasks.create_task(self._maintenance.run())
            except ExceptionGroup as bugs:
                _LOG.error("the watch of the nodes failed; it restarts", exc_info=bugs)
            await asyncio.sleep(_AFTER_A_BUG)

    @property
    def is_known(self) -> bool:
        """Whether the answers are fresh enough to act on; False while the Kubernetes API is unavailable."""
        return self._nodes.is_synced and self._nodes.heard_within(self._stale_after)

    def claim(self, cloud: str, claims: Sequence[Claim], may_act: Callable[[], bool] | None = None) -> None:
        """Sets the claims of all machines of a cloud; replaces earlier ones.

        ``may_act`` is called before any change to a node: False as soon as another process leads.
        """
        self._may_act = may_act or self._may_act
        if self._claims.get(cloud, ()) == tuple(claims):
            return
        self._claims[cloud] = tuple(claims)
        now, everyone = self._clock(), self._everyone()
        self._since = {claim.name: self._since.get(claim.name, now) for claim in everyone}
        gone = [claim.name for claim in everyone if claim.stage is Stage.GONE]
        self._gone_since = {name: self._gone_since.get(name, now) for name in gone}
        self._has_changed = True
        self._maintenance.wake()

    def joined(self, name: str) -> JoinedNode | None:
        """The node of this machine; None when there is none, or when it is not certain which one it is."""
        node = self._node_of(name)
        if node is None:
            return None
        return JoinedNode(node=node, unready_since=None if node.ready else node.ready_since or node.created_at)

    def is_disputed(self, name: str) -> bool:
        """Whether it is not certain which of several nodes is this machine's."""
        return name in self._match().disputed

    def is_ready_name(self, name: str) -> bool:
        """Whether a ready node has exactly this name. For machines of which nothing but the name is known yet."""
        node = self._nodes.objects.get(f"/{name}")
        return node is not None and node.ready

    def rivals(self, claims: Sequence[Claim]) -> Rivals:
        """Finds out which of several machines for one intent have joined."""
        return rivals(claims, self._nodes.objects.values(), self._settings.match_by)

    def listen(self, on_change: Callable[[], None]) -> None:
        """Calls back, on the event loop, when nodes have come, gone, or changed."""
        self._listeners.append(on_change)

    def problems(self) -> tuple[Problem, ...]:
        """Current problems that keep nodes from being matched or maintained."""
        refused = [
            Problem(kind=ProblemKind.REFUSED, node="", message=f"{_WHAT[kind]}: {error}")
            for kind, error in self._maintenance.troubles.items()
        ]
        return (*self._match().problems, *self._in_the_way, *refused)

    def _is_leading(self) -> bool:
        return self._may_act()

    def _everyone(self) -> list[Claim]:
        return [claim for claims in self._claims.values() for claim in claims]

    def _node_of(self, name: str) -> Node | None:
        key = self._match().nodes.get(name)
        return None if key is None else self._nodes.objects.get(key)

    def _match(self, *, is_exact: bool = False) -> Matches:
        """Matches nodes to machines, again when something has changed; in a large cluster less often.

        For readers, a slightly old answer does no harm: the Kubernetes API is always a little late.
        """
        now = time.monotonic()
        is_soon = not is_exact and self._took > _QUICK and now < self._matched_at + self._took * _REST
        if self._matches is None or (self._has_changed and not is_soon):
            nodes = self._nodes.objects.values()
            self._has_changed = False
            self._matches = matched(self._everyone(), nodes, self._settings.match_by, since=self._since)
            self._matched_at = time.monotonic()
            self._took = self._matched_at - now
        return self._matches

    def _note_news(self) -> None:
        self._has_changed = True
        self._maintenance.wake()
        for listener in self._listeners:
            listener()

    def _decide(self) -> list[NodeChange]:
        if not self.is_known:
            return []
        everyone = self._everyone()
        nodes = {name: node for name in self._match(is_exact=True).nodes if (node := self._node_of(name)) is not None}
        found, self._in_the_way = node_changes(
            everyone, nodes, self._settings, gone_since=self._gone_since, now=self._clock()
        )
        self._report((*self._match().problems, *self._in_the_way))
        return found

    def _report(self, problems: Sequence[Problem]) -> None:
        """Logs each problem once, when it has lasted a while."""
        now = self._clock()
        self._first_seen = {problem: self._first_seen.get(problem, now) for problem in problems}
        self._reported &= self._first_seen.keys()
        for problem, since in self._first_seen.items():
            if problem not in self._reported and now - since >= self._settles:
                self._reported.add(problem)
                extra = {"node": problem.node, "machine": problem.machine, "problem": problem.kind.value}
                _LOG.warning("%s", problem.message, extra=extra)
