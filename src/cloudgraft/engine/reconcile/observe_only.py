"""Reports the actions that `observeOnly` withholds in a cloud.

In such a cloud the engine lists, matches and decides, and changes nothing: it does not create, delete, mark or give up
machines, and does not write to their nodes. Each withheld decision becomes an event of kind `observed`, once for each
machine and reason. :class:`cloudgraft.engine.reconcile.calls.Caller` makes only read-only calls.
"""

from __future__ import annotations

from collections.abc import Callable

from cloudgraft.engine.guards import HOUR
from cloudgraft.engine.machines.decide import Create, Decision, Delete, Move
from cloudgraft.engine.new_records import about, happened
from cloudgraft.engine.reconcile.observer import Observer
from cloudgraft.engine.writer import Writer
from cloudgraft.sdk.errors import PreconditionError
from cloudgraft.store.records import Change, MachineRecord, Presence, State


class ObserveOnlyError(PreconditionError):
    """The autoscaler ordered a change in a cloud that may only be observed."""

    def __init__(self, cloud: str, group: str, what: str) -> None:
        super().__init__(
            f"observeOnly of cloud {cloud} is set, so nothing was done; otherwise cloudgraft would {what} in group "
            f"{group}. Remove observeOnly from the configuration to allow it"
        )
        self.cloud = cloud
        self.group = group


class Orders:
    """Writes the autoscaler's orders. A refused order becomes an event, at most once an hour each."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._told: dict[str, float] = {}  # time of the latest event by message

    async def write(self, plan: Callable[[], Change], now: float) -> Change:
        """Makes the change that ``plan`` returns when its turn comes."""
        try:
            return await self._writer.write(plan)
        except ObserveOnlyError as error:
            event = happened("observed", now, error.message, cloud=error.cloud, group=error.group)
            self._told = {message: at for message, at in self._told.items() if at > now - HOUR}
            if self._told.setdefault(error.message, now) == now:
                await self._writer.write(lambda: Change(events=(event,)))
            raise


def withheld(record: MachineRecord, decision: Decision) -> str:
    """Describes the withheld part of a decision; empty for a decision that only records observations."""
    match decision:
        case Create():
            return "create it"
        case Delete(machine, cause):
            why = cause or (record.error.message if record.error else "its deletion was ordered")
            return f"delete machine {machine.machine_id}: {why}"
        case Move(new) if _gives_up(record, new):
            return f"give it up and delete it: {new.error.message if new.error else decision.cause}"
        case _:
            return ""


def observed(observer: Observer, record: MachineRecord, what: str, now: float) -> Change:
    """The event about a withheld action, unless it was written already."""
    observer.held[record.name] = f"observeOnly: it would {what}"
    if not observer.is_news(record.name, f"observed: {what}"):
        return Change()
    message = f"observeOnly of cloud {record.cloud} is set, so nothing was done; otherwise cloudgraft would {what}"
    return Change(events=(about(record, now, message, kind="observed"),))


def _gives_up(old: MachineRecord, new: MachineRecord) -> bool:
    """Whether the new record leads to the deletion of the machine."""
    return new.presence is Presence.PRESENT and new.state in (State.FAILED, State.DELETING) and old.state != new.state
