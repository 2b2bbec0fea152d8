"""Machines that are files: one that is there is on. With commands that switch them, as bash scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cloudgraft.drivers.static.driver import StaticDriver
from cloudgraft.drivers.static.options import Host, StaticOptions
from cloudgraft.sdk.driver import MachineSpec
from tests.drivers.exec.exec_scripts import script

ON = 'echo "$CLOUDGRAFT_NAME" >"on-$CLOUDGRAFT_HOST_ID"'
OFF = 'rm -f "on-$CLOUDGRAFT_HOST_ID"'
STATE = '[ -e "on-$CLOUDGRAFT_HOST_ID" ] && echo "Chassis Power is on" || echo "Chassis Power is off"'


def hosts(count: int) -> list[Host]:
    return [Host(id=f"host-{number}", addresses=[f"10.0.0.{number}"]) for number in range(1, count + 1)]


def spec(name: str, group: str = "pool", **settings: object) -> MachineSpec:
    return MachineSpec(name=name, group=group, settings=settings, tags={"cloudgraft-name": name})


def static_options(directory: Path, **options: Any) -> StaticOptions:
    """Options whose commands are these bash bodies, for three machines unless told otherwise."""
    given = {"power_on": ON, "power_off": OFF, **options}
    for key in ("power_on", "power_off", "power_state"):
        if isinstance(given.get(key), str):
            given[key] = [str(script(directory, given[key], f"{key}.sh"))]
    given.setdefault("machines", hosts(3))
    return StaticOptions(**{"working_directory": directory, "state_file": directory / "state.json", **given})


def static_driver(directory: Path, **options: Any) -> StaticDriver:
    return StaticDriver(static_options(directory, **options))


def switched_on(directory: Path) -> dict[str, str]:
    """The machines that are on, and for whom."""
    return {file.name.removeprefix("on-"): file.read_text().strip() for file in directory.glob("on-*")}
