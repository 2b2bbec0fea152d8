"""Pauses and resumes groups and clouds: a pause stops new actions; answers stay truthful."""

from __future__ import annotations

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.new_records import happened
from cloudgraft.engine.unknown_names import unknown
from cloudgraft.store.records import Change, Event, PauseRecord, Scope


async def pause(engine: Engine, scope: Scope, name: str, reason: str = "") -> bool:
    """Pauses; returns whether anything changed. If it is paused already, only the reason may change."""
    engine.check_leader()
    _check_known(engine, scope, name)
    change = await engine.writer.write(lambda: _paused(engine, scope, name, reason))
    _nudge(engine, scope, name)
    return bool(change.pauses)


async def resume(engine: Engine, scope: Scope, name: str) -> bool:
    """Ends a pause; returns whether there was one."""
    engine.check_leader()
    if (scope, name) not in engine.fleet.pauses:  # the group itself may be gone by now
        _check_known(engine, scope, name)
    change = await engine.writer.write(lambda: _resumed(engine, scope, name))
    _nudge(engine, scope, name)
    return bool(change.resumed)


def _paused(engine: Engine, scope: Scope, name: str, reason: str) -> Change:
    now, old = engine.clock.now(), engine.fleet.pauses.get((scope, name))
    if old is not None and reason in ("", old.reason):
        return Change()
    record = PauseRecord(scope=scope, name=name, since=old.since if old else now, reason=reason)
    message = f"an operator paused {scope.value} {name}: {reason or 'no reason given'}"
    return Change(pauses=[record], events=[_event(engine, "paused", scope, name, message)])


def _resumed(engine: Engine, scope: Scope, name: str) -> Change:
    if (scope, name) not in engine.fleet.pauses:
        return Change()
    message = f"an operator resumed {scope.value} {name}"
    return Change(resumed=[(scope, name)], events=[_event(engine, "resumed", scope, name, message)])


def _event(engine: Engine, kind: str, scope: Scope, name: str, message: str) -> Event:
    group = engine.fleet.groups.get(name) if scope is Scope.GROUP else None
    if scope is Scope.CLOUD:
        return happened(kind, engine.clock.now(), message, cloud=name)
    return happened(kind, engine.clock.now(), message, group=name, cloud=group.spec.cloud if group else "")


def _check_known(engine: Engine, scope: Scope, name: str) -> None:
    if scope is Scope.GROUP:
        known = {*engine.fleet.groups, *engine.left_out()}
    else:
        known = {*engine.workers, *(group.spec.cloud for group in engine.fleet.groups.values())}
    if name not in known:
        raise unknown(scope.value, name, known)


def _nudge(engine: Engine, scope: Scope, name: str) -> None:
    """Makes the worker decide again about all machines."""
    group = engine.fleet.groups.get(name) if scope is Scope.GROUP else None
    cloud = name if scope is Scope.CLOUD else group.spec.cloud if group else ""
    worker = engine.workers.get(cloud)
    if worker is not None:
        worker.nudge()
