"""Fetches machine classes and secrets from the hub, caches them by revision, and passes them to the driver."""

from __future__ import annotations

import asyncio
import json
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from cloudgraft.dock.classes.declared import SecretData, SecretRedaction
from cloudgraft.dock.protocol.codes import Verb
from cloudgraft.dock.protocol.messages import ClassRef, Key, MachineClass, Operation, Secret
from cloudgraft.dock.runner.adapter import MachineError, Use, status_of
from cloudgraft.sdk.common.event_loop import contained
from cloudgraft.sdk.errors import (
    CloudgraftError,
    DeadlineError,
    InternalError,
    NotFoundError,
    PreconditionError,
    Retry,
    UnavailableError,
)
from cloudgraft.sdk.secrecy import secret_values

_MOST: Final = 256  # classes; a driver rarely has more than a few
_REFERENCES: Final = ("credentialsSecretRef", "secretRef")
_AGAIN: Final = 1.0  # seconds; a retry-after tells the hub that nothing was done


class Source(ABC):
    """Fetches classes and secrets over the current connection. Raises errors of the sdk."""

    is_versioned: ClassVar[bool]  # False: v0 has no usable revisions, and only a new fetch shows changes

    @abstractmethod
    async def machine_class(self, name: str) -> MachineClass:
        """The current class."""

    @abstractmethod
    async def secret(self, machine_class: MachineClass) -> Secret | None:
        """The secret that the class names; None when it names none."""


# the hub's process, and the revisions of class and secret, which count within one process
_Asked = tuple[str, int, int]


@dataclass(slots=True)
class _Entry:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    asked: _Asked | None = None  # the revisions it was fetched for; None: fetch it again
    machine_class: MachineClass | None = None
    secret: Secret | None = None
    hidden: SecretData = field(default_factory=dict, repr=False)


class Classes:
    """The classes that the driver has received, by name."""

    def __init__(self, use: Use | None) -> None:
        """``use`` is the driver's own method; without it no secret is ever fetched."""
        self.source: Source | None = None  # None: not connected
        self.hub_id = ""  # the hub process of the last operation: another one has its own revisions
        self._use = use
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._hiding = SecretRedaction(time.monotonic)

    def at_hand(self, operation: Operation) -> tuple[bool, MachineClass | None]:
        """Whether the operation can begin at once, and its class; None: it needs none."""
        ref = operation.class_ref
        if not ref.name or (self._use is None and operation.verb is not Verb.CREATE):
            return True, None
        entry = self._entries.get(ref.name)
        is_known = entry is not None and not entry.lock.locked() and self._is_good(entry, ref)
        return is_known, entry.machine_class if entry is not None else None

    async def ready(self, operation: Operation) -> MachineClass:
        """Returns the class of an operation after the driver has received the revision that the hub named.

        Raises an error that says that nothing was done: a missing class makes no outcome unknown, and a missing class
        is not a missing machine.
        """
        ref = operation.class_ref
        try:
            return await self._ready(ref, is_change_of_none=operation.verb is not Verb.CREATE)
        except MachineError:
            raise
        except CloudgraftError as error:
            raise _nothing_done(error, ref.name) from error

    def forget(self, classes: Iterable[str] = (), secrets: Iterable[str] = ()) -> None:
        """Invalidates these classes: they are fetched again before their next use."""
        other_classes, other_secrets = set(classes), set(secrets)
        for name, entry in self._entries.items():
            if name in other_classes or (entry.secret is not None and entry.secret.name in other_secrets):
                entry.asked = None

    def close(self) -> None:
        """Drops every secret."""
        for entry in self._entries.values():
            self._hiding.end(entry.hidden)
        self._entries.clear()

    async def _ready(self, ref: ClassRef, *, is_change_of_none: bool) -> MachineClass:
        entry = self._entry(ref.name)
        wanted = self._asked(ref)
        async with entry.lock:
            if entry.machine_class is not None and self._is_good(entry, ref):
                return entry.machine_class
            try:
                found = await self._fetch(ref.name)
            except NotFoundError:
                # Machines outlive their class: the last known version still deletes and lists them.
                if entry.machine_class is None or not is_change_of_none:
                    raise
                return entry.machine_class
            return await self._show(entry, wanted, *found)

    def _is_good(self, entry: _Entry, ref: ClassRef) -> bool:
        is_versioned = self.source is None or self.source.is_versioned
        return entry.asked == self._asked(ref) and is_versioned

    def _asked(self, ref: ClassRef) -> _Asked:
        return self.hub_id, ref.revision, ref.secret_revision

    def _entry(self, name: str) -> _Entry:
        entry = self._entries.setdefault(name, _Entry())
        self._entries.move_to_end(name)
        if len(self._entries) > _MOST:
            self._hiding.end(self._entries.popitem(last=False)[1].hidden)
        return entry

    async def _fetch(self, name: str) -> tuple[MachineClass, Secret | None]:
        if self.source is None:
            raise UnavailableError("the connection was lost")
        found = await self.source.machine_class(name)
        if self._use is None or self.source is None:
            return found, None
        return found, await self.source.secret(found)

    async def _show(
        self, entry: _Entry, wanted: _Asked, machine_class: MachineClass, secret: Secret | None
    ) -> MachineClass:
        old, hidden = entry.hidden, _hidden_of(machine_class, secret)
        is_new = hidden != old
        if is_new:
            self._hiding.begin(hidden)
        self._hiding.apply()  # before the driver has it: from then on any exception may contain it
        try:
            if self._use is not None and (machine_class, secret) != (entry.machine_class, entry.secret):
                await _used(self._use, machine_class, secret)
        except BaseException:
            if is_new:
                self._hiding.end(hidden)
            raise
        entry.asked, entry.machine_class, entry.secret, entry.hidden = wanted, machine_class, secret, hidden
        if is_new:
            self._hiding.end(old)  # running operations may still use it: it stays redacted for a while
        return machine_class


def _hidden_of(machine_class: MachineClass, secret: Secret | None) -> SecretData:
    """The values to redact: those of the secret, and those of the class under keys such as ``password``."""
    said = enumerate(secret_values(machine_class.provider_spec))
    # No key of a Secret has a slash. Half a character cannot be in any text that is sent.
    hidden = {f"providerSpec/{number}": value.encode("utf-8", "replace") for number, value in said}
    return {**hidden, **(secret.data if secret is not None else {})}


async def _used(use: Use, machine_class: MachineClass, secret: Secret | None) -> None:
    try:
        await contained(use(machine_class, secret))
    except (CloudgraftError, MachineError):
        raise
    except Exception as error:
        raise InternalError(status_of(error).message) from error


def _nothing_done(error: CloudgraftError, name: str) -> CloudgraftError:
    message = f"machine class {name!r}: {error.message}; nothing was done"
    if isinstance(error, DeadlineError) or error.retry is Retry.YES:
        return UnavailableError(message, retry_after=error.retry_after or _AGAIN)
    if isinstance(error, (NotFoundError, InternalError)):
        return PreconditionError(message)
    return type(error)(message, retry_after=error.retry_after)


# -- parsing -----------------------------------------------------------------------------------------------------------


def class_from_json(text: str, *, name: str, key: Key, revision: int) -> MachineClass:
    """Parses a class from the hub's JSON; raises InternalError when it is invalid."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise InternalError(f"what the hub sent for the machine class {name!r} is not JSON") from None
    if not isinstance(data, dict):
        raise InternalError(f"what the hub sent for the machine class {name!r} is not an object")
    metadata = _object(data, "metadata")
    is_old = "providerSpec" not in data  # older kinds have all of it in their spec
    places = (data, _object(data, "spec")) if is_old else (data,)
    found = [_object(place, word) for place in places for word in _REFERENCES]
    references = [reference for reference in found if reference]
    reference = references[0] if references else {}
    spec = {key: value for key, value in _object(data, "spec").items() if key not in _REFERENCES}
    return MachineClass(
        name=name,
        key=key,
        revision=revision,
        provider_spec=spec if is_old else _object(data, "providerSpec"),
        node_template=_object(data, "nodeTemplate"),
        secret=str(reference.get("name", "")),
        also_named=str(references[1].get("name", "")) if len(references) > 1 else "",
        namespace=str(reference.get("namespace") or metadata.get("namespace") or ""),
        json=text,
    )


def _object(data: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}
