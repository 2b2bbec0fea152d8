"""Defines the routes of the register: clusters, heartbeats, prices and credentials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response

from cloudgraft.discovery.api.schemas import (
    ClusterBody,
    ClusterId,
    ClusterPage,
    ClusterView,
    CredentialsBody,
    CredentialsView,
    HeartbeatBody,
    LegacyCluster,
    PricesBody,
    PricesView,
    amount_text,
)
from cloudgraft.discovery.checks import hide_kubeconfig
from cloudgraft.discovery.model import Cluster, ClusterState, NetworkMode, PriceList
from cloudgraft.discovery.service import Discovery
from cloudgraft.sdk.errors import ConflictError, NotFoundError, PermissionDeniedError
from cloudgraft.web.authentication import Caller, allowed, audited, unaudited
from cloudgraft.web.pagination import etag_of, page, revision_of
from cloudgraft.web.problems import EditedMeanwhileError

Id = Annotated[ClusterId, Path()]
Cursor = Annotated[str, Query(pattern=r"^[A-Za-z0-9_\-]{0,400}$", description="Of the page before.")]
IfMatch = Annotated[
    str | None,
    Header(
        pattern=r'^(\*|"[0-9]{1,18}")$', description="The ETag that was read; refused with 412 when it is another now."
    ),
]
_ETAG: Final[dict[int | str, dict[str, Any]]] = {
    status: {"headers": {"ETag": {"schema": {"type": "string"}, "description": "For If-Match."}}}
    for status in (200, 201)
}
_EVERYBODY: Final = ("agent", "node-manager", "operator", "read-only")
Reader = Annotated[Caller, allowed("node-manager", "operator", "read-only")]
Manager = Annotated[Caller, allowed("node-manager")]
Operator = Annotated[Caller, allowed("operator")]


def _check_own(request: Request, caller: Caller) -> Caller:
    """Rejects an agent that acts for any cluster but that of its scope."""
    cluster = request.path_params.get("cluster", "")
    if caller.role == "agent" and caller.scope != cluster:
        raise PermissionDeniedError(f"{caller.name} is the agent of {caller.scope or 'no cluster'}, not of this one")
    return caller


# Before the body is parsed: an unauthorized caller gets no validation errors.
async def _own_or_reader(request: Request, caller: Annotated[Caller, allowed(*_EVERYBODY)]) -> Caller:
    return _check_own(request, caller)


async def _own_writer(request: Request, caller: Annotated[Caller, allowed("agent", "operator")]) -> Caller:
    return _check_own(request, caller)


OwnOrReader = Annotated[Caller, Depends(_own_or_reader)]
OwnWriter = Annotated[Caller, Depends(_own_writer)]


def cluster_routes(core: Discovery) -> APIRouter:
    """The routes of the register."""
    router = APIRouter(prefix="/v1/clusters", tags=["clusters"])
    _add_list(router, core)
    _add_cluster(router, core)
    _add_agents(router, core)
    _add_prices(router, core)
    _add_credentials(router, core)
    return router


def _add_list(router: APIRouter, core: Discovery) -> None:
    @router.get("", operation_id="listClusters")
    async def list_clusters(
        _caller: Reader,
        label_selector: Annotated[str, Query(alias="labelSelector", max_length=1000)] = "",
        state: Annotated[ClusterState | None, Query()] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        cursor: Cursor = "",
    ) -> ClusterPage:
        """All selected clusters, a page at a time, without credentials."""
        found = await core.clusters(selector=label_selector, state=state)
        shown, after = page(found, limit=limit, cursor=cursor, key=lambda cluster: cluster.spec.id)
        return ClusterPage(items=[ClusterView.of(cluster) for cluster in shown], cursor=after)


def _add_cluster(router: APIRouter, core: Discovery) -> None:
    @router.put("/{cluster}", operation_id="putCluster", responses={**_ETAG, 201: {"model": ClusterView, **_ETAG[201]}})
    async def put_cluster(
        cluster: Id, body: ClusterBody, response: Response, caller: OwnWriter, if_match: IfMatch = None
    ) -> ClusterView:
        """Declares a cluster, new or known. An agent may declare only its own, and cannot uncordon it."""
        revision = revision_of(if_match)
        is_new = not await _is_known(core, cluster)
        if is_new and if_match is not None:
            raise EditedMeanwhileError(f"there is no cluster {cluster}, so it is not the one that was read")
        try:
            found = await core.put_cluster(body.spec(cluster), revision=revision, keep_cordon=caller.role == "agent")
        except ConflictError as error:
            raise EditedMeanwhileError(error.message) from error
        response.status_code = 201 if is_new else 200
        response.headers["ETag"] = etag_of(found.revision)
        return ClusterView.of(found)

    @router.get("/{cluster}", operation_id="getCluster", responses={200: _ETAG[200]})
    async def get_cluster(cluster: Id, response: Response, _caller: OwnOrReader) -> ClusterView:
        """One cluster. An agent may read only its own."""
        found = await core.cluster(cluster)
        response.headers["ETag"] = etag_of(found.revision)
        return ClusterView.of(found)

    @router.delete("/{cluster}", operation_id="deleteCluster", status_code=204)
    async def delete_cluster(cluster: Id, _caller: Operator, force: Annotated[bool, Query()] = False) -> None:  # noqa: FBT002 - in the query it has a name
        """Removes a cluster. Refused while it has reservations, unless `force=true`."""
        await core.delete_cluster(cluster, force=force)


def _add_agents(router: APIRouter, core: Discovery) -> None:
    @router.post("/{cluster}/heartbeat", operation_id="heartbeat", status_code=204)
    async def heartbeat(cluster: Id, body: HeartbeatBody, _caller: OwnWriter, request: Request) -> None:
        """Records an agent's measurement. One every ten seconds is usual."""
        unaudited(request)  # a thousand agents would flood the audit log
        await core.heartbeat(cluster, body.value())


def _add_prices(router: APIRouter, core: Discovery) -> None:
    @router.get("/{cluster}/prices", operation_id="getPrices", responses={200: _ETAG[200]})
    async def get_prices(cluster: Id, response: Response, _caller: OwnOrReader) -> PricesBody:
        """All price lists of a cluster, current and others."""
        return _priced(core, await core.prices(cluster), response)

    @router.put("/{cluster}/prices", operation_id="putPrices", responses={200: _ETAG[200]})
    async def put_prices(
        cluster: Id, body: PricesBody, response: Response, _caller: OwnWriter, if_match: IfMatch = None
    ) -> PricesBody:
        """Replaces all price lists of a cluster, from the next search on."""
        prices = [item.value() for item in body.items]
        try:
            await core.set_prices(cluster, prices, revision=revision_of(if_match))
        except ConflictError as error:
            raise EditedMeanwhileError(error.message) from error
        return _priced(core, prices, response)


def _add_credentials(router: APIRouter, core: Discovery) -> None:
    @router.put("/{cluster}/credentials", operation_id="putCredentials", status_code=204)
    async def put_credentials(cluster: Id, body: CredentialsBody, _caller: OwnWriter) -> None:
        """Stores the kubeconfig for peering, encrypted."""
        hide_kubeconfig(body.kubeconfig)
        await core.set_credentials(cluster, body.kubeconfig)

    @router.get("/{cluster}/credentials", operation_id="getCredentials")
    async def get_credentials(cluster: Id, _caller: Manager, request: Request, response: Response) -> CredentialsView:
        """The kubeconfig for peering. Only for a node manager, and recorded in the audit log."""
        audited(request)
        response.headers["Cache-Control"] = "no-store"
        return CredentialsView(kubeconfig=await core.credentials(cluster))


async def _is_known(core: Discovery, id_: str) -> bool:
    try:
        await core.cluster(id_)
    except NotFoundError:
        return False
    return True


def _priced(core: Discovery, prices: Sequence[PriceList], response: Response) -> PricesBody:
    response.headers["ETag"] = etag_of(core.price_revision(prices))
    return PricesBody(items=[PricesView.of(one) for one in prices])


# -- Legacy list -------------------------------------------------------------------------------------------------------
# ``GET /v1/list`` as in the first proof of concept, for old programs. Off by default.


def legacy_routes(core: Discovery) -> APIRouter:
    """The legacy route. Unlike the original, an empty list is ``[]``, and only a node manager gets kubeconfigs."""
    router = APIRouter(prefix="/v1", tags=["legacy"])

    @router.get("/list", operation_id="legacyList")
    async def legacy_list(caller: Reader, request: Request, response: Response) -> list[LegacyCluster]:
        """All clusters that are ready."""
        with_secrets = caller.role == "node-manager"
        if with_secrets:
            audited(request)
            response.headers["Cache-Control"] = "no-store"
        ready = await core.clusters(state=ClusterState.READY)
        return [_legacy(one, await _kubeconfig(core, one) if with_secrets else "") for one in ready]

    return router


async def _kubeconfig(core: Discovery, cluster: Cluster) -> str:
    try:
        return await core.credentials(cluster.spec.id)
    except NotFoundError:
        return ""


def _legacy(cluster: Cluster, kubeconfig: str) -> LegacyCluster:
    return LegacyCluster(
        name=cluster.spec.id,
        kubeconfig=kubeconfig,
        resources={name: amount_text(amount) for name, amount in cluster.free.items()},
        labels=dict(cluster.spec.labels),
        has_nat=cluster.spec.network.mode is NetworkMode.CONSUMER_GATEWAY,
    )
