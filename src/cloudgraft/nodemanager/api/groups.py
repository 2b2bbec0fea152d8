"""Defines the routes to read a node manager, and to declare, edit and remove node groups."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, Header, Path, Query, Response

from cloudgraft.engine.fleet import Group
from cloudgraft.engine.groups.spec_json import TEMPLATE
from cloudgraft.engine.machines.states import SHOWN
from cloudgraft.nodemanager.api import schemas
from cloudgraft.nodemanager.declared_groups import Declarations
from cloudgraft.nodemanager.manager import Manager
from cloudgraft.nodemanager.snapshot import OVERRIDES
from cloudgraft.sdk.errors import InvalidArgumentError, NotFoundError, UnsupportedError
from cloudgraft.store.journal import EventQuery
from cloudgraft.store.records import DeclaredGroup, MachineRecord, State
from cloudgraft.web.authentication import Caller, allowed
from cloudgraft.web.pagination import cursor_after, etag_of, key_of, page, revision_of

# -- Routes for every role ---------------------------------------------------------------------------------------------


Reader = Annotated[Caller, allowed("front", "operator", "read-only")]
GroupId = Annotated[str, Path(max_length=1024, description="The id of a node group.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of items.")]
Cursor = Annotated[
    str, Query(max_length=4096, pattern="^[A-Za-z0-9_-]*$", description="`nextCursor` of the page before.")
]
Storable = Annotated[str, Query(max_length=1024, pattern=r"^[^\x00]*$")]
OperationState = Annotated[Literal["", "waiting", "running", "succeeded", "failed", "cancelled"], Query()]


def read_routes(manager: Manager) -> APIRouter:
    """The routes."""
    router = APIRouter(prefix="/v1", tags=["reading"], dependencies=[Depends(manager.leading)])
    _groups(router, manager)
    _operations(router, manager)
    return router


def _groups(router: APIRouter, manager: Manager) -> None:
    @router.get("/nodegroups", operation_id="listNodeGroups")
    async def list_groups(_: Reader, limit: Limit = 100, cursor: Cursor = "") -> schemas.NodeGroupList:
        """All node groups that the autoscaler sees."""
        shown = [manager.group(group.id) for group in manager.engine.groups.shown]
        items, following = page(shown, limit=limit, cursor=cursor, key=lambda group: group.spec.id)
        return schemas.NodeGroupList(items=[group_model(manager, group) for group in items], next_cursor=following)

    @router.get("/nodegroups/{group:path}/size", operation_id="getSize")
    async def size(_: Reader, group: GroupId) -> schemas.Size:
        """The current and the target size of a group."""
        found = manager.group(group)
        count = manager.counts(found)
        return schemas.Size(
            target=found.target,
            ready=count[State.RUNNING],
            creating=count[State.REQUESTED] + count[State.CREATING] + count[State.BOOTING],
            failed=count[State.FAILED],
            deleting=count[State.DELETING],
            min=found.shown.min_size,
            max=found.shown.max_size,
        )

    @router.get("/nodegroups/{group:path}/nodes", operation_id="listNodes")
    async def nodes(_: Reader, group: GroupId, limit: Limit = 100, cursor: Cursor = "") -> schemas.NodeList:
        """The machines of a group that are not gone."""
        records, following = manager.machines(group, limit=limit, cursor=cursor)
        ids = manager.group(group).ids
        items = [_node(record, is_owner=ids.get(record.provider_id) == record.name) for record in records]
        return schemas.NodeList(items=items, next_cursor=following)

    @router.get("/nodegroups/{group:path}/template", operation_id="getTemplate")
    async def template(_: Reader, group: GroupId) -> schemas.TemplateModel:
        """The template of a group's new nodes."""
        return schemas.TemplateModel.model_validate(TEMPLATE.write(manager.group(group).spec.template))

    @router.get("/nodegroups/{group:path}/options", operation_id="getOptions", response_model_exclude_none=True)
    async def options(_: Reader, group: GroupId) -> schemas.Options:
        """The autoscaler options that a group overrides; 404 when it overrides none."""
        said = manager.group(group).spec.options
        if said is None:
            raise NotFoundError(f"node group {group!r} has no options of its own")
        return schemas.Options.model_validate(OVERRIDES.write(said))

    @router.get("/gpu", operation_id="getGpu")
    async def gpu(_: Reader) -> schemas.Gpu:
        """The label that names a node's GPU, and the available GPU types."""
        label, types = await manager.provider.gpu_label(), await manager.provider.gpu_types()
        return schemas.Gpu(label=label, types=sorted(types))


def _operations(router: APIRouter, manager: Manager) -> None:
    @router.get("/operations", operation_id="listOperations")
    async def list_operations(
        _: Reader, group: Storable = "", state: OperationState = "", limit: Limit = 100, cursor: Cursor = ""
    ) -> schemas.OperationList:
        """Operations on machines: of one group, in one state, or all."""
        found, following = manager.operations(group=group, state=state, limit=limit, cursor=cursor)
        items = [schemas.OperationModel.model_validate(each) for each in found]
        return schemas.OperationList(items=items, next_cursor=following)

    @router.get("/operations/{operation:path}", operation_id="getOperation")
    async def get_operation(_: Reader, operation: Annotated[str, Path(max_length=2048)]) -> schemas.OperationModel:
        """One operation, by the id that the response to a change contained."""
        return schemas.OperationModel.model_validate(manager.operation(operation))

    @router.get("/events", operation_id="listEvents")
    async def events(
        _: Reader,
        group: Storable = "",
        machine: Storable = "",
        kind: Storable = "",
        limit: Limit = 100,
        cursor: Cursor = "",
    ) -> schemas.EventList:
        """Decisions and events, the latest first."""
        query = EventQuery(
            group=group,
            machine=machine,
            kinds=[kind] if kind else (),
            before=_number(cursor) if cursor else None,
            limit=limit + 1,
        )
        found = list(await manager.engine.journal.events(query))[::-1]
        following = cursor_after(str(found[limit - 1].seq)) if len(found) > limit else ""
        return schemas.EventList(
            items=[schemas.EventModel.model_validate(event) for event in found[:limit]], next_cursor=following
        )


def _number(cursor: str) -> int:
    text = key_of(cursor)
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidArgumentError("this cursor is not one of ours: begin again without one")
    return int(text)


# -- models ------------------------------------------------------------------------------------------------------------


def group_model(manager: Manager, group: Group) -> schemas.NodeGroupModel:
    """The public view of a group."""
    spec, shown = group.spec, group.shown
    price = schemas.HourlyPrice(hourly=str(spec.price.amount), currency=spec.price.currency) if spec.price else None
    return schemas.NodeGroupModel(
        id=spec.id,
        min_size=shown.min_size,
        max_size=shown.max_size,
        debug=shown.debug,
        cloud=spec.cloud,
        target_size=group.target,
        source="api" if manager.is_declared(spec.id) else "file",
        is_draining=not group.is_configured,
        price=price,
    )


def _node(record: MachineRecord, *, is_owner: bool) -> schemas.NodeModel:
    hourly = record.hourly
    return schemas.NodeModel.model_validate(
        {
            "id": record.provider_id if record.provider_id and is_owner else record.placeholder,
            "name": record.name,
            "provider_id": record.provider_id,
            "machine_id": record.machine_id,
            "state": SHOWN[record.state].name.lower(),
            "error": record.error if record.state is State.FAILED else None,
            "requested_at": record.requested_at,
            "price": None if hourly is None else {"hourly": str(hourly), "currency": record.currency},
        }
    )


# -- One node group ----------------------------------------------------------------------------------------------------


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
    """The routes. Register them after the group's sub-resources, whose paths are longer."""
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
    """A group whose machine shape its cloud has not reported yet, or that no longer fits the file."""
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
