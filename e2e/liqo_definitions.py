"""Liqo's own definitions of its kinds, from its Go module: its chart has them, and they need nothing else of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from e2e.control_plane import ControlPlane
from e2e.kubectl import kubectl

__all__ = ["LIQO_VERSION", "define", "liqo_definitions"]

LIQO_VERSION: Final = "v1.2.0"
_MODULE: Final = "github.com/liqotech/liqo"
_INSIDE: Final = Path("deployments", "liqo", "charts", "liqo-crds", "crds")
_LONGEST_DOWNLOAD: Final = 5 * 60.0  # seconds


def liqo_definitions(work: Path) -> tuple[Path | None, str]:
    """The directory of the definitions, or None and one line about why they cannot be had here."""
    if shutil.which("go") is None:
        return None, "there is no Go toolchain"
    # As for everything that is built: no other toolchain is fetched, and no repository is asked for a commit.
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": "-mod=mod"}
    command = ["nice", "-n", "10", "go", "mod", "download", "-json", f"{_MODULE}@{LIQO_VERSION}"]
    try:
        done = subprocess.run(
            command, cwd=work, env=environment, capture_output=True, text=True, timeout=_LONGEST_DOWNLOAD, check=False
        )
    except subprocess.TimeoutExpired:
        return None, f"{_MODULE} was not downloaded in time"
    told = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    found = Path(str(told.get("Dir", "")), _INSIDE)
    if not told.get("Dir") or not found.is_dir():
        why = str(told.get("Error") or done.stderr or "the module has no such directory")
        return None, f"{_MODULE} {LIQO_VERSION}: {' '.join(why.split())[:300]}"
    return found, ""


def define(plane: ControlPlane, definitions: Path) -> None:
    """Has an API server serve Liqo's kinds as Liqo defines them, and returns when it does."""
    # By the server: the client's way keeps a copy of each in an annotation, and for that some are too large.
    kubectl(plane, "apply", "--server-side", "-f", str(definitions))
    kubectl(plane, "wait", "--for=condition=established", "--timeout=50s", "-f", str(definitions))
