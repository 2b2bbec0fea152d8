"""Converts offers and reservations between JSON and the values of :mod:`cloudgraft.discovery.model`."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Self

from pydantic import Field, StrictBool, StrictStr, StringConstraints

from cloudgraft.discovery.api.schemas import (
    CLOSED,
    Amounts,
    ClusterId,
    Currency,
    Message,
    Money,
    NetworkView,
    Timestamp,
    View,
    Whole,
    amounts_in,
    amounts_out,
    moment,
    money_out,
)
from cloudgraft.discovery.model import Need, Offer, Reservation, ReservationState, Strategy

LONGEST_HOLD = 86_400  # seconds that a reservation may be held without being confirmed
_Ids = Annotated[list[ClusterId], Field(max_length=10_000)]
Owner = Annotated[StrictStr, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._/\-]{0,250}[A-Za-z0-9])?$")]


class SearchBody(Message):
    """A search. One cluster must meet all of it."""

    resources: Amounts = Field(min_length=1)
    label_selector: Annotated[StrictStr, StringConstraints(max_length=1000)] = Field(
        "", description="In Kubernetes' syntax: `country=italy,gpu!=none,tier in (a, b)`."
    )
    strategy: Strategy = Strategy.CHEAPEST
    weights: Annotated[dict[ClusterId, Money], CLOSED] = Field(
        default_factory=dict, description="A factor on the price of each of these clusters; 1 is as it is."
    )
    price_cap: Money | None = Field(None, description="Per hour.")
    currency: Currency | None = Field(None, description="Only clusters that ask in this currency.")
    clusters: _Ids = Field(default_factory=list, description="Only these; empty: any.")
    exclude_clusters: _Ids = Field(default_factory=list)
    peered_clusters: _Ids = Field(default_factory=list, description="Peered already, as the one who asks knows.")
    horizon_hours: Money = Field("24", description="Over which a peering fee is spread.")
    limit: Annotated[Whole, Field(ge=1, le=1000)] = 100
    explain: StrictBool = Field(False, description="Also return the reason for each cluster that cannot meet it.")

    @classmethod
    def of(cls, need: Need, *, explain: bool = False) -> Self:
        """From the model's value."""
        return cls(
            resources=amounts_out(need.resources),
            label_selector=need.label_selector,
            strategy=need.strategy,
            weights={name: money_out(weight) for name, weight in need.weights.items()},
            price_cap=None if need.price_cap is None else money_out(need.price_cap),
            currency=need.currency or None,
            clusters=list(need.clusters),
            exclude_clusters=list(need.exclude),
            peered_clusters=list(need.peered),
            horizon_hours=money_out(need.horizon_hours),
            limit=need.limit,
            explain=explain,
        )

    def need(self) -> Need:
        """The model's value."""
        return Need(
            resources=amounts_in(self.resources),
            label_selector=self.label_selector,
            strategy=self.strategy,
            weights={name: Decimal(weight) for name, weight in self.weights.items()},
            price_cap=None if self.price_cap is None else Decimal(self.price_cap),
            currency=self.currency or "",
            clusters=tuple(self.clusters),
            exclude=tuple(self.exclude_clusters),
            peered=tuple(self.peered_clusters),
            horizon_hours=Decimal(self.horizon_hours),
            limit=self.limit,
        )


class OfferView(View):
    """A cluster that can meet a need."""

    cluster_id: ClusterId
    price_per_hour: Annotated[str, Field(pattern=r"^-?[0-9]+(\.[0-9]+)?$")] | None = Field(
        description="Null: it has no price."
    )
    currency: str
    peered: bool
    headroom: float = Field(description="The share of the scarcest resource that would be left, 0 to 1.")
    score: float
    reasons: list[str]
    resource_slice_class: str
    network: NetworkView

    @classmethod
    def of(cls, offer: Offer) -> Self:
        """From the model's value."""
        return cls(
            cluster_id=offer.cluster,
            price_per_hour=None if offer.price_per_hour is None else money_out(offer.price_per_hour),
            currency=offer.currency,
            peered=offer.peered,
            headroom=offer.headroom,
            score=offer.score,
            reasons=list(offer.reasons),
            resource_slice_class=offer.resource_slice_class,
            network=NetworkView.of(offer.network),
        )

    def value(self) -> Offer:
        """The model's value."""
        return Offer(
            cluster=self.cluster_id,
            price_per_hour=None if self.price_per_hour is None else Decimal(self.price_per_hour),
            currency=self.currency,
            peered=self.peered,
            headroom=self.headroom,
            score=self.score,
            reasons=tuple(self.reasons),
            resource_slice_class=self.resource_slice_class,
            network=self.network.value(),
        )


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
    cluster_id: ClusterId
    owner: str
    resources: Amounts
    state: ReservationState
    expires_at: Timestamp | None = Field(description="Null once it is confirmed.")

    @classmethod
    def of(cls, reservation: Reservation) -> Self:
        """From the model's value."""
        return cls(
            id=reservation.id,
            cluster_id=reservation.cluster,
            owner=reservation.owner,
            resources=amounts_out(reservation.resources),
            state=reservation.state,
            expires_at=moment(reservation.expires_at),
        )

    def value(self) -> Reservation:
        """The model's value."""
        return Reservation(
            id=self.id,
            cluster=self.cluster_id,
            owner=self.owner,
            resources=amounts_in(self.resources),
            state=self.state,
            expires_at=self.expires_at,
        )


class ReservationPage(View):
    """One page of reservations; ``cursor`` is for the next page, and empty on the last."""

    items: list[ReservationView]
    cursor: str
