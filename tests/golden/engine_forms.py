"""Forms of the engine: what the journal keeps as JSON, reports, events for a webhook."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from decimal import Decimal
from typing import Final

from cloudgraft.engine.groups.spec_json import group_from_json, group_to_json
from cloudgraft.engine.groups.specs import GroupSpec, Money
from cloudgraft.engine.nodes.node_facts import Facts, facts_from_json, facts_to_json
from cloudgraft.engine.reporting.diagnosis import Reason
from cloudgraft.engine.reporting.explain import EventReport, Explanation
from cloudgraft.engine.reporting.findings import Finding, FindingKind
from cloudgraft.engine.reporting.report import (
    CloudReport,
    DriftReport,
    ErrorReport,
    GroupReport,
    GuardReport,
    MachineReport,
    NodeReport,
    PauseReport,
    Report,
)
from cloudgraft.engine.reporting.report_json import as_json
from cloudgraft.engine.reporting.webhook import Webhook, WebhookSettings
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import AutoscalingOptions, NodeCondition, NodeTemplate, Taint
from cloudgraft.store.records import Event, LearnedRecord, State
from tests.golden.forms import Form

TAINTS: Final = (Taint(key="gpu", value="yes", effect="NoExecute"), Taint(key="dedicated"))
TEMPLATE: Final = NodeTemplate(
    labels={"pool": "lab", "topology.kubernetes.io/zone": "größer-1"},
    annotations={"note": 'with "quotes", a tab\t and a line\nmore'},
    taints=TAINTS,
    capacity={
        "cpu": Quantity("4"),
        "memory": Quantity("1.5Gi"),
        "pods": Quantity("1e2"),
        "nvidia.com/gpu": Quantity(2),
    },
    allocatable={"cpu": Quantity("3900m"), "memory": Quantity("1073741824"), "pods": Quantity("0100")},
    conditions=(
        NodeCondition(type="Ready", status="True", reason="KubeletReady", message="is posting ready status"),
        NodeCondition(type="DiskPressure", status="False"),
    ),
    name="template-node",
    provider_id="sim://template",
    unschedulable=True,
)
OPTIONS: Final = AutoscalingOptions(
    scale_down_utilization_threshold=0.5,
    scale_down_gpu_utilization_threshold=1.0,
    scale_down_unneeded_time=timedelta(minutes=10),
    scale_down_unready_time=timedelta(hours=1, milliseconds=1),
    max_node_provision_time=timedelta(0),
    zero_or_max_node_scaling=False,
    ignore_daemon_sets_utilization=True,
    max_node_startup_time=timedelta(days=2, microseconds=1),
    allow_non_atomic_scale_up_to_max=True,
)
FULL: Final = GroupSpec(
    id="lab",
    cloud="sim",
    min_size=1,
    max_size=10,
    machine={"shape": "small", "disks": [1, 2.5, None, True, "x", {"size": 10**20}], "nested": {"a": {"b": []}}},
    template=TEMPLATE,
    labels={"pool": "lab"},
    taints=TAINTS,
    options=OPTIONS,
    price=Money(amount=Decimal("0.0500"), currency="EUR"),
)
BARE: Final = GroupSpec(id="bare", cloud="sim", min_size=0, max_size=0, template=NodeTemplate())
PROMISED: Final = dataclasses.replace(FULL, labels=TEMPLATE.labels)

GROUP_SPEC: Final = Form(
    name="group_spec",
    write=group_to_json,
    read=group_from_json,
    written={
        "full": FULL,
        "bare": BARE,
        "options that say nothing": dataclasses.replace(BARE, options=AutoscalingOptions()),
        "a price with an exponent": dataclasses.replace(BARE, price=Money(amount=Decimal("1E-7"), currency="USD")),
    },
    only_read={
        "of a release that learned nothing: labels and taints are the template's": PROMISED,
        "without options and price": BARE,
        "of a later release, with keys that are not known": BARE,
        "numbers as another language writes them": dataclasses.replace(
            BARE, options=AutoscalingOptions(scale_down_utilization_threshold=1.0)
        ),
    },
)

FACTS: Final = Facts(
    labels={"kubernetes.io/arch": "amd64", "leer": ""},
    taints=TAINTS,
    capacity={"cpu": Quantity("2"), "memory": Quantity("3977Mi")},
    allocatable={"cpu": Quantity("1930m"), "memory": Quantity("3500000Ki")},
    varying=frozenset({"b", "a"}),
    is_settled=True,
)
NODE_FACTS: Final = Form(
    name="node_facts",
    write=facts_to_json,
    read=lambda data: facts_from_json(LearnedRecord(group="g", settings={}, since=0.0, facts=data)),
    written={"full": FACTS, "bare": Facts()},
    only_read={"nothing learned yet": None, "of a later release, with keys that are not known": Facts()},
)

_ERROR: Final = ErrorReport(code="out_of_stock", message="no more of m5", error_class=1)
_MACHINE: Final = MachineReport(
    name="m-1",
    machine_id="vm-1",
    provider_id="sim://vm-1",
    state="failed",
    age=12.5,
    state_age=3.0,
    error=_ERROR,
    is_adopted=True,
    replaces="m-0",
    joined=True,
    node=NodeReport(name="node-1", state="unready", unready_for=1.5),
    trouble="why not",
)
_PAUSE: Final = PauseReport(scope="group", name="g", since="2027-01-15T08:00:00Z", reason="roof")
_GROUP: Final = GroupReport(
    id="g",
    cloud="sim",
    target=3,
    min_size=1,
    max_size=10,
    is_served=True,
    is_draining=True,
    left_out="left",
    stale="old",
    paused=_PAUSE,
    states={"running": 2, "failed": 1},
    nodes_joined=2,
    nodes_unready=0,
    drift=[DriftReport(what="less memory", todo="tell it")],
    held=1,
    hourly="0.0500",
    currency="EUR",
    machines=(_MACHINE,),
    is_complete=True,
)
_CLOUD: Final = CloudReport(
    name="sim",
    driver="simulated",
    is_up=True,
    error="",
    error_code="",
    down_since="",
    list_age=0.5,
    machines_listed=2,
    machines=3,
    orphans=1,
    is_ready=True,
    blocked="",
    held_back="two machines",
    paused=_PAUSE,
    observe_only=True,
    calls_under_way=4,
)
_REPORT: Final = Report(
    cluster="test",
    cluster_id="abcdefghij",
    at="2027-01-15T08:00:00Z",
    trouble="",
    is_leader=True,
    leader_trouble="",
    opening_trouble="opening",
    journal_trouble="",
    clock_trouble="",
    config_trouble="line 3",
    is_config_pending=True,
    nodes_watched=True,
    cluster_trouble="",
    node_problems=["node x: größer"],
    groups=[_GROUP, GroupReport(id="left", cloud="", states={})],
    clouds=[_CLOUD],
    guards=[GuardReport(scope="", guard="maxMachines", used=2, limit=3, left=1.0, unit="machines")],
)
_EVENT: Final = EventReport(at="2027-01-15T08:00:00Z", kind="created", message="made", machine="m-1", state="booting")
REPORT: Final = Form(
    name="report",
    write=as_json,
    written={
        "status": _REPORT,
        "explanation": Explanation(
            subject="group",
            id="g",
            verdict="it is paused",
            reasons=[Reason(what="what", todo="todo"), Reason(what="fine", is_obstacle=False)],
            group=_GROUP,
            machine=_MACHINE,
            asked=[_EVENT],
            troubled=[_MACHINE],
            events=[_EVENT, dataclasses.replace(_EVENT, count=2)],
            events_trouble="not read",
        ),
        "orphan": Finding(
            kind=FindingKind.UNMARKED,
            cloud="sim",
            group="",
            name="x",
            machine_id="1",
            provider_id="",
            state="running",
            since="",
            detail="detail",
            hint="hint",
        ),
    },
)

WEBHOOK: Final = Form(
    name="webhook_event",
    write=Webhook(WebhookSettings(url="http://127.0.0.1:1/hook"), "test").written,
    written={
        "full": Event(
            at=1_800_000_000.75,
            kind="failed",
            message="why: größer",
            cloud="sim",
            group="g",
            machine="m-1",
            state=State.FAILED,
            data={"n": 1, "nested": {"a": [1.5, None]}},
            seq=7,
        ),
        "bare": Event(at=0.0, kind="leader", message=""),
    },
)
FORMS: Final = (GROUP_SPEC, NODE_FACTS, REPORT, WEBHOOK)
