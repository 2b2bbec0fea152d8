"""Converts between JSON and the values of :mod:`cloudgraft.discovery.model`.

A message has the fields of its value, checked by the rules for requests. JSON is in camelCase: quantities are
Kubernetes' own texts, money is a decimal text and an ISO currency, times are RFC 3339 in UTC.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Final, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetPydanticSchema,
    StrictBool,
    StrictStr,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic_core import core_schema

from cloudgraft.discovery.model import (
    Cluster,
    ClusterSpec,
    ClusterState,
    Heartbeat,
    Need,
    Network,
    NetworkMode,
    Offer,
    PriceList,
    Reservation,
    ReservationState,
    Strategy,
)
from cloudgraft.sdk.quantity import Quantity

# -- Field types -------------------------------------------------------------------------------------------------------


T = TypeVar("T", Quantity, Decimal)
_ID: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY: Final = rf"^([a-z0-9]([-a-z0-9]{{0,61}}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{{0,61}}[a-z0-9])?){{0,3}}/)?{_NAME}$"
_QUANTITY: Final = r"^[0-9]{1,18}(\.[0-9]{1,9})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"
_IS_QUANTITY: Final = re.compile(_QUANTITY).fullmatch
_LARGEST: Final = 10**18  # the largest amount with that many digits
_MONEY: Final = r"^[0-9]{1,15}(\.[0-9]{1,15})?$"
_MOST_ENTRIES: Final = 64
LONGEST_HOLD: Final = 86_400  # seconds that a reservation may be held without being confirmed


def _time(value: Any) -> datetime:
    """Accepts only a text with an offset: a number, or a time without a zone, would be ambiguous.

    A value of our own is converted to UTC; one without an offset counts as UTC.
    """
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
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


def amount_text(amount: Quantity) -> str:
    """Formats a quantity as :data:`Amount` accepts it: no sign, no exponent."""
    text = str(amount)
    if _IS_QUANTITY(text):
        return text
    whole, billionths = divmod(max(amount.nanos, 0), 10**9)
    if whole >= _LARGEST:
        return f"{whole // 1000}k"
    return f"{whole}.{billionths:09d}" if billionths else str(whole)


def _money_text(amount: Decimal) -> str:
    """A decimal text without an exponent."""
    return format(amount.normalize(), "f") if amount else "0"


def _as_text(kind: type[T], write: Callable[[T], str], pattern: str) -> GetPydanticSchema:
    """A value that is text of this pattern in JSON. Our own values are checked by the text that they would be."""

    def check(value: Any, check_text: Callable[[Any], str]) -> T:
        if isinstance(value, kind):
            check_text(write(value))
            return value
        return kind(check_text(value))

    def schema(_source: Any, _handler: Any) -> core_schema.CoreSchema:
        """A new one for each field: pydantic adds the field's description to it."""
        text = core_schema.str_schema(pattern=pattern, strict=True)
        written = core_schema.plain_serializer_function_ser_schema(write, return_schema=text)
        return core_schema.no_info_wrap_validator_function(check, text, serialization=written)

    return GetPydanticSchema(schema)


Whole = Annotated[int, BeforeValidator(_whole)]
Text = Annotated[StrictStr, StringConstraints(max_length=253, pattern=r"^[\x20-\x7e\u00a1-\u02ff]*$")]
ClusterId = Annotated[StrictStr, StringConstraints(pattern=_ID), Field(description="Liqo's cluster id.")]
Owner = Annotated[StrictStr, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._/\-]{0,250}[A-Za-z0-9])?$")]
ResourceName = Annotated[StrictStr, StringConstraints(pattern=_KEY)]
Amount = Annotated[Quantity, _as_text(Quantity, amount_text, _QUANTITY)]
Money = Annotated[Decimal, _as_text(Decimal, _money_text, _MONEY)]
Price = Annotated[Decimal, _as_text(Decimal, _money_text, r"^-?[0-9]+(\.[0-9]+)?$")]
Currency = Annotated[StrictStr, StringConstraints(pattern=r"^[A-Z]{3}$")]
LabelValue = Annotated[StrictStr, StringConstraints(pattern=rf"^({_NAME})?$")]
# pydantic's schema does not say that keys of another form are rejected.
_CLOSED: Final = Field(max_length=1000, json_schema_extra={"additionalProperties": False})
_FEW: Final = Field(max_length=_MOST_ENTRIES, json_schema_extra={"additionalProperties": False})
Amounts = Annotated[dict[ResourceName, Amount], _FEW]
Prices = Annotated[dict[ResourceName, Money], _FEW]
Labels = Annotated[dict[ResourceName, LabelValue], _FEW]
Ids = Annotated[list[ClusterId], Field(max_length=10_000)]
Timestamp = Annotated[datetime, BeforeValidator(_time), WithJsonSchema({"type": "string", "format": "date-time"})]
Port = Annotated[Whole, Field(ge=0, le=65535)]


class Message(BaseModel):
    """A request body in camelCase; unknown keys are rejected."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    @classmethod
    def of(cls, value: object) -> Self:
        """From the model's value, which has fields of the same names."""
        return cls.model_validate(value, from_attributes=True)


class View(Message):
    """A response: clients ignore keys that only a newer server sends."""

    model_config = ConfigDict(extra="ignore")


@functools.cache
def _names_of(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _fields_of(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in _names_of(value.__class__)}


# -- Clusters ----------------------------------------------------------------------------------------------------------


class NetworkView(Message):
    """The network settings of a cluster."""

    mode: NetworkMode = NetworkMode.DIRECT
    address: Annotated[StrictStr, StringConstraints(max_length=253, pattern=r"^[A-Za-z0-9.:\-]*$")] = ""
    port: Port = 0
    node_port: Port = 0

    def value(self) -> Network:
        """The model's value."""
        return Network(**dict(self))


class ClusterBody(Message):
    """A declared cluster."""

    display_name: Text = ""
    labels: Labels = Field(default_factory=dict)
    capacity: Amounts = Field(default_factory=dict, description="What it shares in all.")
    max_nodes: Annotated[Whole, Field(ge=0, le=1_000_000)] | None = None
    network: NetworkView = NetworkView()
    resource_slice_class: Annotated[StrictStr, StringConstraints(pattern=rf"^{_NAME}$")] = "default"
    cordoned: StrictBool = False

    def spec(self, id_: str) -> ClusterSpec:
        """The model's value, for the cluster with that id."""
        return ClusterSpec(id=id_, **{**dict(self), "network": self.network.value()})


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
    def of(cls, value: Cluster) -> Self:  # type: ignore[override]  # the view is flat
        """From the model's value."""
        known = {**_fields_of(value.spec), **_fields_of(value)}
        return super().of({**known, "resources": known})

    def value(self) -> Cluster:
        """The model's value."""
        known = {**dict(self), **dict(self.resources), "network": self.network.value()}
        known["spec"] = ClusterSpec(**{name: known[name] for name in _names_of(ClusterSpec)})
        return Cluster(**{name: known[name] for name in _names_of(Cluster)})


class ClusterPage(View):
    """One page of clusters; ``cursor`` is for the next page, and empty on the last."""

    items: list[ClusterView]
    cursor: str


class HeartbeatBody(Message):
    """An agent's measurement."""

    allocatable: Amounts
    free: Amounts
    offloaded: Amounts = Field(default_factory=dict, description="Of what is not free: taken by other clusters.")
    offloaded_by: Annotated[dict[ClusterId, Amounts], _CLOSED] = Field(
        default_factory=dict,
        description="The same by cluster. What one takes is then held against its own reservations only.",
    )
    observed_at: Timestamp | None = None
    agent_version: Text = ""

    def value(self) -> Heartbeat:
        """The model's value."""
        return Heartbeat(**dict(self))


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
    fixed_per_node: Money = Decimal(0)
    peering_fee: Money = Field(Decimal(0), description="Once, for a cluster that is not peered yet.")
    valid_from: Timestamp | None = None
    valid_to: Timestamp | None = None

    def value(self) -> PriceList:
        """The model's value."""
        return PriceList(**dict(self))


class PricesBody(Message):
    """All price lists of a cluster. Of those that are valid at the same time, the one that began last applies."""

    items: Annotated[list[PricesView], Field(max_length=_MOST_ENTRIES)]


class LegacyCluster(View):
    """A cluster in the proof of concept's list. The kubeconfig is empty for all but a node manager."""

    name: str
    kubeconfig: str = Field(repr=False)
    resources: dict[str, str]
    labels: dict[str, str]
    has_nat: bool


# -- Offers and reservations -------------------------------------------------------------------------------------------


class SearchBody(Message):
    """A search. One cluster must meet all of it."""

    resources: Amounts = Field(min_length=1)
    label_selector: Annotated[StrictStr, StringConstraints(max_length=1000)] = Field(
        "", description="In Kubernetes' syntax: `country=italy,gpu!=none,tier in (a, b)`."
    )
    strategy: Strategy = Strategy.CHEAPEST
    weights: Annotated[dict[ClusterId, Money], _CLOSED] = Field(
        default_factory=dict, description="A factor on the price of each of these clusters; 1 is as it is."
    )
    price_cap: Money | None = Field(None, description="Per hour.")
    currency: Currency | None = Field(None, description="Only clusters that ask in this currency.")
    clusters: Ids = Field(default_factory=list, description="Only these; empty: any.")
    exclude_clusters: Ids = Field(default_factory=list)
    peered_clusters: Ids = Field(default_factory=list, description="Peered already, as the one who asks knows.")
    horizon_hours: Money = Field(Decimal(24), description="Over which a peering fee is spread.")
    limit: Annotated[Whole, Field(ge=1, le=1000)] = 100
    explain: StrictBool = Field(False, description="Also return the reason for each cluster that cannot meet it.")

    @classmethod
    def of(cls, value: Need, *, explain: bool = False) -> Self:  # type: ignore[override]  # some names differ
        """From the model's value."""
        asked = _fields_of(value)
        asked["exclude_clusters"], asked["peered_clusters"] = asked.pop("exclude"), asked.pop("peered")
        return super().of({**asked, "currency": value.currency or None, "explain": explain})

    def need(self) -> Need:
        """The model's value."""
        asked = dict(self)
        del asked["explain"]
        asked["clusters"] = tuple(self.clusters)
        asked["exclude"], asked["peered"] = tuple(asked.pop("exclude_clusters")), tuple(asked.pop("peered_clusters"))
        return Need(**{**asked, "currency": self.currency or ""})


class OfferView(View):
    """A cluster that can meet a need."""

    cluster: ClusterId = Field(alias="clusterId")
    price_per_hour: Price | None = Field(description="Null: it has no price.")
    currency: str
    peered: bool
    headroom: float = Field(description="The share of the scarcest resource that would be left, 0 to 1.")
    score: float
    reasons: tuple[str, ...]
    resource_slice_class: str
    network: NetworkView

    def value(self) -> Offer:
        """The model's value."""
        return Offer(**{**dict(self), "network": self.network.value()})


class SearchResult(View):
    """Offers, best first, and on request the reasons why other clusters do not qualify."""

    offers: list[OfferView]
    why_not: dict[str, str]


class ReservationBody(Message):
    """The resources to reserve. The same owner and cluster again returns the same reservation."""

    cluster_id: ClusterId
    resources: Amounts = Field(min_length=1)
    ttl_seconds: Annotated[Whole, Field(ge=1, le=LONGEST_HOLD)] = Field(
        300, description="How long it is held unless it is confirmed."
    )
    owner: Owner = Field(description="Whom it is for: `<cluster id>/<machine name>`.")


class ReservationView(View):
    """Resources of a cluster that are reserved for one machine."""

    id: str
    cluster: ClusterId = Field(alias="clusterId")
    owner: str
    resources: Amounts
    state: ReservationState
    expires_at: Timestamp | None = Field(description="Null once it is confirmed.")

    def value(self) -> Reservation:
        """The model's value."""
        return Reservation(**dict(self))


class ReservationPage(View):
    """One page of reservations; ``cursor`` is for the next page, and empty on the last."""

    items: list[ReservationView]
    cursor: str
