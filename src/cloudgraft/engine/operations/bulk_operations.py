"""Plans and carries out requests about several machines.

The same plan serves the dry run and the real one. The machines are independent of each other: a refused machine does
not affect the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.ownership.rules import Refusal
from cloudgraft.engine.reconcile.worker import Worker
from cloudgraft.sdk.errors import PreconditionError
from cloudgraft.sdk.types import NodeRef
from cloudgraft.store.records import Change, MachineRecord

T = TypeVar("T")
_BATCH: Final = 250  # machines in one change


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One machine of a request, and the result for it."""

    machine_id: str
    cloud: str = ""
    group: str = ""
    name: str = ""
    provider_id: str = ""
    refused: str = ""  # why it was refused; empty when it is done, or would be
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a request, or of its dry run."""

    is_dry_run: bool
    items: Sequence[Item] = ()
    notes: Sequence[str] = ()


def item_of(record: MachineRecord, *, refused: str = "", note: str = "") -> Item:
    """The item of a machine that has a record."""
    return Item(
        machine_id=record.machine_id,
        cloud=record.cloud,
        group=record.group,
        name=record.name,
        provider_id=record.provider_id,
        refused=refused,
        note=note,
    )


def find_record(engine: Engine, wanted: str) -> MachineRecord | Refusal:
    """The machine by our name for it, its providerID or its id in its cloud."""
    fleet = engine.fleet
    by_name = fleet.machines.get(wanted) or fleet.find(NodeRef(name="", provider_id=wanted))
    if by_name is not None:
        return by_name
    by_id = {cloud: fleet.by_machine_id(cloud, wanted) for cloud in fleet.active}
    found = [record for record in by_id.values() if record is not None]
    if len(found) > 1:
        return Refusal(f"several clouds have such a machine; use its name: {', '.join(r.name for r in found)}")
    return found[0] if found else Refusal("the journal has no machine of this name or id")


async def carry_out(
    engine: Engine,
    picks: Sequence[T],
    plan: Callable[[Sequence[T]], tuple[Sequence[Item], Change]],
    *,
    is_dry_run: bool,
) -> list[Item]:
    """Plans for the picks in batches, and writes each plan unless it is a dry run.

    For a real run the plan is made when its turn to be written comes, so that it rests on the current state.
    """
    items: list[Item] = []
    for start in range(0, len(picks), _BATCH):
        batch = picks[start : start + _BATCH]
        if is_dry_run:
            items += plan(batch)[0]
            await asyncio.sleep(0)
        else:
            items += await _written(engine, batch, plan)
    return items


async def _written(
    engine: Engine, batch: Sequence[T], plan: Callable[[Sequence[T]], tuple[Sequence[Item], Change]]
) -> Sequence[Item]:
    planned: list[Item] = []

    def now() -> Change:
        items, change = plan(batch)
        planned[:] = items
        return change

    await engine.writer.write(now)
    return planned


def check_usable(worker: Worker) -> None:
    """Raises PreconditionError when the data about a cloud are not good enough to act on."""
    observer, name = worker.observer, worker.name
    if observer.blocked:
        raise PreconditionError(observer.blocked)
    if observer.health.is_down:
        raise PreconditionError(f"cloud {name} cannot be used at present: {observer.health.error}")
    if observer.listing is None or not observer.may_create:
        raise PreconditionError(f"cloud {name} has not been listed yet; try again in a moment")


def why_no_orphan(engine: Engine, machine_id: str) -> str:
    """Why a machine is not an orphan."""
    for cloud in engine.workers:
        record = engine.fleet.by_machine_id(cloud, machine_id)
        if record is not None and record.name in engine.fleet.in_cloud(cloud):
            return f"it is not an orphan, but {record.name} of group {record.group}: the autoscaler decides about it"
    return "no orphan has this id"
