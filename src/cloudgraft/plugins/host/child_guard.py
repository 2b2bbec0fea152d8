"""Stands between cloudgraft and one plugin, so that no process is left behind, whatever happens to cloudgraft.

Run as a script with ``python -I -S child_guard.py --grace SECONDS [--cwd DIR] [--scratch DIR] -- COMMAND...``; it needs
nothing but the standard library, so that it starts in no time. Its standard input is one end of a socket pair, and
cloudgraft holds the only other end:

- it is closed (cloudgraft is done with the plugin) or breaks (cloudgraft died, be it by ``kill -9``): every process
  that came from the plugin gets SIGTERM, and SIGKILL after the grace period;
- the watchdog writes one line into it: ``pid NUMBER`` or ``failed REASON``.

SIGTERM, SIGINT and SIGHUP mean the same as a closed input. When the plugin ends by itself, what it started is ended
too. Then the scratch directory (socket, throw-away keys) is removed, and the plugin's exit code is the watchdog's.

Why a process group is not enough: a plugin may be a shell script whose children outlive it, or a program that
daemonises into a session of its own. On Linux the watchdog is therefore a *subreaper*: whatever loses its parent
becomes its child and is found. Should the watchdog itself be killed, the kernel kills the plugin (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_GIVE_UP_AFTER = 10.0  # seconds of SIGKILL: what is alive then hangs in the kernel
_KILL_AGAIN_AFTER = 0.05
_LOOK_AGAIN_AFTER = 0.2
CANNOT_START = 127


def main() -> int:
    """Runs the command until it ends or the input is closed; the command's exit code."""
    options = _arguments()
    wake = _wake_on_signals()
    prctl = _prctl()
    if prctl is not None:
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        plugin = _start(options.command, options.cwd, prctl)
    except OSError as error:
        _tell(f"failed {error.strerror or error}: {error.filename or options.command[0]}")
        return CANNOT_START
    _tell(f"pid {plugin.pid}")
    _let_go_of_output()
    family = Family(plugin.pid)
    _wait_for_end_or_stop(family, wake)
    family.end(options.grace, wake)
    if options.scratch:
        import shutil  # noqa: PLC0415 - slow to import, and needed only now

        shutil.rmtree(options.scratch, ignore_errors=True)
    return family.exit_code


class Family:
    """The plugin and everything that came from it."""

    def __init__(self, plugin: int) -> None:
        self._plugin = plugin  # its pid, and the id of its process group
        self._status: int | None = None

    @property
    def plugin_ended(self) -> bool:
        """True once the plugin itself has ended, whatever its children do."""
        return self._status is not None

    @property
    def exit_code(self) -> int:
        """The plugin's exit code in the manner of a shell: 128 + n when signal n ended it."""
        if self._status is None:
            return 128 + signal.SIGKILL
        code = os.waitstatus_to_exitcode(self._status)
        return code if code >= 0 else 128 - code

    def reap(self) -> bool:
        """Takes in whoever has ended; False once there is nobody left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return self._group_exists()
            if pid == 0:
                return True
            if pid == self._plugin:
                self._status = status

    def end(self, grace: float, wake: int) -> None:
        """Asks everybody to end, waits, and then kills whoever is left."""
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + grace
        while self.reap() and time.monotonic() < deadline:
            # Not all of it at once: where there are no subreapers, nothing tells of a grandchild's end.
            _sleep(wake, min(_LOOK_AGAIN_AFTER, deadline - time.monotonic()))
        deadline = time.monotonic() + _GIVE_UP_AFTER
        while self.reap() and time.monotonic() < deadline:
            self._signal(signal.SIGKILL)  # again and again: somebody may have forked meanwhile
            _sleep(wake, _KILL_AGAIN_AFTER)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._plugin, number)
        for pid in _descendants():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def _group_exists(self) -> bool:
        # Where there are no subreapers, a grandchild is nobody's child that we could wait for.
        try:
            os.killpg(self._plugin, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # what some systems say of a zombie
            return True
        return True


def _descendants() -> list[int]:
    """Every process below this one, wherever its group and session are. Empty where there is no /proc."""
    children: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for entry in os.listdir("/proc"):  # noqa: PTH208 - pathlib is slow to import
            if entry.isdigit() and (parent := _parent(entry)):
                children.setdefault(parent, []).append(int(entry))
    found: list[int] = []
    todo = [os.getpid()]
    while todo:
        below = children.pop(todo.pop(), [])
        found += below
        todo += below
    return found


def _parent(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - likewise
            # The name stands in brackets and may contain anything, brackets too.
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):  # it ended meanwhile
        return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Keeps one cloudgraft plugin from outliving cloudgraft.")
    parser.add_argument("--grace", type=float, default=5.0)
    parser.add_argument("--cwd")
    parser.add_argument("--scratch")
    parser.add_argument("command", nargs="+")
    return parser.parse_args()


def _start(command: list[str], cwd: str | None, prctl: Callable[[int, int], object] | None) -> subprocess.Popen[bytes]:
    watchdog = os.getpid()

    def die_with_watchdog() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != watchdog:  # it died before the line above
                os._exit(128 + signal.SIGKILL)

    # Its input is a pipe that nobody writes to: it ends when the watchdog does, which a plugin may look for too.
    return subprocess.Popen(
        command,
        cwd=cwd,
        stdin=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=die_with_watchdog,  # noqa: PLW1509 - safe here: this process has one thread
    )


def _prctl() -> Callable[[int, int], object] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        libc = ctypes.CDLL(None, use_errno=True)
    except OSError:
        return None
    return lambda option, value: libc.prctl(option, value, 0, 0, 0)


def _wake_on_signals() -> int:
    """A descriptor that becomes readable whenever a signal comes in: a child ended, or we are to stop."""
    read, write = os.pipe()
    for end in (read, write):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return read


def _wait_for_end_or_stop(family: Family, wake: int) -> None:
    stops = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    while True:
        family.reap()
        if family.plugin_ended:
            return
        readable, _, _ = select.select([0, wake], [], [])
        if wake in readable and stops.intersection(_drain(wake)):
            return
        if 0 in readable and not _read_input():
            return


def _read_input() -> bytes:
    try:
        return os.read(0, 4096)
    except OSError:  # the other end was torn down
        return b""


def _sleep(wake: int, seconds: float) -> None:
    select.select([wake], [], [], max(0.0, seconds))
    _drain(wake)


def _drain(wake: int) -> bytes:
    try:
        return os.read(wake, 4096)
    except BlockingIOError:
        return b""


def _tell(line: str) -> None:
    with contextlib.suppress(OSError):  # run by hand, the input is no socket; or nobody listens any more
        os.write(0, line.replace("\n", " ").encode(errors="replace") + b"\n")


def _let_go_of_output() -> None:
    # The reader must see the end of the plugin's output when the plugin closes it, not when the watchdog ends.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


if __name__ == "__main__":
    sys.exit(main())
