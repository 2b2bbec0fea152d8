"""Forms that scripts (`exec`) and endpoints (`http`) get and answer, and the file of who has which machine."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Final

from cloudgraft.drivers.common import machine_json
from cloudgraft.drivers.hosts.assignments import Assignment, _from_json, _to_json
from cloudgraft.sdk.driver import Machine, MachineSpec, MachineState, Price, Shape
from cloudgraft.sdk.errors import CloudgraftError, OutOfStockError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Taint
from tests.golden.forms import Form


def _read(read: Any) -> Any:
    """Reads it as from a script: from bytes, so that 0.1 is exact."""
    return lambda data: read(machine_json.parse_json(machine_json.dump_json(data), "it"))


def _error(data: Any) -> object:
    """An error has no equality of its own."""
    error = machine_json.error_from_json(machine_json.parse_json(machine_json.dump_json(data), "it"))
    return None if error is None else _told(error)


def _told(error: CloudgraftError) -> tuple[str, str, float | None]:
    return type(error).__name__, error.message, error.retry_after


SPEC: Final = Form(
    name="machine_spec",
    write=machine_json.spec_to_json,
    written={
        "full": MachineSpec(
            name="pool-1",
            group="pool",
            settings={"size": 1, "share": 0.5, "disks": [{"gb": 10}], "zone": None},
            tags={"cloudgraft-group": 'Größe "M"'},
            user_data="#cloud-config\n",
        ),
        "bare": MachineSpec(name="pool-1", group="pool"),
    },
)

_FULL: Final = Machine(
    name="pool-1",
    machine_id="vm-1",
    provider_id="lab://vm-1",
    state=MachineState.STOPPED,
    tags={"cloudgraft-group": 'Größe "M"'},
    created_at=datetime(2026, 1, 31, 12, 0, 0, 500000, tzinfo=UTC),
    reason="somebody pulled the plug",
    addresses=("10.0.0.7", "pool-1.lab"),
    failure="out_of_stock",
)
MACHINE: Final = Form(
    name="machine",
    write=machine_json.machine_to_json,
    read=_read(machine_json.machine_from_json),
    written={
        "full": _FULL,
        "bare": Machine(name="pool-1", machine_id="vm-1"),
        **{
            state.value: Machine(name="pool-1", machine_id="vm-1", state=state)
            for state in MachineState
            if state is not MachineState.RUNNING
        },
    },
    only_read={
        "only what must be told": Machine(name="pool-1", machine_id="vm-1"),
        "null for all else": Machine(name="pool-1", machine_id="vm-1"),
        "empty for all else": Machine(name="", machine_id="vm-1"),
        "a time of another zone": Machine(
            name="pool-1",
            machine_id="vm-1",
            created_at=datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=2))),
        ),
        "a time with a Z": Machine(name="pool-1", machine_id="vm-1", created_at=datetime(2026, 1, 31, 12, tzinfo=UTC)),
    },
)
MACHINES: Final = Form(
    name="machines",
    read=_read(machine_json.machines_from_json),
    only_read={"none": [], "one": [Machine(name="pool-1", machine_id="vm-1")]},
)
CREATED: Final = Form(
    name="machine_created",
    read=_read(lambda data: machine_json.created_from_json(data, "pool-1")),
    only_read={"created": Machine(name="pool-1", machine_id="vm-1")},
)
SHAPES: Final = Form(
    name="shapes",
    read=_read(machine_json.shapes_from_json),
    only_read={
        "full": [
            Shape(
                name="s",
                capacity={"cpu": Quantity(2), "memory": Quantity("4Gi"), "pods": Quantity("1.50")},
                labels={"a": "b"},
                taints=(Taint(key="gpu", value="yes", effect="NoExecute"), Taint(key="spot")),
            )
        ],
        "only what must be told": [Shape(name="s", capacity={})],
    },
)
PRICES: Final = Form(
    name="prices",
    read=_read(machine_json.prices_from_json),
    only_read={
        "exact": [
            Price(shape="s", hourly=Decimal("0.1"), currency="EUR"),
            Price(shape="l", hourly=Decimal("2.50"), currency="EUR"),
            Price(shape="x", hourly=Decimal(0), currency="EUR"),
        ]
    },
)
ERRORS: Final = Form(
    name="machine_errors",
    read=_error,
    only_read={
        "one that is known": ("OutOfStockError", "no more of m5", 30.0),
        "without a time": ("RateLimitedError", "slowly", None),
        "without words": ("OutOfStockError", OutOfStockError.meaning, None),
        "none": None,
        "null": None,
    },
)
_SINCE: Final = datetime(2026, 1, 31, 12, 0, 0, 250000, tzinfo=UTC)
_TAKEN: Final = Assignment(
    host="rack-1",
    name="pool-1",
    provider_id="hosts://rack-1",
    since=_SINCE,
    addresses=("10.0.0.7",),
    tags={"a": "größer"},
    is_confirmed=False,
    stopping_since=_SINCE + timedelta(seconds=1),
    notes={"boot": "disk"},
)
_OLD: Final = Assignment(host="rack-1", name="pool-1", provider_id="hosts://rack-1", since=_SINCE)
ASSIGNMENTS: Final = Form(
    name="host_assignments",
    write=_to_json,
    read=_from_json,
    written={"none": {}, "two": {"rack-1": _TAKEN, "rack-2": dataclasses.replace(_OLD, host="rack-2")}},
    only_read={
        "of an older release": {"rack-1": _OLD},
        "of an older release, stopping": {"rack-1": dataclasses.replace(_OLD, stopping_since=_SINCE)},
        "of a later release, with keys that are not known": {"rack-1": _OLD},
    },
)
FORMS: Final = (ASSIGNMENTS, SPEC, MACHINE, MACHINES, CREATED, SHAPES, PRICES, ERRORS)
