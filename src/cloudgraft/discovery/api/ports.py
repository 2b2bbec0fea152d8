"""What the routes ask of discovery's core. :class:`cloudgraft.discovery.service.Discovery` is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cloudgraft.discovery.model import Cluster, ClusterSpec, Heartbeat, Market, PriceList, Reservation, Resources

__all__ = ["Core"]


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
