"""`cloudgraft` commands as processes of their own, to be signalled, stopped, killed and started again.

They are forked from a process that has everything imported. What a shell would start is tested in tests/cli; here are
many starts, and each would take more than a second of computing.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from types import TracebackType
from typing import Any, Self

from tests.serve import child

LogLine = dict[str, Any]

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.crash.child", "tests.serve.child"])  # there is one such process for all tests
_PATIENCE = 60.0  # seconds; longer is a fault, never a wait


class Command:
    """One life of a command that logs in JSON. ``target`` runs in the process: child.run, or what calls it."""

    def __init__(
        self, *arguments: object, target: Callable[..., None] = child.run, extra: tuple[object, ...] = ()
    ) -> None:
        self.log: list[LogLine] = []
        self._new: queue.Queue[LogLine | None] = queue.Queue()
        ours, theirs = _FORKS.Pipe(duplex=False)
        given = [*map(str, arguments), "--log-format", "json"]
        self._process = _FORKS.Process(target=target, args=(theirs, given, *extra), daemon=True)
        self._process.start()
        theirs.close()
        handle = os.dup(ours.fileno())
        ours.close()
        self._reader = threading.Thread(target=self._read, args=(handle,), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    # -- its log -----------------------------------------------------------------------------------------------------

    def wait_for(self, matches: Callable[[LogLine], object]) -> LogLine:
        """The first line of the log, also of what was logged already, that matches."""
        for line in self.log:
            if matches(line):
                return line
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                new = self._new.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no such line in the log: {self.log}") from None
            if new is None:
                self._new.put(None)
                raise AssertionError(f"the process ended with {self.wait()}: {self.log}")
            self.log.append(new)
            if matches(new):
                return new

    def says(self, text: str) -> LogLine:
        """The first line with that text in it, wherever."""
        return self.wait_for(lambda line: text in json.dumps(line))

    def said(self, text: str = "", *, least: str = "") -> list[LogLine]:
        """All lines so far with that text in them; ``least`` is the lowest level that counts."""
        levels = ("debug", "info", "warning", "error", "critical")
        with contextlib.suppress(queue.Empty):
            while (new := self._new.get_nowait()) is not None:
                self.log.append(new)
            self._new.put(None)
        loud = levels[levels.index(least) if least else 0 :]
        return [line for line in self.log if text in json.dumps(line) and line.get("level", "critical") in loud]

    def _read(self, handle: int) -> None:
        with os.fdopen(handle, encoding="utf-8") as lines:
            for text in lines:
                try:
                    self._new.put(json.loads(text))
                except ValueError:
                    self._new.put({"event": "not json", "text": text})
        self._new.put(None)

    # -- its end -----------------------------------------------------------------------------------------------------

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.exitcode

    def send(self, number: signal.Signals) -> None:
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            raise AssertionError(f"the process ended by itself with {self.wait()}: {self.said()}") from None

    def stop(self) -> int | None:
        """SIGTERM; the exit code."""
        self.send(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """kill -9."""
        self.send(signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL

    def wait(self) -> int | None:
        """Waits for its end; the exit code, or None when it goes on."""
        wait([self._process.sentinel], _PATIENCE)
        code = self._process.exitcode
        if code is not None:
            self._reader.join(_PATIENCE)
        return code

    def close(self) -> None:
        """Ends it if it still runs."""
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):  # it may end by itself at any time
                os.kill(self.pid, signal.SIGKILL)
            self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
