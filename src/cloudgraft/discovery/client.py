"""Calls discovery over HTTPS, for the Liqo driver, the agent and the command line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

from pydantic import ValidationError

from cloudgraft.discovery.api.schemas import (
    ClusterBody,
    ClusterPage,
    ClusterView,
    CredentialsView,
    HeartbeatBody,
    Message,
    PricesBody,
    PricesView,
    ReservationBody,
    ReservationPage,
    ReservationView,
    SearchBody,
    SearchResult,
)
from cloudgraft.discovery.checks import hide_kubeconfig
from cloudgraft.discovery.model import (
    Cluster,
    ClusterSpec,
    Heartbeat,
    Market,
    Need,
    Offer,
    PriceList,
    Reservation,
    Resources,
)
from cloudgraft.sdk.errors import ConflictError, DeadlineError, InvalidArgumentError, NotFoundError
from cloudgraft.web.client import Answer, ClientTls, WebClient
from cloudgraft.web.pagination import etag_of, revision_of

M = TypeVar("M", bound=Message)
_PAGE: Final = "500"


class DiscoveryClient(Market):
    """Calls a discovery server: the market and the register. Errors are those of :mod:`cloudgraft.sdk.errors`.

    Use it from one event loop, and close it at the end.
    """

    def __init__(
        self, address: str, *, tls: ClientTls | None = None, token_file: Path | None = None, timeout: float = 5.0
    ) -> None:
        """``address`` is a URL such as ``https://discovery.example:9010``. Does not connect yet."""
        self._web = WebClient(address, tls=tls, token_file=token_file, timeout=timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def address(self) -> str:
        """The URL of the server."""
        return self._web.address

    async def close(self) -> None:
        """Closes all connections."""
        await self._web.close()

    # -- the market ----------------------------------------------------------------------------------------------------

    async def search(self, need: Need) -> Sequence[Offer]:
        """Offers for a need, best first."""
        return (await self._search(need, explain=False))[0]

    async def why_not(self, need: Need) -> Mapping[str, str]:
        """The reason for each cluster that cannot meet the need."""
        return (await self._search(need, explain=True))[1]

    async def explained(self, need: Need) -> tuple[Sequence[Offer], Mapping[str, str]]:
        """Offers and reasons in one call."""
        return await self._search(need, explain=True)

    async def reserve(self, cluster: str, resources: Resources, *, owner: str, seconds: float) -> Reservation:
        """Reserves resources. Safe to repeat: the same owner and cluster give the same reservation."""
        asked = {"cluster_id": cluster, "resources": resources, "ttl_seconds": max(1, round(seconds)), "owner": owner}
        body = _body(lambda: ReservationBody.of(asked))
        answer = await self._web.request("POST", "/v1/reservations", json=body)
        return _read(ReservationView, answer).value()

    async def confirm(self, reservation: str) -> Reservation:
        """Makes a reservation permanent until it is released. NotFoundError when it has expired."""
        answer = await self._web.request("POST", f"/v1/reservations/{_part(reservation)}:confirm")
        return _read(ReservationView, answer).value()

    async def release(self, reservation: str) -> None:
        """Releases the resources."""
        try:
            await self._web.request("DELETE", f"/v1/reservations/{_part(reservation)}")
        except NotFoundError:
            return  # already released

    async def reservations(self, owner_prefix: str) -> Sequence[Reservation]:
        """Active reservations whose owner begins with the prefix."""
        pages = self._pages("/v1/reservations", {"ownerPrefix": owner_prefix})
        return [item.value() async for answer in pages for item in _read(ReservationPage, answer).items]

    async def clusters(self, *, selector: str = "", state: str = "") -> Sequence[Cluster]:
        """All clusters, or those that a label selector and a state select."""
        query = {"labelSelector": selector, "state": state}
        pages = self._pages("/v1/clusters", {key: value for key, value in query.items() if value})
        return [item.value() async for answer in pages for item in _read(ClusterPage, answer).items]

    async def credentials(self, cluster: str) -> str:
        """The kubeconfig for peering with a cluster, redacted in logs."""
        answer = await self._web.request("GET", f"{_cluster(cluster)}/credentials")
        found = _read(CredentialsView, answer).kubeconfig
        hide_kubeconfig(found)
        return found

    # -- the register --------------------------------------------------------------------------------------------------

    async def cluster(self, id_: str) -> Cluster:
        """One cluster. NotFoundError when there is none."""
        return _read(ClusterView, await self._web.request("GET", _cluster(id_))).value()

    async def put_cluster(self, spec: ClusterSpec, *, revision: int | None = None) -> Cluster:
        """Declares a cluster. ConflictError when a revision is given and has changed."""
        body = _body(lambda: ClusterBody.of(spec))
        answer = await self._web.request("PUT", _cluster(spec.id), json=body, headers=_if_match(revision))
        return _read(ClusterView, answer).value()

    async def delete_cluster(self, id_: str, *, force: bool = False) -> None:
        """Removes a cluster; PreconditionError while it has reservations, unless forced."""
        await self._web.request("DELETE", _cluster(id_), query={"force": "true"} if force else {})

    async def heartbeat(self, cluster: str, heartbeat: Heartbeat) -> None:
        """Reports a measurement. NotFoundError for an unknown cluster."""
        body = _body(lambda: HeartbeatBody.of(heartbeat))
        await self._web.request("POST", f"{_cluster(cluster)}/heartbeat", json=body)

    async def prices(self, cluster: str) -> Sequence[PriceList]:
        """All price lists of a cluster."""
        answer = await self._web.request("GET", f"{_cluster(cluster)}/prices")
        return [item.value() for item in _read(PricesBody, answer).items]

    async def set_prices(self, cluster: str, prices: Sequence[PriceList], *, revision: int | None = None) -> None:
        """Replaces all price lists of a cluster. ConflictError when a revision is given and has changed."""
        body = _body(lambda: PricesBody(items=[PricesView.of(one) for one in prices]))
        await self._web.request("PUT", f"{_cluster(cluster)}/prices", json=body, headers=_if_match(revision))

    async def add_prices(self, cluster: str, prices: PriceList) -> None:
        """Adds price lists above the existing ones. ConflictError when they change at the same moment."""
        await self.change_prices(cluster, lambda before: [*before, prices])

    async def change_prices(self, cluster: str, change: Callable[[Sequence[PriceList]], Sequence[PriceList]]) -> None:
        """Applies a function to the price lists; ConflictError when they changed meanwhile."""
        answer = await self._web.request("GET", f"{_cluster(cluster)}/prices")
        before = [item.value() for item in _read(PricesBody, answer).items]
        after = list(change(before))
        if after != before:
            await self.set_prices(cluster, after, revision=revision_of(answer.headers.get("etag")))

    async def set_credentials(self, cluster: str, kubeconfig: str) -> None:
        """Uploads the kubeconfig with which others peer with the cluster."""
        body = {"kubeconfig": kubeconfig}
        await self._web.request("PUT", f"{_cluster(cluster)}/credentials", json=body)

    async def _search(self, need: Need, *, explain: bool) -> tuple[Sequence[Offer], Mapping[str, str]]:
        body = _body(lambda: SearchBody.of(need, explain=explain))
        found = _read(SearchResult, await self._web.request("POST", "/v1/offers:search", json=body))
        return [offer.value() for offer in found.offers], found.why_not

    async def _pages(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Answer]:
        cursor = ""
        while True:
            more = {"cursor": cursor} if cursor else {}
            answer = await self._web.request("GET", path, query={"limit": _PAGE, **query, **more})
            yield answer
            after = answer.json.get("cursor", "") if isinstance(answer.json, dict) else ""
            if not after:
                return
            if after == cursor:
                raise ConflictError("the server's pages do not end: it answers with the same cursor again")
            cursor = after


def _body(make: Callable[[], Message]) -> dict[str, Any]:
    """Rejects an invalid request body as the caller's mistake, before anything is sent."""
    try:
        return make().model_dump(mode="json", by_alias=True)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise InvalidArgumentError(f"invalid request to discovery: {faults}") from None


def _read(model: type[M], answer: Answer) -> M:
    try:
        return model.model_validate(answer.json)
    except ValidationError as error:
        # Without the values: one of them may be a kubeconfig.
        raise DeadlineError(
            f"the response is not one of a discovery server ({error.error_count()} fields are wrong): check the address"
        ) from None


def _if_match(revision: int | None) -> dict[str, str]:
    return {} if revision is None else {"If-Match": etag_of(revision)}


def _part(text: str) -> str:
    return quote(text, safe="")


def _cluster(id_: str) -> str:
    return f"/v1/clusters/{_part(id_)}"
