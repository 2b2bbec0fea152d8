"""Defines the JSON of the node manager's API for OpenAPI.

Amounts are Kubernetes quantities as text, money is a decimal as text with its currency, times are RFC 3339 in UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, StrictInt
from pydantic.alias_generators import to_camel

from cloudgraft.sdk.quantity import Quantity

_LONGEST = 1024
_MOST = 2**31 - 1


def _quantity(value: str) -> str:
    try:
        Quantity(value)
    except ValueError as error:
        raise ValueError("must be a Kubernetes quantity, such as 500m or 4Gi") from error
    return value


Amount = Annotated[str, Field(max_length=64), AfterValidator(_quantity)]
Id = Annotated[str, Field(max_length=_LONGEST)]


def _text(value: Any) -> Any:
    if not isinstance(value, str):  # pydantic would read numbers as seconds since an epoch
        raise ValueError("must be a time such as 2026-01-31T12:00:00Z")  # noqa: TRY004 - what pydantic understands
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_text)]
# Of the journal, which has seconds since the epoch.
Time = Annotated[datetime, BeforeValidator(lambda seconds: datetime.fromtimestamp(seconds, UTC))]


class Model(BaseModel):
    """Keys are camelCase. Can be read from a value with attributes of the same names."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, serialize_by_alias=True, from_attributes=True
    )


class Asking(Model):
    """A request: unknown keys are rejected."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class Money(Model):
    """An amount in one currency."""

    price: str = Field(description="A decimal.", examples=["0.05"])
    currency: str


class HourlyPrice(Model):
    """The price of one node."""

    hourly: str = Field(description="A decimal.", examples=["0.05"])
    currency: str


class NodeGroupModel(Model):
    """A node group."""

    id: str
    min_size: int
    max_size: int
    debug: str = Field("", description="For the autoscaler's log.")
    cloud: str
    target_size: int = Field(description="All machines but those that are leaving.")
    source: Literal["file", "api"] = Field(description="Where it is declared; only `api` can be edited here.")
    is_draining: bool = Field(description="It is declared no more, and goes with its last machine.")
    price: HourlyPrice | None = Field(None, description="What a node costs, where that is known.")
    document: dict[str, Any] | None = Field(None, description="As it was declared, for one of `api`.")
    problem: str = Field("", description="Why the autoscaler does not see it.")


class DeclaredModel(Model):
    """A group that was declared over this API."""

    id: str
    revision: int
    document: dict[str, Any]


class NodeGroupList(Model):
    """A page of groups."""

    items: list[NodeGroupModel]
    next_cursor: str = Field("", description="Gives the next page; empty after the last.")


class Size(Model):
    """The current and the target size of a group."""

    target: int
    ready: int = Field(description="Machines that run.")
    creating: int
    failed: int
    deleting: int
    min: int
    max: int


class ErrorInfo(Model):
    """Why a machine failed, in the autoscaler's terms."""

    code: str
    message: str
    error_class: int = Field(description="1: no resources; 99: anything else.")


class NodeModel(Model):
    """A machine of a group."""

    id: str = Field(description="As the autoscaler lists it: the providerID, or a placeholder until that is known.")
    name: str
    provider_id: str
    machine_id: str = Field(description="The cloud's own.")
    state: Literal["creating", "running", "deleting"]
    error: ErrorInfo | None = None
    requested_at: Time
    price: HourlyPrice | None = None


class NodeList(Model):
    """A page of machines."""

    items: list[NodeModel]
    next_cursor: str = ""


class TaintModel(Model):
    """A taint."""

    key: str
    value: str
    effect: str


class ConditionModel(Model):
    """A condition of a node."""

    type: str
    status: str
    reason: str
    message: str


class TemplateModel(Model):
    """The template of a group's new nodes."""

    labels: dict[str, str]
    annotations: dict[str, str]
    taints: list[TaintModel]
    capacity: dict[str, str]
    allocatable: dict[str, str]
    conditions: list[ConditionModel]
    unschedulable: bool


class Options(Model):
    """The autoscaler options that a group overrides; durations are written as `5m`."""

    scale_down_utilization_threshold: float | None = None
    scale_down_gpu_utilization_threshold: float | None = None
    scale_down_unneeded_time: str | None = None
    scale_down_unready_time: str | None = None
    max_node_provision_time: str | None = None
    max_node_startup_time: str | None = None
    zero_or_max_node_scaling: bool | None = None
    ignore_daemon_sets_utilization: bool | None = None
    allow_non_atomic_scale_up_to_max: bool | None = None


class NodeName(Asking):
    """A node, as the autoscaler knows it."""

    name: Id = ""
    provider_id: Id = ""
    labels: dict[str, str] = Field(default_factory=dict)


class IncreaseRequest(Asking):
    """More machines."""

    delta: StrictInt = Field(ge=1, le=_MOST)


class DecreaseRequest(Asking):
    """Machines to give up before they are ordered."""

    delta: StrictInt = Field(le=-1, ge=-_MOST)


class DeleteRequest(Asking):
    """Machines to delete: all of them or, when one is not in the group, none."""

    nodes: list[NodeName] = Field(min_length=1, max_length=10_000)


class OperationModel(Model):
    """An operation on one machine."""

    id: str
    kind: Literal["create", "delete"]
    machine: str
    group: str
    state: Literal["waiting", "running", "succeeded", "failed", "cancelled"]
    since: Time
    error: ErrorInfo | None = None


class OperationList(Model):
    """A page of operations."""

    items: list[OperationModel]
    next_cursor: str = ""


class EventModel(Model):
    """A decision or an event."""

    seq: int = Field(alias="number")
    at: Time
    kind: str
    message: str
    cloud: str
    group: str
    machine: str


class EventList(Model):
    """A page of events, the latest first."""

    items: list[EventModel]
    next_cursor: str = ""


class Lookup(Model):
    """The group of a node; null for a node of no group."""

    node_group: str | None


class _Period(Asking):
    start: Moment
    end: Moment


class NodePriceRequest(NodeName, _Period):
    """A node, real or a template of the autoscaler's, and a time to run it."""


class PodPriceRequest(_Period):
    """The requests of a pod, all containers together, and a time to run it."""

    requests: dict[str, Amount] = Field(default_factory=dict, examples=[{"cpu": "500m", "memory": "1Gi"}])


class Gpu(Model):
    """The label that names a node's GPU, and the available GPU types."""

    label: str
    types: list[str]


class KnownModel(Model):
    """A machine, with all ids that identify it."""

    name: str
    id: str
    state: Literal["unspecified", "running", "creating", "deleting"]
    placeholder: str | None = Field(None, description="Where it differs from the id: an alias for life.")
    former_id: str | None = Field(None, description="A providerID that is another machine's by now.")
    error: ErrorInfo | None = None
    is_gone: bool = Field(False, description="It is listed no more; its node may still be there.")
    is_forgotten: bool = Field(False, description="Its node is not there any more either: nothing leads to it.")


class GroupPictureModel(Model):
    """A group as a front needs it."""

    id: str
    min_size: int
    max_size: int
    debug: str
    number: int = Field(description="Of the revision that this is of.")
    target_size: int
    template: TemplateModel
    options: Options | None
    price: HourlyPrice | None
    is_complete: bool = Field(description="False: only changed machines are included.")
    machines: list[KnownModel]


class PodPrices(Model):
    """The price of an hour of a core, a gibibyte and a GPU, as decimals."""

    core: str
    gib: str
    gpus: dict[str, str]


class PictureModel(Model):
    """Everything that a front needs. With `since`, only changed groups, and of them only changed machines."""

    revision: str
    group_ids: list[str]
    pod_prices: PodPrices | None
    gpu: Gpu
    groups: list[GroupPictureModel]


class ChangeAnswer(Model):
    """A recorded change; its operations continue."""

    target_size: int
    operations: list[OperationModel]
    revision: str
    picture: GroupPictureModel | None = Field(None, description="With `since`: what is new in the group.")
