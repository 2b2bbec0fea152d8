"""The guard by itself, with real processes: whatever happens, nothing of a program is left."""

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

from cloudgraft.sdk.common import child_guard
from tests.conditions import until
from tests.plugins.plugin_programs import python, shell
from tests.plugins.processes import Process, alive, below, in_session

SLEEP = python("import time; time.sleep(600)")
IGNORES_TERM = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print("set", flush=True)\n'
# A daemon in the old manner: two forks and a session of its own, so that neither parent nor group leads to it.
DAEMON = "import os, time\nif os.fork() == 0:\n os.setsid()\n os.fork() and os._exit(0)\ntime.sleep(600)"


class Guarded:
    """A guard, and the end of the socket that cloudgraft would hold."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self.process = process
        self.control = control

    def first_word(self) -> str:
        return self.control.makefile().readline().strip()

    def everybody(self) -> list[Process]:
        own = alive(self.process.pid)
        return [*([own] if own else []), *below(self.process.pid)]


@contextmanager
def guarded(command: list[str], *, grace: float = 5.0, scratch: str = "", cwd: str = "") -> Iterator[Guarded]:
    ours, theirs = socket.socketpair()
    argv = [sys.executable, "-I", "-S", child_guard.__file__, "0", str(grace), scratch, cwd, *command]
    with ours, subprocess.Popen(argv, stdin=theirs.fileno(), stdout=subprocess.PIPE, start_new_session=True) as process:
        theirs.close()
        try:
            yield Guarded(process, ours)
        finally:
            process.terminate()


async def test_it_tells_the_pid_and_ends_with_the_code_of_the_plugin() -> None:
    with guarded(python("import sys; sys.exit(7)")) as guard:
        assert guard.first_word().startswith("pid ")
        assert guard.process.wait(20) == 7


async def test_an_end_by_signal_is_told_as_a_shell_does() -> None:
    with guarded(SLEEP) as guard:
        os.kill(int(guard.first_word().removeprefix("pid ")), signal.SIGKILL)
        assert guard.process.wait(20) == 128 + signal.SIGKILL


@pytest.mark.parametrize(
    ("program", "reason"), [("missing", "No such file"), ("plain", "Permission denied"), (".", "Permission denied")]
)
async def test_a_program_that_cannot_be_started_is_told_with_the_reason(
    program: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "plain").write_text("not executable")
    with guarded([str(tmp_path / program)]) as guard:
        word = guard.first_word()
        assert word.startswith("failed ")
        assert reason in word
        assert str(tmp_path) in word
        assert guard.process.wait(20) == child_guard.CANNOT_START


async def test_a_directory_that_is_not_there_is_told_too() -> None:
    with guarded(SLEEP, cwd="/no/such/directory") as guard:
        word = guard.first_word()
        assert "No such file" in word
        assert "/no/such/directory" in word
        guard.process.wait(20)


@pytest.mark.parametrize("how", ["closed", "SIGTERM", "SIGINT", "SIGHUP"])
async def test_told_to_stop_it_ends_the_plugin_and_removes_the_scratch(how: str, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "server.key").write_text("secret")
    with guarded(SLEEP, scratch=str(scratch)) as guard:
        guard.first_word()
        family = guard.everybody()
        assert len(family) == 2
        if how == "closed":
            guard.control.close()
        else:
            guard.process.send_signal(signal.Signals[how])
        assert guard.process.wait(20) == 128 + signal.SIGTERM
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
    with guarded(command) as guard:
        guard.first_word()
        await until(lambda: len(guard.everybody()) == size, what="all started")
        family = guard.everybody()
        guard.control.close()
        guard.process.wait(20)
        assert not any(process.is_alive for process in family)


async def test_what_outlives_the_plugin_is_ended_too() -> None:
    with guarded(shell("sleep 600 & exit 3")) as guard:
        guard.first_word()
        assert guard.process.wait(20) == 3
        assert not below(guard.process.pid)


async def test_a_plugin_that_ignores_sigterm_is_killed_after_the_grace_period() -> None:
    with guarded(python(IGNORES_TERM + "time.sleep(600)"), grace=0.2) as guard:
        guard.first_word()
        assert guard.process.stdout is not None
        assert guard.process.stdout.readline() == b"set\n"
        family = guard.everybody()
        guard.control.close()
        assert guard.process.wait(20) == 128 + signal.SIGKILL
        assert not any(process.is_alive for process in family)


async def test_processes_that_ignore_sigterm_and_fork_without_end_are_all_killed() -> None:
    """Their parents are gone by the time they are looked for, and the kernel kills none of them by itself."""
    # A minute at most: should this test ever fail, the machine must not be left with them.
    forks = (
        "import os\nfor n in range(3): os.fork()\nfor n in range(240):\n time.sleep(0.25)\n if os.fork(): os._exit(0)"
    )
    with guarded(shell(f"{' '.join(python('')[:-1])} '{IGNORES_TERM}{forks}' & wait"), grace=0.2) as guard:
        session = int(guard.first_word().removeprefix("pid "))
        await until(lambda: len(in_session(session)) > 2, what="they fork")
        guard.control.close()
        guard.process.wait(20)
        assert in_session(session) == []


async def test_when_the_guard_itself_is_killed_the_kernel_kills_the_plugin() -> None:
    with guarded(SLEEP) as guard:
        plugin = alive(int(guard.first_word().removeprefix("pid ")))
        assert plugin is not None
        guard.process.kill()
        await until(lambda: not plugin.is_alive, what="the plugin is gone")


async def test_the_input_of_the_plugin_ends_with_the_guard(tmp_path: Path) -> None:
    """What the kernel does not kill with the guard can look for the end of its input by itself."""
    mark = tmp_path / "mark"
    with guarded(shell(f"exec 3<&0; (echo ready; cat <&3; touch {mark}) & wait")) as guard:
        guard.first_word()
        assert guard.process.stdout is not None
        assert guard.process.stdout.readline() == b"ready\n"
        assert not mark.exists()
        guard.process.kill()
        await until(mark.exists, what="the grandchild saw the end of its input")


@contextmanager
def guarded_with_input(command: list[str], scratch: str = "") -> Iterator[Guarded]:
    """As the driver exec does it: the control socket is a descriptor of its own, and the input is the program's."""
    ours, theirs = socket.socketpair()
    argv = [sys.executable, "-I", "-S", child_guard.__file__, str(theirs.fileno()), "5", scratch, "", *command]
    with (
        ours,
        subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(theirs.fileno(),), start_new_session=True
        ) as process,
    ):
        theirs.close()
        try:
            yield Guarded(process, ours)
        finally:
            process.terminate()


@pytest.mark.parametrize(("how", "told"), [("exit 3", "ended 3"), ("kill -9 $$", "ended -9")])
async def test_it_tells_how_the_program_ended(how: str, told: str) -> None:
    with guarded_with_input(shell(how)) as guard:
        lines = guard.control.makefile().read().splitlines()
        assert lines[0].startswith("pid ")
        assert lines[1:] == [told]


async def test_it_tells_that_the_program_was_stopped() -> None:
    with guarded_with_input(SLEEP) as guard:
        guard.control.shutdown(socket.SHUT_WR)
        assert guard.control.makefile().read().splitlines()[1:] == ["stopped"]
        assert guard.process.wait(20) == 128 + signal.SIGTERM


async def test_the_program_has_the_input_of_the_guard_and_not_its_control_socket() -> None:
    with guarded_with_input(shell("cat; ls /proc/self/fd | wc -l")) as guard:
        output, _ = guard.process.communicate(b"hello\n", 20)
        # ls has its three streams, and the directory that it reads.
        assert output.split() == [b"hello", b"4"]


async def test_the_scratch_is_removed_with_all_that_is_in_it(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    (scratch / "tls").mkdir(parents=True)
    (scratch / "tls" / "server.key").write_text("secret")
    (scratch / "user-data").write_text("secret")
    with guarded_with_input(shell("exit 0"), str(scratch)) as guard:
        assert guard.process.wait(20) == 0
        assert not scratch.exists()
