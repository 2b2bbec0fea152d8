"""Stores which machine serves which name, in a small file that is on disk before anything is switched.

Every change happens under a lock on a second file, from the content at that moment: an old driver that is still closing
and its replacement never assign one machine twice.
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

from cloudgraft.drivers.common.json_fields import FILLED, LIST_OF_TEXTS, TEXTS, a_time, foreign, reader, shown
from cloudgraft.drivers.hosts.inventory import Host
from cloudgraft.json_codec import Key, maybe, taken
from cloudgraft.sdk.errors import CloudgraftError, PreconditionError, UnavailableError

_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A machine that serves a name. Holds all that a list shows, because the machine may leave the inventory."""

    host: str
    name: str
    provider_id: str
    since: datetime
    addresses: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    is_confirmed: bool = True  # the switch reported it on; False: not switched yet, or unknown
    stopping_since: datetime | None = None  # when it was last ordered to power off, until it is off
    notes: Mapping[str, str] = field(default_factory=dict)  # of the switch, needed when the machine is released

    @property
    def is_stopping(self) -> bool:
        """Whether it was ordered to power off."""
        return self.stopping_since is not None


Taken = dict[str, Assignment]  # by the id of the machine


class Assignments:
    """The file. Its methods block, on the disk and on the lock: call them in a thread."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def read(self) -> Taken:
        """Returns all assigned machines; raises UnavailableError when the file cannot be read."""
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
        """Raises UnavailableError when the file cannot be read or written: better at the start than later."""
        with self._locked():
            self.read()

    def take(
        self, host: Host, name: str, tags: Mapping[str, str], notes: Mapping[str, str] | None = None
    ) -> tuple[Assignment, bool] | None:
        """Assigns the machine to this name and returns it with True; returns the name's existing one with False.

        Returns None when another name has taken the machine meanwhile.
        """
        with self._locked():
            taken = self.read()
            known = next((one for one in taken.values() if one.name == name), None)
            if known is not None:
                return known, False
            if host.id in taken:
                return None
            new = Assignment(
                host=host.id,
                name=name,
                provider_id=host.provider_id,
                since=datetime.now(UTC),
                addresses=tuple(host.addresses),
                tags=dict(tags),
                is_confirmed=False,
                notes=dict(notes or {}),
            )
            self._write({**taken, host.id: new})
            return new, True

    def confirm(self, host: str, name: str) -> None:
        """Records that the machine was powered on."""
        self._change(host, name, is_confirmed=True)

    def release(self, host: str, name: str) -> None:
        """Frees the machine if this name has it."""
        with self._locked():
            taken = self.read()
            if host in taken and taken[host].name == name:
                del taken[host]
                self._write(taken)

    def stopping(self, host: str, name: str) -> None:
        """Records that the machine was ordered to power off. It is not free until it is off."""
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
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # held only during a write, and only by this driver
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


def _assignment(*, since: datetime, stopping: bool, stopping_since: datetime | None = None, **rest: Any) -> Assignment:
    """Builds an assignment. Older releases did not store since when a machine stops."""
    return Assignment(since=since, stopping_since=(stopping_since or since) if stopping else None, **rest)


_TAKEN: Final = reader(
    foreign(
        _assignment,
        is_closed=False,
        host=FILLED,
        name=FILLED,
        provider_id=Key(FILLED, "providerID"),
        since=a_time(),
        addresses=maybe(LIST_OF_TEXTS),
        tags=maybe(TEXTS),
        is_confirmed=Key(taken(lambda said: said is not False), "confirmed"),  # older releases did not store it
        stopping=Key(taken(lambda said: said is True), of="is_stopping"),
        stopping_since=Key(maybe(a_time()), "stoppingSince"),
        notes=maybe(TEXTS),
    )
)


def _to_json(given: Taken) -> dict[str, object]:
    return {"version": _VERSION, "taken": [_TAKEN.write(one) for one in given.values()]}


def _from_json(data: object) -> Taken:
    if not isinstance(data, dict):
        raise PreconditionError(f"it must be a JSON object, not {shown(data)}")
    if data.get("version") != _VERSION:
        raise PreconditionError("it was written by another release of cloudgraft")
    entries = data.get("taken")
    if not isinstance(entries, list):
        raise PreconditionError("it has no list `taken`")
    found = [_TAKEN.read(entry, f"taken[{index}]") for index, entry in enumerate(entries)]
    return {one.host: one for one in found}
