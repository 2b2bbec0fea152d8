"""Runs scenarios with releases, and says how each of them ended."""

from __future__ import annotations

import enum
import time
import traceback
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from e2e.build import CannotBuildError, Tell, build_all
from e2e.control_plane import ControlPlane, control_plane
from e2e.modules import ControlPlaneVersion, Release
from e2e.processes import ProgramError
from e2e.scenarios import Scenario
from e2e.stage import stage

__all__ = ["Outcome", "Result", "Runner"]


class Outcome(enum.StrEnum):
    """How it ended. Only PASSED is good."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One scenario with one release."""

    release: str
    scenario: int
    control_plane: str
    outcome: Outcome
    seconds: float = 0.0
    message: str = ""


class Runner:
    """One control plane for everything, until something fails: then a new one for what comes after it."""

    def __init__(
        self, version: ControlPlaneVersion, directory: Path, tell: Tell, *, given: Mapping[str, Path] | None = None
    ) -> None:
        """``given`` are autoscalers that are not built, by release."""
        self._version = version
        self._directory = directory
        self._tell = tell
        self._given = given or {}
        self._cannot: dict[str, str] = {}  # why something cannot be built
        self._count = 0
        self._plane: ControlPlane | None = None
        self._stack = ExitStack()

    def run_one(self, release: Release, scenario: Scenario) -> Result:
        """Runs one, and tells how it ended. What cannot be built is not run, and why is told once."""
        try:
            planes = self._binaries(self._version)
            given = self._given.get(release.name)
            binary = given or self._binaries(release)["cluster-autoscaler"]
        except CannotBuildError as error:
            return self._result(release, scenario, Outcome.NOT_RUN, message=str(error))
        if why := scenario.missing():
            self._tell(f"scenario {scenario.number} is not run: {why}")
            return self._result(release, scenario, Outcome.NOT_RUN, message=why)
        result = self._play(planes, binary, release, scenario)
        took = f" ({result.seconds:.0f} s)" if result.seconds else ""
        why = f": {result.message}" if result.message else ""
        what = f"{release.name} on {self._version.name}: scenario {scenario.number}"
        self._tell(f"{what} {result.outcome.value}{took}{why}")
        return result

    def close(self) -> None:
        """Stops the control plane."""
        self._plane = None
        self._stack.close()

    def _binaries(self, wanted: Release | ControlPlaneVersion) -> Mapping[str, Path]:
        """What cannot be had is tried once."""
        key = repr(wanted)
        if key in self._cannot:
            raise CannotBuildError(self._cannot[key])
        try:
            return build_all(self._tell, wanted)
        except CannotBuildError as error:
            self._cannot[key] = str(error)
            self._tell(f"not run: {error}")
            raise

    def _play(self, planes: Mapping[str, Path], binary: Path, release: Release, scenario: Scenario) -> Result:
        self._count += 1
        directory = self._directory / f"{release.name}-{scenario.number:02}"
        begin = time.monotonic()
        try:
            plane = self._running_plane(planes)
            with stage(
                plane,
                release=release,
                binary=binary,
                directory=directory,
                namespace=f"scenario-{self._count}",
            ) as world:
                scenario.run(world)
        except Exception as error:  # noqa: BLE001 - a mistake in a scenario must not hide how the others end
            self.close()
            message = _explained(error, directory)
            return self._result(release, scenario, Outcome.FAILED, seconds=time.monotonic() - begin, message=message)
        return self._result(release, scenario, Outcome.PASSED, seconds=time.monotonic() - begin)

    def _running_plane(self, binaries: Mapping[str, Path]) -> ControlPlane:
        if self._plane is None:
            where = self._directory / f"control-plane-{self._count}"
            self._tell(f"starting a control plane {self._version.kubernetes}")
            self._plane = self._stack.enter_context(control_plane(binaries, where))
        return self._plane

    def _result(
        self, release: Release, scenario: Scenario, outcome: Outcome, *, seconds: float = 0.0, message: str = ""
    ) -> Result:
        return Result(
            release=release.name,
            scenario=scenario.number,
            control_plane=self._version.name,
            outcome=outcome,
            seconds=seconds,
            message=message,
        )


def _explained(error: Exception, directory: Path) -> str:
    """One line with the place in the scenario; everything else is in a file beside the logs."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "failure.txt").write_text("".join(traceback.format_exception(error)), "utf-8")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/scenarios/" in frame.filename]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}: " if frames else ""
    kind = "" if isinstance(error, AssertionError | ProgramError) else f"{type(error).__name__}: "
    return f"{place}{kind}{str(error) or 'an assertion does not hold'}; see {directory}"
