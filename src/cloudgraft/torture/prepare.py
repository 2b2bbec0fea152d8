"""Prepares a run: reads the user's file, refuses what is in use, and writes the derived configuration."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from cloudgraft.config import load
from cloudgraft.torture.journal_view import read_own
from cloudgraft.torture.leftovers import PREFIX
from cloudgraft.torture.plan import Bounds
from cloudgraft.torture.private_config import Paths, choose_group, new_identity, private_config
from cloudgraft.torture.refusals import config_refusals, journal_refusals
from cloudgraft.torture.run import Job, RefusedError
from cloudgraft.torture.server_process import ServerProcess

_LONGEST_BASE = 55  # a unix socket's whole path has about 100 characters


def prepare(
    path: Path,
    *,
    group: str,
    bounds: Bounds,
    seed: int,
    patience: float,
    yes_use: str,
    starter: Callable[[Paths], Callable[[bool], Awaitable[ServerProcess]]],
) -> Job:
    """A run that may begin. Raises ConfigError for a bad file, and RefusedError with all reasons that are known so far.

    ``starter`` says how the server of a derived configuration is started. Nothing is left behind after an error.
    """
    user = load(path)
    chosen = choose_group(user, group)
    own = read_own(user)
    reasons = [*config_refusals(user, chosen), *journal_refusals(own, chosen)]
    if reasons:
        raise RefusedError("\n".join(reasons))
    identity = new_identity()
    paths = Paths(_private_directory())
    try:
        _write(paths.config, json.dumps(private_config(user, chosen, identity, paths, bounds), indent=2, default=str))
        private = load(paths.config)
    except BaseException:
        remove(paths)
        raise
    return Job(
        user=user,
        private=private,
        group=chosen,
        own=own,
        identity=identity,
        paths=paths,
        bounds=bounds,
        seed=seed,
        patience=patience,
        yes_use=yes_use,
        start=starter(paths),
    )


def remove(paths: Paths) -> None:
    """Removes the files of a run."""
    for file in paths.directory.iterdir():
        file.unlink(missing_ok=True)
    paths.directory.rmdir()


def directory_of_runs() -> Path:
    """Where each run makes its directory."""
    base = tempfile.gettempdir()
    if len(base) > _LONGEST_BASE and Path("/tmp").is_dir():  # noqa: S108 - mkdtemp makes it private
        base = "/tmp"  # noqa: S108 - likewise
    return Path(base)


def _private_directory() -> Path:
    """A directory that only this user can enter: the derived file has the secrets of the user's own."""
    return Path(tempfile.mkdtemp(prefix=PREFIX, dir=directory_of_runs()))


def _write(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
