"""Defines the routes of the market: offers and reservations."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from contextlib import suppress
from typing import Annotated, Final

from fastapi import APIRouter, Header, Path, Query, Request, Response

from cloudgraft.discovery.api.clusters import Cursor
from cloudgraft.discovery.api.schemas import (
    OfferView,
    ReservationBody,
    ReservationPage,
    ReservationView,
    SearchBody,
    SearchResult,
)
from cloudgraft.discovery.service import Discovery
from cloudgraft.sdk.errors import NotFoundError, PreconditionError
from cloudgraft.web.authentication import ANY_ROLE, Caller, allowed, unaudited
from cloudgraft.web.pagination import page

Searcher = Annotated[Caller, allowed("node-manager", "operator", "read-only")]
Reserver = Annotated[Caller, allowed("node-manager", "operator")]
ReservationId = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._\-]{0,99}$")]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[\x21-\x7e]{1,512}$",
        description="The same key with another request is refused.",
    ),
]
_MOST_KEYS: Final = 10_000


def market_routes(core: Discovery) -> APIRouter:
    """The routes of the market."""
    router = APIRouter(prefix="/v1", tags=["market"])
    _add_search(router, core)
    _add_reservations(router, core, _Keys())
    _add_reservation(router, core)
    return router


def _add_search(router: APIRouter, core: Discovery) -> None:
    @router.post("/offers:search", operation_id="searchOffers")
    async def search_offers(body: SearchBody, _caller: Searcher, request: Request) -> SearchResult:
        """Clusters that can meet a need, best first, with reasons."""
        unaudited(request)  # it changes nothing
        need = body.need()
        offers = [OfferView.of(offer) for offer in await core.search(need)]
        return SearchResult(offers=offers, why_not=dict(await core.why_not(need)) if body.explain else {})


def _add_reservations(router: APIRouter, core: Discovery, keys: _Keys) -> None:
    @router.post("/reservations", operation_id="reserve", status_code=201)
    async def reserve(body: ReservationBody, caller: Reserver, key: Key = None) -> ReservationView:
        """Reserves resources of a cluster. The same owner and cluster again returns the same reservation.

        So it is safe to repeat, even after a restart of the server. 409 with `out_of_stock` when they are no
        longer free. The reservation belongs to the client that made it: 403 for another one.
        """
        if key is not None:
            keys.check(caller.name, key, body)
        found = await core.reserve(
            body.cluster_id,
            body.resources,
            owner=body.owner,
            seconds=float(body.ttl_seconds),
            by=_known_as(caller),
        )
        return ReservationView.of(found)

    @router.get("/reservations", operation_id="listReservations")
    async def list_reservations(
        _caller: Searcher,
        owner_prefix: Annotated[str, Query(alias="ownerPrefix", max_length=253)] = "",
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        cursor: Cursor = "",
    ) -> ReservationPage:
        """Active reservations, a page at a time."""
        found = await core.reservations(owner_prefix)
        shown, after = page(found, limit=limit, cursor=cursor, key=lambda one: one.id)
        return ReservationPage(items=[ReservationView.of(one) for one in shown], cursor=after)


def _add_reservation(router: APIRouter, core: Discovery) -> None:
    @router.post("/reservations/{reservation}:confirm", operation_id="confirm")
    async def confirm(reservation: ReservationId, caller: Reserver) -> ReservationView:
        """Makes a reservation last until it is released. 404 when it has expired, 403 when another client made it."""
        return ReservationView.of(await core.confirm(reservation, by=_known_as(caller)))

    @router.delete("/reservations/{reservation}", operation_id="release", status_code=204)
    async def release(reservation: ReservationId, caller: Reserver) -> Response:
        """Releases the resources. Succeeds when the reservation is already gone.

        403 when another client made it. An operator may release any.
        """
        with suppress(NotFoundError):
            await core.release(reservation, by=None if caller.may("operator") else _known_as(caller))
        return Response(status_code=204)


def _known_as(caller: Caller) -> str | None:
    """The name that reservations of this caller are stored under, the same for all its replicas.

    None for an unauthenticated caller: its reservations stay usable when authentication is enabled later.
    """
    return None if caller.role == ANY_ROLE else caller.name


class _Keys:
    """The last keys of each caller and their requests, so that no key is used for two requests.

    The store itself prevents a double reservation, by owner and cluster. This only detects a caller's mistake, and may
    forget keys.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, str], bytes] = OrderedDict()

    def check(self, caller: str, key: str, body: ReservationBody) -> None:
        """Raises PreconditionError when the key was used for another request."""
        said = hashlib.sha256(body.model_dump_json().encode()).digest()
        if self._seen.setdefault((caller, key), said) != said:
            raise PreconditionError("this Idempotency-Key came with another request before: use a new one")
        while len(self._seen) > _MOST_KEYS:
            self._seen.popitem(last=False)
