"""Texts in rows of discovery's database. They are compared letter by letter: a revision is a hash of one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Final

from cloudgraft.discovery.model import (
    ClusterSpec,
    Heartbeat,
    Network,
    NetworkMode,
    PriceList,
    Reservation,
    ReservationState,
)
from cloudgraft.discovery.store import statements
from cloudgraft.sdk.quantity import Quantity
from tests.golden.forms import Form

_CLUSTER: Final = "milan"
_NO_SPEC: Final = statements.spec_text(ClusterSpec(id=_CLUSTER))


def _record(read: Callable[[Any], object], **columns: str) -> Any:
    def reading(text: str) -> object:
        given = {"spec": _NO_SPEC, "prices": "[]", "beat": None, **dict.fromkeys(columns, text)}
        row = (_CLUSTER, 1, 7, given["spec"], given["prices"], given["beat"], None)
        return read(statements.read_record(row, ()))

    return reading


_SPEC: Final = ClusterSpec(
    id=_CLUSTER,
    display_name="Größer",
    labels={"country": "italy", "a": "b"},
    capacity={"memory": Quantity("1.5Gi"), "cpu": Quantity("4000m")},
    max_nodes=3,
    network=Network(mode=NetworkMode.ADDRESS_OVERRIDE, address="10.0.0.1", port=51840, node_port=30000),
    resource_slice_class="gold",
    cordoned=True,
)
SPEC: Final = Form(
    name="discovery_spec",
    write=statements.spec_text,
    read=_record(lambda record: record.spec, spec=""),
    written={"full": _SPEC, "bare": ClusterSpec(id=_CLUSTER)},
)

_PRICES: Final = PriceList(
    currency="EUR",
    unit={"memory": Decimal("0.0050"), "cpu": Decimal("1E-7")},
    fixed_per_node=Decimal("0.10"),
    peering_fee=Decimal(2),
    valid_from=datetime(2026, 1, 31, 12, tzinfo=UTC),
    valid_to=datetime(2026, 2, 1, 0, 0, 0, 250000, tzinfo=UTC),
)
PRICES: Final = Form(
    name="discovery_prices",
    write=statements.prices_text,
    read=_record(lambda record: record.prices, prices=""),
    written={
        "full": (_PRICES, PriceList(currency="USD")),
        "none": (),
        "times of another zone, and of none": (
            PriceList(
                currency="EUR",
                valid_from=datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=2))),
                valid_to=datetime(2026, 1, 31, 12),  # noqa: DTZ001 - a caller may give one
            ),
        ),
    },
    back={
        "times of another zone, and of none": (
            PriceList(
                currency="EUR",
                valid_from=datetime(2026, 1, 31, 10, tzinfo=UTC),
                valid_to=datetime(2026, 1, 31, 12, tzinfo=UTC),
            ),
        ),
    },
)

_BEAT: Final = Heartbeat(
    allocatable={"cpu": Quantity("8"), "memory": Quantity("16Gi")},
    free={"cpu": Quantity("7500m"), "memory": Quantity("15Gi")},
    offloaded={"cpu": Quantity("500m")},
    offloaded_by={"rome": {"cpu": Quantity("500m")}},
    observed_at=datetime(2026, 1, 31, 12, tzinfo=UTC),
    agent_version="1.2.3",
)
BEAT: Final = Form(
    name="discovery_heartbeat",
    write=statements.beat_text,
    read=_record(lambda record: record.beat, beat=""),
    written={"full": _BEAT, "bare": Heartbeat(allocatable={}, free={})},
    only_read={"of an agent that did not tell whose pods they are": Heartbeat(allocatable={}, free={})},
)


def _reservation(row: dict[str, Any]) -> Reservation:
    return statements.read_reservation(tuple(row.values()))


RESERVATION: Final = Form(
    name="discovery_reservation",
    write=statements.reservation_row,
    read=_reservation,
    written={
        "held": Reservation(
            id="r-1",
            cluster=_CLUSTER,
            owner="abc/pool-1",
            resources={"memory": Quantity("1Gi"), "cpu": Quantity("0.5")},
            state=ReservationState.HELD,
            expires_at=datetime(2026, 1, 31, 12, tzinfo=UTC),
            reserved_by="ca",
        ),
        "confirmed": Reservation(
            id="r-1",
            cluster=_CLUSTER,
            owner="abc/pool-1",
            resources={},
            state=ReservationState.CONFIRMED,
            expires_at=None,
        ),
    },
)
FORMS: Final = (SPEC, PRICES, BEAT, RESERVATION)
