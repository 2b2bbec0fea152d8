"""A driver as a plugin: its "machines" are files in a directory, so that it can be tried without any cloud.

    clouds:
      files:
        driver: plugin
        command: [python3, examples/plugin_driver.py]
        options: {directory: /tmp/machines}

It is a BlockingDriver: no async anywhere, which suits most clouds' libraries. Run with ``--listen host:port`` it is a
server of its own instead of a child process.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from cloudgraft.plugin import serve
from cloudgraft.sdk import (
    AlreadyExistsError,
    BlockingDriver,
    DriverTraits,
    Idempotency,
    InvalidArgumentError,
    Machine,
    MachineSpec,
    OutOfStockError,
    Ownership,
    Price,
    Quantity,
    Shape,
)
from cloudgraft.validation import read_settings

SHAPES = {"small": ("2", "4Gi", "0.02"), "large": ("8", "32Gi", "0.16")}


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    directory: Path
    room_for: int = 10  # files


@dataclass(frozen=True, kw_only=True)
class FileSettings:
    shape: str

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise InvalidArgumentError(f"shape must be one of {', '.join(SHAPES)}")


class FileDriver(BlockingDriver):
    """Machines that are files in a directory."""

    Options = FileOptions
    MachineSettings = FileSettings
    traits = DriverTraits(ownership=Ownership.TAGS, idempotency=Idempotency.UNIQUE_NAME)

    def __init__(self, options: FileOptions) -> None:
        self._options = options
        self._lock = threading.RLock()  # calls come from several threads

    def start(self) -> None:
        self._options.directory.mkdir(parents=True, exist_ok=True)

    def create(self, spec: MachineSpec) -> Machine:
        read_settings(FileSettings, spec.settings)  # a file needs no more of it
        path = self._path(spec.name)
        with self._lock:
            if path.exists():
                raise AlreadyExistsError(f"there is a machine {spec.name!r} already")
            if len(self.list()) >= self._options.room_for:
                raise OutOfStockError(f"the directory has no room for more than {self._options.room_for} machines")
            whole = path.with_suffix(".new")
            whole.write_text(json.dumps({"tags": dict(spec.tags)}))
            whole.rename(path)  # killed at any moment, it leaves no half machine
            return self._machine(path)

    def delete(self, machine: Machine) -> None:
        with self._lock:
            self._path(machine.name).unlink(missing_ok=True)

    def list(self) -> Sequence[Machine]:
        with self._lock:
            return [self._machine(path) for path in sorted(self._options.directory.glob("*.json"))]

    def shapes(self) -> Sequence[Shape]:
        return [
            Shape(name=name, capacity={"cpu": Quantity(cpu), "memory": Quantity(memory), "pods": Quantity(110)})
            for name, (cpu, memory, _) in SHAPES.items()
        ]

    def prices(self) -> Sequence[Price]:
        return [Price(shape=name, hourly=Decimal(price), currency="EUR") for name, (*_, price) in SHAPES.items()]

    def _path(self, name: str) -> Path:
        if not name.replace("-", "").isalnum():
            raise InvalidArgumentError(f"{name!r} is not a name for a file")
        return self._options.directory / f"{name}.json"

    def _machine(self, path: Path) -> Machine:
        return Machine(
            name=path.stem,
            machine_id=str(path.stat().st_ino),
            provider_id=f"file://{path.stem}",
            tags=json.loads(path.read_text())["tags"],
            created_at=datetime.fromtimestamp(path.stat().st_mtime, tz=UTC),
        )


def main() -> None:
    if sys.argv[1:2] == ["--listen"]:
        serve(FileDriver(FileOptions(directory=Path(sys.argv[3]))), listen=sys.argv[2])
    else:
        serve(FileDriver)


if __name__ == "__main__":
    main()
