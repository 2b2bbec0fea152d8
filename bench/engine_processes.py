"""Engines and simulated clouds as child processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

from bench.engine_fleet import Seed
from bench.processes import ServerProcess

__all__ = ["EngineProcess", "cloud_process", "engine_process"]

_ROOT = Path(__file__).resolve().parent.parent
_SECONDS_TO_STOP = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProcess:
    """An engine that serves."""

    server: ServerProcess
    seconds_to_ready: float  # in the process itself: from the opening of its journal to the opening of its port
    process: Popen[str]

    def report(self) -> dict[str, float]:
        """What it has done so far, and the longest stalls since the last report."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return _line(self.process)


@contextmanager
def engine_process(kind: str, seed: Seed, *options: str) -> Iterator[EngineProcess]:
    """An engine on that journal; see :mod:`bench.engine_server` for the options."""
    words = ("--journal", str(seed.journal), "--groups", str(seed.groups), *options)
    with _child(["-m", "bench.engine_server", *words], stdin=PIPE, stdout=PIPE) as process:
        told = _line(process)
        server = ServerProcess(kind, told["address"], process.pid)
        yield EngineProcess(server=server, seconds_to_ready=told["seconds"], process=process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(_SECONDS_TO_STOP)


@contextmanager
def cloud_process(seed: Seed) -> Iterator[str]:
    """A `cloudgraft simcloud` that has the machines of the seed; its URL."""
    times = ("--boot-time", "1s", "--delete-time", "1s")
    words = ("--db", str(seed.ledger), "--listen", "127.0.0.1:0", "--log-format", "json", *times)
    with _child(["-m", "cloudgraft.cli", "simcloud", *words], stdin=DEVNULL, stderr=PIPE) as process:
        assert process.stderr is not None
        for line in process.stderr:
            told = json.loads(line)
            if told["event"] == "serving":
                yield f"http://{told['address']}"
                return
        raise RuntimeError("the simulated cloud did not start")


@contextmanager
def _child(words: list[str], **pipes: int) -> Iterator[Popen[str]]:
    with subprocess.Popen([sys.executable, *words], cwd=_ROOT, text=True, **pipes) as process:  # type: ignore[call-overload]  # which pipes, the callers know
        try:
            yield process
        finally:
            process.kill()


def _line(process: Popen[str]) -> dict[str, object]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("the engine's process ended: its own message is above")
    told: dict[str, object] = json.loads(line)
    return told
