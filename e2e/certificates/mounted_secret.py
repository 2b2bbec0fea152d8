"""Mounts a Secret as the kubelet does: all files change at once, behind one symbolic link."""

from __future__ import annotations

import base64
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lightkube import Client
from lightkube.resources.core_v1 import Secret

__all__ = ["MountedSecret", "mount"]

_LOOK: Final = 0.3  # seconds between two looks at the Secret; a kubelet takes up to a minute
_DATA: Final = "..data"


def mount(directory: Path, files: Mapping[str, bytes]) -> None:
    """Puts the files in place of those that are there, in the order of steps in which a kubelet does it."""
    directory.mkdir(exist_ok=True)
    link, unfinished = directory / _DATA, directory / "..data_tmp"
    old = link.resolve() if link.is_symlink() else None
    new = Path(tempfile.mkdtemp(prefix="..", dir=directory))
    for name, data in files.items():
        (new / name).touch(mode=0o600)
        (new / name).write_bytes(data)
        (new / name).chmod(0o440)  # only root could have written it like that
    unfinished.symlink_to(new.name)
    unfinished.replace(link)
    for name in files:
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(Path(_DATA, name))
    if old is not None:
        shutil.rmtree(old)


class MountedSecret:
    """A directory that follows a Secret until it is stopped."""

    def __init__(self, client: Client, namespace: str, name: str, directory: Path) -> None:
        """Mounts what the Secret has now."""
        self.directory = directory
        # For readers of this process that want files which belong together. The server under test knows no such thing.
        self.lock = threading.Lock()
        self.changes: list[float] = []  # when it has changed, on the monotonic clock
        self._client, self._namespace, self._name = client, namespace, name
        self._mounted: Mapping[str, bytes] = {}
        self._error: Exception | None = None
        self._stop = threading.Event()
        self._follow()
        self._thread = threading.Thread(target=self._run, name=f"mount of {name}", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises what has kept it from following the Secret."""
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Follows it no longer."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_LOOK):
            try:
                self._follow()
            except Exception as error:  # noqa: BLE001 - it is raised by `check`, in the thread that judges
                self._error = error
                return

    def _follow(self) -> None:
        secret = self._client.get(Secret, self._name, namespace=self._namespace)
        files = {name: base64.b64decode(data) for name, data in (secret.data or {}).items()}
        if files == self._mounted:
            return
        with self.lock:
            mount(self.directory, files)
            self._mounted = files
            self.changes.append(time.monotonic())
