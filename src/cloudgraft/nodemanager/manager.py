"""Bundles the parts of a node manager, and reads long lists a page at a time without blocking others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.fleet import Group
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.nodemanager.changes import Changes, Operation, operation_ids, operation_of, operations_of
from cloudgraft.nodemanager.declared_groups import Declarations, Rules
from cloudgraft.nodemanager.feed import Feed
from cloudgraft.sdk.errors import NotFoundError, UnavailableError
from cloudgraft.store.records import MachineRecord, State
from cloudgraft.web.pagination import page

_AWAY = 2.0  # seconds after which to retry at a replica that does not lead


@contextmanager
def retried_soon() -> Iterator[None]:
    """Adds a short Retry-After to an error of a replica that is unavailable."""
    try:
        yield
    except UnavailableError as error:
        raise UnavailableError(error.message, retry_after=_AWAY) from error


class Manager:
    """One engine, with everything that the HTTPS routes need."""

    def __init__(self, engine: Engine, provider: EngineProvider, rules: Rules | None = None) -> None:
        """Without ``rules`` no groups can be declared over the API."""
        self.engine = engine
        self.provider = provider
        self.feed = Feed(engine)
        self.changes = Changes(provider)
        self.declarations = Declarations(engine, rules) if rules is not None else None

    async def leading(self) -> None:
        """503 with Retry-After if this replica does not lead: behind one address, the next attempt finds the leader."""
        with retried_soon():
            self.engine.check_open()

    async def ready(self) -> str:
        """Why this server is not ready; empty when it is."""
        return self.engine.trouble()

    def group(self, id_: str) -> Group:
        """A group that the autoscaler may see."""
        group = self.engine.fleet.groups.get(id_)
        if group is None:
            raise NotFoundError(f"there is no node group {id_!r}")
        return group

    def is_declared(self, id_: str) -> bool:
        """Whether a group was declared over this API, and not by the file."""
        is_of_file = self.declarations is not None and self.declarations.is_of_file(id_)
        return id_ in self.engine.fleet.declared and not is_of_file

    def machines(self, group: str, *, limit: int, cursor: str) -> tuple[list[MachineRecord], str]:
        """A page of a group's machines, by name."""
        machines = self.group(group).machines
        names, following = page(machines, limit=limit, cursor=cursor, key=str)
        return [machines[name] for name in names], following

    def operations(self, *, group: str, state: str, limit: int, cursor: str) -> tuple[list[Operation], str]:
        """A page of operations, by id; of one group or of all, in one state or in any."""
        records = self._records(group)
        if state:
            keys = (each.id for record in records for each in operations_of(record) if each.state == state)
        else:
            keys = (id_ for record in records for id_ in operation_ids(record))
        ids, following = page(keys, limit=limit, cursor=cursor, key=str)
        return [self.operation(id_) for id_ in ids], following

    def operation(self, id_: str) -> Operation:
        """One operation."""
        _, _, machine = id_.partition(":")
        record = self.engine.fleet.machines.get(machine)
        operation = operation_of(record, id_) if record is not None else None
        if operation is None:
            raise NotFoundError(f"there is no operation {id_!r}; those of machines that are long gone are forgotten")
        return operation

    def _records(self, group: str) -> Iterable[MachineRecord]:
        everything = self.engine.fleet.machines.values()
        return [record for record in everything if record.group == group] if group else everything

    def counts(self, group: Group) -> dict[State, int]:
        """The number of a group's machines in each state."""
        found = dict.fromkeys(State, 0)
        for record in group.machines.values():
            found[record.state] += 1
        return found
