"""Manages node groups declared over REST: stored in the journal, validated like the file, applied at once.

The file's groups are read-only here: two sources that disagree about one group would be one too many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Protocol

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.groups.desired import DesiredState, Joining
from cloudgraft.engine.new_records import happened
from cloudgraft.sdk.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError, PreconditionError
from cloudgraft.store.records import Change, DeclaredGroup
from cloudgraft.validation.problems import ConfigError
from cloudgraft.web.problems import EditedMeanwhileError

_DEEPEST: Final = 40
_NOT_HERE: Final = ("zones", "shapes")


class UnusableGroupError(InvalidArgumentError):
    """A declaration that breaks the rules of `nodeGroups`."""

    http_status = 422


class Rules(Protocol):
    """The file, and its result with further groups."""

    turn: asyncio.Lock  # held from reading either source until the engine has applied the result

    def file_ids(self) -> Collection[str]:
        """The ids of the file's groups."""

    async def checked(self, documents: Sequence[Mapping[str, object]]) -> tuple[DesiredState, Joining]:
        """The whole configuration with these groups; ConfigError when they are invalid."""


class Declarations:
    """Adds, edits and removes groups of one engine, one after another."""

    def __init__(self, engine: Engine, rules: Rules) -> None:
        self._engine = engine
        self._rules = rules

    async def add(self, document: Mapping[str, Any]) -> DeclaredGroup:
        """Adds a group."""
        id_ = _id_of(document)
        async with self._rules.turn:
            self._refuse_of_file(id_)
            if id_ in self._engine.fleet.declared or id_ in self._engine.fleet.groups:
                raise AlreadyExistsError(f"there is a node group {id_!r} already, or its last machines are leaving")
            # Not starting at 1: a client that saw a removed group of the same id must not edit this one.
            revision = max(1, int(self._engine.clock.now() * 1000))
            return await self._apply(DeclaredGroup(id=id_, document=document, revision=revision), "declared")

    async def edit(self, id_: str, document: Mapping[str, Any], revision: int | None) -> DeclaredGroup:
        """Replaces the declaration of a group; with a ``revision``, only if it is unchanged."""
        if _id_of(document) != id_:
            raise UnusableGroupError(f"id: must be {id_!r}, as in the path: a group's id never changes")
        async with self._rules.turn:
            self._refuse_of_file(id_)
            old = self._found(id_, revision)
            new = DeclaredGroup(id=id_, document=document, revision=old.revision + 1)
            return await self._apply(new, "edited")

    async def remove(self, id_: str, revision: int | None) -> None:
        """Removes a group without machines, or one that the file has since defined, whatever it has."""
        async with self._rules.turn:
            if self._engine.fleet.declared.get(id_) is None:
                self._refuse_of_file(id_)
            self._found(id_, revision)
            wanted, joining = await self._checked(self._others(id_))
            await self._engine.writer.write(lambda: self._removed(id_))
            self._engine.reconfigure(wanted, joining)
            await self._engine.refresh()

    def _removed(self, id_: str) -> Change:
        group = self._engine.fleet.groups.get(id_)
        if group is not None and group.machines and not self.is_of_file(id_):
            raise PreconditionError(f"node group {id_!r} has {len(group.machines)} machines: delete them first")
        event = happened("configured", self._engine.clock.now(), "an operator removed it", group=id_)
        return Change(undeclared=(id_,), events=(event,))

    async def _apply(self, new: DeclaredGroup, what: str) -> DeclaredGroup:
        others = self._others(new.id)
        wanted, joining = await self._checked([*others, new.document])
        event = happened("configured", self._engine.clock.now(), f"an operator {what} it", group=new.id)
        await self._engine.writer.write(lambda: Change(declared=(new,), events=(event,)))
        self._engine.reconfigure(wanted, joining)
        await self._engine.refresh()
        return new

    def _others(self, id_: str) -> list[Mapping[str, object]]:
        """All other declarations, except those that the file has since defined."""
        own = self._rules.file_ids()
        return [g.document for g in self._engine.fleet.declared.values() if g.id != id_ and g.id not in own]

    async def _checked(self, documents: Sequence[Mapping[str, object]]) -> tuple[DesiredState, Joining]:
        try:
            return await self._rules.checked(documents)
        except ConfigError as error:
            # Report keys only: the file's location must not leak to callers.
            reported = [f"{p.key}: {p.message}{f' ({p.suggestion})' if p.suggestion else ''}" for p in error.problems]
            raise UnusableGroupError("; ".join(reported)) from error

    def _found(self, id_: str, revision: int | None) -> DeclaredGroup:
        old = self._engine.fleet.declared.get(id_)
        if old is None:
            raise NotFoundError(f"there is no node group {id_!r} that was declared here")
        if revision is not None and revision != old.revision:
            raise EditedMeanwhileError(f"node group {id_!r} is at revision {old.revision} by now: read it again")
        return old

    def is_of_file(self, id_: str) -> bool:
        """Whether the file defines the group: then the file applies, even for one that was declared here before."""
        return id_ in self._rules.file_ids()

    def _refuse_of_file(self, id_: str) -> None:
        if self.is_of_file(id_):
            raise PreconditionError(f"node group {id_!r} is in the configuration file: edit it there")


def _id_of(document: Mapping[str, Any]) -> str:
    id_ = document.get("id")
    if not isinstance(id_, str) or not id_:
        raise UnusableGroupError("id: is missing, or is not text")
    if any(key in document for key in _NOT_HERE):
        raise UnusableGroupError("zones and shapes are for the file: declare one group for each here")
    if _is_deep(document, _DEEPEST):
        raise UnusableGroupError(f"it is nested more than {_DEEPEST} levels deep")
    return id_


def _is_deep(value: object, left: int) -> bool:
    if isinstance(value, Mapping):
        return left == 0 or any(_is_deep(item, left - 1) for item in value.values())
    if isinstance(value, list):
        return left == 0 or any(_is_deep(item, left - 1) for item in value)
    return False
