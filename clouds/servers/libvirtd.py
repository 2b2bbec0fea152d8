"""A private libvirt daemon with QEMU: no root, no system bus, and nothing of the machine's own libvirt is touched.

Its sockets lie in a directory with a short name, since a path to a socket has 107 characters at most; its logs are
copied to where the run keeps its logs. A daemon for users cannot be root's, so root runs it as ``nobody``.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from e2e.processes import Program
from e2e.waiting import until

__all__ = ["Libvirtd"]

_USER: Final = "nobody"
_SECONDS: Final = 30.0
_QEMU: Final = "qemu-system-x86_64"


class Libvirtd:
    """The daemon, which may be killed and started again; machines live on while it is away."""

    def __init__(self, directory: Path, *, emulator: str = "") -> None:
        """``emulator`` is a script that it takes for QEMU."""
        self.home = Path(tempfile.mkdtemp(prefix="cglv-"))
        self.images = self._made("images")
        self.consoles = self._made("consoles")
        self._logs = directory
        places = {"HOME": "", "XDG_RUNTIME_DIR": "run", "XDG_CONFIG_HOME": "etc", "XDG_CACHE_HOME": "cache"}
        self._environment = {key: str(self._made(name)) for key, name in {**places, "XDG_DATA_HOME": "data"}.items()}
        self._environment["PATH"] = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"  # where a daemon is, to a user
        if emulator:
            script = self._made("bin") / _QEMU
            script.write_text(emulator, "utf-8")
            script.chmod(0o755)
            self._environment["PATH"] = f"{script.parent}:{self._environment['PATH']}"
        self._made("etc/libvirt")
        # Else it starts a daemon of its own for the output of the machines, which stays for minutes.
        (self.home / "etc" / "libvirt" / "qemu.conf").write_text('stdio_handler = "file"\n', "utf-8")
        self.socket = self.home / "run" / "libvirt" / "libvirt-sock"
        self.uri = f"qemu+unix:///session?socket={self.socket}"
        self.program = Program(
            "libvirtd",
            [*_as_user(), "libvirtd", "--timeout", "0"],
            directory / "libvirtd.log",
            environment=self._environment,
        )

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        self.program.start()
        until(self._answers, "libvirtd answers", seconds=_SECONDS, check=self.program.check)

    def kill(self) -> None:
        """As kill -9 does. Its machines run on."""
        self.program.kill()

    def signal(self, number: signal.Signals) -> None:
        """To stop it and to let it go on."""
        pid = self.home / "run" / "libvirt" / "libvirtd.pid"
        os.kill(int(pid.read_text("ascii")), number)

    def stop(self) -> None:
        """Ends it and all its machines, and removes all but the logs."""
        self.program.stop()
        for pid in self._machines():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not self._machines(), "all machines have ended", seconds=_SECONDS)
        for part in ("cache/libvirt/qemu/log", "consoles"):
            if (self.home / part).is_dir():
                shutil.copytree(self.home / part, self._logs / Path(part).name, dirs_exist_ok=True)
        shutil.rmtree(self.home)

    def virsh(self, *words: str) -> str:
        """What libvirt's own command line says."""
        command = ["virsh", "--quiet", "--connect", self.uri, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
        if done.returncode:
            raise AssertionError(f"virsh {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def domains(self) -> list[str]:
        """The names of all domains, whoever made them."""
        return self.virsh("list", "--all", "--name").split()

    def make_pool(self, name: str, directory: Path) -> None:
        """A storage pool in a directory."""
        self.virsh("pool-define-as", name, "dir", "--target", str(directory))
        self.virsh("pool-start", name)

    def volumes(self, pool: str) -> list[str]:
        """The names of all volumes."""
        until(lambda: self._is_refreshed(pool), f"nobody works in the pool {pool}", seconds=_SECONDS)
        return [line.split()[0] for line in self.virsh("vol-list", pool).splitlines() if line.strip()]

    def _is_refreshed(self, pool: str) -> bool:
        """It does not look while a volume is being made there."""
        try:
            self.virsh("pool-refresh", pool)
        except AssertionError as error:
            if "asynchronous jobs" not in str(error):
                raise
            return False
        return True

    def _answers(self) -> bool:
        if not self.socket.exists():
            return False
        try:
            self.virsh("version")
        except AssertionError:
            return False
        return True

    def _machines(self) -> list[int]:
        """Processes of QEMU that were started from here."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (process / "cmdline").read_bytes()
                if b"qemu-system" in words.partition(b"\0")[0] and str(self.home).encode() in words:
                    found.append(int(process.name))
        return found

    def _made(self, name: str) -> Path:
        """A directory that the daemon may write to."""
        path = self.home / name
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.geteuid() == 0:
            user = pwd.getpwnam(_USER)
            for one in (self.home, path):
                os.chown(one, user.pw_uid, user.pw_gid)
        return path


def _as_user() -> Sequence[str]:
    """The last word is said again: who changes its user is not killed with its parent any more."""
    if os.geteuid() != 0:
        return ()
    group = str(pwd.getpwnam(_USER).pw_gid)
    return ("setpriv", f"--reuid={_USER}", f"--regid={group}", "--clear-groups", "--pdeathsig", "KILL")
