"""Machines that are files in a directory, so that a driver can be tried without any cloud."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import RLock

from cloudgraft.plugin import serve
from cloudgraft.sdk import BlockingDriver, DriverTraits, Idempotency, Machine, MachineSpec, OutOfStockError, Ownership


@dataclass(frozen=True, kw_only=True)
class LabOptions:
    directory: Path
    room_for: int = 3  # machines


class LabDriver(BlockingDriver):
    """Each machine is a file, which holds the machine's tags."""

    Options = LabOptions
    traits = DriverTraits(ownership=Ownership.TAGS, idempotency=Idempotency.TOKEN)

    def __init__(self, options: LabOptions) -> None:
        self.options = options
        self.lock = RLock()  # calls come from several threads
        options.directory.mkdir(exist_ok=True)

    def create(self, spec: MachineSpec) -> Machine:
        path = self.options.directory / spec.name
        with self.lock:
            if not path.exists():  # a second call for the same name makes no second machine
                if len(self.list()) >= self.options.room_for:
                    raise OutOfStockError(f"the lab has room for {self.options.room_for} machines")
                whole = path.with_name(f".{spec.name}")
                whole.write_text(json.dumps(dict(spec.tags)))
                whole.rename(path)  # killed at any moment, it leaves no half machine
            return self.machine(path)

    def delete(self, machine: Machine) -> None:
        with self.lock:
            (self.options.directory / machine.name).unlink(missing_ok=True)

    def list(self) -> Sequence[Machine]:
        with self.lock:
            return [self.machine(path) for path in sorted(self.options.directory.glob("[!.]*"))]

    def machine(self, path: Path) -> Machine:
        return Machine(
            name=path.name,
            machine_id=str(path.stat().st_ino),
            provider_id=f"lab://{path.name}",
            tags=json.loads(path.read_text()),
        )


if __name__ == "__main__":
    serve(LabDriver)
