"""Engines and simulated clouds as child processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

from bench.engine_fleet import Seed
from bench.processes import ServerProcess

_ROOT = Path(__file__).resolve().parent.parent
_SECONDS_TO_STOP = 30
_LEAST = 19  # priority


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProcess:
    """An engine that serves."""

    server: ServerProcess
    seconds_to_ready: float  # in the process itself: from the opening of its journal to the opening of its port
    seconds_of_process: float  # from the start of the program
    process: Popen[str]

    def report(self) -> dict[str, Any]:
        """What it has done so far, and the longest stalls since the last report."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return _line(self.process)


@contextmanager
def engine_process(kind: str, seed: Seed, *options: str) -> Iterator[EngineProcess]:
    """An engine on that journal; see :mod:`bench.engine_server` for the options."""
    words = ("--journal", str(seed.journal), "--groups", str(seed.groups), *options)
    began = time.perf_counter()
    with _child("bench.engine_server", *words, stdin=PIPE, stdout=PIPE) as process:
        told = _line(process)
        yield EngineProcess(
            server=ServerProcess(kind, told["address"], process.pid),
            seconds_to_ready=told["seconds"],
            seconds_of_process=time.perf_counter() - began,
            process=process,
        )
        assert process.stdin is not None
        process.stdin.close()
        process.wait(_SECONDS_TO_STOP)


@contextmanager
def cloud_process(seed: Seed) -> Iterator[tuple[str, int]]:
    """A `cloudgraft simcloud` that has the machines of the seed; its URL and its process id."""
    times = ("--boot-time", "1s", "--delete-time", "1s")
    words = ("--db", str(seed.ledger), "--listen", "127.0.0.1:0", "--log-format", "json", *times)
    with _child("cloudgraft.cli", "simcloud", *words, stdin=DEVNULL, stderr=PIPE) as process:
        assert process.stderr is not None
        told = (json.loads(line) for line in process.stderr)
        address = next((line["address"] for line in told if line["event"] == "serving"), None)
        if address is None:
            raise RuntimeError("the simulated cloud did not start")
        # In truth a cloud is elsewhere: it must not take the processor away from who is measured.
        os.setpriority(os.PRIO_PROCESS, process.pid, _LEAST)
        yield f"http://{address}", process.pid


@contextmanager
def _child(*words: str, stdin: int, stdout: int | None = None, stderr: int | None = None) -> Iterator[Popen[str]]:
    command = [sys.executable, "-m", *words]
    with subprocess.Popen(command, cwd=_ROOT, text=True, stdin=stdin, stdout=stdout, stderr=stderr) as process:
        try:
            yield process
        finally:
            process.kill()


def _line(process: Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("the engine's process ended: its own message is above")
    told: dict[str, Any] = json.loads(line)
    return told
