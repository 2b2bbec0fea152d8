"""Holds machine classes and secrets in memory, merged from several sources, with revisions.

A revision is a number that grows with each change. It is not persisted: a restarted store begins with a higher one, by
the clock of its host, so that a driver does not mistake its cached revisions of an earlier hub for current ones.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from cloudgraft.dock.classes.declared import ClassId, Declared, SecretData, SecretRedaction, Snapshot, shown
from cloudgraft.dock.protocol.messages import ClassRef, Key, MachineClass, Secret
from cloudgraft.sdk.errors import NotFoundError, PreconditionError, UnavailableError

OnChanged = Callable[[Key, Sequence[str], Sequence[str]], None]
_LOG = logging.getLogger("cloudgraft.dock")
_EPOCH: Final = 1_700_000_000  # v0 has 32 bits for a revision; so they last until 2091
_MOST_REMOVED: Final = 1000
_DELETED: Final = (
    "it was deleted, and is kept only for the machines that there are: make it again, or use another class"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A class as drivers see it."""

    declared: Declared
    value: MachineClass
    secret: Secret | None = None  # the last one seen
    digest: bytes = field(default=b"", repr=False)  # of the secret
    trouble: str = ""  # why machines cannot be created from it


class MachineClasses:
    """The current machine classes. No method blocks; use it from one event loop.

    A removed class or secret is kept in its last version for as long as the process runs, because its machines must
    still be listed and deleted. New machines cannot be created from it: see :meth:`check_create`.
    """

    def __init__(
        self, sources: Sequence[str], *, clock: Callable[[], float] = time.monotonic, first_revision: int | None = None
    ) -> None:
        """``sources`` are the names of all publishers. If two have a class of the same name, the first wins."""
        self._waiting = list(sources)
        self._snapshots: dict[str, Snapshot] = dict.fromkeys(sources, Snapshot())
        self._entries: dict[ClassId, _Entry] = {}
        self._removed: dict[ClassId, None] = {}  # removed classes, oldest first
        self._revision = int(time.time()) - _EPOCH if first_revision is None else first_revision - 1
        self._hiding = SecretRedaction(clock)
        self._callbacks: list[OnChanged] = []
        self._reported: frozenset[str] = frozenset()

    # -- for the hub ---------------------------------------------------------------------------------------------------

    def get(self, name: str, key: Key) -> MachineClass:
        """Returns the class of that name and kind. One of another kind counts as not found.

        Raises NotFoundError; UnavailableError while a source has not been read yet.
        """
        return self._entry(name, key).value

    def secret(self, machine_class: MachineClass) -> Secret | None:
        """Returns the current secret of a class; None when it needs none. Raises NotFoundError when never seen."""
        entry = self._entry(machine_class.name, machine_class.key)
        if entry.secret is None and entry.declared.secrets:
            raise NotFoundError(f"machine class {shown(entry.value.name)}: {entry.declared.missing}")
        return entry.secret

    def ref(self, name: str, key: Key) -> ClassRef:
        """Returns the current revisions of a class and of its secret; raises NotFoundError."""
        entry = self._entry(name, key)
        secret_revision = entry.secret.revision if entry.secret is not None else 0
        return ClassRef(name=name, revision=entry.value.revision, secret_revision=secret_revision)

    def check_create(self, name: str, key: Key) -> None:
        """Checks that machines may be created from a class. Raises NotFoundError or PreconditionError."""
        trouble = self._entry(name, key).trouble
        if trouble:
            raise PreconditionError(f"no machine is made of machine class {shown(name)} of {key}: {trouble}")

    def on_changed(self, callback: OnChanged) -> None:
        """Calls back with a kind, and the names of its classes and of their secrets that have changed."""
        self._callbacks.append(callback)

    # -- for sources and reports ---------------------------------------------------------------------------------------

    def classes(self) -> Sequence[MachineClass]:
        """All classes that machines may be created from."""
        return [entry.value for entry in self._entries.values() if not entry.trouble]

    def problems(self) -> Sequence[str]:
        """Current errors of the sources, for people."""
        return sorted(self._reported)

    def publish(self, source: str, snapshot: Snapshot) -> None:
        """Replaces the content of a source."""
        self._waiting = [name for name in self._waiting if name != source]
        self._snapshots[source] = snapshot
        wanted, problems = self._merged()
        changed: dict[Key, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        for id_, declared in wanted.items():
            old = self._entries.get(id_)
            new = self._entries[id_] = self._updated(old, declared)
            classes, secrets = changed[declared.value.key]
            if old is None or old.value.revision != new.value.revision:
                classes.append(declared.value.name)
            if old is not None and old.secret != new.secret:
                secrets += [secret.name for secret in (old.secret, new.secret) if secret is not None]
            self._removed.pop(id_, None)
        self._remove([id_ for id_ in self._entries if id_ not in wanted and id_ not in self._removed])
        self._hiding.apply()  # before any callback
        self._log_problems(problems)
        for key, (classes, secrets) in changed.items():
            if classes or secrets:
                self._notify(key, classes, list(dict.fromkeys(secrets)))

    def _entry(self, name: str, key: Key) -> _Entry:
        entry = self._entries.get((key, name))
        if entry is not None:
            return entry
        if self._waiting:
            waiting = ", ".join(self._waiting)
            raise UnavailableError(f"machine classes are still being read ({waiting}); {shown(name)} is not known yet")
        raise NotFoundError(f"there is no machine class {shown(name)} of {key}")

    def _merged(self) -> tuple[dict[ClassId, Declared], list[str]]:
        wanted: dict[ClassId, Declared] = {}
        origin: dict[ClassId, str] = {}
        problems: list[str] = []
        for source, snapshot in self._snapshots.items():
            problems += snapshot.problems
            for declared in snapshot.classes:
                if declared.id in wanted:
                    problems.append(
                        f"machine class {declared.value.name} of {source} is already one of {origin[declared.id]}"
                    )
                else:
                    wanted[declared.id], origin[declared.id] = declared, source
        return wanted, problems

    def _updated(self, old: _Entry | None, declared: Declared) -> _Entry:
        if old is not None and old.declared is declared and not old.trouble:
            return old
        is_same = old is not None and old.value.json == declared.value.json
        value = old.value if old is not None and is_same else replace(declared.value, revision=self._next())
        trouble = "it is being deleted" if declared.deleting else declared.missing
        if declared.data is None:  # keep the last one, unless the class no longer names any
            kept = old if declared.secrets else None
            if old is not None and old.secret is not None and kept is None:
                self._hiding.end(old.secret.data)
            secret, digest = (kept.secret, kept.digest) if kept is not None else (None, b"")
            return _Entry(declared=declared, value=value, secret=secret, digest=digest, trouble=trouble)
        secret, digest = self._secret(old, declared, declared.data)
        return _Entry(declared=declared, value=value, secret=secret, digest=digest, trouble=trouble)

    def _secret(self, old: _Entry | None, declared: Declared, data: SecretData) -> tuple[Secret, bytes]:
        digest, name = _digest(data), declared.value.secret
        if old is not None and old.secret is not None:
            if old.digest == digest:
                return replace(old.secret, name=name), digest
            self._hiding.end(old.secret.data)
        self._hiding.begin(data)
        return Secret(name=name, revision=self._next(), data=data, namespace=declared.value.namespace), digest

    def _remove(self, gone: Sequence[ClassId]) -> None:
        for id_ in gone:
            self._entries[id_] = replace(self._entries[id_], trouble=_DELETED)
            self._removed[id_] = None
        while len(self._removed) > _MOST_REMOVED:
            oldest = next(iter(self._removed))
            del self._removed[oldest]
            forgotten = self._entries.pop(oldest).secret
            if forgotten is not None:
                self._hiding.end(forgotten.data)

    def _next(self) -> int:
        self._revision += 1
        return self._revision

    def _log_problems(self, problems: Sequence[str]) -> None:
        for problem in dict.fromkeys(problems):
            if problem not in self._reported:
                _LOG.warning("machine classes: %s", problem)
        self._reported = frozenset(problems)

    def _notify(self, key: Key, classes: Sequence[str], secrets: Sequence[str]) -> None:
        _LOG.info("machine classes changed", extra={"kind": str(key), "classes": classes, "secrets": secrets})
        for callback in self._callbacks:
            try:
                callback(key, classes, secrets)
            except Exception:  # noqa: BLE001 - the other callbacks must still run
                _LOG.exception("a listener of machine classes failed")


def _digest(data: SecretData) -> bytes:
    digest = hashlib.sha256()
    for name, value in sorted(data.items()):
        digest.update(f"{len(name)}:{name}{len(value)}:".encode() + value)
    return digest.digest()
