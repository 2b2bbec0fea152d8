"""Makes minimal Debian systems with debootstrap, for images and tests that need another Python than this machine's."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

__all__ = ["PYTHON_PACKAGES", "CannotMakeTreeError", "debian_tree"]

PYTHON_PACKAGES: Final = ("ca-certificates", "python3", "python3-venv")
_MIRROR: Final = "http://deb.debian.org"
_OLDEST: Final = 86_400.0  # seconds; a tree that is used for longer misses security updates
_WITHOUT_SECURITY: Final = frozenset({"sid"})  # its fixes come as ordinary packages


class CannotMakeTreeError(Exception):
    """No tree can be made here. The text is one line for people."""


def debian_tree(suite: str, packages: tuple[str, ...] = PYTHON_PACKAGES) -> Path:
    """An archive of the suite with these packages and their security updates, at most a day old."""
    archive = _cache() / f"{suite}-{'-'.join(packages)}.tar"
    if archive.exists() and time.time() - archive.stat().st_mtime < _OLDEST:
        return archive
    if os.geteuid() != 0:
        raise CannotMakeTreeError("debootstrap needs root")
    if shutil.which("debootstrap") is None:
        raise CannotMakeTreeError("debootstrap is not installed: apt-get install debootstrap")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as name:
        root = Path(name) / "root"
        _install(suite, packages, root)
        _shrink(root)
        unfinished = Path(name) / archive.name
        _run("tar", "--create", "--one-file-system", "--numeric-owner", "-f", unfinished, "-C", root, ".")
        unfinished.replace(archive)
    return archive


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "cloudgraft" / "debian"


def _install(suite: str, packages: tuple[str, ...], root: Path) -> None:
    _run("debootstrap", "--variant=minbase", f"--include={','.join(packages)}", suite, root, f"{_MIRROR}/debian")
    if suite in _WITHOUT_SECURITY:
        return
    with (root / "etc/apt/sources.list").open("a", encoding="utf-8") as sources:
        sources.write(f"deb {_MIRROR}/debian {suite}-updates main\n")
        sources.write(f"deb {_MIRROR}/debian-security {suite}-security main\n")
    quiet = ("-o", "Dpkg::Use-Pty=0", "--quiet=2")
    _run("chroot", root, "apt-get", *quiet, "update")
    # There is no /proc in there: nothing that these packages do when they are installed needs it.
    _run("chroot", root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", *quiet, "--yes", "upgrade")


def _shrink(root: Path) -> None:
    """Removes what a system without people does not read. Licences stay."""
    for directory in ("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/locale", "usr/share/man"):
        for path in (root / directory).iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in (root / "usr/share/doc").rglob("*"):
        if path.is_file() and path.name != "copyright":
            path.unlink()


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        told = (done.stdout + done.stderr).strip().splitlines()[-3:]
        raise CannotMakeTreeError(f"{command[0]} ended with {done.returncode}: {' / '.join(told)}")
