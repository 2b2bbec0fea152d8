"""Where everything of one control plane is: files, ports, programs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from e2e.processes import ProgramError, free_ports

__all__ = ["PASSWORD", "REGION", "Site"]

PASSWORD: Final = "only-on-loopback-here"
REGION: Final = "RegionOne"
_PORTS: Final = (
    "database", "broker", "broker_peers", "epmd", "identity", "placement", "image", "network", "compute",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Site:
    """One control plane."""

    home: Path
    programs: Path  # the environment with OpenStack in it
    ports: Mapping[str, int] = field(default_factory=lambda: dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True)))

    def directory(self, name: str) -> Path:
        """Below home; it is there."""
        path = self.home / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def log(self, name: str) -> Path:
        """The log of one program."""
        return self.directory("logs") / f"{name}.log"

    def url(self, service: str) -> str:
        """Where a service listens."""
        return f"http://127.0.0.1:{self.ports[service]}"

    @property
    def auth_url(self) -> str:
        """Of Keystone."""
        return f"{self.url('identity')}/v3"

    def database(self, name: str) -> str:
        """As SQLAlchemy wants it."""
        return f"mysql+pymysql://root@127.0.0.1:{self.ports['database']}/{name}?charset=utf8"

    def program(self, name: str) -> Path:
        """One of OpenStack's."""
        return self.programs / "bin" / name

    def run(self, name: str, *words: str | Path, environment: Mapping[str, str] | None = None) -> None:
        """Runs one of OpenStack's programs to its end."""
        log = self.log(name)
        with log.open("ab") as out:
            done = subprocess.run(
                [str(self.program(name)), *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **(environment or {})},
                check=False,
                timeout=300,
            )
        if done.returncode:
            end = log.read_text("utf-8", "replace")[-3000:]
            raise ProgramError(f"{name} {words[0]} ended with code {done.returncode}; the end of {log}:\n{end}")
