"""Finds runs that were killed before they cleaned up, and deletes what they made.

A run leaves a mark in its directory while machines of it may exist, and locks it while it lives. A mark that nobody
holds is that of a run that was killed.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cloudgraft.app.engine_wiring import desired_state
from cloudgraft.config import load
from cloudgraft.engine.groups.specs import create_limit
from cloudgraft.engine.machines.identity import Identity
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.store.records import Presence, State
from cloudgraft.torture.journal_view import JournalView, read_journal
from cloudgraft.torture.outside import started
from cloudgraft.torture.private_config import Paths

PREFIX = "cloudgraft-torture-"  # of the directory of each run


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """A run that was killed before it had deleted its machines."""

    directory: Path
    machines: Sequence[str] = ()  # names that may exist


class Mark:
    """Says that machines of a run may exist."""

    def __init__(self, paths: Paths) -> None:
        self._path = paths.mark
        self._handle = os.open(paths.mark, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._handle)
            raise InvalidArgumentError(f"the run of {paths.directory} goes on; it cleans up itself") from None

    def close(self, *, is_clean: bool) -> None:
        """Ends the run; the mark stays unless all of its machines are gone."""
        if is_clean:
            self._path.unlink(missing_ok=True)
        os.close(self._handle)


def unfinished(base: Path) -> Iterator[Unfinished]:
    """The runs of this user in the directory of runs that were killed."""
    for directory in sorted(base.glob(f"{PREFIX}*")):
        paths = Paths(directory)
        try:
            if paths.mark.stat().st_uid == os.geteuid() and _is_free(paths.mark):
                yield Unfinished(directory=directory, machines=_left(read_journal(paths.journal)))
        except OSError:
            continue  # it has no mark, or is not ours to read


def _is_free(mark: Path) -> bool:
    with mark.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # released when the file is closed
        except OSError:
            return False
        return True


def _left(journal: JournalView | None) -> Sequence[str]:
    records = journal.machines.values() if journal is not None else ()
    return sorted(one.name for one in records if one.state is not State.GONE and one.state is not State.REQUESTED)


async def clean_up(directory: Path, patience: float) -> Sequence[str]:
    """Deletes every machine of a run that has ended, and returns those that are left. Raises CloudgraftError."""
    paths = Paths(directory)
    if not paths.config.is_file():
        raise InvalidArgumentError(f"{directory} is not the directory of a run: it has no {paths.config.name}")
    config = load(paths.config)
    if config.cluster_id is None or len(config.groups()) != 1:
        raise InvalidArgumentError(f"{paths.config} is not the configuration of a run")
    with _marked(paths) as done:
        declared = desired_state(config).clouds[config.groups()[0].cloud]
        settings = declared.settings
        longest = max(settings.list_timeout, settings.delete_timeout).total_seconds()
        async with started(declared.make, longest) as outside:
            left = await outside.delete_all(
                Identity(config.cluster, config.cluster_id),
                since=last_create(paths, create_limit(settings, outside.traits)),
                patience=patience,
            )
        if not left:
            done()
        return left


@contextmanager
def _marked(paths: Paths) -> Iterator[Callable[[], None]]:
    mark, is_clean = Mark(paths), False

    def done() -> None:
        nonlocal is_clean
        is_clean = True

    try:
        yield done
    finally:
        mark.close(is_clean=is_clean)


def last_create(paths: Paths, limit: float) -> float:
    """From when on no create can be carried out any more: a call without an answer may still be on its way.

    ``limit`` is how long one may take, in seconds.
    """
    journal, now = read_journal(paths.journal), time.time()
    records = journal.machines.values() if journal is not None else ()
    open_since = [record.attempt_at or now for record in records if record.presence is Presence.UNKNOWN]
    late = max(open_since) + limit - now if open_since else 0.0
    return time.monotonic() + min(max(late, 0.0), limit)
