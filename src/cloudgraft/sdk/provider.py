"""The wide interface: what the autoscaler asks of a cloud that has node groups of its own.

Write a :class:`Provider` when your cloud knows node groups (scale sets, pools). When it only knows machines, write a
:class:`~cloudgraft.sdk.driver.Driver` instead and let the engine make node groups of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from cloudgraft.sdk.errors import UnsupportedError
from cloudgraft.sdk.types import AutoscalingOptions, Instance, NodeGroup, NodeRef, NodeTemplate, Pod

__all__ = ["Provider", "Question", "ReadyReplies"]


# -- ready replies -----------------------------------------------------------------------------------------------------
# Lets a transport send an answer again without asking the provider, until something that it depends on changes.
#
# A provider names the *subjects* that each of its answers depends on, and publishes every subject that a change touches
# before the change is answered. Subjects are strings of the provider's choice.


@dataclass(frozen=True, slots=True)
class Question:
    """One read of the autoscaler, by the name of the provider's method that answers it."""

    method: str  # node_groups, node_group_for_node, target_size, instances, template or options
    group: str = ""
    node: NodeRef | None = None


class ReadyReplies(Protocol):
    """The replies that a transport keeps. All methods return at once, and may be called from the event loop only."""

    def publish(self, subjects: Collection[str]) -> None:
        """Drops all replies that depend on one of these, in one step."""

    def clear(self) -> None:
        """Drops all replies."""

    def close(self) -> None:
        """Sends none of them, until the provider's ``replies_valid_until`` says otherwise: another process leads."""


class Provider(ABC):
    """Node groups, as the autoscaler sees them.

    What holds for every method:

    - It may be called at any time, before the first :meth:`refresh` too, and from two autoscalers at once for some
      seconds while their leadership changes hands. Calls that change one group are never made concurrently by
      cloudgraft; everything else may be.
    - The autoscaler gives up after 5 s and makes thousands of calls per loop: answer from memory, and record a
      change instead of waiting for it to happen.
    - Raise an error of :mod:`cloudgraft.sdk.errors`. Anything else is reported to the caller as a bug.
    - A group id that is passed in was in the latest answer of :meth:`node_groups`: cloudgraft refuses others itself.

    The methods under "optional" have a sensible answer already; override those your cloud can do better.
    """

    # -- required ----------------------------------------------------------------------------------------------------

    @abstractmethod
    async def node_groups(self) -> Sequence[NodeGroup]:
        """All groups. Ids are unique and stable; ``0 <= min_size <= max_size``.

        Must not fail and must not be partial: the autoscaler takes an error for "no groups at all". It looks at the
        list, and at min and max, only after a :meth:`refresh`.
        """

    @abstractmethod
    async def node_group_for_node(self, node: NodeRef) -> NodeGroup | None:
        """The group a node belongs to, or None when it is not yours (a control-plane node, say): never an error.

        Match the provider id, else the name. Must also answer for ids of instances that never became nodes, for
        failed ones, and for a node being deleted until its Node object is gone. The group must be one of
        :meth:`node_groups`, with the same min and max.
        """

    @abstractmethod
    async def target_size(self, group: str) -> int:
        """The size the group is meant to have: machines being created count, machines being deleted do not.

        Must show a change at once, in the very next call.
        """

    @abstractmethod
    async def instances(self, group: str) -> Sequence[Instance]:
        """All machines of the group, those still being created or deleted included. Ids are unique over all groups.

        A machine that could not be created is listed as CREATING with an error until it is deleted by
        :meth:`delete_nodes`: that is how the autoscaler learns of a stock-out within one loop.
        """

    @abstractmethod
    async def increase_size(self, group: str, delta: int) -> None:
        """Adds ``delta`` machines (``delta > 0``, and the new target is within max: both checked before).

        Return once the new target is recorded. After an error nothing may have been started; after success the
        target has grown by exactly ``delta``. Two calls are two increases.
        """

    @abstractmethod
    async def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        """Deletes exactly these machines and lowers the target by the number of those not being deleted already.

        Idempotent: a machine that is being deleted or gone already is fine and changes nothing. A node that is not
        of this group is an error, and then nothing at all is done. No check against ``min_size``: that is the
        autoscaler's job, and failed machines must go below it too. Never replace what was deleted.
        """

    @abstractmethod
    async def decrease_target_size(self, group: str, delta: int) -> None:
        """Gives up to ``-delta`` machines back that were asked for but never came (``delta < 0``: checked before).

        Never deletes a machine. The target goes down to ``target + delta``, or to the number of existing machines
        if that is more; it is not an error when nothing can be given back.
        """

    # -- optional ----------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Called before every loop. An error stops that loop without any other effect."""

    async def cleanup(self) -> None:
        """The autoscaler is going away. May be called never, or twice; must not delete machines."""

    async def template(self, group: str) -> NodeTemplate:
        """What a new node of the group will look like. Without it a group cannot be scaled up from zero."""
        raise UnsupportedError("this provider has no node templates")

    async def options(self, group: str, defaults: AutoscalingOptions) -> AutoscalingOptions | None:
        """How the autoscaler should treat this group; None for its own defaults.

        ``defaults`` is what the autoscaler was told by its flags. This is four fifths of all calls: be quick.
        """
        raise UnsupportedError("this provider has no options of its own")

    async def node_price(self, node: NodeRef, start: datetime, end: datetime) -> float:
        """The price of running a node for that period. The node is mostly a template: go by its labels or its name."""
        raise UnsupportedError("this provider knows no prices")

    async def pod_price(self, pod: Pod, start: datetime, end: datetime) -> float:
        """The least a pod could cost for that period, on a machine that fits it perfectly."""
        raise UnsupportedError("this provider knows no prices")

    async def gpu_label(self) -> str:
        """The label that tells a node's GPU type; empty when there is none. Must not fail."""
        return ""

    async def gpu_types(self) -> Collection[str]:
        """The GPU types on offer; only used in the autoscaler's metrics."""
        return ()

    # -- ready replies: without these, every call asks the provider --------------------------------------------------

    def dependencies(self, question: Question) -> Collection[str] | None:
        """The subjects that the answer to this question depends on now; None when it must not be kept.

        An answer about a node may depend on the node's provider id and name alone, and none on the passing of time.
        """
        return None

    def follow(self, replies: ReadyReplies) -> None:
        """From now on publishes to ``replies`` every subject that a change touches, before the change is answered."""

    def replies_valid_until(self) -> float:
        """Until when kept answers may be sent, in seconds by CLOCK_BOOTTIME: the end of a lease, say; 0 for not now."""
        return 0.0

    # -- life cycle --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Called once before the first call. An error here means: cannot be used at all, do not start."""

    async def close(self) -> None:
        """Called once after the last call: release connections, stop tasks."""
