"""A scripted life of the process under test, with a crash in it, and what must hold afterwards."""

from __future__ import annotations

import copy
import random
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cloudgraft.torture.promises import Promise
from tests.crash.lasting_cloud import LastingCloud
from tests.crash.points import Point
from tests.crash.process import Crashed, Process, Subject
from tests.crash.promises import Autoscaler, View
from tests.crash.setting import Order, Variant
from tests.crash.verdict import Judge

RECOVERY = "recovery"  # the phase that a process is in after a crash, until the script goes on
_PATIENCE = 60.0  # seconds; what has not happened by then never will
_LOOK_EVERY = 0.01


def _calm(life: Life) -> None:
    life.sky.chaos()


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of the script. Every step can be begun again after a crash: it makes what is missing, and waits."""

    name: str
    begin: Callable[[Life], None] = _calm  # what happens in the cloud, once
    steps: Sequence[Callable[[Life], None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where to crash."""

    variant: Variant = Variant()  # noqa: RUF009 - a value, frozen
    program: Callable[[Order], Subject] = Process  # what is under test
    point: Point | None = None
    second: Point | None = None  # in the phase RECOVERY
    random_kills: int = 0  # at any time at all, that often
    kill_after: float = 0.25  # seconds after its start, on average
    seed: int = 0
    fault: str = ""  # a bug to plant
    is_whole: bool = False  # go on to the end of the script after the crash

    def __str__(self) -> str:
        where = f"killed at {self.random_kills} random times, seed {self.seed}" if self.random_kills else self.point
        return f"{self.variant}; {where}" + (f"; then {self.second}" if self.second else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """How far a life has come: from here on it can be lived again and again. The process is not running."""

    directory: Path | None = None  # with the journal and the ledger; None before the first start
    config: int = 0  # which configuration file is in place
    promises: dict[str, Promise] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)  # what the script notes for itself


class Life:
    """The process, the cloud and the autoscaler of one life, in a directory of their own."""

    def __init__(self, directory: Path, plan: Plan, sky: LastingCloud, stage: Stage) -> None:
        self.sky = sky
        self.config = stage.config
        self.memory = copy.deepcopy(stage.memory)
        self.autoscaler = Autoscaler(self.ask, copy.deepcopy(stage.promises))
        self.crashes = 0
        self.was_exact = True  # it was killed at the very point that the plan names
        self.passed: dict[Point, int] = {}
        self._plan = plan
        self._directory = directory
        self._judge = Judge(sky, plan.variant, directory / "journal.db")
        self._process: Subject | None = None
        self._killer: threading.Timer | None = None
        self._kills_left = plan.random_kills
        self._dice = random.Random(plan.seed)
        self._phase = ""

    @property
    def stage(self) -> Stage:
        """Where it has come to."""
        return Stage(
            directory=self._directory, config=self.config, promises=self.autoscaler.promises, memory=self.memory
        )

    # -- the script ----------------------------------------------------------------------------------------------------

    def live(self, script: Sequence[Phase]) -> None:
        """Goes through the script, crashes where the plan says, and judges; raises AssertionError."""
        try:
            for phase in script:
                self._go_through(phase)
                if self.crashes and not self._plan.is_whole and not self._plan.random_kills:
                    break
            self._end_well()
        except BaseException:
            if self._process is not None:
                self._process.abandon()
            raise
        finally:
            self._spare()

    def _go_through(self, phase: Phase) -> None:
        self._phase = phase.name
        phase.begin(self)
        self._surviving(lambda: self.ask("enter", phase.name))
        for step in phase.steps:
            self._surviving(lambda step=step: step(self))  # type: ignore[misc]  # mypy knows no default of a lambda
        point = self._plan.point
        if point is not None and point.phase == phase.name and not self.crashes:
            # Another order of events has left that moment out; then it is killed here, for a crash there must be.
            self.was_exact = False
            self._living().kill()
            self._surviving(lambda: phase.steps[-1](self))
        self._surviving(self._compare)

    def _surviving(self, step: Callable[[], None]) -> None:
        while True:
            try:
                if self._process is None:
                    self._start()
                step()
            except Crashed:
                self._bury()
            else:
                return

    # -- the process ---------------------------------------------------------------------------------------------------

    def ask(self, name: str, *arguments: object) -> Any:
        """Asks the process."""
        return self._living().ask(name, *arguments)

    def until(self, holds: Callable[[View], bool]) -> View:
        """Looks, as the autoscaler does, until it sees that."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            view = self.autoscaler.look()
            if holds(view):
                return view
            if time.monotonic() > deadline:
                raise AssertionError(f"did not happen in {self._phase}: {view}")
            time.sleep(_LOOK_EVERY)

    def _living(self) -> Subject:
        if self._process is None:
            raise Crashed
        return self._process

    def _start(self) -> None:
        points = (self._plan.point, self._plan.second)
        self._process = self._plan.program(
            Order(
                directory=self._directory,
                url=self.sky.url,
                variant=self._plan.variant,
                config=self.config,
                phase=RECOVERY if self.crashes else self._phase,
                point=points[self.crashes] if self.crashes < len(points) else None,
                fault=self._plan.fault,
            )
        )
        if self._kills_left > 0:
            self._kills_left -= 1
            self._killer = threading.Timer(self._dice.expovariate(1 / self._plan.kill_after), self._process.kill)
            self._killer.start()
        self._process.wait_until_up()
        self.autoscaler.look_closely()  # what was promised holds from the first answer on

    def _bury(self) -> None:
        self._spare()
        process, self._process = self._living(), None
        process.bury()
        self.crashes += 1
        self._judge.at_crash()

    # -- the verdict ---------------------------------------------------------------------------------------------------

    def _compare(self) -> None:
        """Lets it settle, and compares the cloud's ledger with the journal."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            contents, differing = self.ask("journal")
            why = self._judge.why_not_at_rest(contents, differing)
            if not why:
                break
            if time.monotonic() > deadline:
                raise AssertionError(f"did not settle: {why}")
            time.sleep(_LOOK_EVERY)
        told = [*self.ask("told", "double"), *self.ask("told", "returned")]
        self.autoscaler.look_closely()
        self._judge.at_rest(contents, self.autoscaler.asked_to_delete(), told)

    def _end_well(self) -> None:
        self._kills_left = 0
        self._spare()
        self._surviving(self._note_points)
        process, self._process = self._living(), None
        process.stop()

    def _spare(self) -> None:
        """Nobody kills the process by chance from here on."""
        if self._killer is not None:
            self._killer.cancel()
            self._killer.join()

    def _note_points(self) -> None:
        self.passed = self.ask("passed")


def lived(directory: Path, plan: Plan, script: Sequence[Phase], stage: Stage | None = None) -> Life:
    """A life from a stage on, or from the beginning; raises AssertionError when it was not a good one."""
    begun = stage or Stage()
    if begun.directory is None:
        directory.mkdir(parents=True)
    else:
        shutil.copytree(begun.directory, directory)
    with LastingCloud(directory, plan.variant) as sky:
        life = Life(directory, plan, sky, begun)
        life.live(script)
    return life
