"""Forms of the simulated cloud's HTTP interface."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from cloudgraft.sdk.driver import Machine, MachineState, Price, Shape
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Taint
from cloudgraft.simcloud.chaos import Chaos, Faults, Odds, Span
from cloudgraft.simcloud.http import json_forms
from cloudgraft.simcloud.options import MachineSettings
from cloudgraft.simcloud.records import LedgerEntry, Order, Page, SimMachine
from tests.golden.forms import Form

_SETTINGS: Final = MachineSettings(
    shape="small",
    zone="a",
    labels={"pool": "größer"},
    annotations={"note": "x"},
    taints=(Taint(key="gpu", value="yes", effect="NoExecute"), Taint(key="spot")),
)
_BARE: Final = MachineSettings(shape="small")
_SIM: Final = SimMachine(
    seq=3,
    machine_id="vm-3",
    provider_id="simulated://vm-3",
    name="pool-3",
    state=MachineState.FAILED,
    reason="the machine died",
    shape=Shape(name="small", capacity={"cpu": Quantity("2")}),
    settings=_SETTINGS,
    tags={"cloudgraft-name": "pool-3"},
    created_at=1_800_000_000.25,
    running_since=1_800_000_005.0,
)
_BOOTING: Final = SimMachine(
    seq=4,
    machine_id="vm-4",
    provider_id="simulated://vm-4",
    name="pool-4",
    state=MachineState.PENDING,
    reason="",
    shape=Shape(name="small", capacity={"cpu": Quantity("2")}),
    settings=_BARE,
    tags={},
    created_at=1_800_000_001.0,
    running_since=None,
)


def _machine(found: SimMachine) -> Machine:
    return Machine(
        name=found.name,
        machine_id=found.machine_id,
        provider_id=found.provider_id,
        state=found.state,
        tags=found.tags,
        created_at=datetime.fromtimestamp(found.created_at, UTC),
        reason=found.reason,
    )


ORDER: Final = Form(
    name="simcloud_order",
    write=json_forms.order_to_json,
    read=json_forms.order_from_json,
    written={
        "full": Order(name="pool-3", settings=_SETTINGS, token="t", tags={"a": "b"}, client="who", machine_id="vm-7"),
        "bare": Order(name="pool-3", settings=_BARE),
    },
    only_read={
        "only what must be told": Order(name="pool-3", settings=_BARE),
        "a client by its tag": Order(
            name="pool-3", settings=_BARE, tags={"cloudgraft-cluster-id": "abc"}, client="abc"
        ),
        "a taint without an effect": Order(
            name="pool-3", settings=MachineSettings(shape="small", taints=(Taint(key="spot"),))
        ),
    },
)
MARKS: Final = Form(
    name="simcloud_marks",
    read=json_forms.marks_from_json,
    only_read={"set and removed": {"a": "b", "c": None}, "nothing": {}},
)
MACHINE: Final = Form(
    name="simcloud_machine",
    write=json_forms.machine_to_json,
    read=json_forms.machine_from_json,
    written={"full": _SIM, "booting": _BOOTING},
    back={"full": _machine(_SIM), "booting": _machine(_BOOTING)},
    only_read={"of a newer program, and without what may be missing": _machine(_BOOTING)},
)
PAGE: Final = Form(
    name="simcloud_page",
    write=json_forms.page_to_json,
    read=json_forms.page_from_json,
    written={
        "more": Page(machines=[_SIM, _BOOTING], count=2, more=True, cursor="4"),
        "last": Page(machines=[], count=0, more=False),
    },
    back={
        "more": Page(machines=[_machine(_SIM), _machine(_BOOTING)], count=2, more=True, cursor="4"),
    },
)
SHAPE: Final = Form(
    name="simcloud_shape",
    write=json_forms.shape_to_json,
    read=json_forms.shape_from_json,
    written={
        "full": Shape(name="small", capacity={"cpu": Quantity("1.5"), "memory": Quantity("4Gi")}, labels={"a": "b"}),
    },
    only_read={"only what must be told": Shape(name="small", capacity={})},
)
PRICE: Final = Form(
    name="simcloud_price",
    write=json_forms.price_to_json,
    read=json_forms.price_from_json,
    written={"exact": Price(shape="small", hourly=Decimal("0.0200"), currency="EUR")},
)
LEDGER: Final = Form(
    name="simcloud_ledger",
    write=json_forms.entry_to_json,
    written={
        "gone": LedgerEntry(
            machine_id="vm-3",
            provider_id="simulated://vm-3",
            name="pool-3",
            token="t",
            client="who",
            shape="small",
            tags={"a": "b"},
            state="gone",
            creates=2,
            deletes=1,
            deleted_by="who",
            created_at=1_800_000_000.25,
            delete_asked_at=1_800_000_010.0,
            gone_at=1_800_000_012.0,
            cost=Decimal("0.000065"),
            currency="EUR",
        ),
    },
)
CHAOS: Final = Form(
    name="simcloud_chaos",
    write=Chaos.to_json,
    read=Chaos.from_json,
    written={
        "nothing": Chaos(),
        "everything": Chaos(
            seed=7,
            latency=Span(0.05, 0.2),
            hang=2.5,
            create=Faults(
                rate_limits=Odds(chance=0.1),
                unavailable=Odds(next=2),
                errors=Odds(after=1, next=2, chance=0.5),
                errors_after=Odds(chance=1.0),
                dropped=Odds(next=1),
                lost=Odds(next=1),
                late=Odds(chance=0.25),
                latency=Span(1.0),
            ),
            delete=Faults(lost=Odds(chance=0.5)),
            list=Faults(latency=Span(0.5, 1.5)),
            retry_after=3.0,
            lost_after=0.5,
            late_by=2.0,
            boot_time=Span(5.0),
            delete_time=Span(1.0, 2.0),
            list_lag=Span(3.0),
            half_pages=Odds(chance=0.1),
            short_lists=Odds(chance=0.2),
            empty_lists=Odds(chance=0.3),
            quota=5,
            stock={"gpu": 0, "small": 3},
            never_boots=Odds(next=1),
            dies=Odds(chance=0.5),
            dies_after=Span(60.0, 120.0),
            ignores_delete=Odds(next=1),
            loses_tags=Odds(chance=0.5),
            loses_tags_after=Span(10.0),
        ),
        "it hangs": Chaos(hang=True),
    },
    only_read={"null is the default, and whole numbers are numbers": Chaos(latency=Span(1.0), late_by=2.0)},
)
FORMS: Final = (ORDER, MARKS, MACHINE, PAGE, SHAPE, PRICE, LEDGER, CHAOS)
