"""`cloudgraft serve` as a process that a hook of the kit can kill and start again.

Run as a program it does just that: ``python kit_served.py CONFIG PIDFILE``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def restartable(config: Path) -> Iterator[list[str]]:
    """Starts a server with that configuration; gives the command that kills and starts it again."""
    pid = config.with_suffix(".pid")
    command = [sys.executable, str(Path(__file__)), str(config), str(pid)]
    subprocess.run(command, check=True, timeout=30)
    try:
        yield command
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


def _start_again(config: Path, pid: Path) -> None:
    if pid.exists():
        os.kill(int(pid.read_text()), signal.SIGKILL)
    with config.with_suffix(".log").open("ab") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "cloudgraft.cli", "serve", "-c", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    pid.write_text(str(server.pid))


if __name__ == "__main__":
    _start_again(Path(sys.argv[1]), Path(sys.argv[2]))
