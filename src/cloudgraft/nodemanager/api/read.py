"""What anybody with a role may read of a node manager."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query

from cloudgraft.engine.fleet import Group
from cloudgraft.engine.groups.spec_json import template_to_json
from cloudgraft.engine.machines.states import SHOWN
from cloudgraft.nodemanager.api import schemas
from cloudgraft.nodemanager.manager import Manager, at
from cloudgraft.nodemanager.operations import Operation
from cloudgraft.nodemanager.snapshot import options_json
from cloudgraft.sdk.errors import InvalidArgumentError, NotFoundError
from cloudgraft.store.journal import EventQuery
from cloudgraft.store.records import ErrorRecord, Event, MachineRecord, State
from cloudgraft.web.authentication import allowed
from cloudgraft.web.identity import Caller
from cloudgraft.web.pages import cursor_after, key_of, page

__all__ = ["GroupId", "Reader", "group_model", "operation_model", "read_routes"]

Reader = Annotated[Caller, allowed("front", "operator", "read-only")]
GroupId = Annotated[str, Path(max_length=1024, description="The id of a node group.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many items.")]
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
        """All node groups that the autoscaler is told of."""
        shown = [manager.group(group.id) for group in manager.engine.groups.shown]
        items, following = page(shown, limit=limit, cursor=cursor, key=lambda group: group.spec.id)
        return schemas.NodeGroupList(items=[group_model(manager, group) for group in items], next_cursor=following)

    @router.get("/nodegroups/{group:path}/size", operation_id="getSize")
    async def size(_: Reader, group: GroupId) -> schemas.Size:
        """How large a group is, and is meant to be."""
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
        """What a new node of a group will be."""
        return schemas.TemplateModel.model_validate(template_to_json(manager.group(group).spec.template))

    @router.get("/nodegroups/{group:path}/options", operation_id="getOptions", response_model_exclude_none=True)
    async def options(_: Reader, group: GroupId) -> schemas.Options:
        """What a group overrides of the autoscaler's options; 404 when it overrides nothing."""
        said = manager.group(group).spec.options
        if said is None:
            raise NotFoundError(f"node group {group!r} has no options of its own")
        return schemas.Options.model_validate(options_json(said))

    @router.get("/gpu", operation_id="getGpu")
    async def gpu(_: Reader) -> schemas.Gpu:
        """The label that tells a node's GPU, and the kinds there are."""
        label, types = await manager.provider.gpu_label(), await manager.provider.gpu_types()
        return schemas.Gpu(label=label, types=sorted(types))


def _operations(router: APIRouter, manager: Manager) -> None:
    @router.get("/operations", operation_id="listOperations")
    async def list_operations(
        _: Reader, group: Storable = "", state: OperationState = "", limit: Limit = 100, cursor: Cursor = ""
    ) -> schemas.OperationList:
        """What is and was done for machines: of one group, in one state, or all."""
        found, following = manager.operations(group=group, state=state, limit=limit, cursor=cursor)
        return schemas.OperationList(items=[operation_model(each) for each in found], next_cursor=following)

    @router.get("/operations/{operation:path}", operation_id="getOperation")
    async def get_operation(_: Reader, operation: Annotated[str, Path(max_length=2048)]) -> schemas.OperationModel:
        """One operation, by the id that a change was answered with."""
        return operation_model(manager.operation(operation))

    @router.get("/events", operation_id="listEvents")
    async def events(
        _: Reader,
        group: Storable = "",
        machine: Storable = "",
        kind: Storable = "",
        limit: Limit = 100,
        cursor: Cursor = "",
    ) -> schemas.EventList:
        """What was decided and what happened, the latest first."""
        query = EventQuery(
            group=group,
            machine=machine,
            kinds=[kind] if kind else (),
            before=_number(cursor) if cursor else None,
            limit=limit + 1,
        )
        found = list(await manager.engine.journal.events(query))[::-1]
        following = cursor_after(str(found[limit - 1].seq)) if len(found) > limit else ""
        return schemas.EventList(items=[_event(event) for event in found[:limit]], next_cursor=following)


def _number(cursor: str) -> int:
    text = key_of(cursor)
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidArgumentError("this cursor is not one of ours: begin again without one")
    return int(text)


# -- models ------------------------------------------------------------------------------------------------------------


def group_model(manager: Manager, group: Group) -> schemas.NodeGroupModel:
    """A group as it is told of."""
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


def operation_model(operation: Operation) -> schemas.OperationModel:
    """An operation as it is told of."""
    return schemas.OperationModel.model_validate(
        {
            "id": operation.id,
            "kind": operation.kind,
            "machine": operation.machine,
            "group": operation.group,
            "state": operation.state,
            "since": at(operation.since),
            "error": _error(operation.error),
        }
    )


def _error(error: ErrorRecord | None) -> schemas.ErrorInfo | None:
    if error is None:
        return None
    return schemas.ErrorInfo(code=error.code, message=error.message, error_class=error.error_class)


def _node(record: MachineRecord, *, is_owner: bool) -> schemas.NodeModel:
    hourly = record.hourly
    return schemas.NodeModel.model_validate(
        {
            "id": record.provider_id if record.provider_id and is_owner else record.placeholder,
            "name": record.name,
            "provider_id": record.provider_id,
            "machine_id": record.machine_id,
            "state": SHOWN[record.state].name.lower(),
            "error": _error(record.error) if record.state is State.FAILED else None,
            "requested_at": at(record.requested_at),
            "price": None if hourly is None else {"hourly": str(hourly), "currency": record.currency},
        }
    )


def _event(event: Event) -> schemas.EventModel:
    return schemas.EventModel(
        number=event.seq,
        at=at(event.at),
        kind=event.kind,
        message=event.message,
        cloud=event.cloud,
        group=event.group,
        machine=event.machine,
    )
