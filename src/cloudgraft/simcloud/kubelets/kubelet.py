"""Plays the kubelets of the simulated cloud's machines: observes, decides and writes, in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, assert_never

from cloudgraft.kube.attempts import Attempts
from cloudgraft.kube.connect import connect
from cloudgraft.kube.objects import BOUND_PODS, LEASES, NODES, Kind, Node, PatchStyle, Pod
from cloudgraft.kube.watched import Watched
from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    DeadlineError,
    NotFoundError,
    PreconditionError,
    RateLimitedError,
    UnavailableError,
)
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.kubelets.objects import (
    LEASE_NAMESPACE,
    lease_manifest,
    lease_renewal,
    lost_status,
    node_manifest,
    node_status,
    running_status,
)
from cloudgraft.simcloud.kubelets.plan import (
    Action,
    CreateNode,
    FinishPod,
    KeepLease,
    LiftTaint,
    Memory,
    RemoveNode,
    ReportLost,
    ReportReady,
    RunPod,
    desired,
    key_of,
)
from cloudgraft.simcloud.records import SimMachine

if TYPE_CHECKING:
    from cloudgraft.kube.client import KubeClient

# -- writing -----------------------------------------------------------------------------------------------------------
# Carries out decisions about nodes, pods and leases, with one call or two each.


class NodeWriter:
    """Writes to one cluster, and remembers what later decisions need."""

    def __init__(self, client: KubeClient, memory: Memory, clock: Callable[[], float]) -> None:
        self._client = client
        self._memory = memory
        self._clock = clock

    async def write(self, action: Action) -> None:
        """Carries out an action. After an error of :mod:`cloudgraft.sdk.errors` it may be done or not."""
        match action:
            case FinishPod(pod=pod):
                await self._client.delete(BOUND_PODS, pod.name, namespace=pod.namespace, uid=pod.uid, grace_seconds=0)
            case RunPod(pod=pod):
                await self._set_status(BOUND_PODS, pod, running_status(pod, action.host_address, self._clock()))
            case RemoveNode(node=node):
                await self._remove(node)
            case CreateNode(machine=machine):
                node = await self._client.create(NODES, node_manifest(machine, self._clock()))
                await self._make_lease(node)
            case ReportReady(node=node, machine=machine):
                await self._set_status(NODES, node, node_status(machine, self._clock()))
            case ReportLost(node=node):
                await self._set_status(NODES, node, lost_status(self._clock()))
            case LiftTaint():
                await self._lift(action)
            case KeepLease(node=node):
                await self._renew(node)
            case _:
                assert_never(action)

    async def _set_status(self, kind: Kind[Node] | Kind[Pod], target: Node | Pod, status: dict[str, object]) -> None:
        """A patch for exactly one object: the API refuses a patch that would change a uid."""
        patch = {"metadata": {"uid": target.uid}, "status": status}
        await self._client.patch(kind, target.name, patch, namespace=target.namespace, subresource="status")

    async def _remove(self, node: Node) -> None:
        # The lease first: if we are stopped in between, the remaining node makes us try again.
        with suppress(NotFoundError):
            await self._client.delete(LEASES, node.name, namespace=LEASE_NAMESPACE)
        await self._client.delete(NODES, node.name, uid=node.uid)
        self._memory.removed.add(node.name)

    async def _lift(self, lift: LiftTaint) -> None:
        """Removes this one taint, if it is still at its position; others may be changing the list."""
        path = f"/spec/taints/{lift.position}"
        patch = [{"op": "test", "path": f"{path}/key", "value": lift.key}, {"op": "remove", "path": path}]
        await self._client.patch(NODES, lift.node.name, patch, style=PatchStyle.JSON)

    async def _renew(self, node: Node) -> None:
        now = self._clock()
        renewal = lease_renewal(node.name, now)
        try:
            await self._client.patch(LEASES, node.name, renewal, namespace=LEASE_NAMESPACE, style=PatchStyle.MERGE)
        except NotFoundError:
            await self._make_lease(node)
        else:
            self._memory.leases[node.name] = now

    async def _make_lease(self, node: Node) -> None:
        now = self._clock()
        await self._client.create(LEASES, lease_manifest(node.name, node.uid, now), namespace=LEASE_NAMESPACE)
        self._memory.leases[node.name] = now


# -- rounds ------------------------------------------------------------------------------------------------------------
# Plays the kubelets of all machines: observes, decides and writes, in rounds.


_LOG = logging.getLogger("cloudgraft.simcloud.kubelets.kubelet")
_AT_ONCE: Final = 16  # calls at a time
_PER_ROUND: Final = 250  # actions of a kind: nothing waits for thousands of something else
_NEW_PER_ROUND: Final = 50  # nodes: fewer, or the leases of existing nodes would expire meanwhile
_LOOK: Final = 0.1  # seconds between two reads of the cloud
_LONGEST_REST: Final = 1.0  # seconds; then leases and retries may be due
# After these errors the next call would fail in the same way: better to wait for the next round.
_HOPELESS: Final = (UnavailableError, DeadlineError, RateLimitedError, AuthenticationError)


class NodeAgent:
    """All kubelets of one cloud in one cluster. Everything it does is harmless when it is done twice."""

    def __init__(self, cloud: SimulatedCloud, client: KubeClient, *, clock: Callable[[], float] = time.time) -> None:
        self._cloud = cloud
        self._clock = clock
        self._has_news = False
        self._nodes = Watched(client, NODES, on_change=self._note_news)
        self._pods = Watched(client, BOUND_PODS, on_change=self._note_news)
        self._memory = Memory()
        self._writer = NodeWriter(client, self._memory, clock)
        self._attempts = Attempts()
        self._machines: Sequence[SimMachine] = ()
        self._revision = -1
        self._reported: set[tuple[type[Action], type[CloudgraftError]]] = set()

    async def run(self) -> None:
        """Runs until cancelled."""
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
        await asyncio.sleep(_LOOK)  # even if something has changed already: changes seldom come alone
        while not self._has_news and self._cloud.revision == self._revision and loop.time() < latest:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK)  # the cloud cannot call us: it has no loop, and changes with time alone

    def _note_news(self) -> None:
        self._has_news = True

    def _decide(self) -> list[Action]:
        memory = self._memory
        revision = self._cloud.revision  # before the machines: a change in between is seen next time
        if revision != self._revision:
            self._machines = self._cloud.machines()
            memory.made.update(machine.provider_id for machine in self._machines)
            self._revision = revision
        nodes = {node.name: node for node in self._nodes.objects.values()}
        for name in memory.leases.keys() - nodes.keys():
            del memory.leases[name]
        return desired(self._machines, nodes, self._pods.objects.values(), memory, self._clock())

    async def _carry_out(self, actions: Sequence[Action]) -> None:
        """Carries out some actions of each kind, in order, a few at a time."""
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
                self._log_failure(action, error, failures=self._attempts.failed(key, time.monotonic()))
                if isinstance(error, _HOPELESS):
                    work.clear()
            else:
                self._attempts.succeeded(key, time.monotonic())
                self._reported = {entry for entry in self._reported if entry[0] is not type(action)}
                _LOG.debug("done: %s", key)

    def _log_failure(self, action: Action, error: CloudgraftError, *, failures: int) -> None:
        """Logs one warning per kind of failure, not one per node, and none for a first failure.

        A first failure is often harmless: another client was faster, or we were and have not seen it yet.
        """
        entry = (type(action), type(error))
        is_news = failures > 1 and entry not in self._reported
        if is_news:
            self._reported.add(entry)
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


# -- the thread --------------------------------------------------------------------------------------------------------
# Without them a cluster would not notice the simulated machines: no node would appear, bound pods would stay pending,
# and deleted ones would never go, so that no node ever became empty.


_AFTER_A_BUG: Final = 1.0  # seconds


class Kubelet:
    """Makes the machines of a simulated cloud nodes of a cluster.

    It never touches a node whose providerID is not one of a machine that this cloud made. When it is stopped, the
    nodes stay, and the cluster notices that they are silent; a new start continues with them.
    """

    def __init__(
        self, cloud: SimulatedCloud, kubeconfig: Path | None, *, clock: Callable[[], float] = time.time
    ) -> None:
        """Without a ``kubeconfig`` it is the cluster of this pod.

        ``clock`` returns the time that is written into the cluster, and by which leases are renewed.
        """
        self._cloud = cloud
        self._clock = clock
        self._kubeconfig = kubeconfig
        self._thread: threading.Thread | None = None
        self._is_up = threading.Event()
        self._halt: Callable[[], object] = lambda: None

    def start(self) -> None:
        """Starts the thread; the cluster need not exist yet.

        Raises PreconditionError when the extra ``kubernetes`` is not installed, when this was started before, or when
        there is neither a kubeconfig nor a pod, and InvalidArgumentError when the kubeconfig cannot be used.
        """
        if self._thread is not None:
            raise PreconditionError("this kubelet was started already: make a new one")
        client = connect(self._kubeconfig)
        self._thread = threading.Thread(target=self._serve, args=(client,), name="simulated-kubelet", daemon=True)
        self._thread.start()
        self._is_up.wait()
        _LOG.info("playing the kubelet", extra={"kubeconfig": str(self._kubeconfig or "of this pod")})

    def stop(self) -> None:
        """Stops at once, also during a call. May be called twice, and without a start."""
        if self._thread is not None:
            self._halt()
            self._thread.join()

    def _serve(self, client: KubeClient) -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(self._play(client))

    async def _play(self, client: KubeClient) -> None:
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        if task is not None:
            self._halt = partial(_cancel, loop, task)
        self._is_up.set()
        try:
            while True:
                await self._play_once(client)
                await asyncio.sleep(_AFTER_A_BUG)
        finally:
            await client.close()

    async def _play_once(self, client: KubeClient) -> None:
        try:
            await NodeAgent(self._cloud, client, clock=self._clock).run()
        except Exception:  # noqa: BLE001 - a bug of ours must not end it; all other trouble is dealt with inside
            _LOG.exception("the simulated kubelet failed; it restarts")


def _cancel(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    with suppress(RuntimeError):  # the loop is closed: it has ended already
        loop.call_soon_threadsafe(task.cancel)
