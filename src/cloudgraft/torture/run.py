"""Runs one torture: checks, kills under load, settles, shrinks to zero, and cleans up in any case."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from cloudgraft.app.engine_wiring import desired_state
from cloudgraft.client import RemoteProvider
from cloudgraft.config import Config
from cloudgraft.config.sections.groups import NodeGroupConfig
from cloudgraft.engine.groups.specs import create_limit
from cloudgraft.engine.machines.identity import Identity
from cloudgraft.sdk.driver import MachineState
from cloudgraft.sdk.errors import CloudgraftError, PreconditionError, UnavailableError
from cloudgraft.torture.journal_view import JournalView, OwnJournal, read_journal
from cloudgraft.torture.judge import Finding, Judge, Listing, Rule, is_ours, why_not_at_rest
from cloudgraft.torture.leftovers import Mark, last_create
from cloudgraft.torture.load import BrokenPromise, Load
from cloudgraft.torture.moments import Coverage, Moments, patience, undisturbed
from cloudgraft.torture.outside import OutsideDriver, started
from cloudgraft.torture.plan import Bounds, Kill, kills
from cloudgraft.torture.private_config import CLUSTER_PREFIX, Paths
from cloudgraft.torture.refusals import list_refusals, traits_refusals
from cloudgraft.torture.report import Outline, Report, Step
from cloudgraft.torture.server_process import LogLine, ServerProcess
from cloudgraft.torture.servers import Servers, connect, last_log, until_served

_LOOK_AGAIN: Final = 0.1  # seconds
_HISTORY: Final = 15  # lines that a report shows
_LOUD: Final = ("warning", "error", "critical")


class RefusedError(PreconditionError):
    """The group may not be tortured. The message has all reasons."""


class _Violated(Exception):  # noqa: N818 - what happened, not what went wrong
    """A violation was found, and is in the report: the run ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run."""

    user: Config  # the user's own configuration
    private: Config  # the derived one
    group: NodeGroupConfig
    own: OwnJournal
    identity: Identity
    paths: Paths
    bounds: Bounds
    seed: int
    patience: float  # seconds for a boot or a deletion
    yes_use: str = ""
    # Starts a server that waits for its `begin`; the argument is Kill.with_children.
    start: Callable[[bool], Awaitable[ServerProcess]]


class Run:
    """One run, from the first list to the last."""

    def __init__(self, job: Job, on_step: Callable[[Step], None]) -> None:
        self.report = Report(
            group=job.group.id,
            cluster=job.identity.cluster,
            cluster_id=job.identity.cluster_id,
            seed=job.seed,
            directory=job.paths.directory,
            planned=job.bounds.kills,
        )
        self._job = job
        self._on_step = on_step
        self._load = Load(job.group.id, job.bounds, job.seed, self._note)
        self._moments = Moments(self._load.change_begins)
        self._coverage = Coverage(job.bounds.kills)
        self._history: deque[str] = deque(maxlen=_HISTORY)
        self._phase = "checking"
        self._alive = 0
        self._began = time.monotonic()
        self._deadline = self._began + 60 * job.bounds.minutes
        self._servers = Servers(job.start, self._on_line)
        self._has_served = False
        self._create_limit = 0.0  # seconds

    async def run(self, agree: Callable[[Outline], bool]) -> Report:
        """Checks, asks, and runs. Raises RefusedError, or CloudgraftError when nothing was begun.

        When it is cancelled, it deletes what it made; the report says what is left.
        """
        declared = desired_state(self._job.private).clouds[self._job.group.cloud]
        settings = declared.settings
        longest = max(settings.list_timeout, settings.delete_timeout).total_seconds()
        async with started(declared.make, longest) as outside:
            listing = await outside.listed()
            self._refuse(outside, listing)
            # A create of unknown outcome is settled after createTimeout and list_delay, if its machine is not wanted.
            self._create_limit = create_limit(settings, outside.traits)
            settle = self._job.patience + outside.traits.list_delay.total_seconds() + self._create_limit
            if not agree(await self._outline(outside, listing, settle)):
                raise RefusedError("nothing was done")
            self._began = time.monotonic()
            self._deadline = self._began + 60 * self._job.bounds.minutes
            foreign = {
                machine.machine_id: machine
                for machine in listing.machines
                # Others may be tested at the same time.
                if not machine.name.startswith((CLUSTER_PREFIX, "conformance-kit1"))
                and machine.state is not MachineState.DELETING
            }
            judge = Judge(self._job.identity, outside.traits, foreign, self._job.patience)
            every = settings.observe_every.total_seconds()
            mark = Mark(self._job.paths)
            try:
                await self._judged(_Stage(outside, judge, every, settle))
            finally:
                self.report.machines = sum(len(ids) for ids in judge.ids.values())
                try:
                    await self._clean_up(outside)
                finally:
                    mark.close(is_clean=self.report.is_clean)
        return self.report

    def _refuse(self, outside: OutsideDriver, listing: Listing) -> None:
        job = self._job
        reasons = [
            *traits_refusals(outside.traits, job.own, job.group, job.yes_use),
            *list_refusals(listing.machines, job.user, job.own, job.group),
        ]
        if reasons:
            raise RefusedError("\n".join(reasons))

    async def _outline(self, outside: OutsideDriver, listing: Listing, settle: float) -> Outline:
        job, price = self._job, self._job.group.price
        known = f"{price.hourly} {price.currency}" if price else (await outside.prices()).get(job.group.shape, "")
        return Outline(
            group=job.group.id,
            cloud=job.group.cloud,
            driver=job.private.clouds[job.group.cloud].driver,
            cluster=job.identity.cluster,
            machines=job.bounds.machines,
            creates=job.bounds.creates,
            kills=job.bounds.kills,
            minutes=job.bounds.minutes,
            settle_seconds=settle,
            foreign=len(listing.machines),
            hourly=known,
        )

    # -- phases --------------------------------------------------------------------------------------------------------

    async def _judged(self, stage: _Stage) -> None:
        """Runs all phases beside the watch; the first violation ends them."""
        watching, phases = asyncio.create_task(self._watch(stage)), asyncio.create_task(self._phases(stage))
        try:
            await asyncio.wait({watching, phases}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (watching, phases):
                task.cancel()
            ended = await asyncio.gather(watching, phases, return_exceptions=True)
        for error in ended:
            if isinstance(error, CloudgraftError):
                self.report.trouble = error.message
                self._note(f"ended: {error.message}")
            elif isinstance(error, Exception) and not isinstance(error, _Violated):
                raise error
        self.report.history = tuple(self._history)

    async def _phases(self, stage: _Stage) -> None:
        for kill in kills(self._job.bounds, self._job.seed):
            if time.monotonic() >= self._deadline:
                self._note(f"the time is up after {self.report.kills_done} kills")
                break
            await self._life(kill, stage.judge.delay)
        provider = await self._last_life()
        try:
            await self._undisturbed(stage, provider)
            self._phase = "settling"
            await self._settle(stage, provider)
            self._check_machines(stage)
            self._phase = "shrinking"
            await self._shrink(stage, provider)
            self.report.trouble = self._coverage.why_too_thin(sum(map(len, stage.judge.ids.values())))
        finally:
            await provider.close()

    async def _life(self, kill: Kill, list_delay: float) -> None:
        """Starts the server, lets the load run, and kills it."""
        self._phase = "killing"
        self._moments.begin_life()
        server = await self._servers.begin(with_children=kill.with_children)
        began = time.monotonic()
        under_load, is_killed = asyncio.Event(), False
        working = asyncio.create_task(self._work(server, under_load, self._job.bounds.kills - kill.number))
        waiting = asyncio.create_task(
            self._moments.reached(kill, under_load, lambda: self._time_for(kill, list_delay=list_delay))
        )
        ending = asyncio.create_task(server.ended())
        try:
            done, _ = await asyncio.wait({working, waiting, ending}, return_when=asyncio.FIRST_COMPLETED)
            if working in done and waiting not in done and ending not in done:
                working.result()  # raises what it found
                await asyncio.wait({waiting, ending}, return_when=asyncio.FIRST_COMPLETED)
            if ending.done() and not waiting.done():
                raise self._ended_by_itself(ending.result())
            has_come, moment = self._moments.came(kill, is_changing=self._load.is_changing)
            server.kill()
            self._note(f"kill -9 {moment.value}{', with its children' if kill.with_children else ''}")
            await self._servers.killed(server)
            is_killed = True
        finally:
            for task in (working, waiting, ending):
                task.cancel()
            ended = await asyncio.gather(working, waiting, ending, return_exceptions=True)
            if is_killed:  # else it goes on, and is stopped in the usual way: its calls may end
                await self._servers.bury(server, at_once=kill.with_children)
        if isinstance(ended[0], BrokenPromise | CloudgraftError):
            raise self._found(ended[0]) from ended[0]
        self._coverage.add(kill, has_come=has_come)
        self.report.kills = dict(Counter(self.report.kills) + Counter([moment.value]))
        seconds = time.monotonic() - began
        self._step(f"kill {kill.number} of {self._job.bounds.kills}, {moment.value}, after {seconds:.1f} s")

    def _time_for(self, kill: Kill, *, list_delay: float) -> float:
        """How long this kill may wait for its moment."""
        return patience(
            list_delay=list_delay,
            create_limit=self._create_limit,
            seconds_left=self._deadline - time.monotonic(),
            kills_left=self._job.bounds.kills - kill.number + 1,
        )

    async def _work(self, server: ServerProcess, under_load: asyncio.Event, kills_left: int) -> None:
        began = time.monotonic()
        await server.serving.wait()
        self._has_served = True
        provider = connect(self._job.paths)
        try:
            await until_served(provider, self._job.group.id, self._job.paths, self._job.patience)
            self.report.restart_seconds.append(time.monotonic() - began)
            await self._servers.prepare(with_children=self._next_with_children())
            under_load.set()
            await self._load.run(provider, self._names, kills_left)
        except BrokenPromise as broken:
            raise self._found(broken) from broken
        finally:
            await provider.close()

    def _next_with_children(self) -> bool:
        upcoming = list(kills(self._job.bounds, self._job.seed))[self.report.kills_done + 1 :]
        return upcoming[0].with_children if upcoming else True

    async def _last_life(self) -> RemoteProvider:
        server = await self._servers.begin(with_children=True)
        ending, serving = asyncio.create_task(server.ended()), asyncio.create_task(server.serving.wait())
        try:
            await asyncio.wait({ending, serving}, return_when=asyncio.FIRST_COMPLETED, timeout=self._job.patience)
            if ending.done():
                raise self._ended_by_itself(ending.result())
        finally:
            ending.cancel()
            serving.cancel()
        provider = connect(self._job.paths)
        await until_served(provider, self._job.group.id, self._job.paths, self._job.patience)
        return provider

    async def _undisturbed(self, stage: _Stage, provider: RemoteProvider) -> None:
        """Lets the load run once without a kill: only then is every call answered, and each error of a driver seen."""
        self._phase = "ordering"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(undisturbed(stage.judge.delay)):
                try:
                    await self._load.run(provider, self._names, 0)
                except BrokenPromise as broken:
                    raise self._found(broken) from broken

    async def _settle(self, stage: _Stage, provider: RemoteProvider) -> None:
        """Waits until server and cloud agree, and every order is settled."""
        give_up_at = time.monotonic() + stage.settle
        while True:
            seen = await self._look(provider)
            if seen.failed:
                await self._load.delete(provider, seen, sorted(seen.failed))
            why, stuck = await self._compare(stage)
            if not why:
                return
            if time.monotonic() >= give_up_at:
                rule = Rule.DELETED if stuck else Rule.SETTLED
                raise self._found(Finding(rule=rule, what=f"{stage.settle:.0f} s after the last kill: {why}"))
            await asyncio.sleep(max(_LOOK_AGAIN, stage.every / 2))

    async def _compare(self, stage: _Stage) -> tuple[str, bool]:
        """What differs between server and cloud, and whether only deletions are under way."""
        listing = await stage.outside.listed()
        journal = await asyncio.to_thread(read_journal, self._job.paths.journal)
        if journal is None:
            raise UnavailableError("the journal of the run cannot be read")
        self._judge(stage, listing, journal)
        why = why_not_at_rest(listing, journal, self._job.identity)
        moving = {record.state.value for record in journal.machines.values()} & {"requested", "creating", "booting"}
        return why, not moving and "is deleting" in why

    def _check_machines(self, stage: _Stage) -> None:
        """A run in which the cloud made nothing proves nothing."""
        if any(stage.judge.ids.values()):
            return
        raise UnavailableError(f"the cloud made no machine at all, so nothing could be judged; {self._last_failure()}")

    def _last_failure(self) -> str:
        journal = read_journal(self._job.paths.journal)
        errors = [record.error for record in journal.machines.values() if record.error] if journal else []
        if errors:
            return f"the last error was {errors[-1].code}: {errors[-1].message}"
        return f"see {self._job.paths.log}"

    async def _shrink(self, stage: _Stage, provider: RemoteProvider) -> None:
        """Deletes every machine through the server, and waits until the cloud has none."""
        give_up_at = time.monotonic() + stage.settle
        while True:
            seen = await self._look(provider)
            if seen.wanted:
                await self._load.delete(provider, seen, sorted(seen.wanted))
            why, _ = await self._compare(stage)
            listing = await stage.outside.listed()
            left = [machine for machine in listing.machines if is_ours(machine, self._job.identity)]
            if not seen.instances and not left and not why:
                return
            if time.monotonic() >= give_up_at:
                names = ", ".join(f"{machine.name} ({machine.machine_id}, {machine.state.value})" for machine in left)
                what = f"{stage.settle:.0f} s after all machines were deleted, the cloud still has: {names or why}"
                raise self._found(Finding(rule=Rule.DELETED, what=what))
            await asyncio.sleep(max(_LOOK_AGAIN, stage.every / 2))

    async def _look(self, provider: RemoteProvider) -> Any:
        try:
            return await self._load.look(provider, self._names)
        except BrokenPromise as broken:
            raise self._found(broken) from broken

    # -- judging -------------------------------------------------------------------------------------------------------

    async def _watch(self, stage: _Stage) -> None:
        """Lists the cloud all the time, and judges each list. A cloud that does not answer is waited for."""
        answered = time.monotonic()
        while True:
            began = time.monotonic()
            try:
                listing = await stage.outside.listed()
            except UnavailableError as error:
                self._note(error.message)
                if began > answered + self._job.patience:
                    raise
                continue
            answered = time.monotonic()
            ours = [machine for machine in listing.machines if is_ours(machine, self._job.identity)]
            self._alive, self.report.most = len(ours), max(self.report.most, len(ours))
            self.report.lists += 1
            # A journal without a server is left alone: to open it would repair what the next server has to.
            journal = None
            if self._servers.is_serving:
                journal = await asyncio.to_thread(read_journal, self._job.paths.journal)
            if journal is not None:
                self._judge(stage, listing, journal)
            self._step()
            await asyncio.sleep(max(0.0, began + stage.every - time.monotonic()))

    def _judge(self, stage: _Stage, listing: Listing, journal: JournalView) -> None:
        found = stage.judge.see(listing, journal, time.monotonic())
        for finding in found:
            self.report.findings.append(finding)
            self._note(f"{'note' if finding.is_note else 'VIOLATION'}: {finding.what}")
        if any(not finding.is_note for finding in found):
            raise _Violated

    def _found(self, problem: BrokenPromise | CloudgraftError | Finding) -> Exception:
        """Reports a violation, and returns the exception that ends the run."""
        if isinstance(problem, CloudgraftError):
            return problem
        finding = problem if isinstance(problem, Finding) else Finding(rule=Rule.PROMISE, what=str(problem))
        if finding not in self.report.findings:
            self.report.findings.append(finding)
            self._note(f"VIOLATION: {finding.what}")
        return _Violated()

    def _ended_by_itself(self, code: int) -> Exception:
        what = f"the server ended by itself with code {code}"
        if self._has_served:
            return self._found(Finding(rule=Rule.SERVER, what=what))
        return UnavailableError(f"{what}, before it could serve: {last_log(self._job.paths)}")

    async def _names(self) -> dict[str, str]:
        for _ in range(10):
            journal = await asyncio.to_thread(read_journal, self._job.paths.journal)
            if journal is not None:
                return journal.names()
            await asyncio.sleep(_LOOK_AGAIN)
        raise UnavailableError("the journal of the run cannot be read")

    # -- telling -------------------------------------------------------------------------------------------------------

    def _on_line(self, line: LogLine) -> None:
        self._moments.hear(line)
        if line.get("level") in _LOUD:
            self._note(f"server: {line.get('event')} {line.get('machine', '')}".rstrip())

    def _note(self, text: str) -> None:
        line = f"{time.monotonic() - self._began:7.2f} s  {text}"
        self._history.append(line)
        with contextlib.suppress(OSError), self._job.paths.history.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def _step(self, line: str = "") -> None:
        self._on_step(
            Step(
                phase=self._phase,
                kills=self.report.kills_done,
                planned=self._job.bounds.kills,
                alive=self._alive,
                ordered=self._load.ordered,
                seconds_left=max(0.0, self._deadline - time.monotonic()),
                line=line,
            )
        )

    # -- cleaning up ---------------------------------------------------------------------------------------------------

    async def _clean_up(self, outside: OutsideDriver) -> None:
        """Ends all servers, deletes all machines of the run, and says what is left."""
        self._phase = "cleaning up"
        self.report.ordered = self._load.ordered
        await self._servers.stop()
        try:
            left = await outside.delete_all(
                self._job.identity,
                since=await asyncio.to_thread(last_create, self._job.paths, self._create_limit),
                patience=self._job.patience,
                on_step=self._on_cleaning,
            )
            self.report.left_behind = tuple(left)
            self.report.is_clean = not left
        except CloudgraftError as error:
            self.report.cleanup_trouble = error.message
        self.report.seconds = time.monotonic() - self._began

    def _on_cleaning(self, alive: int) -> None:
        self._alive = alive
        self._step()


@dataclass(frozen=True, slots=True)
class _Stage:
    """What the phases share."""

    outside: OutsideDriver
    judge: Judge
    every: float  # seconds between two lists
    settle: float  # seconds until server and cloud must agree
