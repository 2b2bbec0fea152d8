"""Converts clusters, heartbeats, credentials and prices between JSON and the values of the model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictStr,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from cloudgraft.discovery.model import (
    Cluster,
    ClusterSpec,
    ClusterState,
    Heartbeat,
    Network,
    NetworkMode,
    PriceList,
    Resources,
)
from cloudgraft.sdk.quantity import Quantity

# -- Field types -------------------------------------------------------------------------------------------------------
# JSON in camelCase. Quantities are Kubernetes' own texts, money is a decimal text and an ISO currency, times are RFC
# 3339 in UTC.


_ID: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY: Final = rf"^([a-z0-9]([-a-z0-9]{{0,61}}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{{0,61}}[a-z0-9])?){{0,3}}/)?{NAME}$"
_QUANTITY: Final = r"^[0-9]{1,18}(\.[0-9]{1,9})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"
_LARGEST: Final = 10**18  # the largest amount with that many digits
_MONEY: Final = r"^[0-9]{1,15}(\.[0-9]{1,15})?$"
MOST_ENTRIES: Final = 64


def _time(value: Any) -> datetime:
    """Accepts only a text with an offset: a number, or a time without a zone, would be ambiguous."""
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str) or "T" not in value.upper():
        raise ValueError("must be a time such as 2026-01-31T12:00:00Z")
    try:
        found = datetime.fromisoformat(value.upper())
        if found.tzinfo is None:
            raise ValueError("must have an offset, such as Z")  # noqa: TRY301 - reported like the others
        return found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"is not a time: {error}") from error


def _whole(value: Any) -> Any:
    """Accepts 2.0, a whole number in JSON; rejects true and "2"."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a whole number")  # noqa: TRY004 - pydantic reports this type
    return value


Whole = Annotated[int, BeforeValidator(_whole)]
Text = Annotated[StrictStr, StringConstraints(max_length=253, pattern=r"^[\x20-\x7e\u00a1-\u02ff]*$")]
ClusterId = Annotated[StrictStr, StringConstraints(pattern=_ID), Field(description="Liqo's cluster id.")]
ResourceName = Annotated[StrictStr, StringConstraints(pattern=_KEY)]
Amount = Annotated[StrictStr, StringConstraints(pattern=_QUANTITY)]
Money = Annotated[StrictStr, StringConstraints(pattern=_MONEY)]
Currency = Annotated[StrictStr, StringConstraints(pattern=r"^[A-Z]{3}$")]
LabelValue = Annotated[StrictStr, StringConstraints(pattern=rf"^({NAME})?$")]
CLOSED: Final = Field(max_length=1000, json_schema_extra={"additionalProperties": False})
# pydantic's schema does not say that keys of another form are rejected.
_FEW: Final = Field(max_length=MOST_ENTRIES, json_schema_extra={"additionalProperties": False})
Amounts = Annotated[dict[ResourceName, Amount], _FEW]
Prices = Annotated[dict[ResourceName, Money], _FEW]
Labels = Annotated[dict[ResourceName, LabelValue], _FEW]
Timestamp = Annotated[datetime, BeforeValidator(_time), WithJsonSchema({"type": "string", "format": "date-time"})]
Port = Annotated[Whole, Field(ge=0, le=65535)]


class Message(BaseModel):
    """A request body in camelCase; unknown keys are rejected."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class View(Message):
    """A response: clients ignore keys that only a newer server sends."""

    model_config = ConfigDict(extra="ignore")


def amounts_in(amounts: Mapping[str, str]) -> dict[str, Quantity]:
    """Parses quantities."""
    return {name: Quantity(text) for name, text in amounts.items()}


def amounts_out(resources: Resources) -> dict[str, str]:
    """Formats quantities as :data:`Amount` accepts them: no sign, no exponent."""
    return {name: _amount_out(amount) for name, amount in resources.items()}


def _amount_out(amount: Quantity) -> str:
    text = str(amount)
    if re.fullmatch(_QUANTITY, text):
        return text
    whole, billionths = divmod(max(amount.nanos, 0), 10**9)
    if whole >= _LARGEST:
        return f"{whole // 1000}k"
    return f"{whole}.{billionths:09d}" if billionths else str(whole)


def money_out(amount: Decimal) -> str:
    """A decimal text without an exponent."""
    return format(amount.normalize(), "f") if amount else "0"


def moment(value: datetime | None) -> datetime | None:
    """The same time in UTC; one without an offset counts as UTC."""
    if value is None:
        return None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


# -- Bodies and views --------------------------------------------------------------------------------------------------


class NetworkView(Message):
    """The network settings of a cluster."""

    mode: NetworkMode = NetworkMode.DIRECT
    address: Annotated[StrictStr, StringConstraints(max_length=253, pattern=r"^[A-Za-z0-9.:\-]*$")] = ""
    port: Port = 0
    node_port: Port = 0

    @classmethod
    def of(cls, network: Network) -> Self:
        """From the model's value."""
        return cls(mode=network.mode, address=network.address, port=network.port, node_port=network.node_port)

    def value(self) -> Network:
        """The model's value."""
        return Network(mode=self.mode, address=self.address, port=self.port, node_port=self.node_port)


class ClusterBody(Message):
    """A declared cluster."""

    display_name: Text = ""
    labels: Labels = Field(default_factory=dict)
    capacity: Amounts = Field(default_factory=dict, description="What it shares in all.")
    max_nodes: Annotated[Whole, Field(ge=0, le=1_000_000)] | None = None
    network: NetworkView = NetworkView()
    resource_slice_class: Annotated[StrictStr, StringConstraints(pattern=rf"^{NAME}$")] = "default"
    cordoned: StrictBool = False

    @classmethod
    def of(cls, spec: ClusterSpec) -> Self:
        """From the model's value."""
        return cls(
            display_name=spec.display_name,
            labels=dict(spec.labels),
            capacity=amounts_out(spec.capacity),
            max_nodes=spec.max_nodes,
            network=NetworkView.of(spec.network),
            resource_slice_class=spec.resource_slice_class,
            cordoned=spec.cordoned,
        )

    def spec(self, id_: str) -> ClusterSpec:
        """The model's value, for the cluster with that id."""
        return ClusterSpec(
            id=id_,
            display_name=self.display_name,
            labels=self.labels,
            capacity=amounts_in(self.capacity),
            max_nodes=self.max_nodes,
            network=self.network.value(),
            resource_slice_class=self.resource_slice_class,
            cordoned=self.cordoned,
        )


class ClusterResources(View):
    """The resources that a cluster shares, those that are free, and those that are reserved."""

    capacity: Amounts
    free: Amounts
    reserved: Amounts


class ClusterView(View):
    """The current state of a cluster. Never contains credentials."""

    id: ClusterId
    display_name: Text
    labels: Labels
    resources: ClusterResources
    max_nodes: int | None
    nodes: int = Field(description="Reservations that are alive.")
    network: NetworkView
    resource_slice_class: str
    cordoned: bool
    state: ClusterState
    last_heartbeat: Timestamp | None
    revision: int = Field(description="For If-Match; the ETag has it too.")

    @classmethod
    def of(cls, cluster: Cluster) -> Self:
        """From the model's value."""
        spec = cluster.spec
        return cls(
            id=spec.id,
            display_name=spec.display_name,
            labels=dict(spec.labels),
            resources=ClusterResources(
                capacity=amounts_out(spec.capacity),
                free=amounts_out(cluster.free),
                reserved=amounts_out(cluster.reserved),
            ),
            max_nodes=spec.max_nodes,
            nodes=cluster.nodes,
            network=NetworkView.of(spec.network),
            resource_slice_class=spec.resource_slice_class,
            cordoned=spec.cordoned,
            state=cluster.state,
            last_heartbeat=moment(cluster.last_heartbeat),
            revision=cluster.revision,
        )

    def value(self) -> Cluster:
        """The model's value."""
        spec = ClusterSpec(
            id=self.id,
            display_name=self.display_name,
            labels=self.labels,
            capacity=amounts_in(self.resources.capacity),
            max_nodes=self.max_nodes,
            network=self.network.value(),
            resource_slice_class=self.resource_slice_class,
            cordoned=self.cordoned,
        )
        return Cluster(
            spec=spec,
            state=self.state,
            free=amounts_in(self.resources.free),
            reserved=amounts_in(self.resources.reserved),
            nodes=self.nodes,
            last_heartbeat=self.last_heartbeat,
            revision=self.revision,
        )


class ClusterPage(View):
    """One page of clusters; ``cursor`` is for the next page, and empty on the last."""

    items: list[ClusterView]
    cursor: str


class HeartbeatBody(Message):
    """An agent's measurement."""

    allocatable: Amounts
    free: Amounts
    offloaded: Amounts = Field(default_factory=dict, description="Of what is not free: taken by other clusters.")
    offloaded_by: Annotated[dict[ClusterId, Amounts], CLOSED] = Field(
        default_factory=dict,
        description="The same by cluster. What one takes is then held against its own reservations only.",
    )
    observed_at: Timestamp | None = None
    agent_version: Text = ""

    @classmethod
    def of(cls, heartbeat: Heartbeat) -> Self:
        """From the model's value."""
        return cls(
            allocatable=amounts_out(heartbeat.allocatable),
            free=amounts_out(heartbeat.free),
            offloaded=amounts_out(heartbeat.offloaded),
            offloaded_by={id_: amounts_out(taken) for id_, taken in heartbeat.offloaded_by.items()},
            observed_at=heartbeat.observed_at,
            agent_version=heartbeat.agent_version,
        )

    def value(self) -> Heartbeat:
        """The model's value."""
        return Heartbeat(
            allocatable=amounts_in(self.allocatable),
            free=amounts_in(self.free),
            offloaded=amounts_in(self.offloaded),
            offloaded_by={id_: amounts_in(taken) for id_, taken in self.offloaded_by.items()},
            observed_at=self.observed_at,
            agent_version=self.agent_version,
        )


def _one_line_at_least(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value


class CredentialsBody(Message):
    """The kubeconfig for peering with a cluster, as uploaded."""

    kubeconfig: Annotated[
        StrictStr, StringConstraints(min_length=1, max_length=128 << 10), AfterValidator(_one_line_at_least)
    ] = Field(repr=False)


class CredentialsView(View):
    """The kubeconfig for peering with a cluster."""

    kubeconfig: str = Field(repr=False)


class PricesView(Message):
    """A cluster's prices per hour; memory per GiB."""

    currency: Currency
    unit: Prices = Field(default_factory=dict)
    fixed_per_node: Money = "0"
    peering_fee: Money = Field("0", description="Once, for a cluster that is not peered yet.")
    valid_from: Timestamp | None = None
    valid_to: Timestamp | None = None

    @classmethod
    def of(cls, prices: PriceList) -> Self:
        """From the model's value."""
        return cls(
            currency=prices.currency,
            unit={name: money_out(price) for name, price in prices.unit.items()},
            fixed_per_node=money_out(prices.fixed_per_node),
            peering_fee=money_out(prices.peering_fee),
            valid_from=moment(prices.valid_from),
            valid_to=moment(prices.valid_to),
        )

    def value(self) -> PriceList:
        """The model's value."""
        return PriceList(
            currency=self.currency,
            unit={name: Decimal(price) for name, price in self.unit.items()},
            fixed_per_node=Decimal(self.fixed_per_node),
            peering_fee=Decimal(self.peering_fee),
            valid_from=self.valid_from,
            valid_to=self.valid_to,
        )


class PricesBody(Message):
    """All price lists of a cluster. Of those that are valid at the same time, the one that began last applies."""

    items: Annotated[list[PricesView], Field(max_length=MOST_ENTRIES)]


class LegacyCluster(View):
    """A cluster in the proof of concept's list. The kubeconfig is empty for all but a node manager."""

    name: str
    kubeconfig: str = Field(repr=False)
    resources: dict[str, str]
    labels: dict[str, str]
    has_nat: bool
