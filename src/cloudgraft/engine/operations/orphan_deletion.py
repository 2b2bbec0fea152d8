"""Deletes orphans on an operator's order, within the cloud's limits, and only with proof of ownership or ``force``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.new_records import happened
from cloudgraft.engine.operations.bulk_operations import Item, Result, check_usable, why_no_orphan
from cloudgraft.engine.ownership.orphans import Orphan
from cloudgraft.engine.ownership.rules import why_not_delete
from cloudgraft.engine.reconcile.worker import Worker
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError, NotFoundError, PreconditionError
from cloudgraft.store.records import Change

_PATIENCE: Final = 20.0  # seconds that an operator waits for a cloud


async def delete_orphans(
    engine: Engine, machine_ids: Sequence[str], *, cloud: str = "", force: bool = False, is_dry_run: bool = True
) -> Result:
    """Deletes orphans by their ids. An orphan that is not proven to be ours needs ``force``.

    Waits briefly for the clouds' answers; calls under way continue after that.
    """
    engine.check_leader()
    if not machine_ids:
        raise InvalidArgumentError("say which orphans to delete")
    for worker in engine.workers.values():
        worker.observer.review()
    judged = [_judged(engine, id_, cloud, force=force) for id_ in dict.fromkeys(machine_ids)]
    if is_dry_run:
        return Result(is_dry_run=True, items=[item for item, _ in judged])
    items = await asyncio.gather(*(_delete(engine, item, orphan, force=force) for item, orphan in judged))
    for name in {item.cloud for item in items if not item.refused}:
        engine.workers[name].nudge()  # so that the next list comes soon
    return Result(is_dry_run=False, items=items)


def _judged(engine: Engine, machine_id: str, cloud: str, *, force: bool) -> tuple[Item, Orphan | None]:
    found = [orphan for worker in engine.workers.values() if (orphan := _orphan(worker, machine_id)) is not None]
    found = [orphan for orphan in found if cloud in ("", orphan.cloud)]
    if len(found) > 1:
        clouds = ", ".join(orphan.cloud for orphan in found)
        return Item(machine_id=machine_id, refused=f"several clouds have it ({clouds}); say which with --cloud"), None
    if not found:
        return Item(machine_id=machine_id, refused=why_no_orphan(engine, machine_id)), None
    orphan = found[0]
    item = Item(
        machine_id=machine_id,
        cloud=orphan.cloud,
        group=orphan.group or "",
        name=orphan.machine.name,
        provider_id=orphan.machine.provider_id or "",
        refused=_why_observed(engine, orphan.cloud) or why_not_delete(orphan, force=force),
    )
    return item, orphan


def _why_observed(engine: Engine, cloud: str) -> str:
    return f"observeOnly of cloud {cloud} is set: nothing is deleted there" if engine.observes_only(cloud) else ""


def _orphan(worker: Worker, machine_id: str) -> Orphan | None:
    return next((o for o in worker.observer.orphans if o.machine.machine_id == machine_id), None)


async def _delete(engine: Engine, item: Item, orphan: Orphan | None, *, force: bool) -> Item:
    if item.refused or orphan is None:
        return item
    worker = engine.workers[orphan.cloud]
    call: asyncio.Task[None] | None = None
    try:
        check_usable(worker)
        async with asyncio.timeout(_PATIENCE):
            await worker.caller.room()
            await engine.writer.write(lambda: _condemned(engine, worker, orphan, force=force))
            call = worker.caller.remove(orphan.machine)
            await asyncio.wait({call})
        return _ended(item, call)
    except TimeoutError:
        if call is None:
            return replace(item, refused=f"cloud {orphan.cloud} is too busy; try again")
        return replace(item, note="its cloud has not answered yet")
    except CloudgraftError as error:
        return replace(item, refused=error.message)


def _condemned(engine: Engine, worker: Worker, orphan: Orphan, *, force: bool) -> Change:
    """Checks again right before the deletion: the orphan may have been adopted meanwhile."""
    worker.observer.review()
    current = _orphan(worker, orphan.machine.machine_id)
    if current is None or why_not_delete(current, force=force):
        raise PreconditionError("it is no longer an orphan")
    machine = orphan.machine
    word = " although it does not show our marks" if not orphan.is_proven else ""
    message = f"an operator deletes machine {machine.machine_id} ({machine.name}), which is not in the journal{word}"
    event = happened(
        "orphan_deleted",
        engine.clock.now(),
        message,
        cloud=orphan.cloud,
        group=orphan.group or "",
        machine_id=machine.machine_id,
    )
    return Change(events=(event,))


def _ended(item: Item, call: asyncio.Task[None]) -> Item:
    if call.cancelled():
        return replace(item, note="cloudgraft is stopping; whether it was deleted is not known")
    error = call.exception()
    if error is None or isinstance(error, NotFoundError):
        return replace(item, note="its cloud says that it is gone" if error else "its cloud is deleting it")
    return replace(item, refused=str(error))
