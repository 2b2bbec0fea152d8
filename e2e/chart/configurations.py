"""Has cloudgraft read the configurations that a rendering holds, with real files in place of what pods mount."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cloudgraft.app.dock_alone import check_section
from cloudgraft.app.engine_wiring import desired_state
from cloudgraft.certs.authority import create_bundle
from cloudgraft.config import load
from cloudgraft.config.programs.discovery import load_discovery
from cloudgraft.config.programs.discovery_agent import load_agent
from cloudgraft.sdk.errors import CloudgraftError

__all__ = ["Configurations"]

_READERS: Final[Mapping[str, Callable[[Path], object]]] = {
    "cloudgraft.yaml": lambda path: desired_state(load(path)),
    "node-manager.yaml": lambda path: desired_state(load(path)),
    "dock.yaml": lambda path: load(path, find=check_section),
    "discovery.yaml": load_discovery,
    "agent.yaml": load_agent,
}
_MOUNTS: Final = re.compile(r"/etc/cloudgraft/[a-z]+|/var/lib/cloudgraft")
_FILES: Final = ("vault.keys", "turin", "token", "peering.kubeconfig", "password")


class Configurations:
    """A directory with real files under the names by which they are mounted."""

    def __init__(self, directory: Path) -> None:
        """Makes them."""
        self._directory = directory
        bundle = create_bundle(directory / "certs", hosts=["localhost"])
        files = {"tls.crt": bundle.server_cert, "tls.key": bundle.server_key, "ca.crt": bundle.ca_cert}
        for name, path in files.items():
            shutil.copy(path, directory / name)
        for name in _FILES:
            (directory / name).write_text("A" * 43 + "=", "utf-8")

    def problems(self, objects: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """One line for each that is not accepted."""
        for one in objects:
            for name, text in one.get("data", {}).items() if one["kind"] == "ConfigMap" else ():
                if name not in _READERS:
                    continue
                path = self._directory / name
                path.write_text(_MOUNTS.sub(str(self._directory), text), "utf-8")
                try:
                    _READERS[name](path)
                except CloudgraftError as error:
                    yield f"{name} of ConfigMap {one['metadata']['name']}: {error}"
