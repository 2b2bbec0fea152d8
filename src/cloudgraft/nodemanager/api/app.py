"""Builds the node manager's HTTPS application, with the routes for fronts."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Response
from prometheus_client import CollectorRegistry

from cloudgraft import __version__
from cloudgraft.engine.groups.prices import pod_price
from cloudgraft.engine.keyed_requests import MOST_KEYS, Asked
from cloudgraft.nodemanager.api import schemas
from cloudgraft.nodemanager.api.groups import GroupId, Reader, group_routes, read_routes
from cloudgraft.nodemanager.changes import Outcome
from cloudgraft.nodemanager.manager import Manager, retried_soon
from cloudgraft.nodemanager.snapshot import Revision
from cloudgraft.sdk.common.event_loop import follow_caller
from cloudgraft.sdk.errors import InvalidArgumentError, NotFoundError, UnsupportedError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import NodeRef
from cloudgraft.web.app import make_app
from cloudgraft.web.authentication import AuditLog, Caller, Gatekeeper, allowed, unaudited
from cloudgraft.web.pagination import etag_of

# -- Routes for fronts: snapshots, changes, and lookups for clients without a snapshot ---------------------------------


Changer = Annotated[Caller, allowed("front", "operator")]
Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]*$",
        description="Makes a change once, however often it is asked for. A new one each time. It is remembered for a "
        f"day, unless {MOST_KEYS:,} newer ones come.",
    ),
]
PreferWait = Annotated[
    str,
    Header(
        alias="Prefer",
        max_length=256,
        description="`wait=2.5`: a change that has not begun after this many seconds is not made (RFC 7240).",
    ),
]
Since = Annotated[str, Query(max_length=64, description="The caller's revision: only what is newer is returned.")]
_JSON: Final = "application/json"
_MADE: Final[dict[int | str, dict[str, Any]]] = {
    202: {"model": schemas.ChangeAnswer, "description": "It is recorded; its operations go on."}
}


def front_routes(manager: Manager) -> APIRouter:
    """The routes."""
    router = APIRouter(prefix="/v1", tags=["fronts"], dependencies=[Depends(manager.leading)])
    _snapshot(router, manager)
    _changes(router, manager)
    _questions(router, manager)
    return router


def _snapshot(router: APIRouter, manager: Manager) -> None:
    @router.get(
        "/snapshot",
        operation_id="getSnapshot",
        response_class=Response,
        responses={
            200: {"content": {_JSON: {"schema": schemas.PictureModel.model_json_schema()}}},
            304: {"description": "Nothing is newer than what `If-None-Match` names."},
        },
    )
    async def snapshot(
        _: Reader,
        since: Since = "",
        wait: Annotated[float, Query(ge=0, le=60, description="Seconds to wait for something newer.")] = 0.0,
        if_none_match: Annotated[str, Header(max_length=256)] = "",
    ) -> Response:
        """Everything that a front needs, or what is newer than `since`; with `wait`, as soon as there is something."""
        known = Revision.parse(if_none_match.strip().removeprefix("W/").strip('"')) or Revision.parse(since)
        await manager.feed.changed(known, wait)
        await manager.leading()  # leadership may have changed during a long wait
        revision = manager.feed.revision
        if if_none_match and known == revision:
            return Response(status_code=304, headers={"ETag": etag_of(str(revision))})
        content, revision = await manager.feed.snapshot(Revision.parse(since))
        return Response(content, media_type=_JSON, headers={"ETag": etag_of(str(revision))})

    @router.post("/refresh", operation_id="refresh", status_code=204, dependencies=[Depends(unaudited)])
    async def refresh(_: Changer) -> Response:
        """Applies changes of the configuration and of the clouds' offers. Runs before every loop of the autoscaler."""
        with retried_soon():
            await manager.provider.refresh()
        manager.feed.sweep()
        return Response(status_code=204, headers={"ETag": etag_of(str(manager.feed.revision))})

    @router.post("/cleanup", operation_id="cleanup", status_code=204)
    async def cleanup(_: Changer) -> Response:
        """Records that the autoscaler is shutting down. No machine is touched."""
        await manager.provider.cleanup()
        return Response(status_code=204)


def _changes(router: APIRouter, manager: Manager) -> None:
    how: dict[str, Any] = {
        "status_code": 202,
        "response_class": Response,
        "responses": _MADE,
        "dependencies": [Depends(_follow)],
    }

    @router.post("/nodegroups/{group:path}:increase", operation_id="increase", **how)
    async def increase(
        caller: Changer, group: GroupId, body: schemas.IncreaseRequest, key: Key = "", since: Since = ""
    ) -> Response:
        """Requests more machines; 409 beyond the group's maximum."""
        asked = Asked.of(caller.name, key, "increase", group, body.delta)
        made = await manager.changes.increase(group, body.delta, asked)
        return await _made(manager, group, made, since)

    @router.post("/nodegroups/{group:path}:decreaseTarget", operation_id="decreaseTarget", **how)
    async def decrease(
        caller: Changer, group: GroupId, body: schemas.DecreaseRequest, key: Key = "", since: Since = ""
    ) -> Response:
        """Gives up machines that were never ordered; ordered ones stay."""
        asked = Asked.of(caller.name, key, "decreaseTarget", group, body.delta)
        made = await manager.changes.decrease_target(group, body.delta, asked)
        return await _made(manager, group, made, since)

    @router.post("/nodegroups/{group:path}:deleteNodes", operation_id="deleteNodes", **how)
    async def delete(
        caller: Changer, group: GroupId, body: schemas.DeleteRequest, key: Key = "", since: Since = ""
    ) -> Response:
        """Deletes these machines, or none when one is not in the group. Machines that are already gone are fine."""
        nodes = [_node_ref(node) for node in body.nodes]
        asked = Asked.of(caller.name, key, "deleteNodes", group, [[node.provider_id, node.name] for node in nodes])
        made = await manager.changes.delete_nodes(group, nodes, asked)
        return await _made(manager, group, made, since)


async def _follow(prefer: PreferWait = "") -> None:
    """Cancels a queued change when its caller disconnects: the caller sees a failure, so it must not happen (R45)."""
    found = re.search(r"(?:^|[,;\s])wait=(\d{1,6}(?:\.\d{1,6})?)(?=[,;\s]|$)", prefer)
    if found is not None:
        until = time.monotonic() + float(found[1])
        follow_caller(lambda: time.monotonic() > until)


async def _made(manager: Manager, group: str, made: Outcome, since: str) -> Response:
    """The response to a change: its snapshot is current, the rest is as recorded with the change."""
    known = Revision.parse(since)
    picture = await manager.feed.group(group, known) if known is not None else None
    head = {
        "targetSize": made.target_size,
        "operations": [operation.model_dump(mode="json") for operation in _operations(manager, made.operations)],
        "revision": str(manager.feed.revision),
    }
    text = f'{json.dumps(head)[:-1]},"picture":{picture.decode() if picture is not None else "null"}}}'
    return Response(text, status_code=202, media_type=_JSON)


def _operations(manager: Manager, ids: Sequence[str]) -> list[schemas.OperationModel]:
    """The operations that still exist: a request may use an old key."""
    found = []
    for id_ in ids:
        try:
            found.append(schemas.OperationModel.model_validate(manager.operation(id_)))
        except NotFoundError:
            continue
    return found


def _questions(router: APIRouter, manager: Manager) -> None:
    @router.post("/nodes:lookup", operation_id="lookupNode", dependencies=[Depends(unaudited)])
    async def lookup(_: Reader, body: schemas.NodeName) -> schemas.Lookup:
        """The group of a node, by its providerID, by a placeholder, or by its name; null for a foreign node."""
        group = await manager.provider.node_group_for_node(_node_ref(body))
        return schemas.Lookup(node_group=group.id if group is not None else None)

    @router.post("/prices/node", operation_id="priceNode", dependencies=[Depends(unaudited)])
    async def price_node(_: Reader, body: schemas.NodePriceRequest) -> schemas.Money:
        """The price of a node, real or a template of the autoscaler's; 404 when it is unknown."""
        _check(body.start, body.end)
        node = NodeRef(name=body.name, provider_id=body.provider_id, labels=body.labels)
        price = await manager.provider.node_price(node, body.start, body.end)
        return schemas.Money(price=f"{price:.12g}", currency=_currency(manager))

    @router.post("/prices/pod", operation_id="pricePod", dependencies=[Depends(unaudited)])
    async def price_pod(_: Reader, body: schemas.PodPriceRequest) -> schemas.Money:
        """The price of a pod at the reference price of all groups; 501 when none has a price."""
        _check(body.start, body.end)
        reference = manager.engine.groups.reference_price
        if reference is None:
            raise UnsupportedError("no node group has a price; set `price` for them")
        requests = {name: Quantity(amount) for name, amount in body.requests.items()}
        price = pod_price(requests, body.start, body.end, reference)
        return schemas.Money(price=f"{price:.12g}", currency=_currency(manager))


def _currency(manager: Manager) -> str:
    """The one currency of all groups (R84)."""
    prices = (group.spec.price for group in manager.engine.fleet.groups.values())
    return next((price.currency for price in prices if price is not None), "")


def _node_ref(node: schemas.NodeName) -> NodeRef:
    if not node.name and not node.provider_id:
        raise InvalidArgumentError("the node has neither a name nor a providerId")
    return NodeRef(name=node.name, provider_id=node.provider_id, labels=node.labels)


def _check(start: datetime, end: datetime) -> None:
    if end < start:
        raise InvalidArgumentError("the period ends before it begins")


ROLES: Final = ("front", "operator", "read-only")
_ABOUT: Final = """Node groups made of machines, for fronts of the Cluster Autoscaler and for operators.

Roles: `front` reads, and grows and shrinks groups; `operator` also declares groups; `read-only` reads. A change is
recorded and answered at once, and goes on as an operation for each machine.
"""


def manager_app(
    manager: Manager, *, gatekeeper: Gatekeeper, audit: AuditLog, metrics: CollectorRegistry | None = None
) -> FastAPI:
    """Builds the application for one engine."""
    return make_app(
        title="cloudgraft node manager",
        version=__version__,
        description=_ABOUT,
        routers=[front_routes(manager), read_routes(manager), group_routes(manager)],
        gatekeeper=gatekeeper,
        audit=audit,
        ready=manager.ready,
        metrics=metrics,
    )
