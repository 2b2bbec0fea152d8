"""Liqo's own definitions of its kinds, from its Go module: its chart has them, and they need nothing else of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from e2e.build import CannotBuildError
from e2e.control_plane import ControlPlane
from e2e.kubectl import kubectl
from e2e.module_files import module_directory
from e2e.waiting import until

__all__ = ["LIQO_VERSION", "define", "liqo_definitions"]

LIQO_VERSION: Final = "v1.2.0"
_MODULE: Final = "github.com/liqotech/liqo"
_INSIDE: Final = Path("deployments", "liqo", "charts", "liqo-crds", "crds")
_SECONDS_TO_SERVE: Final = 60.0


def liqo_definitions(work: Path) -> tuple[Path | None, str]:
    """The directory of the definitions, or None and one line about why they cannot be had here."""
    try:
        found = module_directory(_MODULE, LIQO_VERSION, work) / _INSIDE
    except CannotBuildError as error:
        return None, str(error)
    if not found.is_dir():
        return None, f"{_MODULE} {LIQO_VERSION}: the module has no such directory"
    return found, ""


def define(plane: ControlPlane, definitions: Path) -> None:
    """Has an API server serve the kinds that a file or directory defines, and returns when it does."""
    # By the server: the client's way keeps a copy of each in an annotation, and for that some are too large.
    kubectl(plane, "apply", "--server-side", "-f", str(definitions))
    what = f"the kinds of {definitions.name} are served"
    until(lambda: _are_served(plane, definitions), what, seconds=_SECONDS_TO_SERVE)


def _are_served(plane: ControlPlane, definitions: Path) -> bool:
    """Not by `kubectl wait`, which fails at a definition that has no conditions at all yet."""
    found = json.loads(kubectl(plane, "get", "-f", str(definitions), "-o", "json"))
    conditions = [one.get("status", {}).get("conditions") or () for one in found.get("items", [found])]
    return all(("Established", "True") in {(each["type"], each["status"]) for each in some} for some in conditions)
