"""Plays the day: a real server on loopback with mTLS, a real client, and work that comes and goes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cloudgraft.certs.authority import Bundle, create_bundle
from cloudgraft.client import Address, CloudConfig, CloudProvider, RemoteProvider
from cloudgraft.demo.autoscaler import Autoscaler
from cloudgraft.demo.calls import CallRecorder, RecordingConnection
from cloudgraft.demo.checks import StoryError, check_books, check_end, check_recovery, check_story
from cloudgraft.demo.cluster import Changes, Cluster, Node
from cloudgraft.demo.engine_world import EngineWorld
from cloudgraft.demo.events import Books, Event, Frame, GroupState, Kind, NodeRow, Presenter, Summary, plural
from cloudgraft.demo.timetable import HOUR, MINUTE, Wave, clock_time, seconds_at, waves_of_the_day
from cloudgraft.sdk import InstanceState
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.server.serve import ServeOptions, running
from cloudgraft.server.tls import TlsFiles

# -- server ------------------------------------------------------------------------------------------------------------
# With certificates made for this one run. It can stop and start again.


_GRACE = 2.0  # seconds that calls in flight get when the demo is interrupted


class Front:
    """A real gRPC server on loopback, with mTLS, which serves the world's provider."""

    def __init__(self, world: EngineWorld, directory: Path) -> None:
        """``directory`` is for the certificates."""
        self.address = "127.0.0.1:0"  # once it is open, the real port, which stays
        self._world = world
        self._directory = directory
        self._open = AsyncExitStack()

    @property
    def config(self) -> CloudConfig:
        """The settings of the autoscaler's cloud-config."""
        files = Bundle.at(self._directory)
        return CloudConfig(
            address=Address.parse(self.address),
            key=str(files.client_key),
            cert=str(files.client_cert),
            cacert=str(files.ca_cert),
        )

    async def open(self) -> None:
        """Starts the world's provider, and serves it on the same port as before."""
        files = Bundle.at(self._directory)
        tls = TlsFiles(cert=files.server_cert, key=files.server_key, client_ca=files.ca_cert)
        options = ServeOptions(listen=self.address, tls=tls, grace=_GRACE)
        up = await self._open.enter_async_context(running(self._world.provider, options))
        self.address = up.address

    async def close(self) -> None:
        """Ends all connections and closes the port and the provider that was served."""
        await self._open.aclose()

    async def __aenter__(self) -> Self:
        """Open."""
        create_bundle(self._directory, hosts=["127.0.0.1", "localhost"])
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closed."""
        await self.close()


# -- machines and cost, as the client counts them ----------------------------------------------------------------------
# From the client's answers, loop by loop.


@dataclass(slots=True)
class Ledger:
    """Counts machines and money over the day."""

    cost: float = 0.0
    most_machines: int = 0
    most_milli_cpu: int = 0
    _ran: set[str] = field(default_factory=set)
    _failed: set[str] = field(default_factory=set)
    _listed: Mapping[str, float] = field(default_factory=dict)  # what costs money, with its price per hour

    @property
    def created(self) -> int:
        """Machines that have run."""
        return len(self._ran)

    @property
    def failed(self) -> int:
        """Machines that the cloud could not create."""
        return len(self._failed)

    @property
    def deleted(self) -> int:
        """Machines that ran and are gone."""
        return len(self._ran - self._listed.keys())

    def note(self, groups: Sequence[GroupState], seconds: float) -> None:
        """Records the observation of one loop, and bills the time since the one before.

        A cloud charges from the order on. So a new machine was ordered in the loop before, right after it was
        requested, and a missing one existed until now: the loops are close together while machines boot.
        """
        listed = _costly(groups)
        self.cost += sum({**self._listed, **listed}.values()) * seconds / HOUR
        self._listed = listed
        self._failed |= {instance.id for group in groups for instance in group.failed}
        running = [(group, _running(group)) for group in groups]
        self._ran |= {id_ for _, ids in running for id_ in ids}
        self.most_machines = max(self.most_machines, sum(len(ids) for _, ids in running))
        milli_cpu = sum(len(ids) * group.shape.milli_cpu for group, ids in running)
        self.most_milli_cpu = max(self.most_milli_cpu, milli_cpu)


def hourly_cost(groups: Sequence[GroupState]) -> float:
    """The hourly cost of the machines: all that the cloud has accepted, until they are gone."""
    return sum(_costly(groups).values())


def _costly(groups: Sequence[GroupState]) -> dict[str, float]:
    return {instance.id: group.price for group in groups for instance in group.instances if instance.error is None}


def _running(group: GroupState) -> list[str]:
    return [instance.id for instance in group.instances if instance.state is InstanceState.RUNNING]


# -- the day -----------------------------------------------------------------------------------------------------------


_END: Final = seconds_at("23:00")
_BUSY_STEP: Final = 5 * MINUTE
_QUIET_STEP: Final = 30 * MINUTE
_FATAL_GROUP: Final = "gpu"


class Day:
    """Plays one day in a world, through a client of its provider's server."""

    def __init__(
        self,
        *,
        world: EngineWorld,
        front: Front,
        client: CloudProvider,
        calls: CallRecorder,
        presenter: Presenter,
        waves: Sequence[Wave],
    ) -> None:
        self.events: list[Event] = []
        self._world = world
        self._front = front
        self._client = client
        self._calls = calls
        self._presenter = presenter
        self._waves = {wave.name: wave for wave in waves}
        self._arrived: set[str] = set()
        self._ending: set[str] = set()  # waves of which a pod has finished
        self._begins = world.now()
        self._cluster = Cluster()
        self._autoscaler = Autoscaler(client, self._cluster, self._tell)
        self._ledger = Ledger()
        self._looked = world.now()
        self._is_up = True

    async def play(self) -> Summary:
        """Plays from morning to night; raises StoryError, with the time of day, when a check fails."""
        started = time.monotonic()
        try:
            books = await self._play()
        except CloudgraftError as error:
            clock = clock_time(self._world.now())
            raise StoryError(f"the demo went wrong at {clock}: {error.message}") from error
        return self._summary(books, time.monotonic() - started)

    async def _play(self) -> Books:
        await self._client.get_available_gpu_types()
        await self._look()
        await self._say(Kind.START, *_start(self._autoscaler.groups))
        while self._world.now() < _END:
            await self._step()
            await self._pass_time()
        await self._step()
        check_story(self.events)
        books = self._world.books()
        check_books(books, machines=self._ledger.created, cost=self._ledger.cost)
        check_end(
            self._autoscaler.groups,
            pods_left=len(self._cluster.pending) + self._cluster.running,
            nodes_left=len(self._cluster.nodes),
            machines_left=len(await self._world.machines()),
        )
        detail = f"no pod, no node, no machine is left; the cloud's own bill is {books.cost:.2f} too"
        await self._say(Kind.NIGHT, "every group is back at zero", detail)
        await self._client.cleanup()
        return books

    # -- one step ----------------------------------------------------------------------------------------------------

    async def _step(self) -> None:
        """Starts and ends pods and machines, then lets the autoscaler observe and act."""
        now = self._world.now()
        await self._work_ends(now)
        await self._work_comes(now)
        changes = self._cluster.follow(await self._world.machines())
        self._cluster.schedule()
        await self._look()
        await self._tell_changes(changes)
        await self._autoscaler.act()
        await self._presenter.show(self._frame(is_news=False))

    async def _look(self) -> None:
        now = self._world.now()
        await self._autoscaler.look(now)
        self._ledger.note(self._autoscaler.groups, now - self._looked)
        self._looked = now

    async def _pass_time(self) -> None:
        """Moves the time to the next loop: soon while machines boot, else when the next pods come or finish."""
        now = self._world.now()
        coming = [moment for moment in (*self._arrivals(), *self._cluster.ends()) if moment > now]
        step = _BUSY_STEP if self._is_busy() else min([_QUIET_STEP, *(moment - now for moment in coming)])
        if self._is_fatal(self.events[-1]):
            await self._crash()
        await self._world.advance(min(step, _END - now))

    # -- the crash ---------------------------------------------------------------------------------------------------

    def _is_fatal(self, last: Event) -> bool:
        """Whether to crash now: in the most expensive scale-up, where a second machine would cost most."""
        return (last.kind, last.group, last.time) == (Kind.SCALE_UP, _FATAL_GROUP, self._world.now())

    async def _crash(self) -> None:
        """Crashes with a pending order, and restarts. No call is made meanwhile: it is between two loops."""
        crash = await self._world.die()
        await self._front.close()
        self._is_up = False
        on_disk = f"{plural(crash.machines, 'machine')}, {crash.unknown} of unknown outcome"
        detail = f"memory and port are gone; on disk: {on_disk}"
        await self._say(Kind.CRASH, "cloudgraft dies: an order is placed, its answer not seen", detail)
        await self._front.open()
        self._is_up = True
        books = self._world.books()
        check_recovery(books)
        headline = (
            f"back from the journal: {plural(crash.machines, 'machine')}, {books.lost} lost, {books.doubled} doubled"
        )
        verb = "is" if len(crash.ordered) == 1 else "are"
        detail = f"{_names(crash.ordered)} {verb} in the cloud's list by name: kept, not ordered again"
        await self._say(Kind.RESTART, headline, detail)

    def _arrivals(self) -> list[float]:
        return [wave.arrives for wave in self._waves.values() if wave.name not in self._arrived]

    def _is_busy(self) -> bool:
        groups = self._autoscaler.groups
        on_their_way = not all(group.is_settled for group in groups)
        unregistered = sum(len(group.instances) for group in groups) != len(self._cluster.nodes)
        return bool(self._cluster.pending or self._autoscaler.unneeded) or on_their_way or unregistered

    async def _work_comes(self, now: float) -> None:
        for wave in self._waves.values():
            if wave.name in self._arrived or wave.arrives > now:
                continue
            self._arrived.add(wave.name)
            self._cluster.submit(wave.pods())
            self._cluster.schedule()
            pods = f"{plural(wave.count, 'pod')} of {wave.milli_cpu / 1000:g} cpu"
            needs = "".join(f", only for nodes with {key}={value}" for key, value in wave.selector.items())
            nodes = plural(len(self._cluster.nodes), "node")
            detail = f"{len(self._cluster.pending)} pending{needs}; there are {nodes}"
            await self._say(Kind.WORK, f"{wave.coming}: {pods}", detail)

    async def _work_ends(self, now: float) -> None:
        for pod in self._cluster.finish_until(now):
            wave = pod.name.rpartition("-")[0]
            if wave not in self._ending:
                self._ending.add(wave)
                count = self._waves[wave].count
                how = f"its {count} pods finish one after the other" if count > 1 else "its pod has finished"
                await self._say(Kind.DONE, self._waves[wave].ending, how)

    async def _tell_changes(self, changes: Changes) -> None:
        if changes.left:
            verb = "is" if len(changes.left) == 1 else "are"
            await self._say(Kind.GONE, f"{_names(changes.left)} {verb} gone", "the machine and its node")
        if changes.joined:
            running, pending = self._cluster.running, len(self._cluster.pending)
            detail = f"providerID = instance id; {plural(running, 'pod')} running, {pending} pending"
            await self._say(Kind.REGISTERED, f"{_names(changes.joined)} registered", detail)

    # -- events and frames -------------------------------------------------------------------------------------------

    async def _say(self, kind: Kind, headline: str, detail: str) -> None:
        await self._tell(Event(kind=kind, time=self._world.now(), headline=headline, detail=detail))

    async def _tell(self, event: Event) -> None:
        self.events.append(event)
        await self._presenter.show(self._frame(is_news=True))

    def _frame(self, *, is_news: bool) -> Frame:
        groups, cluster = self._autoscaler.groups, self._cluster
        return Frame(
            time=self._world.now(),
            begins=self._begins,
            ends=_END,
            address=self._front.address,
            is_up=self._is_up,
            events=tuple(self.events),
            is_news=is_news,
            is_busy=self._is_busy(),
            groups=groups,
            nodes=tuple(self._node_row(node) for node in cluster.nodes.values()),
            pods_pending=len(cluster.pending),
            pods_running=cluster.running,
            pods_finished=cluster.finished,
            calls=tuple(self._calls.latest),
            calls_total=self._calls.total,
            cost=self._ledger.cost,
            cost_per_hour=hourly_cost(groups),
        )

    def _node_row(self, node: Node) -> NodeRow:
        pods = self._cluster.pods_on(node.name)
        return NodeRow(
            name=node.name,
            used_milli_cpu=sum(pod.milli_cpu for pod in pods),
            milli_cpu=node.shape.milli_cpu,
            pods=len(pods),
            leaving=node.leaving,
            unneeded=node.name in self._autoscaler.unneeded,
        )

    def _summary(self, books: Books, seconds: float) -> Summary:
        ledger = self._ledger
        return Summary(
            loops=self._autoscaler.loops,
            calls=self._calls.figures(),
            machines_created=ledger.created,
            machines_failed=ledger.failed,
            machines_deleted=ledger.deleted,
            most_machines=ledger.most_machines,
            most_milli_cpu=ledger.most_milli_cpu,
            pods_finished=self._cluster.finished,
            cost=ledger.cost,
            books=books,
            seconds=seconds,
            events=tuple(self.events),
        )


def _start(groups: Sequence[GroupState]) -> tuple[str, str]:
    described = ", ".join(f"{group.id} {group.shape.milli_cpu / 1000:g} cpu {group.price:.2f}/h" for group in groups)
    return f"the cluster sleeps: {len(groups)} node groups, no node", described


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# -- the whole demo ----------------------------------------------------------------------------------------------------


async def play(
    presenter: Presenter, make_world: Callable[[Path], EngineWorld] = EngineWorld, waves: Sequence[Wave] | None = None
) -> Summary:
    """Serves a world's provider, plays a day with these waves of work against it, and stops the server again.

    The journal and the certificates are made for this one run, in a temporary directory. Raises StoryError when a
    check fails.
    """
    calls = CallRecorder()
    with tempfile.TemporaryDirectory(prefix="cloudgraft-demo-") as scratch:
        directory = Path(scratch)
        world = make_world(directory)
        async with Front(world, directory / "certs") as front:
            remote = RemoteProvider(RecordingConnection(front.config, calls))
            async with CloudProvider(remote) as client:
                day = Day(
                    world=world,
                    front=front,
                    client=client,
                    calls=calls,
                    presenter=presenter,
                    waves=waves or waves_of_the_day(),
                )
                return await day.play()
