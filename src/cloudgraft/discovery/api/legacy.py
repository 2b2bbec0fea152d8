"""``GET /v1/list`` as the first proof of concept had it, for programs that still ask that way. Off by default."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response

from cloudgraft.discovery.api.ports import Core
from cloudgraft.discovery.api.schemas import LegacyCluster
from cloudgraft.discovery.api.schemas_fields import amounts_out
from cloudgraft.discovery.model import Cluster, ClusterState, NetworkMode
from cloudgraft.sdk.errors import NotFoundError
from cloudgraft.web.authentication import allowed, audited
from cloudgraft.web.identity import Caller

__all__ = ["legacy_routes"]

Reader = Annotated[Caller, allowed("node-manager", "operator", "read-only")]


def legacy_routes(core: Core) -> APIRouter:
    """The one old route. Unlike the original, an empty list is ``[]``, and only a node manager gets kubeconfigs."""
    router = APIRouter(prefix="/v1", tags=["legacy"])

    @router.get("/list", operation_id="legacyList")
    async def legacy_list(caller: Reader, request: Request, response: Response) -> list[LegacyCluster]:
        """All clusters that can be asked now."""
        with_secrets = caller.role == "node-manager"
        if with_secrets:
            audited(request)
            response.headers["Cache-Control"] = "no-store"
        ready = [cluster for cluster in await core.clusters() if cluster.state is ClusterState.READY]
        return [_legacy(one, await _kubeconfig(core, one) if with_secrets else "") for one in ready]

    return router


async def _kubeconfig(core: Core, cluster: Cluster) -> str:
    try:
        return await core.credentials(cluster.spec.id)
    except NotFoundError:
        return ""


def _legacy(cluster: Cluster, kubeconfig: str) -> LegacyCluster:
    return LegacyCluster(
        name=cluster.spec.id,
        kubeconfig=kubeconfig,
        resources=amounts_out(cluster.free),
        labels=dict(cluster.spec.labels),
        has_nat=cluster.spec.network.mode is NetworkMode.CONSUMER_GATEWAY,
    )
