"""Converts records to rows with checksums and back. Rows are plain tuples in column order."""

from __future__ import annotations

import enum
import json
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Table, bindparam, select, update

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.store.journal import JournalBrokenError
from cloudgraft.store.records import (
    CloudRecord,
    DeclaredGroup,
    ErrorRecord,
    Event,
    GroupRecord,
    LearnedRecord,
    MachineRecord,
    PauseRecord,
    Presence,
    Progress,
    RequestRecord,
    Scope,
    State,
)

# -- checksums ---------------------------------------------------------------------------------------------------------
# Seals each row with a checksum and verifies it, so that a flipped bit on a disk does not become another record.
#
# The checksum covers the table's name and every column in the table's order. JSON is the canonical form: both databases
# give it the same values. A column that a later release adds behind the others changes no checksum while it is NULL; a
# migration that fills it seals the rows again.


CHECKSUM: Final = "checksum"  # the column
_NUMBERED: Final = {"events": "seq"}  # keys that the database assigns after the row was sealed; indexes verify them
_AT_ONCE: Final = 1000
_canonical = json.JSONEncoder(separators=(",", ":"), default=repr).encode


class IllegalRowError(JournalBrokenError):
    """A row that cannot be a record, or is not the one that was written; ``problem`` says in short what is wrong."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"the journal cannot be read: {problem}; `cloudgraft db check` names every such row. Stop cloudgraft; put "
            "a backup in its place, or run `cloudgraft db repair`"
        )
        self.problem = problem


def columns(table: Table) -> list[str]:
    """The columns that hold the record: all but the checksum."""
    return [column.name for column in table.c if column.name != CHECKSUM]


class Seal:
    """Makes and verifies the checksums of one table's rows."""

    def __init__(self, table: Table) -> None:
        names = [column.name for column in table.c]
        covered = [name for name in columns(table) if name != _NUMBERED.get(table.name)]
        self._table = table
        self._names = covered
        self._at = names.index(CHECKSUM)
        self._covered = [names.index(name) for name in covered]
        self._floats = [at for at, name in enumerate(covered) if table.c[name].type.python_type is float]

    @staticmethod
    @lru_cache(maxsize=64)
    def of(table: Table) -> Seal:
        """The seal of a table, made once."""
        return Seal(table)

    def sealed(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The row with its checksum."""
        return {**row, CHECKSUM: self._sum([row[name] for name in self._names])}

    def expected(self, row: Sequence[Any]) -> int:
        """The checksum that a row, as it is read, should have."""
        return self._sum([row[at] for at in self._covered])

    def is_sound(self, row: Sequence[Any]) -> bool:
        """Whether a row, as it is read, is the one that was written."""
        return bool(row[self._at] == self.expected(row))

    def opened(self, row: Sequence[Any]) -> Sequence[Any]:
        """The row without its checksum, which is not verified."""
        return (*row[: self._at], *row[self._at + 1 :])

    def verified(self, row: Sequence[Any]) -> Sequence[Any]:
        """The row without its checksum; IllegalRowError when it is not the one that was written."""
        if not self.is_sound(row):
            raise IllegalRowError(self.problem(row))
        return self.opened(row)

    def problem(self, row: Sequence[Any]) -> str:
        """The message for a row that is not the one that was written."""
        return f"{self._table.name} {self.key(row)}: the row does not match its checksum"

    def key(self, row: Sequence[Any]) -> str:
        """The row's key, for people."""
        values = dict(zip((column.name for column in self._table.c), row, strict=True))
        key = "/".join(str(values[column.name]) for column in self._table.primary_key)
        return key.encode("utf-8", "backslashreplace").decode()

    def _sum(self, values: list[Any]) -> int:
        for at in self._floats:
            value = values[at]
            if type(value) in (int, float):  # neither a whole number nor a negative zero is stored as such
                values[at] = value + 0.0
        while values and values[-1] is None:
            values.pop()
        text = _canonical([self._table.name, *values])
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def seal_all(connection: Connection, table: Table) -> None:
    """Gives every row of a table its checksum, whatever it holds."""
    seal, keys, names = Seal(table), list(table.primary_key), [column.name for column in table.c]
    statement = (
        update(table).where(*(key == bindparam(f"{key.name}_") for key in keys)).values({CHECKSUM: bindparam(CHECKSUM)})
    )
    rows = connection.execute(select(table)).all()
    for start in range(0, len(rows), _AT_ONCE):
        connection.execute(
            statement,
            [
                {CHECKSUM: seal.expected(row), **{f"{key.name}_": row[names.index(key.name)] for key in keys}}
                for row in rows[start : start + _AT_ONCE]
            ],
        )


E = TypeVar("E", bound=enum.Enum)
Row = Sequence[Any]
Values = dict[str, object]


def machine_row(record: MachineRecord) -> Values:
    """A machine as named values of the columns of `machines`."""
    error = record.error
    return {
        "name": _key(record.name, "name"),
        "group_id": _key(record.group, "group"),
        "cloud": _key(record.cloud, "cloud"),
        "placeholder": _key(record.placeholder, "placeholder"),
        "state": record.state.value,
        "presence": record.presence.value,
        "settings": _json(record.settings),
        "tags": _json(record.tags),
        "requested_at": record.requested_at,
        "state_since": record.state_since,
        "ordered_at": record.ordered_at,
        "attempt_at": record.attempt_at,
        "attempts": record.attempts,
        "gone_at": record.gone_at,
        "machine_id": _key(record.machine_id, "machine id"),
        "provider_id": _key(record.provider_id, "providerID"),
        "error_code": _text(error.code) if error else None,
        "error_message": _text(error.message) if error else None,
        "error_class": error.error_class if error else None,
        "hourly": None if record.hourly is None else str(record.hourly),
        "currency": _text(record.currency),
        "is_adopted": record.is_adopted,
        "replaces": _key(record.replaces, "name"),
        "version": record.version,
        "is_marked": record.is_marked,
        "created_at": record.created_at,
    }


def group_row(record: GroupRecord) -> Values:
    """A group as named values of the columns of `node_groups`."""
    return {
        "id": _key(record.id, "group"),
        "cloud": _key(record.cloud, "cloud"),
        "spec": _json(record.spec),
        "configured": record.configured,
    }


def learned_row(record: LearnedRecord) -> Values:
    """A learned template as named values of the columns of `learned`."""
    return {
        "group_id": _key(record.group, "group"),
        "settings": _json(record.settings),
        "since": record.since,
        "facts": _json(record.facts),
    }


def cloud_row(record: CloudRecord) -> Values:
    """A cloud as named values of the columns of `clouds`."""
    return {"name": _key(record.name, "cloud"), "adopted_at": record.adopted_at}


def pause_row(record: PauseRecord) -> Values:
    """A pause as named values of the columns of `pauses`."""
    return {
        "scope": record.scope.value,
        "name": _key(record.name, record.scope.value),
        "since": record.since,
        "reason": _text(record.reason),
    }


def request_row(record: RequestRecord) -> Values:
    """A request as named values of the columns of `requests`."""
    return {
        "caller": _key(record.caller, "caller"),
        "key": _key(record.key, "key"),
        "fingerprint": record.fingerprint,
        "answer": _json(record.answer),
        "at": record.at,
    }


def declared_row(record: DeclaredGroup) -> Values:
    """A declared group as named values of the columns of `declared_groups`."""
    return {"id": _key(record.id, "group"), "document": _json(record.document), "revision": record.revision}


def progress_row(record: Progress) -> Values:
    """The progress as named values of the columns of `progress`."""
    return {"id": 1, "at": record.at, "boot_id": _text(record.boot_id), "boot_time": record.boot_time}


def event_row(event: Event) -> Values:
    """An event as named values of the columns of `events`, without its number, which the journal gives."""
    return {
        "at": event.at,
        "kind": _text(event.kind),
        "message": _text(event.message),
        "cloud": _text(event.cloud),
        "group_id": _text(event.group),
        "machine": _text(event.machine),
        "state": event.state.value if event.state else None,
        "data": _json(event.data),
    }


class Reader:
    """Makes records of rows. A row that cannot be one is a JournalBrokenError.

    Machines of one group mostly have the same settings, so equal JSON is parsed once and the result shared.
    """

    def __init__(self) -> None:
        self._parsed: dict[str, dict[str, Any]] = {}

    def machine(self, row: Row) -> MachineRecord:
        """A row of `machines`."""
        (name, group, cloud, placeholder, state, presence, settings, tags, requested_at, state_since, ordered_at,
         attempt_at, attempts, gone_at, machine_id, provider_id, code, message, error_class, hourly, currency,
         is_adopted, replaces, version, is_marked, created_at) = row  # fmt: skip
        try:
            return MachineRecord(
                name=name,
                group=group,
                cloud=cloud,
                placeholder=placeholder,
                state=State(state),
                presence=Presence(presence),
                settings=self._object(settings),
                tags=_parse(tags),
                requested_at=requested_at,
                state_since=state_since,
                ordered_at=ordered_at,
                attempt_at=attempt_at,
                attempts=attempts,
                gone_at=gone_at,
                machine_id=machine_id,
                provider_id=provider_id,
                error=None if code is None else ErrorRecord(code=code, message=message, error_class=error_class),
                hourly=None if hourly is None else Decimal(hourly),
                currency=currency,
                is_adopted=is_adopted,
                replaces=replaces,
                version=version,
                is_marked=is_marked,
                created_at=created_at,
            )
        except (ValueError, InvalidOperation) as error:
            raise _illegal("machine", name, error) from error

    def group(self, row: Row) -> GroupRecord:
        """A row of `node_groups`."""
        group, cloud, spec, configured = row
        try:
            return GroupRecord(id=group, cloud=cloud, spec=_parse(spec), configured=configured)
        except ValueError as error:
            raise _illegal("group", group, error) from error

    def learned(self, row: Row) -> LearnedRecord:
        """A row of `learned`."""
        group, settings, since, facts = row
        try:
            return LearnedRecord(group=group, settings=self._object(settings), since=since, facts=_parse(facts))
        except ValueError as error:
            raise _illegal("what was learned of group", group, error) from error

    def cloud(self, row: Row) -> CloudRecord:
        """A row of `clouds`."""
        name, adopted_at = row
        return CloudRecord(name=name, adopted_at=adopted_at)

    def pause(self, row: Row) -> PauseRecord:
        """A row of `pauses`."""
        scope, name, since, reason = row
        try:
            return PauseRecord(scope=Scope(scope), name=name, since=since, reason=reason)
        except ValueError as error:
            raise _illegal("pause of", name, error) from error

    def request(self, row: Row) -> RequestRecord:
        """A row of `requests`."""
        caller, key, fingerprint, answer, at = row
        try:
            return RequestRecord(caller=caller, key=key, fingerprint=fingerprint, answer=_parse(answer), at=at)
        except ValueError as error:
            raise _illegal("request", key, error) from error

    def declared(self, row: Row) -> DeclaredGroup:
        """A row of `declared_groups`."""
        group, document, revision = row
        try:
            return DeclaredGroup(id=group, document=_parse(document), revision=revision)
        except ValueError as error:
            raise _illegal("declared group", group, error) from error

    def progress(self, row: Row) -> Progress:
        """A row of `progress`."""
        _, at, boot_id, boot_time = row
        return Progress(at=at, boot_id=boot_id, boot_time=boot_time)

    def event(self, row: Row) -> Event:
        """A row of `events`."""
        seq, at, kind, message, cloud, group, machine, state, data = row
        try:
            return Event(
                at=at,
                kind=kind,
                message=message,
                cloud=cloud,
                group=group,
                machine=machine,
                state=None if state is None else State(state),
                data=_parse(data),
                seq=seq,
            )
        except ValueError as error:
            raise _illegal("event", seq, error) from error

    def _object(self, text: str) -> dict[str, Any]:
        found = self._parsed.get(text)
        if found is None:
            found = self._parsed[text] = _parse(text)
        return found


def _parse(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"{text[:40]!r} is not a JSON object")  # noqa: TRY004 - a bad value like others
    return value


def _json(value: Mapping[str, object]) -> str:
    """ASCII, so that no character in it can be one that a database refuses."""
    return json.dumps(value, default=_plain, separators=(",", ":"))


def _plain(value: object) -> object:
    """Converts values that JSON lacks. A value that reads a little differently is better than a change not written."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, enum.Enum):
        return value.value
    return list(value) if isinstance(value, Collection) and not isinstance(value, bytes) else str(value)


def _text(value: str) -> str:
    """Text for people, perhaps from a cloud: replaces what no database accepts (NUL, half a surrogate pair)."""
    if value.isascii() and "\0" not in value:
        return value
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def _key(value: str, what: str) -> str:
    """Text that names something. It cannot be changed without naming something else, so it is refused."""
    if _text(value) != value:
        raise InvalidArgumentError(f"{what} {value!r} has characters that cannot be stored: NUL or half of a pair")
    return value


def _illegal(what: str, name: object, error: Exception) -> IllegalRowError:
    return IllegalRowError(f"{what} {name}: {error}")
