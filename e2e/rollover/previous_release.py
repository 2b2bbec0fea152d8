"""Installs another release of cloudgraft from the git history into an environment of its own."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from e2e.build import CannotBuildError, Tell, cache_directory

__all__ = ["PREVIOUS", "CannotInstallError", "InstalledRelease", "install", "requirement_lines"]

PREVIOUS: Final = "80d647db"  # release 0.1.0
_ROOT: Final = Path(__file__).resolve().parents[2]
_POSTGRESQL: Final = ("psycopg", "psycopg-binary")  # the extra's packages, which core.txt does not have
_LONGEST: Final = 15 * 60.0  # seconds, for one call of pip on a slow machine


class CannotInstallError(CannotBuildError):
    """A release is not to be had here. The text is one line for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledRelease:
    """One that can be run."""

    name: str
    python: Path

    @classmethod
    def of_this_tree(cls) -> InstalledRelease:
        """The one that this program belongs to."""
        return cls(name=_version(_ROOT / "src" / "cloudgraft" / "_version.py"), python=Path(sys.executable))

    def command(self, *words: str | Path) -> list[str]:
        """Its command line."""
        return [str(self.python), "-m", "cloudgraft.cli", *map(str, words)]


def install(revision: str, tell: Tell) -> InstalledRelease:
    """Installs a commit with the requirements that it has locked, once. Raises CannotInstallError."""
    commit = _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").strip()
    directory = cache_directory().parent / "releases" / commit[:12]
    tree, environment, mark = directory / "tree", directory / "venv", directory / "installed"
    with _lock(directory.with_suffix(".lock")):
        if not mark.exists():
            tell(f"installing cloudgraft of commit {commit[:8]} (minutes, once)")
            shutil.rmtree(directory, ignore_errors=True)
            tree.mkdir(parents=True)
            _unpack(commit, tree, directory / "tree.tar")
            _install(tree, environment)
            mark.touch()
    version = _version(tree / "src" / "cloudgraft" / "_version.py")
    return InstalledRelease(name=version, python=environment / "bin" / "python")


def requirement_lines(text: str, names: Sequence[str]) -> str:
    """The lines of a locked requirements file that are about these packages, with their hashes."""
    found: list[str] = []
    is_wanted = False
    for line in text.splitlines():
        start = re.match(r"([A-Za-z0-9._-]+)==", line)
        if start or not line.startswith(" "):
            is_wanted = start is not None and start[1] in names
        if is_wanted:
            found.append(line)
    return "\n".join(found) + "\n"


def _unpack(commit: str, tree: Path, archive: Path) -> None:
    _git("archive", "--format=tar", "--output", str(archive), commit)
    with tarfile.open(archive) as packed:
        packed.extractall(tree, filter="data")
    archive.unlink()


def _install(tree: Path, environment: Path) -> None:
    extra = tree / "postgresql.txt"
    extra.write_text(requirement_lines((tree / "requirements" / "dev.txt").read_text("utf-8"), _POSTGRESQL), "utf-8")
    _run([sys.executable, "-m", "venv", str(environment)])
    pip = [str(environment / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    _run([*pip, "--require-hashes", "-r", str(tree / "requirements" / "core.txt")])
    _run([*pip, "--require-hashes", "--no-deps", "-r", str(extra)])
    _run([*pip, "--no-deps", "--no-build-isolation", str(tree)])


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST, check=False)
    except subprocess.TimeoutExpired:
        raise CannotInstallError(f"{' '.join(command[:5])} took more than {_LONGEST / 60:.0f} min") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["it failed without a word"]
        raise CannotInstallError(f"the previous release cannot be installed here: {lines[-1][:300]}")


def _git(*words: str) -> str:
    if shutil.which("git") is None:
        raise CannotInstallError("the previous release cannot be had: git is not installed")
    done = subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, text=True, timeout=60.0, check=False)
    if done.returncode:
        raise CannotInstallError(
            f"the previous release cannot be had: `git {' '.join(words)}` fails here; is this a clone with its history?"
        )
    return done.stdout


def _version(path: Path) -> str:
    return path.read_text("utf-8").split('"')[1]


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
