"""Simulated clouds as processes, which may be killed and started again with the ledger that they had."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from e2e.processes import Program, free_ports
from e2e.waiting import until

__all__ = ["SimcloudServer"]


class SimcloudServer(Program):
    """One cloud with its own ledger, quotas and faults."""

    def __init__(self, directory: Path, name: str, options: Mapping[str, Any]) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        file = directory / f"{name}.options.yaml"
        file.write_text(yaml.safe_dump(dict(options)), "utf-8")
        where: list[str | Path] = ["--db", directory / f"{name}.db", "--listen", f"127.0.0.1:{port}", "--options", file]
        command = [sys.executable, "-m", "cloudgraft.cli", "simcloud", *where]
        super().__init__(f"simcloud {name}", command, directory / f"{name}.log")

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        super().start()
        until(self._answers, f"{self.name} answers ({self.log})", seconds=30, check=self.check)

    def made(self) -> list[str]:
        """The names of all machines that were ever made, each as often as it was."""
        return [machine["name"] for machine in self._call("GET", "/ledger")["machines"]]

    def alive(self) -> list[str]:
        """The names of the machines that there are."""
        return [machine["name"] for machine in self._call("GET", "/ledger")["machines"] if machine["goneAt"] is None]

    def chaos(self, **chaos: object) -> None:
        """Replaces what goes wrong, by the keys of JSON; without any nothing does."""
        self._call("PUT", "/chaos", chaos)

    def _answers(self) -> bool:
        try:
            self._call("GET", "/healthz")
        except OSError:
            return False
        return True

    def _call(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data=data, method=method)
        with urllib.request.urlopen(request, timeout=10.0) as answer:
            text = answer.read()
        return json.loads(text) if text.strip().startswith(b"{") else text
