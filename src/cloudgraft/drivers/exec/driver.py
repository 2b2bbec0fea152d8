"""Implements the driver ``exec``: the commands create, delete and list, with JSON on stdin and stdout."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Final

from cloudgraft.drivers.common.json_fields import Json
from cloudgraft.drivers.common.machine_json import (
    created_from_json,
    dump_json,
    machine_to_json,
    machines_from_json,
    parse_json,
    prices_from_json,
    read_off_loop,
    shapes_from_json,
    spec_to_json,
)
from cloudgraft.drivers.common.secrets import error_without, without
from cloudgraft.drivers.exec.options import ExecOptions
from cloudgraft.drivers.exec.runner import Call, Runner, check_success, failure_of, printable
from cloudgraft.sdk.driver import Driver, Machine, MachineSpec, Price, Shape
from cloudgraft.sdk.errors import CloudgraftError, UnsupportedError

log = logging.getLogger("cloudgraft.drivers")

_VERSION: Final = 1  # of the JSON on stdin
_CHANGES: Final = ("create", "delete")
_PRINTED: Final = {verb: f"what {verb} printed" for verb in ("create", "list", "shapes", "prices")}
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SETTING = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class ExecDriver(Driver):
    """Any cloud behind three commands of yours: create, delete, list. In any language, with JSON in and out."""

    Options = ExecOptions
    MachineSettings = None

    def __init__(self, options: ExecOptions) -> None:
        self._options = options
        self._commands = options.commands()
        self._runner = Runner(options)
        self.traits = options.traits()

    def missing(self) -> Mapping[str, str]:
        """Returns the commands whose programs do not exist."""
        return self._runner.missing()

    async def start(self) -> None:
        """Checks that all commands exist; runs none of them."""
        for key, command in self._commands.items():
            self._runner.check(key, command)
        self._runner.open()

    async def close(self) -> None:
        """Ends the running commands."""
        await self._runner.close()

    async def create(self, spec: MachineSpec) -> Machine:
        """Runs the command; its machine must have the requested name."""
        variables = {
            "CLOUDGRAFT_NAME": spec.name,
            "CLOUDGRAFT_GROUP": spec.group,
            "CLOUDGRAFT_TAGS": json.dumps(dict(spec.tags), ensure_ascii=False),
            **_settings(spec.settings),
        }
        files = {"CLOUDGRAFT_USER_DATA_FILE": spec.user_data}
        stdout = await self._run("create", {"machine": spec_to_json(spec)}, variables, files)
        try:
            return created_from_json(parse_json(stdout, _PRINTED["create"]), spec.name, _PRINTED["create"])
        except CloudgraftError as error:  # it quotes the output
            raise error_without(error, spec.user_data) from None

    async def delete(self, machine: Machine) -> None:
        """Runs the command; its output does not matter, unless it is an error."""
        variables = {
            "CLOUDGRAFT_NAME": machine.name,
            "CLOUDGRAFT_MACHINE_ID": machine.machine_id,
            "CLOUDGRAFT_PROVIDER_ID": machine.provider_id or "",
            "CLOUDGRAFT_TAGS": json.dumps(dict(machine.tags), ensure_ascii=False),
        }
        await self._run("delete", {"machine": machine_to_json(machine)}, variables)

    async def list(self) -> Sequence[Machine]:
        """Runs the command; its response must hold every machine that may be ours."""
        return await read_off_loop(_machines, await self._run("list"))

    async def shapes(self) -> Sequence[Shape]:
        """Runs the command, if there is one."""
        return shapes_from_json(parse_json(await self._run("shapes"), _PRINTED["shapes"]), _PRINTED["shapes"])

    async def prices(self) -> Sequence[Price]:
        """Runs the command, if there is one."""
        return prices_from_json(parse_json(await self._run("prices"), _PRINTED["prices"]), _PRINTED["prices"])

    async def _run(
        self,
        verb: str,
        request: Json | None = None,
        variables: Mapping[str, str] | None = None,
        files: Mapping[str, str] | None = None,
    ) -> bytes:
        """Returns the output of the command when it succeeds; raises the error that it reports otherwise."""
        if verb not in self._commands:
            raise UnsupportedError(f"no command is configured for {verb}")
        call = Call(
            command=self._commands[verb],
            timeout=getattr(self._options.timeouts, verb),
            changes=verb in _CHANGES,
            stdin=dump_json({"version": _VERSION, "operation": verb, **(request or {})}),
            variables={"CLOUDGRAFT_OPERATION": verb, **(variables or {})},
            files=files or {},
        )
        finished = await self._runner.run(call)
        secret = "\n".join((files or {}).values())
        error = failure_of(finished, verb, changes=call.changes, secret=secret)
        if error is not None:
            raise error
        check_success(finished, verb, secret)
        words = without(printable(finished.stderr), secret)
        if words:
            level = logging.INFO if call.changes else logging.DEBUG  # lists are frequent
            log.log(level, "%s", words, extra={"operation": verb, "stream": "stderr"})
        return finished.stdout


def _machines(stdout: bytes) -> Sequence[Machine]:
    return machines_from_json(parse_json(stdout, _PRINTED["list"]), _PRINTED["list"])


def _settings(settings: Mapping[str, object]) -> dict[str, str]:
    """Returns the machine settings that fit into variables: ``diskSize`` becomes ..._SETTING_DISK_SIZE."""
    found: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, str | int | float) and _SETTING.fullmatch(key):
            name = f"CLOUDGRAFT_SETTING_{_HUMP.sub('_', key).upper()}"
            found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found
