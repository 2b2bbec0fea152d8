"""Changes the size of a node group on an operator's order: all of it in one commit, or nothing.

The writer plans the order in its turn, so that no call of the autoscaler comes between the check of a limit and the
commit. The order's key is committed with it: an order that is repeated after a lost answer is not made twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.fleet import Group
from cloudgraft.engine.keyed_requests import Asked, answered, remembered
from cloudgraft.engine.machines.observation import Observation
from cloudgraft.engine.machines.states import COUNTED, delete, was_found
from cloudgraft.engine.new_records import about, happened, wanted
from cloudgraft.engine.operations.bulk_operations import find_record
from cloudgraft.engine.ownership.rules import Refusal
from cloudgraft.engine.unknown_names import unknown_group
from cloudgraft.sdk.errors import ConflictError, InvalidArgumentError, PreconditionError
from cloudgraft.store.records import Change, MachineRecord, Presence, State

_CHANGE: Final = re.compile(r"([+=-])([0-9]{1,6})", re.ASCII)
_CALLER: Final = "cloudgraft scale"  # of the keys in the journal; no certificate of a front has this name
# Which of the machines that nothing runs on are removed first: those that cost nothing yet, or never will be nodes.
_CHEAPEST_FIRST: Final = (State.REQUESTED, State.FAILED, State.CREATING, State.BOOTING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleOrder:
    """An operator's order about one group."""

    group: str
    change: str  # +2, -1 or =5
    machines: Sequence[str] = ()  # the machines to remove, by name, id or providerID; empty: chosen by the rule
    delete_ready: bool = False  # whether machines that run may be chosen
    expected: Sequence[str] | None = None  # names that the operator agreed to remove; another choice is refused
    by: str = ""  # who gave the order, as far as known


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The result of an order that is about to be made."""

    before: int
    added: int = 0
    removed: Sequence[MachineRecord] = ()  # as they are now

    @property
    def target(self) -> int:
        return self.before + self.added - len(self.removed)


async def scale(engine: Engine, order: ScaleOrder, key: str) -> Mapping[str, Any]:
    """Makes the order once for its key; returns the answer as JSON. Raises an error when nothing was changed.

    A repeated order gets its first answer, also when limits have changed meanwhile.
    """
    engine.check_open()
    asked = _asked(order, key)
    answer: Mapping[str, Any] = {}

    def once() -> Change:
        nonlocal answer
        known = answered(engine, asked, key="order id")
        if known is not None:
            answer = {**known, "repeated": True}
            return Change()
        plan = _planned(engine, order)
        change = _change(engine, order, plan)
        answer = _answer(order, plan, change.machines)
        return remembered(engine, change, asked, answer)

    await engine.writer.write(once)
    return {"repeated": False, **answer, "dryRun": False, "order": key}


def preview(engine: Engine, order: ScaleOrder, key: str = "") -> Mapping[str, Any]:
    """The answer that the order would get now, with the machines that it would remove. Changes nothing."""
    engine.check_open()
    known = answered(engine, _asked(order, key), key="order id")
    if known is not None:
        return {**known, "repeated": True, "dryRun": True, "order": key}
    return {"repeated": False, **_answer(order, _planned(engine, order)), "dryRun": True, "order": key}


def _asked(order: ScaleOrder, key: str) -> Asked:
    return Asked.of(_CALLER, key, order.group, order.change, sorted(order.machines), order.delete_ready)


def _answer(order: ScaleOrder, plan: _Plan, after: Sequence[MachineRecord] = ()) -> dict[str, Any]:
    """``after`` are the changed records; a preview has none."""
    was = {record.name: record.state.value for record in plan.removed}
    machines = after or plan.removed
    return {
        "group": order.group,
        "change": order.change,
        "before": plan.before,
        "target": plan.target,
        "added": plan.added,
        "removed": len(plan.removed),
        "machines": [{"name": r.name, "was": was.get(r.name, ""), "state": r.state.value} for r in machines],
    }


# -- planning ----------------------------------------------------------------------------------------------------------


def _planned(engine: Engine, order: ScaleOrder) -> _Plan:
    """Checks every rule and limit; raises an error that names the first one that is broken."""
    sign, number = _parsed(order.change)
    group = engine.fleet.groups.get(order.group)
    why_not = engine.left_out().get(order.group, "")
    if group is None and not why_not:
        raise unknown_group(engine, order.group)
    if group is None or order.group not in engine.groups.shown_ids:
        raise _refused(order, f"it is not served: {why_not or 'it waits for the next Refresh'}")
    delta = number - group.target if sign == "=" else number if sign == "+" else -number
    if order.machines and delta >= 0:
        raise InvalidArgumentError(f"machines are named only to remove them, and {order.change} removes none")
    if delta:
        _check_may_act(engine, order, group)
    if delta > 0:
        _check_growth(engine, order, group, delta)
        return _Plan(before=group.target, added=delta)
    if delta < 0:
        _check_minimum(order, group, -delta)
        return _Plan(before=group.target, removed=_chosen(engine, order, group, -delta))
    return _Plan(before=group.target)


def _parsed(change: str) -> tuple[str, int]:
    found = _CHANGE.fullmatch(change)
    if found is None or (found[1] != "=" and not int(found[2])):
        raise InvalidArgumentError(
            f"{change[:50]!r} is not a change: write +2 for two more, -1 for one less, =5 for five"
        )
    return found[1], int(found[2])


def _check_may_act(engine: Engine, order: ScaleOrder, group: Group) -> None:
    cloud = group.spec.cloud
    pause = engine.fleet.pause_of(order.group, cloud)
    if pause is not None:
        option = "--cloud " if pause.scope.value == "cloud" else ""
        why = f"{pause.scope.value} {pause.name} is paused: {pause.reason or 'no reason given'}"
        raise _refused(order, f"{why}. `cloudgraft resume {option}{pause.name}` ends that")
    if engine.observes_only(cloud):
        raise _refused(order, f"observeOnly of cloud {cloud} is set, so nothing is created or deleted there")


def _check_growth(engine: Engine, order: ScaleOrder, group: Group, delta: int) -> None:
    spec, most = group.spec, group.shown.max_size
    if not group.is_configured:
        raise _refused(order, "it is no longer configured, and only shrinks")
    if group.target + delta > most:
        size = f"its maxSize is {most}, and {order.change} would make {group.target + delta} of {group.target}"
        pending = ". A changed configuration waits for the autoscaler's next Refresh" * engine.is_config_pending
        raise _refused(order, f"{size}{pending}")
    trouble = engine.refusal(spec.cloud)
    if trouble is not None:
        raise _refused(order, f"cloud {spec.cloud} creates nothing now: {trouble.message}")
    guard = engine.guard_usage.refusal(spec.cloud, spec.price.amount if spec.price else None, count=delta)
    if guard is not None:
        raise _refused(order, f"{guard.message}, and {delta} more would exceed that; `cloudgraft status` shows its use")


def _check_minimum(order: ScaleOrder, group: Group, count: int) -> None:
    least, size = group.shown.min_size, group.target - count
    if size < 0:
        raise _refused(order, f"it has a target of {group.target}")
    if size < least:
        raise _refused(order, f"its minSize is {least}, and {order.change} would make {size} of {group.target}")


def _refused(order: ScaleOrder, why: str) -> PreconditionError:
    return PreconditionError(f"nothing was changed in group {order.group}: {why}")


# -- choosing machines to remove ---------------------------------------------------------------------------------------


def _chosen(engine: Engine, order: ScaleOrder, group: Group, count: int) -> list[MachineRecord]:
    chosen = _named(engine, order, count) if order.machines else _by_rule(engine, order, group, count)
    names = {record.name for record in chosen}
    if order.expected is not None and names != set(order.expected):
        raise ConflictError(
            f"nothing was changed in group {order.group}: it has changed meanwhile, and other machines would be "
            f"removed than those that you agreed to: {', '.join(sorted(names))}. Give the order again"
        )
    return chosen


def _named(engine: Engine, order: ScaleOrder, count: int) -> list[MachineRecord]:
    found: dict[str, MachineRecord] = {}
    for name in order.machines:
        record = find_record(engine, name)
        if isinstance(record, Refusal):
            raise _refused(order, f"machine {name!r}: {record.why}")
        if record.group != order.group:
            raise _refused(order, f"machine {name!r} is of group {record.group}")
        if record.state not in COUNTED:
            raise _refused(order, f"machine {name!r} is {record.state.value} already")
        found[record.name] = record
    if len(found) != count:
        raise _refused(order, f"{order.change} removes {count}, and {len(found)} machines are named")
    return list(found.values())


def _by_rule(engine: Engine, order: ScaleOrder, group: Group, count: int) -> list[MachineRecord]:
    counted = [record for record in group.machines.values() if record.state in COUNTED]
    used = {record.name for record in counted if _may_be_in_use(engine, record)}
    free = sorted((r for r in counted if r.name not in used), key=_cheapest_first)
    if len(free) < count and not order.delete_ready:
        raise _refused(
            order,
            f"only {len(free)} of its {group.target} machines are not ready yet, and {count - len(free)} with running "
            "pods might be deleted without a drain. Drain a node yourself and name its machine with --machine, say "
            "--delete-ready, or leave it to the autoscaler, which drains nodes",
        )
    running = sorted((r for r in counted if r.name in used), key=lambda r: _unready_first(engine, r))
    return [*free, *running][:count]


def _cheapest_first(record: MachineRecord) -> tuple[int, float, str]:
    return _CHEAPEST_FIRST.index(record.state), -record.requested_at, record.name


def _unready_first(engine: Engine, record: MachineRecord) -> tuple[bool, float, str]:
    seen = _observation(engine, record)
    return seen is not None and seen.node.is_ready, -record.requested_at, record.name


def _may_be_in_use(engine: Engine, record: MachineRecord) -> bool:
    """Whether pods may run on it: it runs, or its node is or may be in the cluster, whatever its cloud says of it."""
    if record.state is State.RUNNING:
        return True
    if record.presence is Presence.NONE:
        return False
    if not engine.nodes.is_clear or (record.state is State.BOOTING and was_found(record)):
        return True  # the cluster cannot be seen, or the machine is older than its record
    seen = _observation(engine, record)
    return seen is not None and (seen.node.joined is True or seen.node.is_disputed)


def _observation(engine: Engine, record: MachineRecord) -> Observation | None:
    worker = engine.workers.get(record.cloud)
    return worker.observer.peek(record.name) if worker is not None else None


# -- the change --------------------------------------------------------------------------------------------------------


def _change(engine: Engine, order: ScaleOrder, plan: _Plan) -> Change:
    if not plan.added and not plan.removed:
        return Change()
    now, spec = engine.clock.now(), engine.fleet.groups[order.group].spec
    who = f"an operator ({order.by})" if order.by else "an operator"
    if plan.added:
        records = [_added(engine, order.group, now) for _ in range(plan.added)]
        verb, why = "ordered", f"{who} asked for it"
    else:
        records = [delete(record, now) for record in plan.removed]
        verb, why = "removed", f"{who} removed it"
    message = f"{who} {verb} {len(records)}: the target goes from {plan.before} to {plan.target}"
    data = {"delta": plan.target - plan.before, "by": order.by, "machines": [record.name for record in records]}
    events = [happened("scale", now, message, cloud=spec.cloud, group=order.group, **data)]
    return Change(machines=records, events=[*events, *(about(record, now, why) for record in records)])


def _added(engine: Engine, group: str, now: float) -> MachineRecord:
    spec = engine.fleet.groups[group].spec
    engine.guard_usage.ask(spec.cloud, spec.price.amount if spec.price else None)  # counts it; it was checked before
    return wanted(spec, engine.fleet, engine.identity, engine.traits(spec.cloud), now)
