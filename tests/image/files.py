"""What must not be in an image: compilers, caches, and files by which a process gains rights or leaves something."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["SURPRISES", "surprises"]

_COMPILER: Final = re.compile(r"(?:.+-)?(?:gcc|cc|c\+\+|g\+\+|cpp|clang|as|ld|make|rustc|cargo|go)(?:-[\d.]+)?")
_PLACES_OF_PROGRAMS: Final = {"bin", "sbin"}
_CACHES: Final = ("root/.cache", "root/.cargo", "var/cache/apt/archives", "var/lib/apt/lists", "build", "wheels")
SURPRISES: Final = ("a compiler", "a cache", "gains rights", "anybody writes to it")


def surprises(root: Path) -> Iterator[tuple[str, str]]:
    """Each as its kind and its path."""
    for name in _CACHES:
        if (root / name).exists() and any(path.is_file() for path in (root / name).rglob("*") if path.name != "lock"):
            yield "a cache", f"/{name}"
    for directory, names, files in os.walk(root):
        for path in (Path(directory, name) for name in [*names, *files]):
            yield from ((kind, f"/{path.relative_to(root)}") for kind in _kinds(path, root))


def _kinds(path: Path, root: Path) -> Iterator[str]:
    about = path.lstat()
    if stat.S_ISREG(about.st_mode) and path.parent.name in _PLACES_OF_PROGRAMS and _COMPILER.fullmatch(path.name):
        yield "a compiler"
    if stat.S_ISREG(about.st_mode) and about.st_mode & (stat.S_ISUID | stat.S_ISGID):
        yield "gains rights"
    # Those that belong to all by their nature: links, devices, and the directories for what is temporary.
    is_plain = stat.S_ISREG(about.st_mode) or (stat.S_ISDIR(about.st_mode) and not about.st_mode & stat.S_ISVTX)
    if is_plain and about.st_mode & stat.S_IWOTH and root / "dev" not in path.parents:
        yield "anybody writes to it"
