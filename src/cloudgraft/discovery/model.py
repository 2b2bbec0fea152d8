"""Defines discovery's values: clusters, prices, offers, reservations; and the market that the Liqo driver calls."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Final, Protocol

from cloudgraft.sdk.quantity import Quantity

Resources = Mapping[str, Quantity]
CLUSTER_ID: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # by Liqo's own rule


class ClusterState(enum.Enum):
    """Whether a cluster accepts requests for resources, and why not."""

    READY = "Ready"
    STALE = "Stale"  # its agent has been silent for too long
    CORDONED = "Cordoned"  # an operator allows nothing new there


class NetworkMode(enum.Enum):
    """How the two clusters reach each other."""

    DIRECT = "direct"  # the gateway's server is at the provider
    CONSUMER_GATEWAY = "consumerGateway"  # the provider is behind NAT: the server is at the consumer
    ADDRESS_OVERRIDE = "addressOverride"  # as direct, at an address that is given
    DISABLED = "disabled"  # no network between the clusters


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The network settings of a cluster; address and ports only where the mode needs them."""

    mode: NetworkMode = NetworkMode.DIRECT
    address: str = ""
    port: int = 0
    node_port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """The declaration of a cluster, by an operator or by its agent."""

    id: str  # Liqo's cluster id
    display_name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Resources = field(default_factory=dict)  # what it shares in total
    max_nodes: int | None = None  # virtual nodes that it may have at a time
    network: Network = field(default_factory=Network)
    resource_slice_class: str = "default"
    cordoned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """An agent's measurement. ``observed_at`` is the agent's clock, and only for people."""

    allocatable: Resources
    free: Resources
    # Of what is not free, the part that pods of other clusters use through Liqo: reservations in use. The reservations
    # that the measurement does not include yet are all reservations, less this.
    offloaded: Resources = field(default_factory=dict)
    # The same by consuming cluster: one's usage is not part of another's reservations. Empty: unknown.
    offloaded_by: Mapping[str, Resources] = field(default_factory=dict)
    observed_at: datetime | None = None
    agent_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The current state of a cluster. Never contains credentials."""

    spec: ClusterSpec
    state: ClusterState
    free: Resources  # as last measured, or the declared capacity if no agent measures
    reserved: Resources  # by active reservations that are not yet in the measurement
    nodes: int  # active reservations
    last_heartbeat: datetime | None
    revision: int  # for If-Match


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """A cluster's prices per hour, in one currency, for a time. ``unit`` is per resource: memory per GiB."""

    currency: str
    unit: Mapping[str, Decimal] = field(default_factory=dict)  # "cpu", "memory" (per GiB), "nvidia.com/gpu", "pods"
    fixed_per_node: Decimal = Decimal(0)
    peering_fee: Decimal = Decimal(0)  # once, for a cluster that is not yet peered
    valid_from: datetime | None = None
    valid_to: datetime | None = None


class Strategy(enum.Enum):
    """How offers are ranked. Ties are broken by the cluster's id."""

    CHEAPEST = "cheapest"
    FIRST_FIT = "firstFit"  # by id
    MOST_HEADROOM = "mostHeadroom"
    PREFER_PEERED = "preferPeered"  # then cheapest


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A search. One cluster must meet all of it."""

    resources: Resources
    label_selector: str = ""  # Kubernetes' syntax: "country=italy,gpu!=none,tier in (a, b)"
    strategy: Strategy = Strategy.CHEAPEST
    weights: Mapping[str, Decimal] = field(default_factory=dict)  # cluster id -> factor on its price; 1 has no effect
    price_cap: Decimal | None = None  # per hour
    # only clusters with prices in this currency; empty: any, and prices in two currencies are not compared
    currency: str = ""
    clusters: Sequence[str] = ()  # only these; empty: any
    exclude: Sequence[str] = ()
    peered: Sequence[str] = ()  # already peered, as far as the caller knows
    horizon_hours: Decimal = Decimal(24)  # hours over which a peering fee is spread
    limit: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A cluster that can meet a need. ``reasons`` explain its rank to a person."""

    cluster: str
    price_per_hour: Decimal | None  # None: it has no price
    currency: str
    peered: bool
    headroom: float  # the share of the scarcest resource that would be left, 0 to 1
    score: float
    reasons: Sequence[str]
    resource_slice_class: str = "default"
    network: Network = field(default_factory=Network)


class ReservationState(enum.Enum):
    """HELD expires unless it is confirmed in time; CONFIRMED stays until it is released."""

    HELD = "held"
    CONFIRMED = "confirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Resources of a cluster that are reserved for one machine. ``owner`` is "<cluster id of ours>/<machine name>".

    ``reserved_by`` is the client that owns it. None: no owner, because an older release made it or callers are not
    authenticated; or the reader may not see it.
    """

    id: str
    cluster: str
    owner: str
    resources: Resources
    state: ReservationState
    expires_at: datetime | None  # None once confirmed
    reserved_by: str | None = None


class Market(Protocol):
    """The calls of discovery that the Liqo driver needs; DiscoveryClient makes them over HTTPS.

    Every method raises errors of cloudgraft.sdk.errors: UnavailableError when discovery is unreachable.
    """

    async def search(self, need: Need) -> Sequence[Offer]:
        """Offers for a need, best first; empty when no cluster can meet it."""

    async def why_not(self, need: Need) -> Mapping[str, str]:
        """The reason for each cluster that cannot meet the need, for a person."""

    async def reserve(self, cluster: str, resources: Resources, *, owner: str, seconds: float) -> Reservation:
        """Reserves resources. The same owner and cluster again returns the same reservation.

        OutOfStockError when they are no longer free.
        """

    async def confirm(self, reservation: str) -> Reservation:
        """Makes a reservation permanent until it is released. NotFoundError when it has expired."""

    async def release(self, reservation: str) -> None:
        """Releases the resources. Succeeds when the reservation is already gone."""

    async def reservations(self, owner_prefix: str) -> Sequence[Reservation]:
        """Active reservations whose owner begins with the prefix."""

    async def clusters(self) -> Sequence[Cluster]:
        """All clusters."""

    async def credentials(self, cluster: str) -> str:
        """The kubeconfig for peering with a cluster. Never log it."""
