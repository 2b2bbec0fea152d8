"""One short life in a real cloud: two machines up, one down, one up, all down; killed once or twice, and judged."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import yaml

from clouds.judge import Case
from clouds.trial import document
from e2e.waiting import UnmetError, until
from tests.crash.points import Point

__all__ = ["PHASES", "RECOVERY", "Life", "Plan", "points_of"]

RECOVERY: Final = "recovery"
_SECONDS: Final = 120.0
_AT_WORK: Final = ("booting", "running")


class KilledError(Exception):
    """The process died before it answered."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where to kill."""

    number: int  # of the life: its cluster's name has it, so that lives can share a cloud
    point: Point | None = None
    second: Point | None = None  # in the phase RECOVERY

    def __str__(self) -> str:
        return f"{self.point}" + (f"; then {self.second}" if self.second else "")


class Life:
    """The process under test in a directory of its own; raises AssertionError when something was lost or doubled."""

    def __init__(self, case: Case, directory: Path, plan: Plan) -> None:
        directory.mkdir()
        self.passed: dict[Point, int] = {}
        self.kills = 0
        self._case = case
        self._plan = plan
        self._directory = directory
        self._phase = ""
        self._process: subprocess.Popen[str] | None = None
        self._prefix = f"sweep{plan.number}-"
        settings = {"observeEvery": "200ms", "backoff": {"initial": "50ms", "max": "500ms"}}
        wanted = document(case, cluster=f"sweep{plan.number}", engine=settings, most=5)
        self._config = directory / "cloudgraft.yaml"
        self._config.write_text(yaml.safe_dump(wanted), "utf-8")

    def live(self) -> None:
        """Goes through all phases, and judges after each of them."""
        try:
            for phase, size in PHASES.items():
                self._phase = phase
                self._surviving(lambda: self._ask({"ask": "enter", "phase": self._phase}))
                self._surviving(lambda size=size: self._reach(size))  # type: ignore[misc]  # mypy knows no such default
                if self._plan.point is not None and self._plan.point.phase == phase and not self.kills:
                    self._living().kill()  # that moment did not come this time; a crash there must be
                    self._surviving(lambda size=size: self._reach(size))  # type: ignore[misc]  # as above
            self._surviving(self._note)
        finally:
            self._end()

    # -- the script ----------------------------------------------------------------------------------------------------

    def _reach(self, size: int) -> None:
        """Asks for what is missing, or deletes what is too much, and waits until the cloud itself agrees."""
        until(lambda: self._look()["target"] is not None, "the group is served", seconds=_SECONDS)
        seen = self._look()
        if seen["target"] < size:
            self._ask({"ask": "grow", "delta": size - seen["target"]})
        elif seen["target"] > size:
            counted = [one for one in seen["machines"] if one["state"] not in ("deleting", "gone")]
            self._ask({"ask": "delete", "ids": [one["id"] for one in counted[size:]]})
        try:
            until(lambda: self._has(size), f"{size} machines run", seconds=_SECONDS)
        except UnmetError as error:
            raise AssertionError(f"{error}; the cloud has {self._alive()}, the engine {self._look()}") from None

    def _has(self, size: int) -> bool:
        there = [one for one in self._look()["machines"] if one["state"] != "gone"]
        running = sorted(one["name"] for one in there if one["state"] == "running")
        return len(there) == len(running) == size and self._alive() == running

    def _alive(self) -> list[str]:
        """What the cloud has of this life; one name twice is there twice."""
        return sorted(name for name in self._case.alive() if name.startswith(self._prefix))

    def _note(self) -> None:
        told = self._ask({"ask": "passed"})["passed"]
        self.passed = {Point(*point[:4]): int(point[4]) for point in told}

    # -- the process ---------------------------------------------------------------------------------------------------

    def _look(self) -> dict[str, Any]:
        return self._ask({"ask": "look"})

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        process = self._living()
        with suppress(BrokenPipeError):
            assert process.stdin is not None
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        return self._hear(process)

    def _hear(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise KilledError
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _surviving(self, step: Callable[[], object]) -> None:
        while True:
            try:
                if self._process is None:
                    self._start()
                step()
            except KilledError:
                self._bury()
            else:
                return

    def _start(self) -> None:
        points = (self._plan.point, self._plan.second)
        point = points[self.kills] if self.kills < len(points) else None
        order = {
            "driver": self._case.cloud["driver"],
            "config": str(self._config),
            "journal": str(self._directory / "journal.db"),
            "log": str(self._directory / "child.log"),
            "phase": RECOVERY if self.kills else self._phase,
            "point": dataclasses.astuple(point) if point else None,
        }
        with (self._directory / "child.err").open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "clouds.sweep.child", json.dumps(order)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._hear(self._process)

    def _living(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise KilledError
        return self._process

    def _bury(self) -> None:
        code = self._end()
        if code != -signal.SIGKILL:
            raise AssertionError(f"the process was not killed but ended with {code}; see {self._directory}/child.err")
        self.kills += 1
        names = self._alive()
        doubles = {name for name in names if names.count(name) > 1}
        assert not doubles, f"made twice: {sorted(doubles)}"

    def _end(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            code = process.wait(60.0)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        process.stdout.close()
        return code


PHASES: Final = {"two up": 2, "one down": 1, "one more up": 2, "all down": 0}


def points_of(passed: dict[Point, int], most: int) -> Sequence[Point]:
    """Every moment of a life that was seen, at most so many of one kind in one phase: lists come again and again."""
    return [
        dataclasses.replace(point, count=number)
        for point, times in sorted(passed.items())
        if point.phase in PHASES
        for number in range(1, min(times, most) + 1)
    ]
