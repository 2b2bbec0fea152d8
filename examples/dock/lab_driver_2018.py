"""A driver as they were written in 2018, with class meta, credentials and ids. Usage: lab_driver_2018.py HUB DIRECTORY

It speaks v0, as the machine controller did then; without the settings it would speak v1, and lose no results.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from cloudgraft.dock import ClassData, MachineClassMeta, RunnerSettings, SecretMeta, Speech, from_2018, run


class OldLab:
    """Create, delete and list. What a class and its secret say is asked for in each call."""

    def __init__(self, data: ClassData, directory: Path) -> None:
        self.data = data
        self.directory = directory
        directory.mkdir(exist_ok=True)

    def create(
        self, machine_class: MachineClassMeta, credentials: str, machine_id: str, machine_name: str
    ) -> tuple[str, str]:
        known = json.loads(self.data.get_machine_class(machine_class))
        secret = json.loads(self.data.get_secret(SecretMeta(known["secretRef"]["name"])))
        if base64.b64decode(secret["data"]["password"]) != b"open sesame":
            raise PermissionError("wrong password")
        if machine_name.startswith(".") or "/" in machine_name:  # a name is data, and never leads elsewhere
            raise ValueError("not a name for a machine")
        (self.directory / machine_name).write_text(known["providerSpec"]["size"])
        return f"lab://{machine_name}", machine_name

    def delete(self, machine_class: MachineClassMeta, credentials: str, machine_id: str) -> None:
        (self.directory / Path(machine_id).name).unlink(missing_ok=True)

    def list(self, machine_class: MachineClassMeta, credentials: str, machine_id: str) -> Mapping[str, str]:
        return {f"lab://{path.name}": path.name for path in self.directory.glob("[!.]*")}


if __name__ == "__main__":
    hub, where = sys.argv[1:]
    run(
        from_2018(lambda data: OldLab(data, Path(where))),
        address=hub,
        kind="LabMachineClass",
        api_version="lab.example/v1",
        settings=RunnerSettings(speech=Speech.V0),
    )
