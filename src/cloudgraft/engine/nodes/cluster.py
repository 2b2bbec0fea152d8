"""What the engine asks of the cluster that its machines join, where there is one to be seen.

Both are optional: without them the engine does not know whether a machine's node ever came, and creates machines
without user data. See :mod:`cloudgraft.joining` for what stands behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from cloudgraft.joining.claims import Claim, JoinedNode, NewMachine
from cloudgraft.joining.match import Problem
from cloudgraft.joining.rivals import Rivals

__all__ = ["Cluster", "UserData"]


class Cluster(Protocol):
    """The nodes of the cluster. Every method answers from memory, at once."""

    @property
    def is_known(self) -> bool:
        """Whether what is answered is fresh enough to act on; False while the Kubernetes API is away."""

    def claim(self, cloud: str, claims: Sequence[Claim], may_act: Callable[[], bool] | None = None) -> None:
        """All machines of a cloud, in place of what was told of it before.

        ``may_act`` is asked before anything is done about any node: False as soon as another process leads.
        """

    def joined(self, name: str) -> JoinedNode | None:
        """The node of this machine; None when there is none, or when it is not certain which one it is."""

    def is_disputed(self, name: str) -> bool:
        """Whether this machine may have one of several nodes: then nobody can say that it has not joined."""

    def is_ready_name(self, name: str) -> bool:
        """Whether a ready node has exactly this name. For machines of which nothing but the name is known yet."""

    def rivals(self, claims: Sequence[Claim]) -> Rivals:
        """Which of several machines for one intent have joined. Each is a claim of its own, of the same name.

        Also for a single machine that nobody claims.
        """

    def listen(self, on_change: Callable[[], None]) -> None:
        """Calls back, on the event loop, when nodes have come, gone, or changed."""

    def problems(self) -> Sequence[Problem]:
        """What keeps nodes from being known or looked after, at present."""


class UserData(Protocol):
    """What a machine is told when it boots, so that it joins the cluster."""

    async def make(self, machine: NewMachine) -> str:
        """The user data of a machine, with credentials of its own. The same text for a second try of the same name.

        Raises CloudgraftError before anything was asked of the cloud; its class decides whether it is tried again.
        """

    async def settle(self, name: str) -> None:
        """Takes back the credentials of a machine that has joined, failed, or is not wanted any more."""
