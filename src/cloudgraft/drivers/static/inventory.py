"""The machines that there are: those of the configuration, and those of a file beside it, which is kept in step."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from cloudgraft.drivers.json_fields import Fields
from cloudgraft.drivers.static.options import Host, StaticOptions, refuse_twins
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError

__all__ = ["Inventory", "read_inventory"]

log = logging.getLogger("cloudgraft.drivers")


class Inventory:
    """The machines as the file has them now. Its methods block: call them in a thread."""

    def __init__(self, options: StaticOptions) -> None:
        """Reads it; raises InvalidArgumentError when it makes no sense."""
        self._options = options
        self._seen = self._stamp()
        self._hosts = read_inventory(options)

    def current(self) -> Mapping[str, Host]:
        """All machines by their ids. A file that was changed and makes no sense is told of once; the old ones stay."""
        now = self._stamp()
        if now != self._seen:
            self._seen = now
            try:
                self._hosts = read_inventory(self._options)
            except CloudgraftError as error:
                log.warning(
                    "the changed list of machines cannot be used, the old one stays", extra={"error": str(error)}
                )
        return self._hosts

    def _stamp(self) -> tuple[int, ...]:
        file = self._options.machines_file
        if file is None:
            return ()
        try:
            found = file.stat()
        except OSError:
            return ()
        return (found.st_mtime_ns, found.st_size, found.st_ino)


def read_inventory(options: StaticOptions) -> Mapping[str, Host]:
    """All machines by their ids, in order; raises InvalidArgumentError that says what is wrong, and where."""
    hosts = list(options.machines)
    if options.machines_file is not None:
        hosts += _read(options.machines_file)
    refuse_twins(hosts)
    return {host.id: host for host in hosts}


def _read(file: Path) -> Sequence[Host]:
    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgumentError(f"machinesFile cannot be read: {error.strerror}: {file}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"machinesFile is neither YAML nor JSON: {file}: {error}") from None
    entries = data.get("machines") if isinstance(data, dict) and set(data) == {"machines"} else data
    if not isinstance(entries, list):
        raise InvalidArgumentError(f"machinesFile must be a list of machines, or have one under `machines`: {file}")
    try:
        return [_host(entry, f"{file}: machines[{index}]", file.parent) for index, entry in enumerate(entries)]
    except CloudgraftError as error:
        raise InvalidArgumentError(error.message) from None


def _host(entry: object, where: str, base: Path) -> Host:
    fields = Fields(entry, where)
    host = Host(
        id=fields.text("id", may_be_empty=False),
        providerID=fields.optional_text("providerID") or "",
        addresses=fields.list_of_texts("addresses"),
        labels=fields.texts("labels"),
        group=fields.optional_text("group") or "",
        vars=fields.texts("vars"),
        var_files={name: base / file for name, file in fields.texts("varFiles").items()},
    )
    fields.end()
    return host
