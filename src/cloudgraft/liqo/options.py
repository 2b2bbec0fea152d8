"""Defines the configuration of remote clusters as nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Final

from cloudgraft.discovery.model import CLUSTER_ID, Resources, Strategy
from cloudgraft.kube.networks import AllowedNetworks
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.flaws import Flaws
from cloudgraft.sdk.quantity import Quantity, amount

ALL: Final = "all"  # the size of everything that a cluster shares
_SIZE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,40}[A-Za-z0-9])?")
_NEEDED: Final = ("cpu", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryOptions:
    """The address of the discovery server, and the credentials: a certificate or a token."""

    address: str  # such as https://discovery.example:9010
    ca_file: Path | None = None  # the authority of the server's certificate; None: those that the system trusts
    cert_file: Path | None = None  # our certificate, and with it the key
    key_file: Path | None = None
    token_file: Path | None = None  # sent as a Bearer token
    timeout: timedelta = timedelta(seconds=10)  # for each call

    def __post_init__(self) -> None:
        """Rejects combinations that can never work."""
        flaws = Flaws()
        flaws.expect(self.address, "address", "is empty; write it like https://discovery.example:9010")
        are_both = (self.cert_file is None) == (self.key_file is None)
        flaws.expect(are_both, "certFile", "goes together with keyFile: give both, or neither")
        flaws.expect_positive(timeout=self.timeout)
        flaws.raise_any()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """The network between two clusters, unless a cluster's entry in discovery overrides it."""

    enabled: bool = True  # False: pods there are unreachable from here, whatever discovery says
    service_type: str = "LoadBalancer"  # of the gateway's server: LoadBalancer or NodePort
    port: int = 51840
    mtu: int = 1340

    def __post_init__(self) -> None:
        """Rejects combinations that can never work."""
        flaws = Flaws()
        is_known = self.service_type in ("LoadBalancer", "NodePort")
        flaws.expect(is_known, "serviceType", "must be LoadBalancer or NodePort")
        flaws.expect(1 <= self.port <= 65535, "port", "must be from 1 to 65535")
        flaws.expect(576 <= self.mtu <= 65535, "mtu", "must be from 576 to 65535")
        flaws.raise_any()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Time limits of the steps. After one, the cluster has failed for this machine, and the next is tried."""

    api: timedelta = timedelta(seconds=15)  # one call to a Kubernetes API
    peering: timedelta = timedelta(minutes=5)  # in total, also over several calls of the engine
    slice: timedelta = timedelta(seconds=60)  # until a remote cluster has responded
    removal: timedelta = timedelta(seconds=30)  # until a refused slice is gone
    node: timedelta = timedelta(minutes=3)  # deleting a node that is not ready after that counts against its cluster

    def __post_init__(self) -> None:
        """Rejects times that are too short for anything."""
        flaws = Flaws()
        flaws.expect_positive(
            api=self.api, peering=self.peering, slice=self.slice, removal=self.removal, node=self.node
        )
        flaws.raise_any()


@dataclass(frozen=True, slots=True, kw_only=True)
class LiqoOptions:
    """Remote clusters of a discovery server, as virtual nodes of the served cluster."""

    discovery: DiscoveryOptions
    sizes: Mapping[str, Mapping[str, str | int | float]]  # such as {S: {cpu: 2, memory: 4Gi, pods: 20}}
    kubeconfig: Path | None = None  # of the cluster that gets the nodes; None: the one that this runs in
    clusterID: str = ""  # noqa: N815 - spelt as Liqo spells it. Empty: from Liqo's own ConfigMap
    liqo_namespace: str = "liqo"  # where Liqo is installed, here and there
    networking: GatewayOptions = field(default_factory=GatewayOptions)
    timeouts: Timeouts = field(default_factory=Timeouts)
    unpeer_after: timedelta = timedelta(minutes=10)  # without any slice in a cluster that we peered with
    cool_down: timedelta = timedelta(minutes=5)  # during which a failed cluster is not asked
    reserve_for: timedelta = timedelta(minutes=15)  # how long resources are held for a machine that is being created
    look_every: timedelta = timedelta(seconds=30)  # interval for checking reservations and unused peerings
    clusters: Sequence[str] = ()  # that get shapes of their own, S@cluster and all@cluster; empty: all
    strategy: Strategy = Strategy.CHEAPEST
    selector: str = ""  # of clusters by their labels, in Kubernetes' syntax
    price_cap: Decimal | None = None  # per hour
    currency: str = ""
    weights: Mapping[str, Decimal] = field(default_factory=dict)  # cluster id -> factor on its price
    exclude: Sequence[str] = ()
    # Allowed networks for the API servers of remote clusters, such as [10.0.0.0/8]. Empty: all but this host, its
    # links, and the metadata addresses of clouds.
    allowed_networks: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Rejects combinations that can never work."""
        flaws = Flaws()
        with flaws.at("allowedNetworks"):
            AllowedNetworks.of(self.allowed_networks)
        flaws.expect(self.sizes, "sizes", "is empty; write at least one, like sizes: {S: {cpu: 2, memory: 4Gi}}")
        for name, given in self.sizes.items():
            is_name = _SIZE.fullmatch(name) and name != ALL
            flaws.expect(is_name, "sizes", f"{name!r} is no name for one: letters and digits, and not {ALL!r}")
            with flaws.at(("sizes", name)):
                _check_size(given)
        flaws.expect_not_negative(unpeerAfter=self.unpeer_after, coolDown=self.cool_down, priceCap=self.price_cap)
        flaws.expect_positive(lookEvery=self.look_every)
        # It is extended between the two.
        lasts = self.reserve_for >= max(self.timeouts.peering, self.timeouts.slice)
        flaws.expect(
            lasts,
            "reserveFor",
            "must be at least as long as timeouts.peering, and as timeouts.slice: what is held must not end while the "
            "machine is being made",
        )
        is_meant = self.price_cap is None or self.currency
        flaws.expect(is_meant, "priceCap", "needs `currency`, in which it is meant")
        is_id = not self.clusterID or CLUSTER_ID.fullmatch(self.clusterID)
        flaws.expect(is_id, "clusterID", f"{self.clusterID!r} is none: small letters, digits and dashes")
        flaws.raise_any()

    def amounts(self) -> dict[str, Resources]:
        """The sizes, by name."""
        return {name: _amounts(given) for name, given in self.sizes.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """The machine settings of a node group; those that it omits come from the cloud's options."""

    shape: str  # a size, such as S; S@cluster: only in that cluster; all@cluster: everything that it shares
    strategy: Strategy | None = None
    selector: str | None = None
    price_cap: Decimal | None = None
    exclude: Sequence[str] = ()  # in addition to those of the cloud
    resource_slice_class: str = ""  # empty: the one that the cluster's entry in discovery names

    def __post_init__(self) -> None:
        """Rejects an empty shape."""
        flaws = Flaws()
        flaws.expect(self.shape, "shape", "is empty: write a size, such as S, S@cluster or all@cluster")
        flaws.raise_any()

    def check_max_size(self, max_size: int) -> None:
        """Raises InvalidArgumentError when a group allows more machines of a shape than can exist."""
        size, _, cluster = self.shape.partition("@")
        if size == ALL and max_size > 1:
            raise InvalidArgumentError(
                f"must not be more than 1: {self.shape} is everything that {cluster or 'a cluster'} shares, so there "
                "is one such node at most; give it a group of its own with maxSize: 1"
            )


def _check_size(given: Mapping[str, str | int | float]) -> None:
    flaws = Flaws()
    for resource, value in given.items():
        with flaws.at(resource):
            amount(str(value))
    flaws.raise_any()
    amounts = _amounts(given)
    if any(amounts.get(resource, Quantity(0)) <= Quantity(0) for resource in _NEEDED):
        raise InvalidArgumentError("needs cpu and memory, each more than zero: no pod would fit")


def _amounts(given: Mapping[str, str | int | float]) -> Resources:
    return {resource: Quantity(str(value)) for resource, value in given.items()}
