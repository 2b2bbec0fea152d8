"""Child processes that are stopped for certain, each with a log of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

__all__ = ["Program", "ProgramError", "free_ports"]

_SECONDS_TO_STOP: Final = 10.0


class ProgramError(Exception):
    """A program did not do what it is there for. The text names its log."""


def free_ports(count: int) -> list[int]:
    """Ports of the loopback device that nobody has at the moment."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


class Program:
    """One program, which may be killed and started again; its log goes on in the same file."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        whole_group: bool = False,
    ) -> None:
        self.name = name
        self.log = log
        self._whole_group = whole_group  # whether SIGTERM is for its children too, as behind `unshare`
        self._command = [str(word) for word in command]
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it; returns at once."""
        if self.is_running:
            raise ProgramError(f"{self.name} is running already")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*_dies_with_us(), *self._command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.log.parent,
                env=self._environment,
                start_new_session=True,  # a Ctrl-C is for us; they are stopped in order
            )

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def process_id(self) -> int:
        """Of the process that was started last; 0 when it was stopped, or never started."""
        return self._process.pid if self._process is not None else 0

    @property
    def exit_code(self) -> int | None:
        """How it ended by itself, or after it was asked to; None while it runs, and after a kill."""
        return self._process.poll() if self._process is not None else None

    def check(self) -> None:
        """Raises ProgramError, with the end of its log, when it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            code = self._process.returncode
            raise ProgramError(f"{self.name} ended with code {code}; the end of {self.log}:\n{self.tail()}")

    def ask_to_stop(self) -> None:
        """Sends SIGTERM, and does not wait."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Asks it to stop, and kills it when it does not. Nothing happens when it is not running."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            if self._whole_group:
                os.killpg(process.pid, signal.SIGTERM)
            else:
                process.send_signal(signal.SIGTERM)
        try:
            process.wait(_SECONDS_TO_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """Ends it as kill -9 does."""
        process, self._process = self._process, None
        if process is None:
            raise ProgramError(f"{self.name} is not running")
        process.kill()
        process.wait()

    def tail(self, lines: int = 15) -> str:
        """The end of its log."""
        text = self.log.read_text("utf-8", "replace") if self.log.exists() else ""
        return "\n".join(f"  | {line[:400]}" for line in text.splitlines()[-lines:])


def _dies_with_us() -> Sequence[str]:
    """On Linux: a child is killed when this process is, however that ends."""
    return ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()
