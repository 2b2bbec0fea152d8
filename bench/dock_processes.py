"""The processes of the dock's benchmark: servers and clients, each told what to do by lines of JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

from bench.processes import ServerProcess

_ROOT = Path(__file__).resolve().parent.parent
_SECONDS_TO_STOP = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class DockProcess:
    """One that is up."""

    module: str
    first: Mapping[str, Any]  # what it told when it was up
    process: Popen[str]

    def do(self, **command: int) -> dict[str, Any]:
        """Has it do something, and waits until that is done."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return _line(self.module, self.process)

    def _known(self) -> ServerProcess:
        return ServerProcess(self.module, "", self.process.pid)

    def cpu_seconds(self) -> float:
        """The processor time that its threads have used so far; 0 where the system does not tell."""
        return self._known().cpu_seconds() or 0.0

    def resident_kib(self) -> int:
        """The memory it holds now; 0 where the system does not tell."""
        return self._known().resident_kib() or 0


@contextmanager
def dock_process(module: str, *words: str) -> Iterator[DockProcess]:
    """``python -m bench.MODULE WORDS``, from when it is up to the end of the block."""
    command = [sys.executable, "-m", f"bench.{module}", *words]
    with Popen(command, cwd=_ROOT, stdin=PIPE, stdout=PIPE, text=True) as process:
        try:
            yield DockProcess(module=module, first=_line(module, process), process=process)
            assert process.stdin is not None
            process.stdin.close()
            process.wait(_SECONDS_TO_STOP)
        finally:
            process.kill()


def _line(module: str, process: Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"the process of bench.{module} ended: its own message is above")
    told: dict[str, Any] = json.loads(line)
    return told
