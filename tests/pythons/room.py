"""Runs commands of an ordinary user in a Debian of its own, which ends with them.

Kernel namespaces and util-linux alone. The mounts are seen by nobody else, and are gone with the last process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["OWNER", "PROGRAMS", "Room", "end", "run_logged"]

PROGRAMS: Final = ("chroot", "mount", "setpriv", "tar", "unshare")
OWNER: Final = (1000, 1000)  # user and group, as the first person has on a new Debian
_LOOK_EVERY: Final = 60.0  # seconds between two lines of progress

_ENTER: Final = """
set -eu
root=$1 user=$2 directory=$3 loopback=$4
shift 4
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
  touch "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,gid=5,mode=620,ptmxmode=666 devpts "$root/dev/pts"
mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s fd/0 "$root/dev/stdin"
ln -s fd/1 "$root/dev/stdout"
ln -s fd/2 "$root/dev/stderr"
# A new network has nothing but a loopback device, which is down.
if [ -n "$loopback" ]; then "$loopback" -c '
import fcntl, socket, struct
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
'; fi
exec chroot --userspec="$user" "$root" sh -c 'cd "$1" && shift && exec "$@"' - "$directory" "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The root of a Debian, and where in it its user types."""

    root: Path
    directory: str

    def command(
        self, *words: str, environment: Mapping[str, str], network: bool, owner: tuple[int, int] = OWNER
    ) -> Sequence[str]:
        """As it is to be started outside, for a command line inside. Without a network there is loopback alone."""
        unshare = ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", *([] if network else ["--net"])]
        user = ":".join(map(str, owner))
        entered = ("sh", "-c", _ENTER, "-", str(self.root), user, self.directory, "" if network else sys.executable)
        return *unshare, *entered, "env", "-i", *(f"{k}={v}" for k, v in environment.items()), *words


def run_logged(command: Sequence[str], log: Path, *, seconds: float, progress: Callable[[str], None]) -> int | None:
    """Runs it with its output in a file, and says now and then how far it is.

    Returns its exit code, or None when it took too long.
    """
    left = seconds
    # Whatever becomes of us, it ends: unshare is killed with us, and all that it has started with unshare.
    with log.open("ab") as output:
        process = subprocess.Popen(
            ("setpriv", "--pdeathsig", "KILL", *command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        while left > 0:
            try:
                return process.wait(min(_LOOK_EVERY, left))
            except subprocess.TimeoutExpired:
                left -= _LOOK_EVERY
                progress(end(log, 1))
        return None
    finally:
        process.kill()
        process.wait()


def end(log: Path, lines: int) -> str:
    """The last lines of a log that are not empty."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 20_000))
        text = file.read().decode("utf-8", "replace")
    return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])


def missing() -> str:
    """Why nothing can be run here; empty when it can."""
    if os.geteuid() != 0:
        return "only root can make and enter a Debian of its own"
    programs = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"not installed: {', '.join(programs)}" if programs else ""
