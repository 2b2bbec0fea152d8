"""Names what a test needs of the machine. Where that is missing, the run says so, with the reason, and goes on."""

from __future__ import annotations

import os
import pty
import shutil

import pytest


def _has_terminals() -> bool:
    try:
        ends = pty.openpty()
    except OSError:
        return False
    for end in ends:
        os.close(end)
    return True


def needs_programs(*names: str) -> pytest.MarkDecorator:
    """For tests that start these programs."""
    missing = [name for name in names if shutil.which(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
needs_terminal = pytest.mark.skipif(
    not _has_terminals(), reason="no pseudo-terminal can be opened: is /dev/pts mounted?"
)
