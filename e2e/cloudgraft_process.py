"""``cloudgraft serve`` and ``cloudgraft simcloud`` as real processes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from cloudgraft.admin.client import AdminClient
from cloudgraft.sdk.errors import CloudgraftError
from e2e.journal import Call, Journal, LogReader, read_calls, read_journal
from e2e.processes import Program, ProgramError, free_ports
from e2e.waiting import until

__all__ = ["CloudgraftServer", "Simcloud"]

_COMMAND: Final = (sys.executable, "-m", "cloudgraft.cli")
_SECONDS_TO_START: Final = 30.0


class CloudgraftServer(Program):
    """A server with its journal and its configuration in a directory; killed or stopped, it may be started again."""

    def __init__(self, directory: Path, document: Mapping[str, Any]) -> None:
        port, self._ops = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self.config = directory / "cloudgraft.yaml"
        self.directory = directory
        self._server = {"listen": self.address, "ops": f"127.0.0.1:{self._ops}"}
        self.configure(document)
        super().__init__("cloudgraft", [*_COMMAND, "serve", "--config", self.config], directory / "cloudgraft.log")
        self._entries = LogReader(self.log)

    def configure(self, document: Mapping[str, Any]) -> None:
        """Writes the file; a server that runs takes it up by itself."""
        ours: dict[str, Any] = {"server": {**self._server, **document.get("server", {})}}
        # At level 5 every call is logged, and for that answered by Python: only where all of them are counted.
        log = {"level": 4, "format": "json", **document.get("log", {})}
        ours |= {"log": log, "store": {"path": "journal.db"}}
        unfinished = self.config.with_suffix(".new")
        unfinished.write_text(yaml.safe_dump({**document, **ours}, sort_keys=False), "utf-8")
        unfinished.replace(self.config)

    def start(self) -> None:
        """Starts it, and waits until it serves."""
        super().start()
        until(self._serves, f"cloudgraft serves ({self.log})", seconds=_SECONDS_TO_START, check=self.check)

    # -- what it says --------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """As ``cloudgraft status --machines -o json`` has it."""
        return asyncio.run(self._status())

    def groups(self) -> dict[str, dict[str, Any]]:
        """The groups of :meth:`status` by id; none while it does not answer."""
        try:
            return {group["id"]: group for group in self.status()["groups"]}
        except CloudgraftError:
            return {}

    def targets(self) -> dict[str, int]:
        """The target of each group that has one."""
        return {id_: int(group["target"]) for id_, group in self.groups().items() if group["target"]}

    def states(self) -> dict[str, dict[str, int]]:
        """How many machines of each group are in which state, but for groups without any."""
        return {id_: dict(group["states"]) for id_, group in self.groups().items() if group["states"]}

    def journal(self) -> Journal:
        """All of it, from the disk."""
        command = [*_COMMAND, "db", "export", "--store", str(self.directory / "journal.db")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60.0, check=False)
        if done.returncode:
            raise ProgramError(f"the journal in {self.directory} cannot be read: {done.stderr.strip()}")
        return read_journal(done.stdout)

    def call(self, rpc: str, request: Mapping[str, Any]) -> None:
        """Makes a call as the autoscaler would."""
        command = [*_COMMAND, "call", rpc, "--address", self.address, "--data", json.dumps(request)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60.0, check=False)
        if done.returncode:
            raise ProgramError(f"{rpc} was answered: {done.stderr.strip()}")

    def calls(self) -> list[Call]:
        """Every call of the autoscaler so far, through all restarts."""
        return read_calls(self.log_entries())

    def log_entries(self) -> Sequence[dict[str, Any]]:
        """Its log so far."""
        return self._entries.entries()

    async def _status(self) -> dict[str, Any]:
        async with AdminClient(self.directory / "journal.db.sock", timeout=10.0) as admin:
            return await admin.call("Status", {"machines": True})

    def _serves(self) -> bool:
        return _get(f"http://127.0.0.1:{self._ops}/readyz") is not None


class Simcloud(Program):
    """A simulated cloud, which plays the kubelet of its machines in a cluster."""

    def __init__(
        self, directory: Path, name: str, *, kubeconfig: Path, options: Mapping[str, Any], chaos: Mapping[str, Any]
    ) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        options_file = directory / f"{name}.options.yaml"
        options_file.write_text(yaml.safe_dump({"bootTime": "2s", "deleteTime": "1s", **options}), "utf-8")
        chaos_file = directory / f"{name}.chaos.json"
        chaos_file.write_text(json.dumps(chaos), "utf-8")
        files: list[str | Path] = ["--db", directory / f"{name}.db", "--options", options_file, "--chaos", chaos_file]
        where: list[str | Path] = ["--listen", f"127.0.0.1:{port}", "--kubeconfig", kubeconfig]
        super().__init__(f"simcloud {name}", [*_COMMAND, "simcloud", *where, *files], directory / f"{name}.log")

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        super().start()
        until(
            lambda: _get(f"{self.url}/healthz") is not None,
            f"{self.name} answers ({self.log})",
            seconds=_SECONDS_TO_START,
            check=self.check,
        )

    def ledger(self) -> list[dict[str, Any]]:
        """Every machine that was ever made."""
        return list(self._books()["machines"])

    def alive(self) -> list[dict[str, Any]]:
        """Machines that cost money now, those that are being deleted too."""
        return [machine for machine in self.ledger() if machine["goneAt"] is None]

    def order_chaos(self, chaos: Mapping[str, Any]) -> None:
        """Replaces what goes wrong."""
        data = json.dumps(chaos).encode()
        request = urllib.request.Request(f"{self.url}/chaos", data=data, method="PUT")
        with urllib.request.urlopen(request, timeout=10.0) as answer:
            answer.read()

    def _books(self) -> dict[str, Any]:
        data = _get(f"{self.url}/ledger")
        if data is None:
            raise ProgramError(f"{self.name} does not answer; its log is {self.log}")
        return dict(json.loads(data))


def _get(url: str) -> bytes | None:
    try:
        with urllib.request.urlopen(url, timeout=10.0) as answer:
            return bytes(answer.read())
    except OSError:
        return None
