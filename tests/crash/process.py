"""The process under test, seen from outside: start it, ask it, find it dead."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from tests.crash import child
from tests.crash.setting import Order

_PATIENCE = 30.0  # seconds without an answer are a fault, never a wait
# Forked from a process that has everything imported: a start then takes milliseconds, and the child is as real as any.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.crash.child", "tests.serve.child"])  # there is one such process for all tests
_ONE_AT_A_TIME = threading.Lock()  # to start a process also asks all others whether they have ended: no two at once


class Crashed(Exception):  # noqa: N818 - what happened, not what went wrong
    """The process died before it answered."""


class Subject(Protocol):
    """A process under test."""

    def wait_until_up(self) -> None:
        """Returns when it serves; Crashed when it died before."""

    def ask(self, name: str, *arguments: object) -> Any:
        """The answer; Crashed when there is none. An error that was answered is a failure of the test."""

    def kill(self) -> None:
        """kill -9, if it still runs."""

    def bury(self) -> None:
        """Waits for the end of a process that was killed, and fails when it ended in another way."""

    def stop(self) -> None:
        """Ends it in the regular way."""

    def abandon(self) -> None:
        """Gets rid of it after a failure."""


class Process:
    """One life of :mod:`tests.crash.child`, from its start to kill -9 or a stop."""

    def __init__(self, order: Order) -> None:
        """Starts it; :meth:`wait_until_up` tells whether it got that far."""
        self._pipe, theirs = _FORKS.Pipe()
        self._process = _FORKS.Process(target=child.main, args=(theirs, order), daemon=True)
        with _ONE_AT_A_TIME:
            self._process.start()
        theirs.close()

    def wait_until_up(self) -> None:
        self._receive()

    def ask(self, name: str, *arguments: object) -> Any:
        try:
            self._pipe.send((name, *arguments))
        except OSError as error:
            raise Crashed(name) from error
        kind, value = self._receive()
        if kind != "ok":
            raise AssertionError(f"{name}{arguments} was answered with {value}")
        return value

    def kill(self) -> None:
        with _ONE_AT_A_TIME:
            if self._process.is_alive():
                self._process.kill()

    def bury(self) -> None:
        code = self._ended()
        self._pipe.close()
        if code != -signal.SIGKILL:
            raise AssertionError(f"the process was not killed but ended by itself with {code}; see child.log")

    def stop(self) -> None:
        self._pipe.close()
        code = self._ended()
        if code != 0:
            self.kill()
            raise AssertionError(f"the process ended with {code} when it was stopped; see child.log")

    def abandon(self) -> None:
        self.kill()
        self._ended()
        self._pipe.close()

    def _ended(self) -> int | None:
        """Waits for its end; the exit code, or None when it goes on."""
        wait([self._process.sentinel], _PATIENCE)
        with _ONE_AT_A_TIME:
            return self._process.exitcode

    def _receive(self) -> tuple[str, Any]:
        pipe: Connection = self._pipe
        try:
            if not pipe.poll(_PATIENCE):
                raise AssertionError(f"no answer within {_PATIENCE:g} s; see child.log")
            answer: tuple[str, Any] = pipe.recv()
        except (EOFError, OSError) as error:
            raise Crashed from error
        return answer
