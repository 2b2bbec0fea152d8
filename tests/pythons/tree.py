"""Copies what a clone of this repository would have, with the changes that are not committed yet."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

__all__ = ["TREE", "copy_clean"]

TREE: Final = Path(__file__).resolve().parent.parent.parent


def copy_clean(to: Path, owner: tuple[int, int], tree: Path = TREE) -> None:
    """Copies every file that git knows, and gives the copy to the owner."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=tree, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (source := tree / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, to / name, follow_symlinks=False)
    for directory, _, files in os.walk(to):
        for path in (directory, *(os.path.join(directory, name) for name in files)):  # noqa: PTH118 - thousands of them
            os.chown(path, *owner, follow_symlinks=False)
