"""Stands between cloudgraft and one run of a script, so that nothing of the run is left, whatever happens to whom.

Run as ``python -I -S keeper.py CONTROL GRACE SCRATCH DIRECTORY COMMAND...``; it needs only the standard library, and
little of it, for it is started for every call. CONTROL is the number of one end of a socket pair; cloudgraft holds the
other:

- the keeper writes one line: ``failed ERRNO WHY`` when there is nothing to run, ``ended CODE`` when the script ended by
  itself (CODE is negative for a signal), ``stopped`` when it was made to end;
- it is closed for writing (cloudgraft has given the call up), or breaks (cloudgraft died, be it by ``kill -9``): the
  script and everything that came from it get SIGTERM, and SIGKILL after the grace.

When the script ends by itself, what it left running is ended in the same way: a process group is not enough for that,
for children may leave it. On Linux the keeper is a *subreaper*: whatever loses its parent becomes its child and is
found. Should the keeper itself be killed, the kernel kills the script. Last, the scratch directory is removed, in which
the user data was.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_GIVE_UP_AFTER = 10.0  # seconds of SIGKILL: what is alive then hangs in the kernel
_KILL_AGAIN_AFTER = 0.05
_LOOK_AGAIN_AFTER = 0.2
_STOPS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
CANNOT_START = 127


def main() -> int:
    """Runs the command to its end, or until it is to stop; says how it went through the control socket."""
    control, grace, scratch, directory, *command = sys.argv[1:]
    os.set_inheritable(int(control), False)  # the script must not hold it: its end would go unnoticed
    wake = _wake_on_signals()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    family = Family(*_start(command, directory))
    _let_go_of_output()
    if family.failure:
        _tell(int(control), f"failed {family.failure}")
    else:
        _watch(family, int(control), wake)
        family.end(float(grace), wake)
    _remove(scratch)
    return CANNOT_START if family.failure else 0


class Family:
    """The script and everything that came from it."""

    def __init__(self, pid: int, failure: str) -> None:
        self.failure = failure  # why it could not be started
        self.code: int | None = None  # the script's exit code, once it has ended; negative for a signal
        self._pid = pid  # the script's, and the id of its process group

    def reap(self) -> bool:
        """Takes in whoever has ended; False once there is nobody left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return self._group_exists()
            if pid == 0:
                return True
            if pid == self._pid:
                self.code = os.waitstatus_to_exitcode(status)

    def end(self, grace: float, wake: int) -> None:
        """Asks everybody who is left to end, waits, and then kills."""
        if not self.reap():
            return
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + grace
        while self.reap() and time.monotonic() < deadline:
            _sleep(wake, min(_LOOK_AGAIN_AFTER, deadline - time.monotonic()))
        deadline = time.monotonic() + _GIVE_UP_AFTER
        while self.reap() and time.monotonic() < deadline:
            self._signal(signal.SIGKILL)  # again and again: somebody may have forked meanwhile
            _sleep(wake, _KILL_AGAIN_AFTER)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, number)
        for pid in _descendants():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def _group_exists(self) -> bool:
        # Where there are no subreapers, a grandchild is nobody's child that we could wait for.
        try:
            os.killpg(self._pid, 0)
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


def _start(command: list[str], directory: str) -> tuple[int, str]:
    """The script's pid, and why it could not be started, if so."""
    keeper = os.getpid()
    read, write = os.pipe()  # closed by a successful exec
    pid = os.fork()
    if pid == 0:
        try:
            _become(command, directory, keeper)
        except OSError as error:
            os.write(write, f"{error.errno} {error.strerror}".encode())
        finally:
            os._exit(CANNOT_START)
    os.close(write)
    failure = os.read(read, 4096).decode(errors="replace")
    os.close(read)
    return pid, failure


def _become(command: list[str], directory: str, keeper: int) -> None:
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:  # it died before the line above
        os._exit(CANNOT_START)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and a script must not
        signal.signal(number, signal.SIG_DFL)
    if directory:
        os.chdir(directory)
    os.execvp(command[0], command)  # noqa: S606 - to run it is what this is for


def _prctl(option: int, value: int) -> None:
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _wake_on_signals() -> int:
    """A descriptor that becomes readable whenever a signal comes in: a child ended, or we are to stop."""
    read, write = os.pipe()
    for end in (read, write):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, *_STOPS):
        signal.signal(number, lambda *_: None)
    return read


def _watch(family: Family, control: int, wake: int) -> None:
    """Until the script has ended, or is to be ended; says which."""
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
    except OSError:  # nothing to read, or the other end was torn down
        return b""


def _tell(control: int, line: str) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more
        os.write(control, line.replace("\n", " ").encode(errors="replace") + b"\n")


def _let_go_of_output() -> None:
    # The reader must see the end of the output when the script's family has closed it, not when the keeper ends.
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)


def _remove(scratch: str) -> None:
    with contextlib.suppress(OSError):
        for name in os.listdir(scratch):  # noqa: PTH208 - pathlib is slow to import
            os.unlink(os.path.join(scratch, name))  # noqa: PTH108, PTH118 - likewise
        os.rmdir(scratch)  # noqa: PTH106 - likewise


if __name__ == "__main__":
    sys.exit(main())
