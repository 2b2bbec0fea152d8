"""Implements discovery's core without HTTP: clusters, prices, offers and reservations.

Searches and lists use an index in memory. Before every read, one number is read from the database; more is read only
if another process has written since. Reservations are decided in the database alone, in one serialized transaction;
see :mod:`cloudgraft.discovery.store.statements`.

A cluster that never sent a heartbeat has no agent, and is Ready with its declared capacity; the rules for counting are
in :mod:`cloudgraft.discovery.search.reservations`. Times are by this server's own clock. Clocks of several servers
should agree to a second or so: when they do not, holds end earlier or later, but nothing is ever reserved twice.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from sqlalchemy import Connection

from cloudgraft.discovery import checks
from cloudgraft.discovery.model import (
    Cluster,
    ClusterSpec,
    ClusterState,
    Heartbeat,
    Need,
    Offer,
    PriceList,
    Reservation,
    ReservationState,
    Resources,
)
from cloudgraft.discovery.search import offers
from cloudgraft.discovery.search.index import ClusterIndex
from cloudgraft.discovery.search.reservations import moment
from cloudgraft.discovery.search.selector import Selector
from cloudgraft.discovery.store import schema, statements
from cloudgraft.discovery.store.database import Store
from cloudgraft.discovery.store.statements import beat_text, prices_revision, prices_text
from cloudgraft.discovery.store.vault import (
    Rotation,
    Vault,
    drop_credentials,
    read_credentials,
    rotate_some,
    write_credentials,
)
from cloudgraft.sdk.common.event_loop import in_slices
from cloudgraft.sdk.errors import InvalidArgumentError, NotFoundError, PreconditionError, UnavailableError
from cloudgraft.store.databases.address import PostgresAddress
from cloudgraft.store.databases.database import Database
from cloudgraft.store.databases.postgres import PostgresDatabase
from cloudgraft.store.databases.sqlite import SqliteDatabase

# -- Heartbeats in batches ---------------------------------------------------------------------------------------------
# A thousand agents cost a few transactions a second.


Write = Callable[[Mapping[str, Heartbeat]], Awaitable[set[str]]]  # returns the ids of unknown clusters


class Heartbeats:
    """Accepts heartbeats one by one. Writes the first at once, and those of the next ``gather`` seconds together.

    Each sender waits until its heartbeat is written.
    """

    def __init__(self, write: Write, *, gather: float) -> None:
        self._write = write
        self._gather = gather
        self._waiting: dict[str, tuple[Heartbeat, asyncio.Future[None]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    async def add(self, cluster: str, beat: Heartbeat) -> None:
        """Returns once it is written. NotFoundError when there is no such cluster."""
        if self._is_closed:
            raise UnavailableError("discovery is stopping")
        known = self._waiting.get(cluster)
        done = known[1] if known else asyncio.get_running_loop().create_future()
        self._waiting[cluster] = (beat, done)  # a second one replaces the first
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        await asyncio.shield(done)

    async def close(self) -> None:
        """Writes pending heartbeats, and accepts no more."""
        self._is_closed = True
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, {}
            await self._flush(waiting)
            if not self._is_closed:
                await asyncio.sleep(self._gather)

    async def _flush(self, waiting: Mapping[str, tuple[Heartbeat, asyncio.Future[None]]]) -> None:
        try:
            missing = await self._write({cluster: beat for cluster, (beat, _) in waiting.items()})
        except Exception as error:  # noqa: BLE001 - any error belongs to the waiting senders
            for _, done in waiting.values():
                _fail(done, error)
            return
        for cluster, (_, done) in waiting.items():
            if cluster in missing:
                _fail(done, NotFoundError(f"there is no cluster {cluster}: declare it first"))
            elif not done.done():
                done.set_result(None)


def _fail(done: asyncio.Future[None], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
        done.exception()  # retrieves the exception: the sender may have left, and asyncio would log it


# -- Core --------------------------------------------------------------------------------------------------------------


T = TypeVar("T")
_STALE_AFTER: Final = 45.0  # seconds: agents send every ten, so three were lost and another is late
_GATHER: Final = 0.1
_LONGEST_HOLD: Final = 86_400.0
_ROTATE_AT_ONCE: Final = 50
_AT_A_TIME: Final = 200  # clusters to explain before other tasks run
_MOST_REASONS: Final = 200  # more reasons than a person reads


class Discovery:
    """The market, and the register behind it. All errors are of :mod:`cloudgraft.sdk.errors`.

    ``clock`` returns seconds since the epoch. A vault is needed for credentials only.
    """

    def __init__(
        self,
        database: Database,
        *,
        vault: Vault | None = None,
        stale_after: float = _STALE_AFTER,
        gather: float = _GATHER,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = Store(database)
        self._vault = vault
        self._stale_after = stale_after
        self._clock = clock
        self._index = ClusterIndex(stale_after)
        self._heartbeats = Heartbeats(self._beat, gather=gather)

    @staticmethod
    def sqlite(path: Path) -> Database:
        """Uses a SQLite file. Several processes of one machine may share it."""
        return SqliteDatabase(path, layout=schema.LAYOUT, is_shared=True)

    @staticmethod
    def postgresql(address: PostgresAddress | str) -> Database:
        """Uses PostgreSQL, for several servers. A journal may be in the same one."""
        found = PostgresAddress.parse(address) if isinstance(address, str) else address
        return PostgresDatabase(found, layout=schema.LAYOUT)

    @property
    def label(self) -> str:
        """The location of its database, for messages."""
        return self._store.label

    async def open(self, *, upgrade: bool = False) -> None:
        """Opens the database and reads all of it. ``upgrade``: also migrates a PostgreSQL of an older release."""
        await self._store.open(upgrade=upgrade)
        try:
            await self._refresh()
            self._index.warm()
        except BaseException:
            await self._store.close()
            raise

    async def close(self) -> None:
        """Writes what is pending, and closes everything."""
        await self._heartbeats.close()
        await self._store.close()

    async def check(self) -> None:
        """UnavailableError when the database does not respond."""
        await self._refresh()

    # The register

    async def clusters(self, *, selector: str = "", state: ClusterState | None = None) -> Sequence[Cluster]:
        """All clusters, or those whose labels and state match, by id."""
        wanted = Selector.parse(selector)
        await self._refresh()
        found = self._index.clusters(self._clock())
        return [one for one in found if wanted.matches(one.spec.labels) and state in (None, one.state)]

    async def cluster(self, id_: str) -> Cluster:
        """One cluster. NotFoundError."""
        await self._refresh()
        return self._known(id_)

    async def put_cluster(
        self, spec: ClusterSpec, *, revision: int | None = None, keep_cordon: bool = False
    ) -> Cluster:
        """Declares a cluster, new or known. ConflictError when a revision is given and has changed.

        ``keep_cordon``: a cordoned cluster stays so, whatever the declaration says.
        """
        checks.check_spec(spec)
        await self._write(partial(statements.put_spec, spec=spec, revision=revision, keep_cordon=keep_cordon))
        return self._known(spec.id)

    async def delete_cluster(self, id_: str, *, force: bool = False) -> None:
        """Removes a cluster and its credentials. PreconditionError while it has reservations, unless forced."""
        checks.check_cluster_id(id_)
        await self._write(partial(statements.remove_cluster, id_=id_, force=force, now=self._clock()))

    async def heartbeat(self, cluster: str, heartbeat: Heartbeat) -> None:
        """Records a measurement, which makes the cluster Ready for a while. NotFoundError."""
        checks.check_cluster_id(cluster)
        checks.check_heartbeat(heartbeat)
        await self._heartbeats.add(cluster, heartbeat)

    async def prices(self, cluster: str) -> Sequence[PriceList]:
        """All price lists of a cluster. NotFoundError."""
        await self._refresh()
        record = self._index.record(cluster)
        if record is None:
            raise NotFoundError(f"there is no cluster {cluster}")
        return record.prices

    async def set_prices(self, cluster: str, prices: Sequence[PriceList], *, revision: int | None = None) -> None:
        """Replaces all price lists of a cluster, from the next search on. NotFoundError.

        ConflictError when a revision of :meth:`price_revision` is given and the prices have changed.
        """
        checks.check_cluster_id(cluster)
        checks.check_prices(prices)
        await self._write(partial(statements.set_prices, id_=cluster, prices=prices, revision=revision))

    async def change_prices(self, cluster: str, change: Callable[[Sequence[PriceList]], Sequence[PriceList]]) -> None:
        """Applies a function to the price lists. NotFoundError; ConflictError when they changed meanwhile."""
        before = list(await self.prices(cluster))
        after = list(change(before))
        if after != before:
            await self.set_prices(cluster, after, revision=self.price_revision(before))

    @staticmethod
    def price_revision(prices: Sequence[PriceList]) -> int:
        """The revision of prices: equal for equal prices, and different for others."""
        return prices_revision(prices_text(prices))

    # The market

    async def search(self, need: Need) -> Sequence[Offer]:
        """Offers for a need, best first; empty when no cluster can meet it."""
        await self._refresh()
        return offers.search(self._index.columns(self._clock()), need)

    async def why_not(self, need: Need) -> Mapping[str, str]:
        """The reasons why clusters cannot meet the need, for a person: named clusters first, and some hundred at most.

        Other tasks run meanwhile, because there may be thousands of clusters.
        """
        await self._refresh()
        named = frozenset(need.clusters)
        candidates = sorted(self._index.columns(self._clock()).candidates, key=lambda one: one.id not in named)
        reasons: dict[str, str] = {}
        async for some in in_slices(candidates, _AT_A_TIME):
            reasons |= offers.why_not(some, need)
            if len(reasons) >= _MOST_REASONS:
                break
        return dict(islice(reasons.items(), _MOST_REASONS))

    async def reserve(
        self, cluster: str, resources: Resources, *, owner: str, seconds: float, by: str | None = None
    ) -> Reservation:
        """Reserves resources. The same owner and cluster again returns the same reservation, with a new expiry.

        ``by`` is the client that owns it; None: no owner. OutOfStockError when they are no longer free, or the cluster
        accepts nothing new; NotFoundError; AlreadyExistsError when the owner has other resources reserved there;
        PermissionDeniedError when another client has reserved there for this owner.
        """
        checks.check_cluster_id(cluster)
        checks.check_resources(resources, "a reservation", is_needed=True)
        checks.check_text(owner, "the owner of a reservation", is_needed=True)
        if not 0 < seconds <= _LONGEST_HOLD:
            raise InvalidArgumentError(f"a reservation is held for more than 0 and at most {_LONGEST_HOLD:.0f} s")
        now = self._clock()
        wanted = Reservation(
            id=f"r-{secrets.token_hex(12)}",
            cluster=cluster,
            owner=owner,
            resources=resources,
            state=ReservationState.HELD,
            expires_at=moment(now + seconds),
            reserved_by=by,
        )
        return await self._write(partial(statements.reserve, wanted=wanted, now=now, stale_after=self._stale_after))

    async def confirm(self, reservation: str, *, by: str | None = None) -> Reservation:
        """Makes a reservation permanent until it is released. NotFoundError when it has expired.

        ``by`` is the calling client, None one that may change any. PermissionDeniedError when another one owns it.
        """
        checks.check_text(reservation, "the id of a reservation", is_needed=True)
        return await self._write(partial(statements.confirm, id_=reservation, now=self._clock(), by=by))

    async def release(self, reservation: str, *, by: str | None = None) -> None:
        """Releases the resources. Succeeds when the reservation is already gone.

        ``by`` is the calling client, None one that may change any. PermissionDeniedError when another one owns it.
        """
        checks.check_text(reservation, "the id of a reservation", is_needed=True)
        await self._write(partial(statements.release, id_=reservation, by=by))

    async def reservations(self, owner_prefix: str = "") -> Sequence[Reservation]:
        """Active reservations whose owner begins with the prefix, by owner."""
        await self._refresh()
        return [one for one in self._index.reservations(self._clock()) if one.owner.startswith(owner_prefix)]

    async def expire(self) -> int:
        """Removes reservations that were not confirmed in time; returns their number. Only keeps the table small."""
        return await self._write(partial(statements.expire, now=self._clock()))

    # Credentials

    async def credentials(self, cluster: str) -> str:
        """The kubeconfig for peering with a cluster. NotFoundError; PreconditionError when no key decrypts it."""
        checks.check_cluster_id(cluster)
        vault = self._needed_vault()
        sealed = await self._store.read(partial(read_credentials, cluster=cluster))
        return vault.unseal(cluster, sealed)

    async def set_credentials(self, cluster: str, kubeconfig: str) -> None:
        """Stores the kubeconfig for peering, encrypted. NotFoundError; PreconditionError without a key."""
        checks.check_cluster_id(cluster)
        checks.check_kubeconfig(kubeconfig)
        self._needed_vault()

        def write(connection: Connection, _seq: int) -> None:
            # With the current key: a rotation may meanwhile have removed the one read before.
            sealed = self._needed_vault().seal(cluster, kubeconfig)
            write_credentials(connection, cluster, sealed)

        await self._write(write)

    async def drop_credentials(self, cluster: str) -> None:
        """Deletes the credentials. Succeeds when there are none."""
        checks.check_cluster_id(cluster)
        await self._write(lambda connection, _: drop_credentials(connection, cluster))

    async def rotate(self) -> Rotation:
        """Re-encrypts with the current key. May be stopped anywhere and started again.

        Servers that share the database must all have the new key first, or they cannot read the result.
        """
        vault, after, rotated, unreadable = self._needed_vault(), "", 0, list[str]()

        def rotate_next(connection: Connection, _seq: int) -> Rotation:
            return rotate_some(connection, vault, after=after, limit=_ROTATE_AT_ONCE)

        while True:
            step = await self._write(rotate_next)
            rotated += step.rotated
            unreadable += step.unreadable
            if not step.last:
                return Rotation(rotated=rotated, unreadable=unreadable)
            after = step.last

    def use_vault(self, vault: Vault) -> None:
        """Uses another key ring from the next call on."""
        self._vault = vault

    def _needed_vault(self) -> Vault:
        if self._vault is None:
            raise PreconditionError("discovery has no key to encrypt credentials with: write `vault` in its file")
        return self._vault

    # The index and the database

    def _known(self, id_: str) -> Cluster:
        found = self._index.cluster(id_, self._clock())
        if found is None:
            raise NotFoundError(f"there is no cluster {id_}")
        return found

    async def _refresh(self) -> None:
        delta = await self._store.look(self._index.seq)
        if delta is not None:
            self._index.apply(delta, self._clock())

    async def _write(self, call: Callable[[Connection, int], T]) -> T:
        result, delta = await self._store.write(call, self._index.seq)
        self._index.apply(delta, self._clock())
        return result

    async def _beat(self, beats: Mapping[str, Heartbeat]) -> set[str]:
        at = self._clock()
        texts = {cluster: beat_text(beat) for cluster, beat in beats.items()}
        missing, delta = await self._store.beat(texts, at, self._index.seq)
        self._index.beat(beats, at, delta)
        return missing
