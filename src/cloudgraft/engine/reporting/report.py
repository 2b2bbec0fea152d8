"""Builds the status report for operators: groups, clouds, guards, journal.

Values only; :mod:`cloudgraft.engine.reporting.report_json` converts them to JSON. A report is built from memory on
request. A fleet may be large: the work is done in slices, and the report has single machines only on request, or if
they are in trouble.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.fleet import Group
from cloudgraft.engine.guards import GuardUse
from cloudgraft.engine.machines.observation import Observation
from cloudgraft.engine.reconcile.observer import SLICE
from cloudgraft.engine.reconcile.worker import Worker
from cloudgraft.engine.reporting.report_json import iso
from cloudgraft.engine.unknown_names import unknown_group
from cloudgraft.sdk.blocking import author_class
from cloudgraft.sdk.common.event_loop import in_slices
from cloudgraft.sdk.errors import UnavailableError
from cloudgraft.store.records import MachineRecord, PauseRecord, Presence, Scope, State

_MOST_TROUBLED: Final = 50  # machines of one group that are reported without a request


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReport:
    """Why a machine failed."""

    code: str
    message: str
    error_class: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineReport:
    """One machine. Ages are in seconds."""

    name: str
    machine_id: str
    provider_id: str
    state: str
    age: float  # since it was requested, or taken in
    state_age: float
    error: ErrorReport | None
    is_adopted: bool
    replaces: str
    joined: bool | None = None  # whether its node is in the cluster; None when the cluster cannot be seen
    node: NodeReport | None = None  # as last seen
    trouble: str = ""  # the cloud's error if it does not exist yet, or why a decision about it is not carried out


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """The node of a machine."""

    name: str
    state: str  # "ready" or "unready", "left" when the node has been removed, "unknown" when it cannot be seen
    unready_for: float | None = None  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftReport:
    """A difference between a group's nodes and its template, and what to do."""

    what: str
    todo: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseReport:
    """A pause of a group or a cloud."""

    scope: str
    name: str
    since: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """One node group. ``machines`` are all of it, or only those in trouble: see ``is_complete``."""

    id: str
    cloud: str
    target: int = 0
    min_size: int = 0
    max_size: int = 0
    is_served: bool = False  # whether it is published to the autoscaler
    is_draining: bool = False
    left_out: str = ""  # why it is not served
    stale: str = ""  # why an older configuration of it is served
    paused: PauseReport | None = None
    states: dict[str, int]
    nodes_joined: int | None = None  # None when the cluster cannot be seen
    nodes_unready: int | None = None
    drift: Sequence[DriftReport] = ()
    held: int = 0  # machines with a decision that a guard or observeOnly holds back
    hourly: str = ""
    currency: str = ""
    machines: Sequence[MachineReport] = ()
    is_complete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudReport:
    """One cloud."""

    name: str
    driver: str
    is_up: bool
    error: str
    error_code: str
    down_since: str
    list_age: float | None  # seconds since the start of the latest list that succeeded
    machines_listed: int
    machines: int  # of ours
    orphans: int
    is_ready: bool  # it was listed and our machines in it were taken in (law 11)
    blocked: str  # why nothing may be created here although the cloud is reachable
    held_back: str  # what is not believed of the latest list, because it affects too many machines at once
    lag: str = ""  # why the driver's list_delay is too small, by what lists showed
    paused: PauseReport | None
    observe_only: bool = False  # nothing is created, deleted or marked there
    calls_under_way: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardReport:
    """The usage of one guard."""

    scope: str  # a cloud, or empty for all together
    guard: str
    used: float
    limit: float
    left: float
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole report."""

    cluster: str
    cluster_id: str
    at: str
    trouble: str  # why the autoscaler should not use this process; empty when all is well
    is_leader: bool
    leader_trouble: str
    opening_trouble: str  # why calls are refused since the start: clouds that were never listed
    journal_trouble: str
    clock_trouble: str  # the offset of this host's clock from the database's, if it is too large
    config_trouble: str
    is_config_pending: bool  # a changed configuration waits for the next Refresh
    nodes_watched: bool  # whether a cluster is configured: then a machine is ready when its node is
    cluster_trouble: str  # why the nodes cannot be seen; empty when they can, and where no cluster is configured
    node_problems: Sequence[str]  # problems with reading or maintaining nodes
    groups: Sequence[GroupReport]
    clouds: Sequence[CloudReport]
    guards: Sequence[GuardReport]


async def make_report(
    engine: Engine, *, group: str = "", with_machines: bool = False, config_trouble: str = ""
) -> Report:
    """Builds the whole report, or that of one group and its cloud; a named group comes with all its machines."""
    left_out = engine.left_out()
    known = {**dict.fromkeys(engine.fleet.groups), **dict.fromkeys(sorted(left_out))}
    if group and group not in known:
        engine.check_leader()  # a follower has no data
        raise unknown_group(engine, group)
    groups = []
    for id_ in [group] if group else known:
        groups.append(
            await _whole_group(engine, id_, left_out.get(id_, ""), with_machines=with_machines or bool(group))
        )
        await asyncio.sleep(0)
    clouds = [cloud_report(engine, worker) for worker in engine.workers.values()]
    leader_trouble = _leader_trouble(engine)
    return Report(
        cluster=engine.identity.cluster,
        cluster_id=engine.identity.cluster_id,
        at=iso(engine.clock.now()),
        trouble=engine.trouble(),
        is_leader=not leader_trouble,
        leader_trouble=leader_trouble,
        opening_trouble=engine.opening_trouble(),
        journal_trouble=engine.writer.trouble,
        clock_trouble=engine.database_clock.trouble(),
        config_trouble=config_trouble,
        is_config_pending=engine.is_config_pending,
        nodes_watched=engine.nodes.cluster is not None,
        cluster_trouble=_cluster_trouble(engine),
        node_problems=[str(problem) for problem in engine.nodes.problems()],
        groups=groups,
        clouds=[cloud for cloud in clouds if not group or cloud.name == groups[0].cloud],
        guards=[_guard(use) for use in engine.guard_use()],
    )


def _cluster_trouble(engine: Engine) -> str:
    if engine.nodes.cluster is None or engine.nodes.is_known:
        return ""
    return "the Kubernetes API has not been heard of for a while; nothing is decided by nodes meanwhile"


async def _whole_group(engine: Engine, id_: str, left_out: str, *, with_machines: bool) -> GroupReport:
    """A group's report; its machines are read in slices."""
    now = engine.clock.now()
    group = engine.fleet.groups.get(id_)
    records = list(group.machines.values()) if group is not None else []
    if not with_machines:
        troubled = (r for r in records if r.state is State.FAILED or _trouble(engine, r))
        records = list(itertools.islice(troubled, _MOST_TROUBLED))
    machines: list[MachineReport] = []
    async for some in in_slices(records, SLICE):
        machines += [machine_report(engine, record, now) for record in some]
    return group_report(engine, id_, left_out, machines=machines, is_complete=with_machines)


def group_report(
    engine: Engine, id_: str, left_out: str, *, machines: Sequence[MachineReport] = (), is_complete: bool = False
) -> GroupReport:
    """One group, with the machines given."""
    group = engine.fleet.groups.get(id_)
    if group is None:
        cloud = engine.groups.cloud_of(id_)
        return GroupReport(id=id_, cloud=cloud, left_out=left_out, states={}, paused=_paused(engine, id_, cloud))
    spec, worker = group.spec, engine.workers.get(group.spec.cloud)
    nodes = engine.nodes.of_group(spec.cloud, id_) if engine.nodes.is_known else None
    drift = worker.node_scan.template_learner.drift.get(id_, ()) if worker is not None else ()
    held = worker.observer.held if worker is not None else {}
    return GroupReport(
        id=id_,
        cloud=spec.cloud,
        target=group.target,
        min_size=group.shown.min_size,
        max_size=group.shown.max_size,
        is_served=id_ in engine.groups.shown_ids,
        is_draining=not group.is_configured,
        left_out=left_out,
        stale=engine.groups.resolution.stale.get(id_, ""),
        paused=_paused(engine, id_, spec.cloud),
        states=_states(group),
        nodes_joined=nodes.joined if nodes is not None else None,
        nodes_unready=nodes.unready if nodes is not None else None,
        drift=[DriftReport(what=one.what, todo=one.todo) for one in drift],
        held=sum(name in held for name in list(group.machines)),
        hourly=str(spec.price.amount) if spec.price else "",
        currency=spec.price.currency if spec.price else "",
        machines=machines,
        is_complete=is_complete,
    )


def _states(group: Group) -> dict[str, int]:
    counted = Counter(record.state for record in list(group.machines.values()))
    return {state.value: counted[state] for state in State if counted[state]}


def machine_report(engine: Engine, record: MachineRecord, now: float) -> MachineReport:
    """One machine."""
    error, observation = record.error, _observation(engine, record)
    return MachineReport(
        name=record.name,
        machine_id=record.machine_id,
        provider_id=record.provider_id,
        state=record.state.value,
        age=_age(record.requested_at, now),
        state_age=_age(record.state_since, now),
        error=ErrorReport(code=error.code, message=error.message, error_class=error.error_class) if error else None,
        is_adopted=record.is_adopted,
        replaces=record.replaces,
        joined=observation.node.joined if observation is not None else None,
        node=_node(observation, now) if observation is not None else None,
        trouble=_trouble(engine, record),
    )


def _observation(engine: Engine, record: MachineRecord) -> Observation | None:
    worker = engine.workers.get(record.cloud)
    return worker.observer.peek(record.name) if worker is not None else None


def _trouble(engine: Engine, record: MachineRecord) -> str:
    worker = engine.workers.get(record.cloud)
    held = worker.observer.held.get(record.name, "") if worker is not None else ""
    return _call_trouble(record, _observation(engine, record)) or held


def _call_trouble(record: MachineRecord, observation: Observation | None) -> str:
    if observation is None or not observation.calls.trouble:
        return ""
    if record.state is State.BOOTING:  # the call failed, but its cloud has accepted it since: the error is outdated
        return observation.listed.machine.reason if observation.listed.machine is not None else ""
    return observation.calls.trouble if record.state in (State.REQUESTED, State.CREATING) else ""


def _node(observation: Observation, now: float) -> NodeReport | None:
    node = observation.node.last
    if node is None:
        return None
    unready = _age(observation.node.unready_since, now) if observation.node.unready_since is not None else None
    if observation.node.joined is None:
        state = "unknown"
    elif not observation.node.joined:
        state = "left"
    else:
        state = "ready" if unready is None else "unready"
    return NodeReport(name=node.name, state=state, unready_for=unready)


def cloud_report(engine: Engine, worker: Worker) -> CloudReport:
    """One cloud."""
    health, name = worker.observer.health, worker.name
    pause = engine.fleet.pauses.get((Scope.CLOUD, name))
    return CloudReport(
        name=name,
        driver=worker.settings.driver or author_class(worker.driver).__name__,
        is_up=not health.is_down and health.listed_at is not None,
        error=health.error,
        error_code=health.code,
        down_since=iso(health.since) if health.is_down and health.since is not None else "",
        list_age=_age(health.listed_at, engine.clock.now()) if health.listed_at is not None else None,
        machines_listed=health.machines,
        machines=sum(r.presence is not Presence.NONE for r in engine.fleet.in_cloud(name).values()),
        orphans=len(worker.observer.orphans),
        is_ready=name in engine.fleet.adopted_clouds,
        blocked=worker.observer.blocked,
        held_back=worker.observer.absence.held_back,
        lag=worker.observer.lag_trouble,
        paused=_pause(pause),
        observe_only=engine.observes_only(name),
        calls_under_way=worker.caller.under_way,
    )


def _guard(use: GuardUse) -> GuardReport:
    return GuardReport(
        scope=use.scope,
        guard=use.guard,
        used=use.used,
        limit=use.limit,
        left=max(0.0, round(use.limit - use.used, 2)),
        unit=use.unit,
    )


def _leader_trouble(engine: Engine) -> str:
    try:
        engine.check_leader()
    except UnavailableError as error:
        return error.message
    return ""


def _paused(engine: Engine, group: str, cloud: str) -> PauseReport | None:
    return _pause(engine.fleet.pause_of(group, cloud))


def _pause(pause: PauseRecord | None) -> PauseReport | None:
    if pause is None:
        return None
    return PauseReport(scope=pause.scope.value, name=pause.name, since=iso(pause.since), reason=pause.reason)


def _age(since: float, now: float) -> float:
    return round(max(0.0, now - since), 1)
