"""Runs steps on one Python, keeps their output, and says what came of each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from e2e.command_line import tell
from tests.pythons.outcome import demo_fault, figures, skips
from tests.pythons.room import end, run_logged

__all__ = ["DEMO", "TEST", "Run", "StepFailedError"]

DEMO: Final = "demo"
TEST: Final = "test"
# Ten times what an idle machine takes: they are for what hangs.
_SECONDS: Final = 1800.0
_SECONDS_OF_TESTS: Final = 3600.0


class StepFailedError(Exception):
    """A step failed, and what follows makes no sense without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One Python, which parts of it are wanted, and what has been seen of it so far."""

    name: str
    parts: Sequence[str]
    directory: Path  # for its files, while it runs
    logs: Path
    only_tests: str = ""  # for pytest, such as the name of a file; else all of them
    lines: list[str] = field(default_factory=list)  # for the summary
    failures: list[str] = field(default_factory=list)

    def step(self, what: str, command: Sequence[str]) -> str:
        """Runs what others need. Returns what it prints; raises StepFailedError."""
        code, printed, log = self._run(what, command, _SECONDS)
        if code != 0:
            raise StepFailedError(self._fail(what, code, log))
        return printed

    def demo(self, what: str, command: Sequence[str]) -> None:
        """Runs the demo, and judges it."""
        began = time.monotonic()
        code, printed, log = self._run(what, command, _SECONDS)
        if code != 0 or (fault := demo_fault(printed)):
            self._fail(what, code, log, fault if code == 0 else "")
        else:
            self.lines.append(f"{what}: passed in {time.monotonic() - began:.0f} s")

    def tests(self, what: str, command: Sequence[str]) -> None:
        """Runs the tests, and judges them."""
        code, printed, log = self._run(what, command, _SECONDS_OF_TESTS)
        counted = figures(printed)
        if code != 0 or counted is None or not counted.is_passed:
            self._fail(what, code, log, str(counted or "no summary"))
        else:
            self.lines.extend((f"{what}: {counted}", *skips(printed)))

    def _run(self, what: str, command: Sequence[str], seconds: float) -> tuple[int | None, str, Path]:
        log = self.logs / f"{self.name}-{''.join(c if c.isalnum() else '-' for c in what)}.log"
        log.unlink(missing_ok=True)
        tell(f"{self.name}: {what} ({log})")
        began = time.monotonic()

        def progress(line: str) -> None:
            tell(f"{self.name}: {what}, {(time.monotonic() - began) / 60:.0f} min: {line.strip()[-100:]}")

        code = run_logged(command, log, seconds=seconds, progress=progress)
        tell(f"{self.name}: {what} took {time.monotonic() - began:.0f} s")
        return code, log.read_text("utf-8", "replace"), log

    def _fail(self, what: str, code: int | None, log: Path, why: str = "") -> str:
        ended = "took too long" if code is None else f"ended with {code}"
        failure = f"{what}: FAILED, {ended}{f'; {why}' if why else ''} ({log})"
        self.failures.append(failure)
        print("\n".join(f"  | {line[:300]}" for line in end(log, 30).splitlines()), flush=True)
        return failure
