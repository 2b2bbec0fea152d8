"""Collects the engine's metrics at each scrape, from any thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from cloudgraft.engine.clock import SystemClock
from cloudgraft.engine.durations import Durations
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.fleet import Group
from cloudgraft.engine.machines.breaker import Breaker
from cloudgraft.engine.machines.states import may_cost
from cloudgraft.engine.new_records import KINDS
from cloudgraft.engine.ownership.orphans import OrphanKind
from cloudgraft.engine.reconcile.worker import Worker
from cloudgraft.engine.reporting.webhook import Webhook
from cloudgraft.sdk.errors import ErrorClass, UnavailableError
from cloudgraft.store.records import Event, MachineRecord, State

T = TypeVar("T")
_STATES: Final = tuple(state for state in State if state is not State.GONE)
_ON_THE_WAY: Final = frozenset({State.REQUESTED, State.CREATING, State.BOOTING})
_TRIES: Final = 5

# name -> (description, labels). Gauges, except those in _COUNTERS and _HISTOGRAMS.
_FAMILIES: Final = {
    "cloudgraft_machines": ("Machines of a group, by state", ("group", "cloud", "state")),
    "cloudgraft_nodes": (
        "Nodes of a group's machines that have joined, by state; nothing while the cluster cannot be seen",
        ("group", "cloud", "state"),
    ),
    "cloudgraft_cluster_known": ("1 while the data of the cluster are fresh; nothing without a cluster", ()),
    "cloudgraft_group_drift": ("Differences between the group's nodes and its template", ("group", "cloud")),
    "cloudgraft_group_oldest_pending_seconds": (
        "Age of the oldest request whose machine does not run yet or has never joined as a node; 0 without one",
        ("group", "cloud"),
    ),
    "cloudgraft_group_hourly_cost": (
        "Price per hour of the group's machines that exist, by currency; nothing without a price",
        ("group", "cloud", "currency"),
    ),
    "cloudgraft_group_scale_up_seconds": (
        "Time from a machine's request until its node is ready, or until it runs where there is no cluster",
        ("group", "cloud"),
    ),
    "cloudgraft_failed_machines": (
        "Machines that failed, by the class that the autoscaler gets: out_of_resources or other",
        ("group", "cloud", "class"),
    ),
    "cloudgraft_group_target_size": ("Machines that count for the autoscaler", ("group", "cloud")),
    "cloudgraft_group_min_size": ("The group's minimum, as the autoscaler sees it", ("group", "cloud")),
    "cloudgraft_group_max_size": ("The group's maximum, as the autoscaler sees it", ("group", "cloud")),
    "cloudgraft_group_paused": ("1 while an operator has paused the group or its cloud", ("group", "cloud")),
    "cloudgraft_group_draining": (
        "1 when the group is no longer configured and still has machines",
        ("group", "cloud"),
    ),
    "cloudgraft_group_left_out": ("1 for a group that is configured and cannot be served", ("group",)),
    "cloudgraft_cloud_up": ("1 while the cloud answers", ("cloud",)),
    "cloudgraft_cloud_list_age_seconds": ("Age of the latest successful list of the cloud", ("cloud",)),
    "cloudgraft_cloud_machines_listed": ("Machines in that list, including those of others", ("cloud",)),
    "cloudgraft_cloud_calls_under_way": ("Creates and deletes that wait for the cloud's answer", ("cloud",)),
    "cloudgraft_cloud_calls": (
        "Calls to the cloud that ended, by result: ok or an error's name",
        ("cloud", "call", "result"),
    ),
    "cloudgraft_cloud_call_duration_seconds": ("Time until a call to the cloud ended", ("cloud", "call")),
    "cloudgraft_cloud_calls_near_timeout": (
        "Calls to the cloud that took more than 80 % of their timeout, including those that timed out",
        ("cloud", "call"),
    ),
    "cloudgraft_machines_held_back": (
        "Machines that are reported missing from a cloud, or broken in a group, and too many to be believed",
        ("cloud", "group", "reason"),
    ),
    "cloudgraft_cloud_observe_only": ("1 while observeOnly is set for the cloud", ("cloud",)),
    "cloudgraft_cloud_held": (
        "Machines with a decision that a guard or observeOnly holds back",
        ("cloud",),
    ),
    "cloudgraft_orphans": ("Machines that look like ours and are not in the journal", ("cloud", "kind")),
    "cloudgraft_guard_used": ("The usage of a guard; no cloud means all together", ("cloud", "guard")),
    "cloudgraft_guard_limit": ("The guard's limit", ("cloud", "guard")),
    "cloudgraft_events": ("Events, by kind", ("kind",)),
    "cloudgraft_clock_offset_seconds": (
        "Seconds by which the wall clock is ahead of the engine's, which does not jump",
        (),
    ),
    "cloudgraft_journal_up": ("1 while the journal can be written", ()),
    "cloudgraft_leader": ("1 while this process leads", ()),
    "cloudgraft_database_clock_offset_seconds": (
        "Seconds by which the clock of the journal's PostgreSQL is ahead of this host's",
        (),
    ),
    "cloudgraft_webhook_events": ("Events for the webhook, by result", ("result",)),
}
_COUNTERS: Final = frozenset(
    {
        "cloudgraft_cloud_calls",
        "cloudgraft_cloud_calls_near_timeout",
        "cloudgraft_events",
        "cloudgraft_failed_machines",
        "cloudgraft_webhook_events",
    }
)
_HISTOGRAMS: Final = frozenset({"cloudgraft_cloud_call_duration_seconds", "cloudgraft_group_scale_up_seconds"})

Sample = tuple[str, tuple[str, ...], float | Durations]  # a name, the values of its labels, and the value


class EngineMetrics(Collector):
    """The metrics of one engine, in the registry of the service."""

    def __init__(self, engine: Engine, registry: CollectorRegistry, *, webhook: Webhook | None = None) -> None:
        self._engine = engine
        self._webhook = webhook
        self._events: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
        self._failed: Counter[tuple[str, str, str]] = Counter()  # by group, cloud and class
        engine.writer.subscribe(self._count)
        registry.register(self)

    @staticmethod
    def families() -> list[Metric]:
        """All metrics without values, for the registry and the documentation."""
        return [_family(name, text, labels) for name, (text, labels) in _FAMILIES.items()]

    def describe(self) -> Iterable[Metric]:
        """For prometheus_client, so that nothing is collected before the engine has started."""
        return self.families()

    def collect(self) -> Iterable[Metric]:
        """All metrics with their current values.

        A process that does not lead knows nothing of groups, clouds and guards, or only what was true when it led.
        """
        families = {family.name: family for family in self.families()}
        of_leader = (self._of_groups, self._of_clouds, self._of_guards) if self._is_leader() else ()
        for read in (*of_leader, self._of_all):
            for name, labels, value in _steady(read):
                _add(families[name], labels, value)
        return families.values()

    def _count(self, event: Event) -> None:
        self._events[event.kind] += 1
        record = self._engine.fleet.machines.get(event.machine)
        if event.state is State.FAILED and record is not None:
            is_short = record.error is not None and record.error.error_class == ErrorClass.OUT_OF_RESOURCES
            self._failed[record.group, record.cloud, _class(is_short=is_short)] += 1

    def _of_groups(self) -> Iterator[Sample]:
        engine = self._engine
        for group in list(engine.fleet.groups.values()):
            id_, cloud = group.spec.id, group.spec.cloud
            counted = Counter(record.state for record in list(group.machines.values()))
            for state in _STATES:
                yield "cloudgraft_machines", (id_, cloud, state.value), counted[state]
            yield from self._of_nodes(id_, cloud)
            yield from self._of_requests(group)
            yield "cloudgraft_group_target_size", (id_, cloud), group.target
            yield "cloudgraft_group_min_size", (id_, cloud), group.shown.min_size
            yield "cloudgraft_group_max_size", (id_, cloud), group.shown.max_size
            is_paused = engine.fleet.pause_of(id_, cloud) is not None
            yield "cloudgraft_group_paused", (id_, cloud), is_paused
            yield "cloudgraft_group_draining", (id_, cloud), not group.is_configured
        for id_ in engine.left_out():
            yield "cloudgraft_group_left_out", (id_,), 1

    def _of_requests(self, group: Group) -> Iterator[Sample]:
        id_, cloud, worker = group.spec.id, group.spec.cloud, self._engine.workers.get(group.spec.cloud)
        records, now = list(group.machines.values()), self._engine.clock.now()
        pending = [record.requested_at for record in records if _is_pending(record, worker)]
        yield "cloudgraft_group_oldest_pending_seconds", (id_, cloud), max(0.0, now - min(pending, default=now))
        hourly: dict[str, Decimal] = {group.spec.price.currency: Decimal(0)} if group.spec.price else {}
        for record in records:
            if record.hourly is not None and may_cost(record):
                hourly[record.currency] = hourly.get(record.currency, Decimal(0)) + record.hourly
        for currency, amount in hourly.items():
            yield "cloudgraft_group_hourly_cost", (id_, cloud, currency), float(amount)
        for is_short in (True, False):
            labels = (id_, cloud, _class(is_short=is_short))
            yield "cloudgraft_failed_machines", labels, self._failed[labels]
        if worker is not None:
            yield "cloudgraft_group_scale_up_seconds", (id_, cloud), worker.node_scan.scale_up_times.of_group(id_)

    def _of_nodes(self, group: str, cloud: str) -> Iterator[Sample]:
        nodes, worker = self._engine.nodes, self._engine.workers.get(cloud)
        if nodes.cluster is None or worker is None:
            return
        yield "cloudgraft_group_drift", (group, cloud), len(worker.node_scan.template_learner.drift.get(group, ()))
        if nodes.is_known:
            count = nodes.of_group(cloud, group)
            yield "cloudgraft_nodes", (group, cloud, "ready"), count.joined - count.unready
            yield "cloudgraft_nodes", (group, cloud, "unready"), count.unready

    def _of_clouds(self) -> Iterator[Sample]:
        for worker in list(self._engine.workers.values()):
            yield from self._of_cloud(worker)

    def _of_cloud(self, worker: Worker) -> Iterator[Sample]:
        health, cloud = worker.observer.health, worker.name
        yield "cloudgraft_cloud_up", (cloud,), not health.is_down and health.listed_at is not None
        if health.listed_at is not None:
            yield "cloudgraft_cloud_list_age_seconds", (cloud,), self._engine.clock.now() - health.listed_at
        yield "cloudgraft_cloud_machines_listed", (cloud,), health.machines
        yield "cloudgraft_cloud_calls_under_way", (cloud,), worker.caller.under_way
        statistics = worker.caller.statistics
        for (call, result), count in list(statistics.ended.items()):
            yield "cloudgraft_cloud_calls", (cloud, call, result), count
        for call, count in list(statistics.near_timeout.items()):
            yield "cloudgraft_cloud_calls_near_timeout", (cloud, call), count
        for call, durations in list(statistics.durations.items()):
            yield "cloudgraft_cloud_call_duration_seconds", (cloud, call), durations
        yield "cloudgraft_machines_held_back", (cloud, "", "missing"), _held_back(worker.observer.absence.breaker)
        for group, breaker in list(worker.repairer.breakers.items()):
            yield "cloudgraft_machines_held_back", (cloud, group, "broken"), _held_back(breaker)
        yield "cloudgraft_cloud_observe_only", (cloud,), self._engine.observes_only(cloud)
        yield "cloudgraft_cloud_held", (cloud,), len(worker.observer.held)
        orphans = Counter(orphan.kind for orphan in list(worker.observer.orphans))
        for kind in OrphanKind:
            yield "cloudgraft_orphans", (cloud, kind.value), orphans[kind]

    def _of_guards(self) -> Iterator[Sample]:
        for use in self._engine.guard_use():
            yield "cloudgraft_guard_used", (use.scope, use.guard), use.used
            yield "cloudgraft_guard_limit", (use.scope, use.guard), use.limit

    def _of_all(self) -> Iterator[Sample]:
        for kind, count in list(self._events.items()):
            yield "cloudgraft_events", (kind,), count
        if isinstance(self._engine.clock, SystemClock):
            yield "cloudgraft_clock_offset_seconds", (), self._engine.clock.offset
        yield "cloudgraft_journal_up", (), not self._engine.writer.trouble
        yield "cloudgraft_leader", (), self._is_leader()
        offset = self._engine.database_clock.offset
        if offset is not None:
            yield "cloudgraft_database_clock_offset_seconds", (), offset
        if self._engine.nodes.cluster is not None:
            yield "cloudgraft_cluster_known", (), self._engine.nodes.is_known
        if self._webhook is not None:
            for result, count in list(self._webhook.results.items()):
                yield "cloudgraft_webhook_events", (result,), count

    def _is_leader(self) -> bool:
        try:
            self._engine.check_leader()
        except UnavailableError:
            return False
        return True


def _family(name: str, text: str, labels: tuple[str, ...]) -> Metric:
    if name in _HISTOGRAMS:
        return HistogramMetricFamily(name, text, labels=labels)
    return (CounterMetricFamily if name in _COUNTERS else GaugeMetricFamily)(name, text, labels=labels)


def _add(family: Metric, labels: tuple[str, ...], value: float | Durations) -> None:
    if isinstance(family, HistogramMetricFamily) and isinstance(value, Durations):
        family.add_metric(labels, value.buckets(), value.seconds)
    elif isinstance(family, CounterMetricFamily | GaugeMetricFamily) and not isinstance(value, Durations):
        family.add_metric(labels, value)


def _class(*, is_short: bool) -> str:
    return "out_of_resources" if is_short else "other"


def _is_pending(record: MachineRecord, worker: Worker | None) -> bool:
    if record.state in _ON_THE_WAY:
        return True
    observation = worker.observer.peek(record.name) if worker is not None else None
    if record.state is not State.RUNNING or observation is None:
        return False
    return observation.node.joined is False and not observation.node.has_joined


def _held_back(breaker: Breaker) -> int:
    return len(breaker.affected) if breaker.is_open else 0


def _steady(read: Callable[[], Iterator[T]]) -> list[T]:
    """Reads data of another thread; repeats the read if they changed meanwhile."""
    for _ in range(_TRIES - 1):
        try:
            return list(read())
        except RuntimeError:  # "dictionary changed size during iteration"
            continue
    return list(read())
