"""Accepts a report about many missing or broken machines that a breaker holds back."""

from __future__ import annotations

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.machines.breaker import Breaker
from cloudgraft.engine.new_records import happened
from cloudgraft.engine.reconcile.worker import Worker
from cloudgraft.engine.unknown_names import unknown
from cloudgraft.store.records import Change, Scope


async def accept_loss(engine: Engine, scope: Scope, name: str) -> int:
    """Believes the report about the machines held back now; returns their number.

    For a cloud, missing machines count as gone. For a group, broken machines are replaced step by step.
    """
    engine.check_leader()
    worker, breaker = _find(engine, scope, name)
    if breaker is None or not breaker.is_open:
        return 0
    affected = breaker.affected  # a list that comes meanwhile may miss more, which the operator has not accepted
    count = len(affected)
    message = f"an operator accepted that {count} machines of {scope.value} {name} are {_LOSSES[scope]}"
    group = name if scope is Scope.GROUP else ""
    event = happened("breaker_closed", engine.clock.now(), message, cloud=worker.name, group=group)
    await engine.writer.write(lambda: Change(events=(event,)))
    breaker.accept(affected)
    worker.nudge()
    return count


_LOSSES = {Scope.CLOUD: "gone", Scope.GROUP: "broken"}


def _find(engine: Engine, scope: Scope, name: str) -> tuple[Worker, Breaker | None]:
    group = engine.fleet.groups.get(name) if scope is Scope.GROUP else None
    cloud = name if scope is Scope.CLOUD else group.spec.cloud if group is not None else ""
    worker = engine.workers.get(cloud)
    if worker is None:
        known = engine.workers if scope is Scope.CLOUD else engine.fleet.groups
        raise unknown(scope.value, name, known)
    return worker, worker.observer.absence.breaker if scope is Scope.CLOUD else worker.repairer.breakers.get(name)
