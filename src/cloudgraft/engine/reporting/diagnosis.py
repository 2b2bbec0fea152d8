"""Diagnoses why a group does not grow. Pure: a function of its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cloudgraft.engine.reporting.report import CloudReport, GroupReport, MachineReport
from cloudgraft.store.records import State

_ON_THEIR_WAY: Final = (State.REQUESTED.value, State.CREATING.value, State.BOOTING.value)
_TOLD_ELSEWHERE: Final = frozenset({"paused", "guard", "blocked"})
_REMEDIES: Final = {
    "out_of_stock": "the autoscaler tries other groups meanwhile; another machine type, zone or cloud may have some",
    "quota_exceeded": "ask the cloud for a larger quota, or lower maxSize",
    "rate_limited": "it is tried again; lower the cloud's maxCalls or callsPerSecond if that goes on",
    "unauthenticated": "look at the cloud's credentials",
    "permission_denied": "look at what the cloud's credentials allow",
    "invalid_argument": "look at the group's `machine` section",
    "deadline": "look at the machine in its cloud; engine.createDeadline says how long it may take",
    "join_deadline": "look at the machine's own log: why does its kubelet not reach the cluster?",
    "user_data": "look at `join`, and at what cloudgraft may do in the cluster: `cloudgraft doctor` tells",
    "boot_failed": "look at the machine in its cloud",
    "unproven": "see `cloudgraft orphans list`",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One finding, and what to do about it; empty where there is nothing to do."""

    what: str
    todo: str = ""
    is_obstacle: bool = True  # it keeps the group from growing


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The input of a diagnosis."""

    group: GroupReport
    cloud: CloudReport | None  # None: it is not configured
    machines: Sequence[MachineReport]  # those that failed, at least
    trouble: str = ""  # why the autoscaler should not use this process at all
    guard: str = ""  # the guard that would refuse one more machine
    is_config_pending: bool = False  # a changed configuration waits for the next Refresh
    is_offer_pending: bool = False  # what its cloud offers is known, and waits for the next Refresh
    waits_for_cloud: bool = False  # its cloud has not told yet what it offers
    asked_at: str = ""  # when the autoscaler last requested machines; empty when the journal has no such event


def reasons(case: Case) -> list[Reason]:
    """All findings, the most important first; at least one."""
    found = [*_of_everything(case), *_of_the_cloud(case), *_of_the_group(case)]
    return found if any(reason.is_obstacle for reason in found) else [*_all_well(case), *found]


def _of_everything(case: Case) -> Iterator[Reason]:
    if case.trouble:
        yield Reason(what=f"this server does not answer the autoscaler: {case.trouble}", todo="see `cloudgraft status`")
    pauses = (case.group.paused, case.cloud.paused if case.cloud is not None else None)
    for pause in dict.fromkeys(pause for pause in pauses if pause is not None):  # the group's and its cloud's
        why = f": {pause.reason}" if pause.reason else ""
        option = "--cloud " if pause.scope == "cloud" else ""
        yield Reason(
            what=f"{pause.scope} {pause.name} has been paused since {pause.since}{why}",
            todo=f"`cloudgraft resume {option}{pause.name}`",
        )


def _of_the_cloud(case: Case) -> Iterator[Reason]:
    cloud, name = case.cloud, case.group.cloud
    if cloud is None:
        if name:
            yield Reason(what=f"cloud {name} is not configured any more", todo="add it to `clouds` again")
        return
    if cloud.observe_only:
        yield Reason(
            what=f"observeOnly of cloud {name} is set: nothing is created or deleted there, only reported",
            todo="remove observeOnly from the configuration once the `observed` events look right",
        )
    if cloud.blocked:
        yield Reason(what=cloud.blocked)
    elif cloud.error:
        since = f" since {cloud.down_since}" if cloud.down_since else ""
        yield Reason(
            what=f"cloud {name} cannot be used{since}: {cloud.error}",
            todo=_REMEDIES.get(cloud.error_code, "it is tried again by itself"),
        )
    elif cloud.held_back:
        yield Reason(what=cloud.held_back, todo="look into the cloud itself before you accept it", is_obstacle=False)
    elif cloud.lag:
        yield Reason(what=cloud.lag, is_obstacle=False)
    elif not cloud.is_ready:
        yield Reason(what=f"cloud {name} has not been listed yet, and nothing is created before", todo="wait a moment")


def _of_the_group(case: Case) -> Iterator[Reason]:
    group = case.group
    if group.left_out and not any(_of_the_cloud(case)):
        yield Reason(what=f"it is not served: {group.left_out}", todo=_remedy_of_left_out(case))
    elif not group.is_served and not group.left_out:
        yield Reason(what="it is not served yet", todo="the autoscaler's next Refresh publishes it")
    elif case.is_config_pending:
        what = "a changed configuration waits for the autoscaler's next Refresh"
        yield Reason(what=what, todo="`cloudgraft call Refresh` applies it too", is_obstacle=False)
    if group.is_draining:
        yield Reason(
            what="it is no longer configured and only shrinks",
            todo=f"put it back into `nodeGroups`, or end it with `cloudgraft orphans release --group {group.id}`",
        )
    if case.guard:
        yield Reason(what=f"a guard refuses more machines: {case.guard}", todo="see `cloudgraft status`, and `guards`")
    yield from _failures(case.machines)  # failed machines count: a group may be full of them
    if group.is_served and not group.is_draining and group.target >= group.max_size:
        yield Reason(what=f"it is at its maximum of {group.max_size}", todo="raise its maxSize")
    if group.held:
        what = f"{group.held} decided about, and held back by a guard or observeOnly"
        yield Reason(what=what, todo="`cloudgraft status` shows which, and why", is_obstacle=False)
    if group.stale:
        what = f"an older configuration of it is served: {group.stale}"
        yield Reason(what=what, todo="correct the configuration", is_obstacle=False)
    for drift in group.drift:
        yield Reason(what=f"its nodes are not as promised: {drift.what}", todo=drift.todo, is_obstacle=False)
    if group.nodes_unready:
        what = f"{group.nodes_unready} of its {group.nodes_joined} nodes are not ready"
        yield Reason(
            what=what, todo="see `cloudgraft status` for which, and `kubectl describe node`", is_obstacle=False
        )
    yield from _under_way(group)


def _remedy_of_left_out(case: Case) -> str:
    if case.is_config_pending or case.is_offer_pending:
        return "the autoscaler's next Refresh looks at it again; so does `cloudgraft call Refresh`"
    return "wait for its cloud" if case.waits_for_cloud else "correct the configuration"


def _failures(machines: Sequence[MachineReport]) -> Iterator[Reason]:
    failed = Counter((m.error.code, m.error.message) for m in machines if m.error and m.state == State.FAILED.value)
    for (code, message), count in failed.most_common():
        if code not in _TOLD_ELSEWHERE:
            counted = "a machine" if count == 1 else f"{count} machines"
            yield Reason(what=f"{counted} failed ({code}): {message}", todo=_REMEDIES.get(code, ""))


def _under_way(group: GroupReport) -> Iterator[Reason]:
    coming = {state: group.states[state] for state in _ON_THEIR_WAY if state in group.states}
    if coming:
        told = ", ".join(f"{count} {state}" for state, count in coming.items())
        yield Reason(what=f"machines are on their way: {told}", is_obstacle=False)
    going = group.states.get(State.DELETING.value, 0)
    if going:
        yield Reason(what=f"{going} being deleted", is_obstacle=False)


def _all_well(case: Case) -> Iterator[Reason]:
    group = case.group
    running = group.states.get(State.RUNNING.value, 0)
    what = f"nothing is in its way: {running} running, target {group.target}, of at most {group.max_size}"
    yield Reason(what=what, is_obstacle=False)
    if case.asked_at:
        asked = f"the autoscaler last asked for more at {case.asked_at}"
    else:
        asked = "the autoscaler has not asked for more, as far as the journal goes back"
    todo = "if pods wait, the autoscaler's own log and its status ConfigMap tell why it asks for nothing"
    yield Reason(what=asked, todo=todo, is_obstacle=False)
