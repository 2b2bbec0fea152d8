"""Implements the driver ``static``: a fixed list of machines that commands switch on and off."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cloudgraft.drivers.common.machine_json import dump_json
from cloudgraft.drivers.exec.runner import Call, Runner, failure_of
from cloudgraft.drivers.hosts.assignments import Assignment
from cloudgraft.drivers.hosts.driver import HostsDriver, PowerState, Switch, Times
from cloudgraft.drivers.hosts.inventory import read_inventory
from cloudgraft.drivers.static.options import Host, MachineSettings, StaticOptions
from cloudgraft.sdk.driver import MachineSpec
from cloudgraft.sdk.errors import InternalError

# -- commands ----------------------------------------------------------------------------------------------------------

_USER_DATA: Final = "CLOUDGRAFT_USER_DATA_FILE"


class Power(Switch[Host]):
    """Runs the commands of one list of machines."""

    def __init__(self, options: StaticOptions) -> None:
        self._commands = options.commands()
        times = options.timeouts
        self._timeouts = {
            "powerOn": times.power_on,
            "powerOff": times.power_off,
            "powerState": times.power_state,
        }
        self._runner = Runner(options)
        self.can_tell = "powerState" in self._commands
        self.longest_on = times.power_on

    def missing(self) -> Mapping[str, str]:
        """Returns the commands whose programs do not exist."""
        return self._runner.missing()

    def start(self) -> None:
        """Checks that the commands exist."""
        for key, command in self._commands.items():
            self._runner.check(key, command)
        self._runner.open()

    async def close(self) -> None:
        """Ends the running commands."""
        await self._runner.close()

    async def on(self, host: Host, spec: MachineSpec, *, is_first: bool) -> None:
        """Powers it on for this name. A machine that is on already stays on."""
        del is_first
        variables = {"CLOUDGRAFT_NAME": spec.name, "CLOUDGRAFT_GROUP": spec.group}
        await self._run("powerOn", host, variables, spec.user_data)

    async def off(self, host: Host, assignment: Assignment) -> bool:
        """Powers it off, at every call."""
        await self._run("powerOff", host, {"CLOUDGRAFT_NAME": assignment.name})
        return True

    async def state(self, host: Host) -> PowerState:
        """Reads the power state: the last word of the command's first line, such as in ``Chassis Power is on``."""
        stdout = await self._run("powerState", host, {})
        lines = stdout.decode("utf-8", "replace").strip().splitlines()
        word = lines[0].split()[-1].strip("\"'.").lower() if lines else ""
        # Redfish also has PoweringOn and PoweringOff: such a machine is neither free nor off.
        if word in ("on", "poweringon", "poweringoff"):
            return PowerState.ON
        if word == "off":
            return PowerState.OFF
        said = lines[0][:80] if lines else ""
        raise InternalError(f"powerState of {host.id} must print on or off as its last word; it printed {said!r}")

    async def _run(self, key: str, host: Host, variables: Mapping[str, str], user_data: str = "") -> bytes:
        files = {_USER_DATA: user_data} if key == "powerOn" else {}
        call = Call(
            command=self._commands[key],
            timeout=self._timeouts[key],
            changes=key != "powerState",
            stdin=dump_json(_request(key, host, {**variables, **files})),
            variables={"CLOUDGRAFT_OPERATION": key, **_host_variables(host), **variables},
            files=files,
            secret_files={f"CLOUDGRAFT_VAR_{name.upper()}": file for name, file in host.var_files.items()},
        )
        finished = await self._runner.run(call)
        error = failure_of(finished, f"{key} of {host.id}", changes=call.changes, secret=user_data)
        if error is not None:
            raise error
        return finished.stdout


def _request(key: str, host: Host, variables: Mapping[str, str]) -> dict[str, object]:
    """Returns the JSON for stdin. It has no variables from files: those are only in the environment."""
    entry = {
        "id": host.id,
        "providerID": host.provider_id,
        "addresses": list(host.addresses),
        "labels": dict(host.labels),
        "vars": dict(host.vars),
    }
    request: dict[str, object] = {"version": 1, "operation": key, "host": entry}
    keys = {"name": "CLOUDGRAFT_NAME", "group": "CLOUDGRAFT_GROUP", "userData": _USER_DATA}
    if machine := {key: variables[name] for key, name in keys.items() if name in variables}:
        request["machine"] = machine
    return request


def _host_variables(host: Host) -> dict[str, str]:
    return {
        "CLOUDGRAFT_HOST_ID": host.id,
        "CLOUDGRAFT_HOST_ADDRESS": host.addresses[0] if host.addresses else "",
        "CLOUDGRAFT_HOST_ADDRESSES": json.dumps(list(host.addresses)),
        "CLOUDGRAFT_PROVIDER_ID": host.provider_id,
        **{f"CLOUDGRAFT_VAR_{name.upper()}": value for name, value in host.vars.items()},
    }


# -- the driver --------------------------------------------------------------------------------------------------------


class StaticDriver(HostsDriver[Host]):
    """Machines that you own, switched on and off by commands of yours."""

    Options = StaticOptions
    MachineSettings = MachineSettings

    def __init__(self, options: StaticOptions) -> None:
        """Reads the inventory; raises InvalidArgumentError when it is invalid."""
        self.traits = options.traits()
        self._power = Power(options)
        super().__init__(
            read_inventory(options.source()),
            options.state_file or Path("static-machines.json"),
            self._power,
            Times(power_on=options.power_on_time, power_off=options.power_off_time),
        )

    def missing(self) -> Mapping[str, str]:
        """Returns the commands whose programs do not exist."""
        return self._power.missing()
