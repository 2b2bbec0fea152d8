"""Keeps a server's memory, which holds credentials, out of core dumps and out of reach of its user's other processes.

On Linux a process that is not *dumpable* leaves no core file, and only root may attach a debugger to it or read its
memory and environment in /proc. Children that run another program are dumpable again.
"""

from __future__ import annotations

import contextlib
import ctypes
import resource
import sys
from typing import Final

_PR_SET_DUMPABLE: Final = 4


def forbid_memory_dumps() -> None:
    """Makes this process not dumpable. Does nothing where the system has no such feature."""
    with contextlib.suppress(OSError, ValueError):
        # The hard limit stays: a plugin may raise it again for itself.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
