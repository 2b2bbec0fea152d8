"""Names what a test needs of the machine. Where that is missing, the run says so, with the reason, and goes on."""

from __future__ import annotations

import importlib.util
import os
import pty
import shutil
from pathlib import Path
from typing import Final

import pytest

_SHARED_MEMORY: Final = Path("/dev/shm")
NO_SHARED_MEMORY: Final = f"{_SHARED_MEMORY} cannot be written to: journals are on a disk, which takes longer"


def _has_terminals() -> bool:
    try:
        ends = pty.openpty()
    except OSError:
        return False
    for end in ends:
        os.close(end)
    return True


def shared_memory() -> Path | None:
    """Where files are in memory, for journals that need to outlive a process and not the machine; None without one.

    It may be there and not be ours to write to, as in a chroot that nobody has mounted it in.
    """
    return _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK | os.X_OK) else None


def needs_programs(*names: str) -> pytest.MarkDecorator:
    """For tests that start these programs."""
    missing = [name for name in names if shutil.which(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
needs_terminal = pytest.mark.skipif(
    not _has_terminals(), reason="no pseudo-terminal can be opened: is /dev/pts mounted?"
)
needs_native = pytest.mark.skipif(
    importlib.util.find_spec("cloudgraft_native") is None, reason="cloudgraft-native is not installed: make native"
)
