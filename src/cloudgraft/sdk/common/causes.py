"""Names the cause of an unexpected exception, without repeating a text that may hold a secret."""

from __future__ import annotations

import os


def cause(error: BaseException) -> str:
    """Returns the exception's class, and for a file that cannot be used its path and what the system says about it.

    The text of any other exception may be anything, so only the log has it.
    """
    name = type(error).__name__
    if not isinstance(error, OSError) or error.errno is None or error.filename is None:
        return name
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else str(error.filename)
    return f"{name}: {path}: {os.strerror(error.errno)}"
