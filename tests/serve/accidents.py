"""What happens to a journal."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

from tests.serve.servers import Server


def lose_journal(directory: Path, *, with_identity: bool = False) -> None:
    """The journal of a server that is stopped is gone, perhaps with the file beside it."""
    for file in directory.glob("journal.db*"):
        if with_identity or file.suffix != ".cluster-id":
            file.unlink()


@contextlib.contextmanager
def full_disk(server: Server) -> Iterator[None]:
    """No file may grow or be written to: for root too, and without a disk that could be filled."""
    soft, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (soft, hard))
