"""The watchdog by itself, with real processes: whatever happens, nothing of a plugin is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cloudgraft.plugins.host import child_guard as watchdog
from tests.conditions import until
from tests.plugins.plugin_programs import python, shell
from tests.plugins.processes import Process, alive, below, in_session

SLEEP = python("import time; time.sleep(600)")
IGNORES_TERM = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print("set", flush=True)\n'
# A daemon in the old manner: two forks and a session of its own, so that neither parent nor group leads to it.
DAEMON = "import os, time\nif os.fork() == 0:\n os.setsid()\n os.fork() and os._exit(0)\ntime.sleep(600)"


class Watched:
    """A watchdog, and the end of the socket that cloudgraft would hold."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self.process = process
        self.control = control

    def first_word(self) -> str:
        return self.control.makefile().readline().strip()

    def everybody(self) -> list[Process]:
        own = alive(self.process.pid)
        return [*([own] if own else []), *below(self.process.pid)]


@contextmanager
def watched(command: list[str], *options: str) -> Iterator[Watched]:
    ours, theirs = socket.socketpair()
    argv = [sys.executable, "-I", "-S", watchdog.__file__, *options, "--", *command]
    with ours, subprocess.Popen(argv, stdin=theirs.fileno(), stdout=subprocess.PIPE, start_new_session=True) as process:
        theirs.close()
        try:
            yield Watched(process, ours)
        finally:
            process.terminate()


async def test_it_tells_the_pid_and_ends_with_the_code_of_the_plugin() -> None:
    with watched(python("import sys; sys.exit(7)")) as dog:
        assert dog.first_word().startswith("pid ")
        assert dog.process.wait(20) == 7


async def test_an_end_by_signal_is_told_as_a_shell_does() -> None:
    with watched(SLEEP) as dog:
        os.kill(int(dog.first_word().removeprefix("pid ")), signal.SIGKILL)
        assert dog.process.wait(20) == 128 + signal.SIGKILL


@pytest.mark.parametrize(
    ("program", "reason"), [("missing", "No such file"), ("plain", "Permission denied"), (".", "Permission denied")]
)
async def test_a_program_that_cannot_be_started_is_told_with_the_reason(
    program: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "plain").write_text("not executable")
    with watched([str(tmp_path / program)]) as dog:
        word = dog.first_word()
        assert word.startswith("failed ")
        assert reason in word
        assert str(tmp_path) in word
        assert dog.process.wait(20) == watchdog.CANNOT_START


async def test_a_directory_that_is_not_there_is_told_too() -> None:
    with watched(SLEEP, "--cwd", "/no/such/directory") as dog:
        assert "No such file" in dog.first_word()
        dog.process.wait(20)


@pytest.mark.parametrize("how", ["closed", "SIGTERM", "SIGINT", "SIGHUP"])
async def test_told_to_stop_it_ends_the_plugin_and_removes_the_scratch(how: str, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "server.key").write_text("secret")
    with watched(SLEEP, "--scratch", str(scratch)) as dog:
        dog.first_word()
        family = dog.everybody()
        assert len(family) == 2
        if how == "closed":
            dog.control.close()
        else:
            dog.process.send_signal(signal.Signals[how])
        assert dog.process.wait(20) == 128 + signal.SIGTERM
        assert not any(process.is_alive for process in family)
        assert not scratch.exists()


@pytest.mark.parametrize(
    ("command", "size"),
    [
        (shell("sleep 600 & sleep 600 & wait"), 4),
        (shell("(sleep 600 & sleep 600 & wait) & wait"), 5),
        (python(DAEMON), 3),
    ],
    ids=["children", "grandchildren", "daemon"],
)
async def test_what_the_plugin_started_ends_with_it(command: list[str], size: int) -> None:
    with watched(command) as dog:
        dog.first_word()
        await until(lambda: len(dog.everybody()) == size, what="all started")
        family = dog.everybody()
        dog.control.close()
        dog.process.wait(20)
        assert not any(process.is_alive for process in family)


async def test_what_outlives_the_plugin_is_ended_too() -> None:
    with watched(shell("sleep 600 & exit 3")) as dog:
        dog.first_word()
        assert dog.process.wait(20) == 3
        assert not below(dog.process.pid)


async def test_a_plugin_that_ignores_sigterm_is_killed_after_the_grace_period() -> None:
    with watched(python(IGNORES_TERM + "time.sleep(600)"), "--grace", "0.2") as dog:
        dog.first_word()
        assert dog.process.stdout is not None
        assert dog.process.stdout.readline() == b"set\n"
        family = dog.everybody()
        dog.control.close()
        assert dog.process.wait(20) == 128 + signal.SIGKILL
        assert not any(process.is_alive for process in family)


async def test_processes_that_ignore_sigterm_and_fork_without_end_are_all_killed() -> None:
    """Their parents are gone by the time they are looked for, and the kernel kills none of them by itself."""
    # A minute at most: should this test ever fail, the machine must not be left with them.
    forks = (
        "import os\nfor n in range(3): os.fork()\nfor n in range(240):\n time.sleep(0.25)\n if os.fork(): os._exit(0)"
    )
    with watched(shell(f"{' '.join(python('')[:-1])} '{IGNORES_TERM}{forks}' & wait"), "--grace", "0.2") as dog:
        session = int(dog.first_word().removeprefix("pid "))
        await until(lambda: len(in_session(session)) > 2, what="they fork")
        dog.control.close()
        dog.process.wait(20)
        assert in_session(session) == []


async def test_when_the_watchdog_itself_is_killed_the_kernel_kills_the_plugin() -> None:
    with watched(SLEEP) as dog:
        plugin = alive(int(dog.first_word().removeprefix("pid ")))
        assert plugin is not None
        dog.process.kill()
        await until(lambda: not plugin.is_alive, what="the plugin is gone")


async def test_the_input_of_the_plugin_ends_with_the_watchdog(tmp_path: Path) -> None:
    """What the kernel does not kill with the watchdog can look for the end of its input by itself."""
    mark = tmp_path / "mark"
    with watched(shell(f"exec 3<&0; (echo ready; cat <&3; touch {mark}) & wait")) as dog:
        dog.first_word()
        assert dog.process.stdout is not None
        assert dog.process.stdout.readline() == b"ready\n"
        assert not mark.exists()
        dog.process.kill()
        await until(mark.exists, what="the grandchild saw the end of its input")
