"""Reads and writes discovery's tables: converts values to rows and back, and runs statements in a transaction."""

from __future__ import annotations

import functools
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, Table, bindparam, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

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
from cloudgraft.discovery.search.reservations import (
    UNREADY,
    Record,
    expires,
    lack_of,
    moment,
    nanos_of,
    state_of,
    stock_of,
)
from cloudgraft.discovery.store import schema
from cloudgraft.json_codec import (
    AMOUNTS,
    FLAG,
    MONEY,
    TEXT,
    TEXTS,
    WHOLE,
    Codec,
    Form,
    Key,
    entries,
    items,
    maybe,
    parsed,
    record,
    taken,
)
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    OutOfStockError,
    PermissionDeniedError,
    PreconditionError,
)
from cloudgraft.store.journal import JournalBrokenError

# -- Values and rows ---------------------------------------------------------------------------------------------------
# Quantities and money stay as they were written.


Row = Sequence[Any]


def _written(time: datetime) -> str:
    return (time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)).isoformat()


def _network(said: Sequence[Any]) -> Network:
    mode, address, port, node_port = said
    return Network(mode=NetworkMode(mode), address=address, port=port, node_port=node_port)


_TIME: Final[Form[datetime]] = parsed(datetime.fromisoformat, _written)
_NETWORK: Final[Form[Network]] = taken(_network, lambda one: [one.mode.value, one.address, one.port, one.node_port])
_SPEC: Final[Codec[Any]] = Codec(  # of a ClusterSpec, but for its id
    record(
        dict,
        display_name=Key(TEXT, "displayName"),
        labels=TEXTS,
        capacity=AMOUNTS,
        max_nodes=Key(maybe(WHOLE), "maxNodes"),
        network=_NETWORK,
        resource_slice_class=Key(TEXT, "class"),
        cordoned=FLAG,
    )
)
_PRICES: Final = items(
    record(
        PriceList,
        currency=TEXT,
        unit=entries(MONEY),
        fixed_per_node=Key(MONEY, "perNode"),
        peering_fee=Key(MONEY, "peering"),
        valid_from=Key(maybe(_TIME), "from"),
        valid_to=Key(maybe(_TIME), "to"),
    )
)
_HEARTBEAT: Final = Codec(
    record(
        Heartbeat,
        allocatable=AMOUNTS,
        free=AMOUNTS,
        offloaded=AMOUNTS,
        offloaded_by=Key(entries(AMOUNTS), "by", may_miss=True),  # agents of older releases did not say
        observed_at=Key(maybe(_TIME), "observedAt"),
        agent_version=Key(TEXT, "agent"),
    )
)
_READ_PRICES: Final = Codec(_PRICES)
_RESOURCES: Final = Codec(AMOUNTS)


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def spec_text(spec: ClusterSpec) -> str:
    """The declaration of a cluster, without its id."""
    return _json(_SPEC.write(spec))


def prices_text(lists: Sequence[PriceList]) -> str:
    """All price lists of a cluster."""
    return _json(_PRICES.write(lists))


def prices_revision(text: str) -> int:
    """The revision of prices: different for different prices."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7])


def is_cordoned(text: str) -> bool:
    """Whether the declaration of a cluster has a cordon."""
    return json.loads(text)["cordoned"] is True


def beat_text(beat: Heartbeat) -> str:
    """An agent's measurement."""
    return _json(_HEARTBEAT.write(beat))


def resources_text(resources: Resources) -> str:
    """Amounts in a fixed order, so that equal ones are equal texts."""
    return _json(_RESOURCES.write(resources))


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
            spec=ClusterSpec(id=id_, **_SPEC.read(json.loads(spec), "spec")),
            revision=revision,
            prices=_price_lists(prices),
            beat=None if beat is None else _HEARTBEAT.read(json.loads(beat), "heartbeat"),
            beat_at=beat_at,
            reservations=tuple(reservations),
        )
    except (ValueError, TypeError, InvalidArgumentError) as error:
        raise JournalBrokenError(
            f"the row of cluster {id_} is damaged ({error}): restore a backup of the discovery database"
        ) from error


def read_reservation(row: Row) -> Reservation:
    """A reservation, from a row in the order of the columns of `discovery_reservations`."""
    id_, cluster, owner, resources, is_confirmed, expires_at, reserved_by = row
    try:
        return Reservation(
            id=id_,
            cluster=cluster,
            owner=owner,
            resources=_RESOURCES.read(json.loads(resources), "resources"),
            state=ReservationState.CONFIRMED if is_confirmed else ReservationState.HELD,
            expires_at=None if is_confirmed or expires_at is None else moment(expires_at),
            reserved_by=reserved_by,
        )
    except (ValueError, TypeError, InvalidArgumentError) as error:
        raise JournalBrokenError(
            f"the row of reservation {id_} is damaged ({error}): restore a backup of the discovery database"
        ) from error


@functools.lru_cache(maxsize=1024)
def _price_lists(text: str) -> Sequence[PriceList]:
    """The same lists for the same text: a heartbeat leaves prices as they are, and many clusters ask the same."""
    return _READ_PRICES.read(json.loads(text), "prices")


# -- Statements --------------------------------------------------------------------------------------------------------
# Plain functions in an open transaction. Every write begins with :func:`count_up`, which locks the one row of
# `discovery_state` until the transaction ends. So no other thread or process can reserve between the check of what
# is free and the reservation.


INSERTS: Final[Mapping[str, Callable[[Table], sqlite.Insert | postgresql.Insert]]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}
_TOUCH = update(schema.clusters).where(schema.clusters.c.id == bindparam("id_"))
_BEAT = _TOUCH.values({name: bindparam(name) for name in ("seq", "beat", "beat_at")})


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """Changes up to a number: clusters as they are now, and ids of removed ones.

    ``is_whole``: these are all clusters, and they replace everything known before.
    """

    seq: int
    records: Sequence[Record] = ()
    removed: Sequence[str] = ()
    is_whole: bool = False


def begin_counting(connection: Connection) -> None:
    """Creates the row that every write increments, in a new database."""
    statement = INSERTS[connection.dialect.name](schema.state).values(id=1, seq=0)
    connection.execute(statement.on_conflict_do_nothing())


def count_up(connection: Connection) -> int:
    """Returns the number of this write. From here on other writers wait."""
    table = schema.state
    seq = connection.execute(update(table).values(seq=table.c.seq + 1).returning(table.c.seq)).scalar()
    if seq is None:
        raise JournalBrokenError("the discovery database has lost its counter: restore a backup of it")
    return int(seq)


def read_seq(connection: Connection) -> int:
    """The number of the last write."""
    return int(connection.execute(select(schema.state.c.seq)).scalar() or 0)


def read_delta(connection: Connection, since: int, seq: int) -> Delta:
    """Everything that was written after one number and up to another.

    A database whose number is not above one that was seen is an older state of itself: a backup, or a replica that
    became the primary and had missed the last writes. Then all of it is read.
    """
    table, holds = schema.clusters, schema.reservations
    is_whole = seq <= since
    since = -1 if is_whole else since
    rows = connection.execute(select(table).where(table.c.seq > since)).all()
    held: dict[str, list[Reservation]] = defaultdict(list)
    if rows:
        changed = select(table.c.id).where(table.c.seq > since)
        for row in connection.execute(select(holds).where(holds.c.cluster_id.in_(changed)).order_by(holds.c.id)):
            reservation = read_reservation(row)
            held[reservation.cluster].append(reservation)
    gone = connection.execute(select(schema.removed.c.id).where(schema.removed.c.seq > since)).scalars().all()
    records = [read_record(row, held[row[0]]) for row in rows]
    return Delta(seq=seq, records=records, removed=gone, is_whole=is_whole)


def _find(connection: Connection, id_: str) -> Record:
    table, holds = schema.clusters, schema.reservations
    row = connection.execute(select(table).where(table.c.id == id_)).one_or_none()
    if row is None:
        raise NotFoundError(f"there is no cluster {id_}")
    rows = connection.execute(select(holds).where(holds.c.cluster_id == id_))
    return read_record(row, [read_reservation(one) for one in rows])


def put_spec(
    connection: Connection, seq: int, spec: ClusterSpec, revision: int | None, *, keep_cordon: bool = False
) -> None:
    """Declares a cluster. ConflictError when a revision is given and has changed, or the cluster does not exist.

    ``keep_cordon``: a cordoned cluster stays so, whatever is declared.
    """
    table = schema.clusters
    row = connection.execute(select(table.c.revision, table.c.spec).where(table.c.id == spec.id)).one_or_none()
    stored = None if row is None else row[0]
    if row is not None and keep_cordon and is_cordoned(row[1]):
        spec = replace(spec, cordoned=True)
    if revision is not None and revision != stored:
        now = "it is not there any more" if stored is None else f"it has revision {stored} now, not {revision}"
        raise ConflictError(f"cluster {spec.id} was changed meanwhile: {now}; read it again")
    if stored is not None:
        change_cluster(connection, seq, spec.id, spec=spec_text(spec), revision=seq)
        return
    connection.execute(insert(table).values(id=spec.id, seq=seq, revision=seq, spec=spec_text(spec), prices="[]"))
    connection.execute(delete(schema.removed).where(schema.removed.c.id == spec.id))


def change_cluster(connection: Connection, seq: int, id_: str, **values: object) -> None:
    """Changes columns of a cluster, or only marks it as changed."""
    if connection.execute(_TOUCH.values(seq=seq, **values), {"id_": id_}).rowcount != 1:
        raise NotFoundError(f"there is no cluster {id_}")


def set_prices(
    connection: Connection, seq: int, id_: str, prices: Sequence[PriceList], *, revision: int | None
) -> None:
    """Replaces all price lists. ConflictError when a revision is given and the prices have changed."""
    if revision is not None:
        table = schema.clusters
        stored = connection.execute(select(table.c.prices).where(table.c.id == id_)).scalar()
        if stored is not None and prices_revision(stored) != revision:
            raise ConflictError(f"the prices of {id_} are not those that were read: read them again")
    change_cluster(connection, seq, id_, prices=prices_text(prices))


def remove_cluster(connection: Connection, seq: int, id_: str, *, force: bool, now: float) -> None:
    """Removes a cluster with its credentials. PreconditionError while it has reservations, unless forced."""
    record = _find(connection, id_)
    stock = stock_of(record, now)
    if stock.nodes and not force:
        raise PreconditionError(
            f"cluster {id_} has {stock.nodes} reservations: release them first, or delete it by force, which drops them"
        )
    holds = schema.reservations
    connection.execute(delete(holds).where(holds.c.cluster_id == id_))
    connection.execute(delete(schema.credentials).where(schema.credentials.c.cluster_id == id_))
    connection.execute(delete(schema.clusters).where(schema.clusters.c.id == id_))
    connection.execute(insert(schema.removed).values(id=id_, seq=seq))


def write_beats(connection: Connection, seq: int, beats: Mapping[str, str], at: float) -> set[str]:
    """Writes measurements in one statement. Returns the ids of unknown clusters."""
    rows = [{"id_": id_, "seq": seq, "beat": text, "beat_at": at} for id_, text in sorted(beats.items())]
    if connection.execute(_BEAT, rows).rowcount == len(rows):
        return set()
    table = schema.clusters
    return set(beats) - set(connection.execute(select(table.c.id).where(table.c.id.in_(beats))).scalars())


def reserve(connection: Connection, seq: int, wanted: Reservation, *, now: float, stale_after: float) -> Reservation:
    """Reserves resources if they are available, after removing what has expired.

    The same owner and cluster returns the existing reservation, and extends it to at least the expiry of a new one, but
    only for the client that owns it.
    """
    expire(connection, seq, now)
    record = _find(connection, wanted.cluster)
    known = next((one for one in record.reservations if one.owner == wanted.owner), None)
    if known is not None:
        return _again(connection, seq, known, wanted)
    refusal = UNREADY.get(state_of(record, now, stale_after)) or lack_of(
        stock_of(record, now), record.spec, nanos_of(wanted.resources)
    )
    if refusal:
        raise OutOfStockError(f"cluster {wanted.cluster} cannot give that now: {refusal}")
    connection.execute(insert(schema.reservations).values(reservation_row(wanted)))
    change_cluster(connection, seq, wanted.cluster)
    return wanted


def _again(connection: Connection, seq: int, known: Reservation, wanted: Reservation) -> Reservation:
    _check_whose(known.reserved_by, wanted.reserved_by)  # first: another client must learn nothing about it
    if nanos_of(known.resources) != nanos_of(wanted.resources):
        raise AlreadyExistsError(
            f"{wanted.owner} has a reservation of other resources in cluster {wanted.cluster}: release {known.id} first"
        )
    renewed = replace(known, reserved_by=known.reserved_by or wanted.reserved_by)
    if known.expires_at is not None and wanted.expires_at is not None:
        renewed = replace(renewed, expires_at=max(known.expires_at, wanted.expires_at))
    return known if renewed == known else _rewrite(connection, seq, renewed)


def _check_whose(reserved_by: str | None, by: str | None) -> None:
    """None on either side: no owner, or a caller that may change any."""
    if reserved_by is not None and by is not None and reserved_by != by:
        raise PermissionDeniedError(
            f"this reservation is not of {by}: only the client that made it may change it, and an operator release it"
        )


def confirm(connection: Connection, seq: int, id_: str, now: float, *, by: str | None) -> Reservation:
    """Makes a reservation permanent; one without an owner becomes the caller's. NotFoundError when it has ended."""
    expire(connection, seq, now)
    holds = schema.reservations
    row = connection.execute(select(holds).where(holds.c.id == id_)).one_or_none()
    if row is None:
        raise NotFoundError(f"there is no reservation {id_}: it has expired, or was released")
    found = read_reservation(row)
    _check_whose(found.reserved_by, by)
    lasting = replace(found, state=ReservationState.CONFIRMED, expires_at=None, reserved_by=found.reserved_by or by)
    return found if lasting == found else _rewrite(connection, seq, lasting)


def _rewrite(connection: Connection, seq: int, reservation: Reservation) -> Reservation:
    holds = schema.reservations
    connection.execute(update(holds).where(holds.c.id == reservation.id).values(reservation_row(reservation)))
    change_cluster(connection, seq, reservation.cluster)
    return reservation


def release(connection: Connection, seq: int, id_: str, *, by: str | None) -> None:
    """Releases resources. Succeeds when the reservation is already gone."""
    holds = schema.reservations
    statement = delete(holds).where(holds.c.id == id_).returning(holds.c.cluster_id, holds.c.reserved_by)
    gone = connection.execute(statement).one_or_none()
    if gone is not None:
        _check_whose(gone.reserved_by, by)  # raising here rolls the transaction back
        change_cluster(connection, seq, gone.cluster_id)


def expire(connection: Connection, seq: int, now: float) -> int:
    """Removes what was not confirmed in time, in all clusters; returns the number.

    From then on it is gone for every process: one whose clock is behind cannot confirm it any more.
    """
    holds = schema.reservations
    statement = delete(holds).where(holds.c.expires_at <= now).returning(holds.c.cluster_id)
    ended = connection.execute(statement).scalars().all()
    for cluster in set(ended):
        change_cluster(connection, seq, cluster)
    return len(ended)
