"""`cloudgraft simcloud` as a process: what it has made outlives every server."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tests.serve.processes import Command
from tests.simcloud.sim_process import call


class Cloud(Command):
    """A cloud on a port of its own. Machines boot and go at once, unless chaos says otherwise."""

    def __init__(self, directory: Path, *arguments: str, name: str = "cloud") -> None:
        times = ("--boot-time", "0s", "--delete-time", "0s")
        super().__init__("simcloud", "--listen", "127.0.0.1:0", "--db", directory / f"{name}.db", *times, *arguments)
        self.url = f"http://{self.wait_for(lambda line: line.get('event') == 'serving')['address']}"

    def chaos(self, **chaos: object) -> None:
        """By the keys of JSON; what is not said goes well."""
        call(self.url, "PUT", "/chaos", chaos)

    def act(self, machine_id: str, action: str) -> None:
        """kill, vanish or lose-tags."""
        call(self.url, "POST", f"/machines/{machine_id}:{action}")

    def ledger(self) -> list[dict[str, Any]]:
        """Every machine ever made, oldest first."""
        machines: list[dict[str, Any]] = call(self.url, "GET", "/ledger")["machines"]
        return machines

    def calls(self, kind: str) -> int:
        """How many calls of a kind it ever got."""
        return int(call(self.url, "GET", "/ledger")["calls"].get(kind, 0))

    def live(self) -> dict[str, str]:
        """The machines that are there and not going: machine id -> name."""
        return {m["machineId"]: m["name"] for m in self.ledger() if m["state"] not in ("deleting", "gone")}

    def made(self) -> int:
        """How many machines it ever made."""
        return len(self.ledger())

    def doubles(self) -> list[str]:
        """Names under which more than one machine was made."""
        return [name for name, count in Counter(m["name"] for m in self.ledger()).items() if count > 1]
