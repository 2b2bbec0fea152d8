"""Runs one program under a guard process, so that none of its processes is left behind when cloudgraft dies.

Run as ``python -I -S child_guard.py CONTROL GRACE SCRATCH DIRECTORY COMMAND...``. It needs only the standard library,
and little of it, because the driver ``exec`` starts one for every call. CONTROL is the file descriptor of one end of a
socket pair, and cloudgraft holds the only other end:

- the guard writes lines: ``pid NUMBER`` when the program runs, or ``failed ERRNO WHY: WHAT`` when there is nothing to
  run; then ``ended CODE`` when the program ended by itself (CODE is negative for a signal), or ``stopped`` when it was
  made to end;
- it is closed for writing (cloudgraft stops the program) or breaks (cloudgraft died, even by ``kill -9``): the program
  and all its descendants get SIGTERM, and SIGKILL after the grace period. SIGTERM, SIGINT and SIGHUP mean the same.

The program has the guard's standard input, unless that is CONTROL: then it has a pipe that nobody writes to, and that
ends with the guard.

When the program ends by itself, what it started is ended too. A process group is not enough for that: a script's
children may outlive it, and a daemon has a session of its own. On Linux the guard is therefore a *subreaper*: whatever
loses its parent becomes its child and is found. Should the guard itself be killed, the kernel kills the program
(PR_SET_PDEATHSIG). Last, the scratch directory is removed, in which user data or keys were; the guard's exit code is
the program's, in the manner of a shell.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_GIVE_UP_AFTER = 10.0  # seconds of SIGKILL: a process that is still alive hangs in the kernel
_KILL_AGAIN_AFTER = 0.05
_LOOK_AGAIN_AFTER = 0.2
_STOPS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
CANNOT_START = 127


def main() -> int:
    """Runs the command until it ends or must stop; reports how it ended through the control socket."""
    control, grace, scratch, directory, *command = sys.argv[1:]
    os.set_inheritable(int(control), False)  # the program must not hold it: its end would go unnoticed
    wake = _wake_on_signals()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    silence = os.pipe() if int(control) == 0 else None  # the guard keeps both ends: what it holds ends with it
    family = Family(*_start(command, directory, silence))
    _let_go_of_streams(int(control))
    if family.failure:
        _tell(int(control), f"failed {family.failure}")
    else:
        _tell(int(control), f"pid {family.pid}")
        _watch(family, int(control), wake)
        family.end(float(grace), wake)
    if scratch:
        _remove(scratch)
    return family.exit_code


class Family:
    """The program and everything that came from it."""

    def __init__(self, pid: int, failure: str) -> None:
        self.failure = failure  # why it could not be started
        self.code: int | None = None  # the program's exit code, once it has ended; negative for a signal
        self.pid = pid  # the program's, and the id of its process group

    @property
    def exit_code(self) -> int:
        """The program's exit code in the manner of a shell: 128 + n when signal n ended it."""
        if self.failure:
            return CANNOT_START
        code = -signal.SIGKILL if self.code is None else self.code
        return code if code >= 0 else 128 - code

    def reap(self) -> bool:
        """Reaps ended processes; returns False when none is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return self._group_exists()
            if pid == 0:
                return True
            if pid == self.pid:
                self.code = os.waitstatus_to_exitcode(status)

    def end(self, grace: float, wake: int) -> None:
        """Sends SIGTERM to the remaining processes, waits, and then kills them."""
        if not self.reap():
            return
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + grace
        while self.reap() and time.monotonic() < deadline:
            # Not all of it at once: where there are no subreapers, nothing tells of a grandchild's end.
            _sleep(wake, min(_LOOK_AGAIN_AFTER, deadline - time.monotonic()))
        deadline = time.monotonic() + _GIVE_UP_AFTER
        while self.reap() and time.monotonic() < deadline:
            self._signal(signal.SIGKILL)  # repeatedly: a process may have forked in between
            _sleep(wake, _KILL_AGAIN_AFTER)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
        for pid in _descendants():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def _group_exists(self) -> bool:
        # Without subreapers we cannot wait for a grandchild, which is not our child.
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # some systems report this for a zombie
            return True
        return True


def _descendants() -> list[int]:
    """Returns all descendants of this process, whatever their group and session. Empty where there is no /proc."""
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
            # The name is in brackets and may contain anything, even brackets.
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):  # it has ended
        return 0


def _start(command: list[str], directory: str, silence: tuple[int, int] | None) -> tuple[int, str]:
    """The program's pid, and why it could not be started, if so."""
    guard = os.getpid()
    read, write = os.pipe()  # closed by a successful exec
    pid = os.fork()
    if pid == 0:
        try:
            if silence is not None:
                os.dup2(silence[0], 0)
            _become(command, directory, guard)
        except OSError as error:
            why = f"{error.errno} {error.strerror}: {error.filename or command[0]}"
            os.write(write, why.encode(errors="replace"))
        finally:
            os._exit(CANNOT_START)
    os.close(write)
    failure = os.read(read, 4096).decode(errors="replace")
    os.close(read)
    return pid, failure


def _become(command: list[str], directory: str, guard: int) -> None:
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:  # it died before the line above
        os._exit(CANNOT_START)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and a program must not
        signal.signal(number, signal.SIG_DFL)
    if directory:
        os.chdir(directory)
    os.execvp(command[0], command)  # noqa: S606 - running it is the purpose


def _prctl(option: int, value: int) -> None:
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _wake_on_signals() -> int:
    """Returns a descriptor that becomes readable at every signal: a child ended, or we must stop."""
    read, write = os.pipe()
    for end in (read, write):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, *_STOPS):
        signal.signal(number, lambda *_: None)
    return read


def _watch(family: Family, control: int, wake: int) -> None:
    """Until the program has ended, or is to be ended; says which."""
    while True:
        family.reap()
        if family.code is not None:
            return _tell(control, f"ended {family.code}")
        readable, _, _ = select.select([control, wake], [], [])
        is_over = control in readable and not _read(control)
        if is_over or (wake in readable and _STOPS.intersection(_read(wake))):
            family.reap()
            return _tell(control, "stopped" if family.code is None else f"ended {family.code}")


def _sleep(wake: int, seconds: float) -> None:
    select.select([wake], [], [], max(0.0, seconds))
    _read(wake)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:  # nothing to read, or the other end is gone
        return b""


def _tell(control: int, line: str) -> None:
    with contextlib.suppress(OSError):  # cloudgraft has closed its end
        os.write(control, line.replace("\n", " ").encode(errors="replace") + b"\n")


def _let_go_of_streams(control: int) -> None:
    # The reader must see the end of the output when the program's family has closed it, not when the guard ends.
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        if descriptor != control:
            os.dup2(null, descriptor)
    os.close(null)


def _remove(scratch: str) -> None:
    with contextlib.suppress(OSError):
        for name in os.listdir(scratch):  # noqa: PTH208 - pathlib is slow to import
            os.unlink(os.path.join(scratch, name))  # noqa: PTH108, PTH118 - likewise
        os.rmdir(scratch)  # noqa: PTH106 - likewise
        return
    import shutil  # noqa: PLC0415 - slow to import, and needed only where there are directories

    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
