"""Models clouds, groups and guards as the engine uses them. :mod:`cloudgraft.app` builds them from the file.

Frozen values. A group's spec is stored in the journal as JSON, so that the engine can serve a group that is no longer
in the file; see :mod:`cloudgraft.engine.groups.spec_json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Final

from cloudgraft.engine.machines.breaker import BreakerLimit
from cloudgraft.sdk.driver import DriverTraits
from cloudgraft.sdk.list_budget import MOST_BYTES, MOST_MACHINES
from cloudgraft.sdk.types import AutoscalingOptions, NodeTemplate, Taint

_CREATE: Final = timedelta(minutes=2)
# Shorter than the 15 minutes after which the autoscaler deletes a machine without a node (R26, R40).
MASS_ABSENCE: Final = BreakerLimit(share=0.2, few=2, hold=600.0, looks=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """An amount in one currency."""

    amount: Decimal
    currency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardLimits:
    """Law 10: the limits of one cloud or of all together; None for no limit."""

    max_machines: int | None = None
    max_creates_per_hour: int | None = None
    max_spend_per_day: Money | None = None
    max_deletes_per_hour: int | None = None  # deletions that the engine decides on: see cloudgraft.engine.guards


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudSettings:
    """The settings of one cloud."""

    name: str
    driver: str = ""  # its name in the configuration, for reports
    observe_every: timedelta = timedelta(seconds=10)
    list_timeout: timedelta = timedelta(seconds=60)
    max_list_machines: int = MOST_MACHINES
    max_list_bytes: int = MOST_BYTES
    create_timeout: timedelta | None = None  # None: the time that the driver declares, see create_limit
    delete_timeout: timedelta = timedelta(minutes=2)
    max_calls: int = 8  # concurrent creates and deletes
    calls_per_second: float | None = None  # None: as fast as max_calls allows
    backoff_initial: timedelta = timedelta(seconds=1)
    backoff_max: timedelta = timedelta(minutes=1)
    guards: GuardLimits = GuardLimits()
    # The engine lists, matches and decides, and changes nothing there: it does not create, delete, mark or give up
    # machines, and does not write to their nodes. Each decision that it withholds becomes an event.
    observe_only: bool = False


def create_limit(settings: CloudSettings, traits: DriverTraits) -> float:
    """The timeout of one create in seconds: as configured, else as the driver declares, else two minutes."""
    return (settings.create_timeout or traits.create_timeout or _CREATE).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """One node group. ``template`` is complete: declaration, shape, reserved resources, and learned facts.

    ``labels`` and ``taints`` are set on its nodes: those of the template, without learned ones. A change that somebody
    made to one node must not spread to all others.
    """

    id: str
    cloud: str
    min_size: int
    max_size: int
    machine: Mapping[str, object] = field(default_factory=dict)
    template: NodeTemplate
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Taint] = ()
    options: AutoscalingOptions | None = None  # only what differs from the autoscaler's defaults
    price: Money | None = None  # per hour


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairSettings:
    """When to replace a running machine that its cloud reports dead, or whose node is not ready."""

    enabled: bool = True
    after: timedelta = timedelta(minutes=5)  # dead for this long
    # Not ready for this long: more than the autoscaler's own 20 minutes, which come first. None: not replaced.
    not_ready_after: timedelta = timedelta(minutes=30)
    max_share: float = 0.2  # never more than this share of a group at once; at least one machine


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The settings for all clouds and groups."""

    create_deadline: timedelta = timedelta(minutes=10)
    join_deadline: timedelta = timedelta(minutes=15)
    failed_ttl: timedelta = timedelta(minutes=20)
    first_list_timeout: timedelta = timedelta(minutes=2)  # how long a start refuses calls for clouds never listed
    node_memory: timedelta = timedelta(minutes=30)  # a gone machine maps to its group that long (R24)
    keep_gone: timedelta = timedelta(days=2)
    keep_events: timedelta = timedelta(days=14)
    guards: GuardLimits = GuardLimits()
    repair: RepairSettings = RepairSettings()
    absence: BreakerLimit = MASS_ABSENCE
    delete_orphans: bool = False  # the automatic policy: off unless asked for
    gpu_label: str = ""
