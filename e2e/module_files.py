"""Files of Go modules that are no programs, such as definitions of kinds: from Go's own cache, downloaded once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from e2e.build import CannotBuildError

__all__ = ["module_directory"]

_LONGEST_DOWNLOAD: Final = 5 * 60.0  # seconds


def module_directory(module: str, version: str, work: Path) -> Path:
    """The directory of the module's files. Raises CannotBuildError with one line about why it cannot be had here."""
    if shutil.which("go") is None:
        raise CannotBuildError("there is no Go toolchain")
    # As for everything that is built: no other toolchain is fetched, and no repository is asked for a commit.
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": "-mod=mod"}
    command = ["nice", "-n", "10", "go", "mod", "download", "-json", f"{module}@{version}"]
    try:
        done = subprocess.run(
            command, cwd=work, env=environment, capture_output=True, text=True, timeout=_LONGEST_DOWNLOAD, check=False
        )
    except subprocess.TimeoutExpired:
        raise CannotBuildError(f"{module} was not downloaded in time") from None
    told = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    if not told.get("Dir"):
        why = str(told.get("Error") or done.stderr)
        raise CannotBuildError(f"{module} {version}: {' '.join(why.split())[:300]}")
    return Path(str(told["Dir"]))
