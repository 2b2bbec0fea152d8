"""`cloudgraft serve` as a real process, for tests."""

from __future__ import annotations

import json
import os
import queue
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

LogLine = dict[str, Any]


def _limit_files(files: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))


class ServeProcess:
    """Starts the server with a JSON log and waits until it serves."""

    def __init__(self, config: Path, *arguments: str, files: int = 0) -> None:
        """``files`` is its limit of open files, soft and hard, as by `ulimit -n`; 0: as this process has it."""
        self.config = config
        self.log: list[LogLine] = []
        self._lines: queue.Queue[LogLine | None] = queue.Queue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cloudgraft.cli", "serve", "-c", str(config), "--log-format", "json", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",  # gRPC logs what clients send, as it came
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            preexec_fn=(lambda: _limit_files(files)) if files else None,  # noqa: PLW1509 - one call, no locks
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def address(self) -> str:
        return str(self.wait_for(lambda line: line.get("event") == "serving")["address"])

    def wait_for(self, matches: Callable[[LogLine], bool], seconds: float = 30.0) -> LogLine:
        """The first line of the log, also of what was logged already, that matches."""
        for line in self.log:
            if matches(line):
                return line
        deadline = time.monotonic() + seconds
        while True:
            new = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            if new is None:
                raise AssertionError(f"the server ended with {self._process.wait()}: {self.log}")
            self.log.append(new)
            if matches(new):
                return new

    def count(self, event: str) -> int:
        """How often something was logged so far."""
        while not self._lines.empty():
            new = self._lines.get()
            if new is not None:
                self.log.append(new)
        return sum(line.get("event") == event for line in self.log)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float = 30.0) -> int:
        code = self._process.wait(seconds)
        self._reader.join(seconds)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.send(signal.SIGTERM)
        self.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for text in self._process.stderr:
            try:
                self._lines.put(json.loads(text))
            except ValueError:
                self._lines.put({"event": "not json", "text": text})
        self._lines.put(None)


@contextmanager
def serving_file(path: Path, text: str, *arguments: str) -> Iterator[ServeProcess]:
    path.write_text(text)
    with ServeProcess(path, *arguments) as process:
        assert process.address
        yield process
