"""The register over HTTP: clusters, heartbeats, credentials and prices, to and from the values of the model."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Self

from pydantic import AfterValidator, Field, StrictBool, StrictStr, StringConstraints

from cloudgraft.discovery.api.schemas_fields import (
    CLOSED,
    MOST_ENTRIES,
    NAME,
    Amounts,
    ClusterId,
    Currency,
    Labels,
    Message,
    Money,
    Port,
    Prices,
    Text,
    Timestamp,
    View,
    Whole,
    amounts_in,
    amounts_out,
    moment,
    money_out,
)
from cloudgraft.discovery.model import (
    Cluster,
    ClusterSpec,
    ClusterState,
    Heartbeat,
    Network,
    NetworkMode,
    PriceList,
)

__all__ = [
    "ClusterBody",
    "ClusterPage",
    "ClusterView",
    "CredentialsBody",
    "CredentialsView",
    "HeartbeatBody",
    "LegacyCluster",
    "NetworkView",
    "PricesBody",
    "PricesView",
]


class NetworkView(Message):
    """How the network to a cluster is set up."""

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
    """What is declared of a cluster."""

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
    """What a cluster shares, what is free of that, and what is set aside."""

    capacity: Amounts
    free: Amounts
    reserved: Amounts


class ClusterView(View):
    """A cluster as it is known now. Credentials are never in it."""

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
    """One page of clusters; ``cursor`` asks for the next, and is empty on the last."""

    items: list[ClusterView]
    cursor: str


class HeartbeatBody(Message):
    """What a cluster's agent measured."""

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
    """The kubeconfig with which to peer with a cluster, as it is handed in."""

    kubeconfig: Annotated[
        StrictStr, StringConstraints(min_length=1, max_length=128 << 10), AfterValidator(_one_line_at_least)
    ] = Field(repr=False)


class CredentialsView(View):
    """The kubeconfig with which to peer with a cluster."""

    kubeconfig: str = Field(repr=False)


class PricesView(Message):
    """What a cluster asks, per hour; memory per GiB."""

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
    """All that a cluster asks. Of lists that are valid at the same time, the one that began last counts."""

    items: Annotated[list[PricesView], Field(max_length=MOST_ENTRIES)]


class LegacyCluster(View):
    """A cluster as the proof of concept's list has it. The kubeconfig is empty for all but a node manager."""

    name: str
    kubeconfig: str = Field(repr=False)
    resources: dict[str, str]
    labels: dict[str, str]
    has_nat: bool
