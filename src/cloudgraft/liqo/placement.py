"""Selects and orders the clusters to try, and explains failures: of one cluster, or of all."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudgraft.discovery.model import Cluster, ClusterState, Need, Network, Offer, Reservation, Resources
from cloudgraft.liqo.options import LiqoOptions, MachineSettings
from cloudgraft.liqo.shapes import ShapeName
from cloudgraft.sdk.errors import CloudgraftError

if TYPE_CHECKING:
    from cloudgraft.kube.client import KubeClient


_LONGEST = 1500  # characters of a message


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A cluster to try. ``held`` is the reservation that an earlier attempt for the same machine left there."""

    cluster: str
    network: Network = field(default_factory=Network)
    slice_class: str = "default"
    held: Reservation | None = None


class CoolDowns:
    """Failed clusters, until they may be asked again. Times are of any monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: dict[str, tuple[float, str]] = {}

    def cool(self, cluster: str, why: str, now: float) -> None:
        """Records a failure."""
        self._until[cluster] = (now + self._seconds, why)

    def at(self, now: float) -> dict[str, str]:
        """The clusters that must not be asked now, and why."""
        self._until = {cluster: entry for cluster, entry in self._until.items() if entry[0] > now}
        return {
            cluster: f"failed lately, and is asked again in {until - now:.0f} s: {why}"
            for cluster, (until, why) in self._until.items()
        }


def need_for(
    resources: Resources, shape: ShapeName, settings: MachineSettings, options: LiqoOptions, peered: Iterable[str]
) -> Need:
    """Builds the search for discovery: the group's settings override those of the cloud."""
    return Need(
        resources=resources,
        label_selector=options.selector if settings.selector is None else settings.selector,
        strategy=settings.strategy or options.strategy,
        weights=options.weights,
        price_cap=options.price_cap if settings.price_cap is None else settings.price_cap,
        currency=options.currency,
        clusters=(shape.cluster,) if shape.cluster else (),
        exclude=tuple(sorted({*options.exclude, *settings.exclude})),
        peered=tuple(sorted(peered)),
    )


def candidates(
    offers: Sequence[Offer], held: Sequence[Reservation], known: Iterable[Cluster], skip: Mapping[str, str]
) -> list[Candidate]:
    """The clusters to try, best first; the one with a reservation for this machine comes before all.

    Reserved resources are not free, so an offer need not show them.
    """
    by_id = {cluster.spec.id: cluster.spec for cluster in known if cluster.state is ClusterState.READY}
    kept = [one for one in held if one.cluster in by_id and one.cluster not in skip]
    first = [
        Candidate(
            cluster=one.cluster,
            network=by_id[one.cluster].network,
            slice_class=by_id[one.cluster].resource_slice_class,
            held=one,
        )
        for one in kept[:1]
    ]
    seen = {one.cluster for one in first}
    rest = [offer for offer in offers if offer.cluster not in skip and offer.cluster not in seen]
    return first + [
        Candidate(cluster=offer.cluster, network=offer.network, slice_class=offer.resource_slice_class)
        for offer in rest
    ]


def none_left(shape: str, *reasons: Mapping[str, str]) -> str:
    """Explains why each cluster failed; the first reason for a cluster counts."""
    by_cluster: dict[str, str] = {}
    for some in reasons:
        for cluster, why in some.items():
            by_cluster.setdefault(cluster, why)
    if not by_cluster:
        return f"no remote cluster offers {shape}: discovery knows none that is ready"
    listed = "; ".join(f"{cluster}: {why}" for cluster, why in by_cluster.items())
    return f"no remote cluster can give {shape}: {listed}"[:_LONGEST]


# -- Failure of one remote cluster, after which the next one is tried --------------------------------------------------


log = logging.getLogger("cloudgraft.liqo")


class ClusterError(Exception):
    """A cluster cannot be used for this machine. ``cools``: do not ask it again for a while."""

    def __init__(self, why: str, *, cools: bool = True) -> None:
        super().__init__(why)
        self.why = why
        self.cools = cools


@contextmanager
def at_cluster(what: str, client: KubeClient) -> Iterator[None]:
    """Turns every failure of that client into a ClusterError: the machine may still be created elsewhere.

    Unexpected errors too, because the remote side's responses are out of our control.
    """
    try:
        yield
    except ClusterError:
        raise
    except CloudgraftError as error:
        if not client.raised(error):
            raise
        raise ClusterError(f"{what}: {error.message}") from error
    except Exception as error:
        log.exception("cannot process the response of a remote cluster")
        raise ClusterError(f"{what}: {type(error).__name__}") from error
