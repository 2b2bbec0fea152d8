"""One node group: to read, and for operators to declare, edit and remove."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Header, Response

from cloudgraft.nodemanager.api import schemas
from cloudgraft.nodemanager.api.read import GroupId, Reader, group_model
from cloudgraft.nodemanager.declared_groups import Declarations
from cloudgraft.nodemanager.manager import Manager
from cloudgraft.sdk.errors import UnsupportedError
from cloudgraft.store.records import DeclaredGroup
from cloudgraft.web.authentication import allowed
from cloudgraft.web.identity import Caller
from cloudgraft.web.pages import etag_of, revision_of

__all__ = ["group_routes"]

Operator = Annotated[Caller, allowed("operator")]
IfMatch = Annotated[
    str | None, Header(alias="If-Match", max_length=64, description="The ETag that was read: 412 if it is another.")
]
Document = Annotated[
    dict[str, Any],
    Body(
        description="An entry of `nodeGroups`, as it could stand in the file; without `zones` and `shapes`.",
        examples=[{"id": "small", "cloud": "lab", "maxSize": 3, "machine": {"shape": "small"}}],
    ),
]


def group_routes(manager: Manager) -> APIRouter:
    """The routes. They come after those of what a group has, whose paths are longer."""
    router = APIRouter(prefix="/v1", tags=["groups"], dependencies=[Depends(manager.leading)])

    @router.get("/nodegroups/{group:path}", operation_id="getNodeGroup")
    async def get(_: Reader, group: GroupId, response: Response) -> schemas.NodeGroupModel:
        """One group; with an ETag, and its declaration, when it was declared here."""
        declared = manager.engine.fleet.declared.get(group)
        if declared is None or not manager.is_declared(group):
            return group_model(manager, manager.group(group))
        response.headers["ETag"] = etag_of(declared.revision)
        known = manager.engine.fleet.groups.get(group)
        found = group_model(manager, known) if known is not None else _unserved(manager, declared)
        return found.model_copy(update={"document": dict(declared.document)})

    @router.post("/nodegroups", operation_id="addNodeGroup", status_code=201)
    async def add(_: Operator, body: Document, response: Response) -> schemas.DeclaredModel:
        """Declares a group."""
        return _declared(await _declarations(manager).add(body), response)

    @router.put("/nodegroups/{group:path}", operation_id="editNodeGroup")
    async def edit(
        _: Operator, group: GroupId, body: Document, response: Response, if_match: IfMatch = None
    ) -> schemas.DeclaredModel:
        """Edits a group that was declared here; 409 for one of the file."""
        revision = revision_of(if_match)
        return _declared(await _declarations(manager).edit(group, body, revision), response)

    @router.delete("/nodegroups/{group:path}", operation_id="removeNodeGroup", status_code=204)
    async def remove(_: Operator, group: GroupId, if_match: IfMatch = None) -> Response:
        """Removes a group that was declared here; 409 while it has machines, and for one of the file."""
        await _declarations(manager).remove(group, revision_of(if_match))
        return Response(status_code=204)

    return router


def _declarations(manager: Manager) -> Declarations:
    if manager.declarations is None:
        raise UnsupportedError("groups cannot be declared here: there is no file that they could be checked with")
    return manager.declarations


def _declared(group: DeclaredGroup, response: Response) -> schemas.DeclaredModel:
    response.headers["ETag"] = etag_of(group.revision)
    return schemas.DeclaredModel(id=group.id, revision=group.revision, document=dict(group.document))


def _unserved(manager: Manager, declared: DeclaredGroup) -> schemas.NodeGroupModel:
    """A group whose cloud has not told yet what its machines hold, or that does not fit the file any more."""
    why = manager.engine.left_out().get(declared.id, "it does not go together with the file; the log has the details")
    return schemas.NodeGroupModel(
        id=declared.id,
        min_size=_whole(declared.document.get("minSize")),
        max_size=_whole(declared.document.get("maxSize")),
        cloud=str(declared.document.get("cloud", "")),
        target_size=0,
        source="api",
        is_draining=False,
        problem=why,
    )


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
