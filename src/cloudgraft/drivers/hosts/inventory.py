"""Reads the list of machines from the configuration and from a file, which it reloads after a change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import yaml

from cloudgraft.drivers.common.secrets import Reloaded
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.flaws import Flaws
from cloudgraft.validation import read_entry
from cloudgraft.validation.document import Document, Where

# -- one machine -------------------------------------------------------------------------------------------------------


class Host(Protocol):
    """One machine of the list."""

    @property
    def id(self) -> str:
        """Its id in the list."""

    @property
    def provider_id(self) -> str:
        """The providerID of its node."""

    @property
    def addresses(self) -> Sequence[str]:
        """The addresses by which its node may be known."""

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels by which a group selects it."""

    @property
    def group(self) -> str:
        """The only group that it serves; empty: any."""


HostType = TypeVar("HostType", bound=Host)


def refuse_bad_id(ident: str) -> None:
    """Refuses an id that cannot be shown in a message or written into the assignments."""
    if not ident or not ident.isprintable():
        raise InvalidArgumentError("a machine needs an id, which is printable text")


def refuse_twins(hosts: Sequence[Host]) -> None:
    """Refuses two entries for one machine, and two machines that would be one node."""
    flaws = Flaws()
    for what, values in (("id", [h.id for h in hosts]), ("providerID", [h.provider_id for h in hosts])):
        for value in (value for value, count in Counter(values).items() if count > 1):
            flaws.tell((), f"two machines have the {what} {value!r}; each must have its own")
    flaws.raise_any()


# -- the list ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Generic[HostType]):
    """The places where machines are listed."""

    given: Sequence[HostType]  # in the configuration
    file: Path | None
    key: str  # of the list in a file; the option that names the file has a name derived from it
    kind: type[HostType]
    check: Callable[[HostType], None] = lambda _: None  # refuses a machine of the file


Inventory = Reloaded[Mapping[str, HostType]]  # all machines by id; reading it blocks: do so in a thread


def read_inventory(source: Source[HostType]) -> Inventory[HostType]:
    """Reads the machines; raises InvalidArgumentError when they are invalid."""
    files = [source.file] if source.file is not None else []
    warning = "the changed list of machines cannot be used, the old one stays"
    inventory = Reloaded(partial(_read_all, source), *files, warning=warning)
    inventory.current()
    return inventory


def _read_all(source: Source[HostType]) -> Mapping[str, HostType]:
    """Returns all machines by id, in order; raises InvalidArgumentError that says what is wrong, and where."""
    hosts = list(source.given)
    if source.file is not None:
        hosts += _read(source, source.file)
    refuse_twins(hosts)
    return {host.id: host for host in hosts}


def _read(source: Source[HostType], file: Path) -> Sequence[HostType]:
    key, option = source.key, f"{source.key}File"
    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgumentError(f"{option} cannot be read: {error.strerror}: {file}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"{option} is neither YAML nor JSON: {file}: {error}") from None
    entries = data.get(key) if isinstance(data, dict) and set(data) == {key} else data
    if not isinstance(entries, list):
        raise InvalidArgumentError(f"{option} must be a list of machines, or have one under `{key}`: {file}")
    document, flaws = Document.without_file(str(file)), Flaws()
    hosts: list[HostType] = []
    for index, entry in enumerate(entries):
        with flaws.at(()):  # each error names its place itself
            host = read_entry(source.kind, entry, Where(document=document, base_dir=file.parent, path=(key, index)))
            source.check(host)
            hosts.append(host)
    flaws.raise_any()
    return hosts
