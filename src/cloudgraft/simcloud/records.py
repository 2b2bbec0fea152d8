"""Defines a machine as the cloud knows it, and pages of a list of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Generic, TypeVar

from cloudgraft.sdk.driver import Machine, MachineState, Shape
from cloudgraft.sdk.errors import UnavailableError
from cloudgraft.simcloud.options import MachineSettings

_HOUR = Decimal(3600)
_CENTS = Decimal("0.000001")  # the precision of amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A client's order."""

    name: str
    settings: MachineSettings
    token: str = ""  # the same token, the same machine
    tags: Mapping[str, str] = field(default_factory=dict)
    client: str = ""  # who asks
    machine_id: str = ""  # the id that it is to have, as in clouds that use ids again; empty: a new one


@dataclass(frozen=True, slots=True, kw_only=True)
class SimMachine:
    """A machine at one moment. ``state`` is the state that the cloud reports; a gone machine is not shown."""

    seq: int
    machine_id: str
    provider_id: str
    name: str
    state: MachineState
    reason: str
    shape: Shape
    settings: MachineSettings
    tags: Mapping[str, str]
    created_at: float
    running_since: float | None  # None until it has booted

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its node, without the host name."""
        zone = {"topology.kubernetes.io/zone": self.settings.zone} if self.settings.zone else {}
        return {**self.shape.labels, **zone, **self.settings.labels}

    def as_machine(self) -> Machine:
        """Converts it to the driver's type."""
        return Machine(
            name=self.name,
            machine_id=self.machine_id,
            provider_id=self.provider_id,
            state=self.state,
            tags=self.tags,
            created_at=datetime.fromtimestamp(self.created_at, UTC),
            reason=self.reason,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """A machine as the ledger reports it, also one that is long gone."""

    machine_id: str
    provider_id: str
    name: str
    token: str
    client: str  # who made it
    shape: str
    tags: Mapping[str, str]  # as ordered, even if the machine has lost them
    state: str  # a MachineState's value, or "gone"
    creates: int  # calls that were answered with this machine
    deletes: int  # calls to delete it, also those that it ignored
    deleted_by: str  # who asked last
    created_at: float
    delete_asked_at: float | None
    gone_at: float | None  # None while it is there; without delete_asked_at it vanished by itself
    cost: Decimal  # so far
    currency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One row of the ledger. A time that is None never comes."""

    seq: int
    machine_id: str
    order: Order
    shape: Shape  # as it was when the machine was made
    hourly: Decimal | None
    currency: str
    created_at: float
    boots_at: float | None
    dies_at: float | None = None
    tags_lost_at: float | None = None
    delete_asked_at: float | None = None  # of a delete that is carried out
    gone_at: float | None = None
    creates: int = 1
    deletes: int = 0
    deleted_by: str = ""

    @property
    def provider_id(self) -> str:
        """Never the same for two machines, and known before the machine runs."""
        return f"simulated://{self.machine_id}"

    def exists_at(self, moment: float) -> bool:
        """Whether it is made and not gone."""
        return self.created_at <= moment and not _is_past(self.gone_at, moment)

    def state_at(self, moment: float) -> MachineState:
        """The state that the cloud reports while it exists; of a gone machine: being deleted."""
        if _is_past(self.delete_asked_at, moment) or _is_past(self.gone_at, moment):
            return MachineState.DELETING
        if _is_past(self.dies_at, moment):
            return MachineState.FAILED
        return MachineState.RUNNING if _is_past(self.boots_at, moment) else MachineState.PENDING

    def view_at(self, moment: float) -> SimMachine:
        """The machine as it is shown at that moment."""
        return SimMachine(
            seq=self.seq,
            machine_id=self.machine_id,
            provider_id=self.provider_id,
            name=self.order.name,
            state=self.state_at(moment),
            reason=self._reason_at(moment),
            shape=self.shape,
            settings=self.order.settings,
            tags={} if _is_past(self.tags_lost_at, moment) else self.order.tags,
            created_at=self.created_at,
            running_since=self.boots_at if _is_past(self.boots_at, moment) else None,
        )

    def _reason_at(self, moment: float) -> str:
        if _is_past(self.gone_at, moment):
            return "the machine is gone"
        return "the machine died" if self.state_at(moment) is MachineState.FAILED else ""

    def cost_at(self, moment: float) -> Decimal:
        """The cost until then: it is charged from the order until it is gone, even while it is dead."""
        end = moment if self.gone_at is None else min(moment, self.gone_at)
        seconds = max(Decimal(0), Decimal(str(end)) - Decimal(str(self.created_at)))
        return ((self.hourly or Decimal(0)) * seconds / _HOUR).quantize(_CENTS)

    def entry_at(self, moment: float) -> LedgerEntry:
        """The machine as the ledger reports it."""
        is_gone = _is_past(self.gone_at, moment)
        return LedgerEntry(
            machine_id=self.machine_id,
            provider_id=self.provider_id,
            name=self.order.name,
            token=self.order.token,
            client=self.order.client,
            shape=self.shape.name,
            tags=self.order.tags,
            state="gone" if is_gone else self.state_at(moment).value,
            creates=self.creates,
            deletes=self.deletes,
            deleted_by=self.deleted_by,
            created_at=self.created_at,
            delete_asked_at=self.delete_asked_at,
            gone_at=self.gone_at if is_gone else None,
            cost=self.cost_at(moment),
            currency=self.currency,
        )

    def changes_after(self, moment: float) -> list[float]:
        """The times at which something will happen to it by itself."""
        times = (self.boots_at, self.dies_at, self.tags_lost_at, self.gone_at)
        return [time for time in times if time is not None and time > moment]


def _is_past(time: float | None, moment: float) -> bool:
    return time is not None and time <= moment


# -- pages: a list that may be incomplete is an error, never an answer -------------------------------------------------


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """One page of a list."""

    machines: Sequence[T]
    count: int  # how many machines this page has, according to the cloud
    more: bool  # whether another page follows
    cursor: str = ""  # where it begins


async def read_all(fetch: Callable[[str], Awaitable[Page[T]]]) -> list[T]:
    """Reads all pages, one after the other; raises UnavailableError when one of them is incomplete."""
    found: list[T] = []
    cursors = {""}
    cursor = ""
    while True:
        page = await fetch(cursor)
        if len(page.machines) != page.count:
            raise UnavailableError(
                f"the cloud sent {len(page.machines)} of the {page.count} machines of a page: the list is not complete"
            )
        found += page.machines
        if not page.more:
            return found
        cursor = page.cursor
        if cursor in cursors:
            raise UnavailableError("the cloud says that there are more pages, but not where: the list is not complete")
        cursors.add(cursor)
