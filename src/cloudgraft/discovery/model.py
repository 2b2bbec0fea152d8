"""The values of discovery: clusters, what they share, prices, offers, reservations; and the protocols of its core."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Protocol

from cloudgraft.sdk.quantity import Quantity

__all__ = [
    "Cluster",
    "ClusterSpec",
    "ClusterState",
    "Core",
    "Heartbeat",
    "Market",
    "Need",
    "Network",
    "NetworkMode",
    "Offer",
    "PriceList",
    "Reservation",
    "ReservationState",
    "Resources",
    "Strategy",
]


Resources = Mapping[str, Quantity]


class ClusterState(enum.Enum):
    """Whether a cluster can be asked for resources, and why not."""

    READY = "Ready"
    STALE = "Stale"  # its agent has been silent for too long
    CORDONED = "Cordoned"  # an operator wants nothing new there


class NetworkMode(enum.Enum):
    """How the two clusters reach each other."""

    DIRECT = "direct"  # the gateway's server is at the provider
    CONSUMER_GATEWAY = "consumerGateway"  # the provider is behind NAT: the server is at the consumer
    ADDRESS_OVERRIDE = "addressOverride"  # as direct, at an address that is given
    DISABLED = "disabled"  # no network between the clusters


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """How the network to a cluster is set up; the address and the ports only where the mode needs them."""

    mode: NetworkMode = NetworkMode.DIRECT
    address: str = ""
    port: int = 0
    node_port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """What is declared of a cluster, by an operator or by its agent."""

    id: str  # Liqo's cluster id
    display_name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Resources = field(default_factory=dict)  # what it shares in all
    max_nodes: int | None = None  # virtual nodes that may be made of it at a time
    network: Network = field(default_factory=Network)
    resource_slice_class: str = "default"
    cordoned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What a cluster's agent measured. ``observed_at`` is by the agent's clock, and only shown to people."""

    allocatable: Resources
    free: Resources
    # Of what is not free, the part that pods of other clusters take by Liqo: reservations that are used. What is
    # reserved and not yet in what was measured is what is reserved in all, less this.
    offloaded: Resources = field(default_factory=dict)
    # The same by the cluster whose pods they are: what one uses is not in what another has reserved. Empty: not known.
    offloaded_by: Mapping[str, Resources] = field(default_factory=dict)
    observed_at: datetime | None = None
    agent_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster as discovery knows it now. Credentials are never in it."""

    spec: ClusterSpec
    state: ClusterState
    free: Resources  # as last measured, or the declared capacity where no agent measures
    reserved: Resources  # by reservations that are alive and not yet in what was measured
    nodes: int  # reservations that are alive
    last_heartbeat: datetime | None
    revision: int  # for If-Match


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """What a cluster asks, per hour, in one currency, for a time. ``unit`` is per resource: memory per GiB."""

    currency: str
    unit: Mapping[str, Decimal] = field(default_factory=dict)  # "cpu", "memory" (per GiB), "nvidia.com/gpu", "pods"
    fixed_per_node: Decimal = Decimal(0)
    peering_fee: Decimal = Decimal(0)  # once, for a cluster that is not peered yet
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
    """What is looked for. All of it must be met by one cluster."""

    resources: Resources
    label_selector: str = ""  # Kubernetes' syntax: "country=italy,gpu!=none,tier in (a, b)"
    strategy: Strategy = Strategy.CHEAPEST
    weights: Mapping[str, Decimal] = field(default_factory=dict)  # cluster id -> factor on its price; 1 is as it is
    price_cap: Decimal | None = None  # per hour
    currency: str = ""  # only clusters that ask in this currency; empty: any, and prices are not compared across two
    clusters: Sequence[str] = ()  # only these; empty: any
    exclude: Sequence[str] = ()
    peered: Sequence[str] = ()  # peered already, as the one who asks knows
    horizon_hours: Decimal = Decimal(24)  # over which a peering fee is spread
    limit: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A cluster that could meet a need, best first. ``reasons`` say to a person why it is where it is."""

    cluster: str
    price_per_hour: Decimal | None  # None: it tells no price
    currency: str
    peered: bool
    headroom: float  # the share of the scarcest resource that would be left, 0 to 1
    score: float
    reasons: Sequence[str]
    resource_slice_class: str = "default"
    network: Network = field(default_factory=Network)


class ReservationState(enum.Enum):
    """HELD ends by itself when it is not confirmed in time; CONFIRMED stays until it is released."""

    HELD = "held"
    CONFIRMED = "confirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Resources of a cluster that are set aside for one machine. ``owner`` is "<cluster id of ours>/<machine name>".

    ``reserved_by`` is the client whose it is. None: of nobody in particular, since it was made by an older release or
    where clients are not told apart; or it is not for whoever looks.
    """

    id: str
    cluster: str
    owner: str
    resources: Resources
    state: ReservationState
    expires_at: datetime | None  # None once confirmed
    reserved_by: str | None = None


class Market(Protocol):
    """What the Liqo driver asks of discovery; DiscoveryClient is one over HTTPS.

    Every method raises errors of cloudgraft.sdk.errors: UnavailableError when discovery cannot be reached.
    """

    async def search(self, need: Need) -> Sequence[Offer]:
        """Offers for a need, best first; empty when nobody can meet it."""

    async def why_not(self, need: Need) -> Mapping[str, str]:
        """Of each cluster that cannot meet the need, the reason, for a person."""

    async def reserve(self, cluster: str, resources: Resources, *, owner: str, seconds: float) -> Reservation:
        """Sets resources aside. The same owner and cluster again gives the same reservation.

        OutOfStockError when they are no longer free.
        """

    async def confirm(self, reservation: str) -> Reservation:
        """Makes it last until it is released. NotFoundError when it has expired."""

    async def release(self, reservation: str) -> None:
        """Gives the resources back. One that is not there any more is no error."""

    async def reservations(self, owner_prefix: str) -> Sequence[Reservation]:
        """Those alive whose owner begins with the prefix."""

    async def clusters(self) -> Sequence[Cluster]:
        """All clusters."""

    async def credentials(self, cluster: str) -> str:
        """The kubeconfig for peering with a cluster. Never log it."""


# -- The protocol that the routes need: :class:`cloudgraft.discovery.service.Discovery` implements it ------------------


class Core(Market, Protocol):
    """A market, and the register behind it. Every method raises errors of :mod:`cloudgraft.sdk.errors`."""

    async def reserve(
        self, cluster: str, resources: Resources, *, owner: str, seconds: float, by: str | None = None
    ) -> Reservation:
        """As a market does. It is of the client ``by``: PermissionDeniedError when it is of another already."""

    async def confirm(self, reservation: str, *, by: str | None = None) -> Reservation:
        """As a market does. PermissionDeniedError when it is of another client than ``by``; None may change any."""

    async def release(self, reservation: str, *, by: str | None = None) -> None:
        """As a market does. PermissionDeniedError when it is of another client than ``by``; None may change any."""

    async def cluster(self, id_: str) -> Cluster:
        """One cluster. NotFoundError."""

    async def put_cluster(
        self, spec: ClusterSpec, *, revision: int | None = None, keep_cordon: bool = False
    ) -> Cluster:
        """Declares a cluster, new or known. ConflictError when a revision is given and is another by now."""

    async def delete_cluster(self, id_: str, *, force: bool = False) -> None:
        """Forgets a cluster. NotFoundError; PreconditionError while something is reserved there, unless forced."""

    async def heartbeat(self, cluster: str, heartbeat: Heartbeat) -> None:
        """Takes what was measured. NotFoundError."""

    async def prices(self, cluster: str) -> Sequence[PriceList]:
        """All that a cluster asks, at any time. NotFoundError."""

    async def set_prices(self, cluster: str, prices: Sequence[PriceList], *, revision: int | None = None) -> None:
        """Sets all that a cluster asks. NotFoundError; ConflictError when a revision is given and is another by now."""

    def price_revision(self, prices: Sequence[PriceList]) -> int:
        """By which prices are known again."""

    async def set_credentials(self, cluster: str, kubeconfig: str) -> None:
        """Keeps the kubeconfig for peering, encrypted. NotFoundError; PreconditionError without a key."""
