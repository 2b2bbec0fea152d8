"""A small cloud of virtual machines that are not there, with a command-line tool of its own, ``vm``.

Its books are files in one directory, which the tool writes and the cloud's own process follows::

    machines/NAME.json   what was ordered, by the tool; removed by it to delete the machine
    user-data/NAME       what the machine is told
    ledger.jsonl         what really was: one line for each start and end of a machine, by the cloud's process
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

__all__ = ["Books", "Vm", "main"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vm:
    """A machine as it was ordered."""

    id: str
    name: str
    tags: Mapping[str, str] = field(default_factory=dict)
    cpus: str = "2"
    memory: str = "4Gi"


class Books:
    """The directory."""

    def __init__(self, home: Path) -> None:
        self.machines = home / "machines"
        self.user_data = home / "user-data"
        self.ledger = home / "ledger.jsonl"
        for directory in (self.machines, self.user_data):
            directory.mkdir(parents=True, exist_ok=True)

    def order(self, vm: Vm, user_data: str) -> Vm:
        """A name is given once: the second order of it gets the first machine."""
        (self.user_data / vm.name).write_text(user_data, "utf-8")
        unfinished = self.machines / f".{vm.name}.{os.getpid()}"
        unfinished.write_text(json.dumps(asdict(vm)), "utf-8")
        try:
            os.link(unfinished, self.machines / f"{vm.name}.json")
        except FileExistsError:
            return self.ordered()[vm.name]
        finally:
            unfinished.unlink()
        return vm

    def ordered(self) -> dict[str, Vm]:
        """All machines that are wanted, by name."""
        found = {}
        for path in sorted(self.machines.glob("*.json")):
            try:
                vm = Vm(**json.loads(path.read_text("utf-8")))
            except FileNotFoundError:
                continue  # deleted meanwhile
            found[vm.name] = vm
        return found

    def delete(self, id_: str) -> bool:
        """Whether there was such a machine."""
        for vm in self.ordered().values():
            if vm.id == id_:
                (self.machines / f"{vm.name}.json").unlink(missing_ok=True)
                return True
        return False

    def note(self, what: str, vm: Vm) -> None:
        """Writes a line into the ledger."""
        with self.ledger.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"what": what, "name": vm.name, "id": vm.id}) + "\n")

    def entries(self) -> list[dict[str, Any]]:
        """The ledger."""
        lines = self.ledger.read_text("utf-8").splitlines() if self.ledger.exists() else []
        return [json.loads(line) for line in lines]


def _books() -> Books:
    return Books(Path(os.environ["VM_HOME"]))


@click.group()
def main() -> None:
    """Virtual machines."""


@main.command()
@click.argument("name")
@click.option("--user-data", "user_data", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--tags", default="{}", help="JSON.")
@click.option("--cpus", default="2")
@click.option("--memory", default="4Gi")
def create(name: str, user_data: Path, tags: str, cpus: str, memory: str) -> None:
    """Order a machine, and print its id."""
    wanted = Vm(id=f"vm-{os.urandom(4).hex()}", name=name, tags=json.loads(tags), cpus=cpus, memory=memory)
    print(_books().order(wanted, user_data.read_text("utf-8")).id)


@main.command()
@click.argument("id")
def delete(id: str) -> None:  # noqa: A002 - click names it
    """Delete a machine."""
    if not _books().delete(id):
        sys.exit(4)


@main.command(name="list")
def list_() -> None:
    """Print all machines as JSON."""
    machines: Sequence[dict[str, Any]] = [
        {"id": vm.id, "name": vm.name, "tags": vm.tags, "state": "running"} for vm in _books().ordered().values()
    ]
    print(json.dumps(machines))


if __name__ == "__main__":
    main()
