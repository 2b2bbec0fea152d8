"""Values of discovery to rows and back. Quantities and money are kept as they were written."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from cloudgraft.discovery.model import (
    ClusterSpec,
    Heartbeat,
    Network,
    NetworkMode,
    PriceList,
    Reservation,
    ReservationState,
    Resources,
)
from cloudgraft.discovery.search.reservations import Record, expires, moment
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.store.journal import JournalBrokenError

__all__ = [
    "beat_text",
    "is_cordoned",
    "prices_revision",
    "prices_text",
    "read_record",
    "read_reservation",
    "reservation_row",
    "resources_text",
    "spec_text",
]

Row = Sequence[Any]


def spec_text(spec: ClusterSpec) -> str:
    """What is declared of a cluster, but for its id."""
    network = spec.network
    return _json(
        {
            "displayName": spec.display_name,
            "labels": dict(spec.labels),
            "capacity": _texts(spec.capacity),
            "maxNodes": spec.max_nodes,
            "network": [network.mode.value, network.address, network.port, network.node_port],
            "class": spec.resource_slice_class,
            "cordoned": spec.cordoned,
        }
    )


def prices_text(lists: Sequence[PriceList]) -> str:
    """All that a cluster asks, at any time."""
    return _json(
        [
            {
                "currency": prices.currency,
                "unit": {name: str(price) for name, price in prices.unit.items()},
                "perNode": str(prices.fixed_per_node),
                "peering": str(prices.peering_fee),
                "from": _written(prices.valid_from),
                "to": _written(prices.valid_to),
            }
            for prices in lists
        ]
    )


def prices_revision(text: str) -> int:
    """A revision of prices: another one for other prices."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7])


def is_cordoned(text: str) -> bool:
    """Whether what is declared of a cluster says so."""
    return json.loads(text)["cordoned"] is True


def beat_text(beat: Heartbeat) -> str:
    """What an agent measured."""
    return _json(
        {
            "allocatable": _texts(beat.allocatable),
            "free": _texts(beat.free),
            "offloaded": _texts(beat.offloaded),
            "by": {id_: _texts(taken) for id_, taken in beat.offloaded_by.items()},
            "observedAt": _written(beat.observed_at),
            "agent": beat.agent_version,
        }
    )


def resources_text(resources: Resources) -> str:
    """Amounts, in an order of their own, so that equal ones are equal texts."""
    return _json(_texts(resources))


def reservation_row(reservation: Reservation) -> dict[str, object]:
    """A reservation as named values of the columns."""
    is_confirmed = reservation.state is ReservationState.CONFIRMED
    return {
        "id": reservation.id,
        "cluster_id": reservation.cluster,
        "owner": reservation.owner,
        "resources": resources_text(reservation.resources),
        "is_confirmed": is_confirmed,
        "expires_at": None if is_confirmed else expires(reservation),
        "reserved_by": reservation.reserved_by,
    }


def read_record(row: Row, reservations: Iterable[Reservation]) -> Record:
    """A cluster, from a row in the order of the columns of `discovery_clusters`."""
    id_, _seq, revision, spec, prices, beat, beat_at = row
    try:
        return Record(
            spec=_spec(id_, json.loads(spec)),
            revision=revision,
            prices=_price_lists(prices),
            beat=None if beat is None else _beat(json.loads(beat)),
            beat_at=beat_at,
            reservations=tuple(reservations),
        )
    except (ValueError, KeyError, TypeError, ArithmeticError) as error:
        raise JournalBrokenError(
            f"the row of cluster {id_} is damaged ({type(error).__name__}): restore a backup of the discovery database"
        ) from error


def read_reservation(row: Row) -> Reservation:
    """A reservation, from a row in the order of the columns of `discovery_reservations`."""
    id_, cluster, owner, resources, is_confirmed, expires_at, reserved_by = row
    try:
        return Reservation(
            id=id_,
            cluster=cluster,
            owner=owner,
            resources=_amounts(json.loads(resources)),
            state=ReservationState.CONFIRMED if is_confirmed else ReservationState.HELD,
            expires_at=None if is_confirmed or expires_at is None else moment(expires_at),
            reserved_by=reserved_by,
        )
    except (ValueError, TypeError) as error:
        raise JournalBrokenError(
            f"the row of reservation {id_} is damaged ({type(error).__name__}): restore a backup of the discovery "
            "database"
        ) from error


def _spec(id_: str, said: Mapping[str, Any]) -> ClusterSpec:
    mode, address, port, node_port = said["network"]
    return ClusterSpec(
        id=id_,
        display_name=said["displayName"],
        labels=said["labels"],
        capacity=_amounts(said["capacity"]),
        max_nodes=said["maxNodes"],
        network=Network(mode=NetworkMode(mode), address=address, port=port, node_port=node_port),
        resource_slice_class=said["class"],
        cordoned=said["cordoned"],
    )


@functools.lru_cache(maxsize=1024)
def _price_lists(text: str) -> tuple[PriceList, ...]:
    """The same lists for the same text: a heartbeat leaves prices as they are, and many clusters ask the same."""
    return tuple(_prices(one) for one in json.loads(text))


def _prices(said: Mapping[str, Any]) -> PriceList:
    return PriceList(
        currency=said["currency"],
        unit={name: Decimal(price) for name, price in said["unit"].items()},
        fixed_per_node=Decimal(said["perNode"]),
        peering_fee=Decimal(said["peering"]),
        valid_from=_read(said["from"]),
        valid_to=_read(said["to"]),
    )


def _beat(said: Mapping[str, Any]) -> Heartbeat:
    return Heartbeat(
        allocatable=_amounts(said["allocatable"]),
        free=_amounts(said["free"]),
        offloaded=_amounts(said["offloaded"]),
        offloaded_by={id_: _amounts(taken) for id_, taken in said.get("by", {}).items()},
        observed_at=_read(said["observedAt"]),
        agent_version=said["agent"],
    )


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _texts(resources: Resources) -> dict[str, str]:
    return {name: str(quantity) for name, quantity in resources.items()}


def _amounts(said: Mapping[str, str]) -> dict[str, Quantity]:
    return {name: Quantity(text) for name, text in said.items()}


def _written(time: datetime | None) -> str | None:
    if time is None:
        return None
    return (time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)).isoformat()


def _read(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
