"""Who has which machine: a small file, written in whole and on disk before anything is switched.

Every change is made under a lock on a file beside it, from what the file says at that moment: an old driver that is
still closing, and one that was made anew, never give one machine to two.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from cloudgraft.drivers.common.json_fields import Fields
from cloudgraft.drivers.hosts.inventory import Host
from cloudgraft.sdk.errors import CloudgraftError, PreconditionError, UnavailableError

__all__ = ["Assignment", "Assignments", "Taken"]

_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A machine that serves a name. What is needed to show it is here too: it may leave the inventory."""

    host: str
    name: str
    provider_id: str
    since: datetime
    addresses: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    is_confirmed: bool = True  # the switch said that it is on; False: it was not asked yet, or nobody knows
    stopping_since: datetime | None = None  # when it was last told to switch off: it is waited for
    notes: Mapping[str, str] = field(default_factory=dict)  # of the switch's own, for the end of it

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to switch off."""
        return self.stopping_since is not None

    @staticmethod
    def of(host: Host, name: str, tags: Mapping[str, str], notes: Mapping[str, str]) -> Assignment:
        """A new one, from now on."""
        return Assignment(
            host=host.id,
            name=name,
            provider_id=host.provider_id,
            since=datetime.now(UTC),
            addresses=tuple(host.addresses),
            tags=dict(tags),
            is_confirmed=False,
            notes=dict(notes),
        )


Taken = dict[str, Assignment]  # by the id of the machine


class Assignments:
    """The file. Its methods block, on the disk and on the lock: call them in a thread."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def read(self) -> Taken:
        """All machines that are taken; raises UnavailableError when nobody can tell."""
        try:
            raw = self.file.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise UnavailableError(f"{self.file} cannot be read: {error.strerror}. Nothing was done") from None
        try:
            return _from_json(json.loads(raw))
        except (ValueError, RecursionError, CloudgraftError) as error:
            why = error.message if isinstance(error, CloudgraftError) else error
            raise UnavailableError(
                f"{self.file}, which says who has which machine, is damaged: {why}. Nothing was done. Restore it, or "
                "remove it when none of the machines is in use"
            ) from None

    def check(self) -> None:
        """Raises UnavailableError when the account cannot be read or kept: better at the start than at night."""
        with self._locked():
            self.read()

    def take(
        self, host: Host, name: str, tags: Mapping[str, str], notes: Mapping[str, str] | None = None
    ) -> tuple[Assignment, bool] | None:
        """The machine is this name's from now on, and True; what the name has already, and False.

        None when another has taken the machine meanwhile.
        """
        with self._locked():
            taken = self.read()
            known = next((one for one in taken.values() if one.name == name), None)
            if known is not None:
                return known, False
            if host.id in taken:
                return None
            new = Assignment.of(host, name, tags, notes or {})
            self._write({**taken, host.id: new})
            return new, True

    def confirm(self, host: str, name: str) -> None:
        """The machine was switched on."""
        self._change(host, name, is_confirmed=True)

    def release(self, host: str, name: str) -> None:
        """The machine is free again, if this name has it."""
        with self._locked():
            taken = self.read()
            if host in taken and taken[host].name == name:
                del taken[host]
                self._write(taken)

    def stopping(self, host: str, name: str) -> None:
        """The machine was told to switch off, and is not free before it is."""
        self._change(host, name, stopping_since=datetime.now(UTC))

    def _change(self, host: str, name: str, **changes: Any) -> None:
        with self._locked():
            taken = self.read()
            if host in taken and taken[host].name == name:
                self._write({**taken, host: replace(taken[host], **changes)})

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self.file.with_name(f"{self.file.name}.lock")
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UnavailableError(
                f"{lock} cannot be opened: {error.strerror}. Nothing was done. The account of who has which machine "
                "needs a place that can be written: see stateFile"
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # held for a write only, by us or by nobody
            yield
        finally:
            os.close(descriptor)

    def _write(self, taken: Taken) -> None:
        draft = self.file.with_name(f"{self.file.name}.new")
        data = json.dumps(_to_json(taken), ensure_ascii=False, indent=1).encode()
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.file)
            directory = os.open(self.file.parent, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise UnavailableError(f"{self.file} cannot be written: {error.strerror}. Nothing was done") from None


def _to_json(taken: Taken) -> dict[str, object]:
    machines = [
        {
            "host": one.host,
            "name": one.name,
            "providerID": one.provider_id,
            "since": one.since.isoformat(),
            "addresses": list(one.addresses),
            "tags": dict(one.tags),
            "confirmed": one.is_confirmed,
            "stopping": one.is_stopping,
            "stoppingSince": one.stopping_since.isoformat() if one.stopping_since else None,
            "notes": dict(one.notes),
        }
        for one in taken.values()
    ]
    return {"version": _VERSION, "taken": machines}


def _from_json(data: object) -> Taken:
    fields = Fields(data, "it")
    if fields.take("version") != _VERSION:
        raise PreconditionError("it was written by another release of cloudgraft")
    entries = fields.take("taken")
    if not isinstance(entries, list):
        raise PreconditionError("it has no list `taken`")
    found = [_assignment(entry, f"taken[{index}]") for index, entry in enumerate(entries)]
    return {one.host: one for one in found}


def _assignment(entry: object, where: str) -> Assignment:
    fields = Fields(entry, where)
    since = _time(fields, "since")
    told_at = _time(fields, "stoppingSince") if fields.take("stoppingSince") is not None else since
    return Assignment(
        host=fields.text("host", may_be_empty=False),
        name=fields.text("name", may_be_empty=False),
        provider_id=fields.text("providerID", may_be_empty=False),
        since=since,
        addresses=fields.list_of_texts("addresses"),
        tags=fields.texts("tags"),
        is_confirmed=fields.take("confirmed") is not False,  # older releases did not say
        stopping_since=told_at if fields.take("stopping") is True else None,
        notes=fields.texts("notes"),
    )


def _time(fields: Fields, key: str) -> datetime:
    text = fields.text(key)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise fields.wrong(key, "a time with its zone", text)
    return time
