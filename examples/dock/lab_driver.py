"""A driver that dials in: its machines are files in a directory. Usage: lab_driver.py HUB DIRECTORY"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from cloudgraft.dock import MachineClass, Secret, run
from cloudgraft.sdk import BlockingDriver, DriverTraits, Idempotency, Machine, MachineSpec
from cloudgraft.sdk.errors import AuthenticationError, InvalidArgumentError


class LabDriver(BlockingDriver):
    traits = DriverTraits(idempotency=Idempotency.TOKEN)  # a second create of a name gives the first one's machine

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)

    def use(
        self, machine_class: MachineClass, secret: Secret | None
    ) -> None:  # before the first call, and when it changes
        if secret is not None and secret.data.get("password") != b"open sesame":
            raise AuthenticationError(f"the lab does not know the password of {machine_class.name}")

    def create(self, spec: MachineSpec) -> Machine:  # settings: the class's providerSpec, and over it the group's own
        path = self.path(spec.name)
        if not path.exists():
            whole = path.with_name(f".{spec.name}")
            whole.write_text(json.dumps({"tags": dict(spec.tags), "size": spec.settings.get("size", "small")}))
            whole.rename(path)  # killed at any moment, it leaves no half machine
        return self.machine(path)

    def delete(self, machine: Machine) -> None:
        self.path(machine.name).unlink(missing_ok=True)

    def list(self) -> Sequence[Machine]:
        return [self.machine(path) for path in sorted(self.directory.glob("[!.]*"))]

    def path(self, name: str) -> Path:
        if name.startswith(".") or "/" in name:  # a name is data, and never leads elsewhere
            raise InvalidArgumentError(f"{name!r} is not a name for a machine")
        return self.directory / name

    def machine(self, path: Path) -> Machine:
        tags = json.loads(path.read_text())["tags"]
        return Machine(name=path.name, machine_id=path.name, provider_id=f"lab://{path.name}", tags=tags)


if __name__ == "__main__":
    hub, directory = sys.argv[1:]
    run(LabDriver(Path(directory)), address=hub, kind="LabMachineClass", api_version="lab.example/v1")
