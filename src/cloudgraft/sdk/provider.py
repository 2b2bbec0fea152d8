"""Defines the provider interface: the calls of the autoscaler to a cloud that has its own node groups.

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

# -- Reply cache -------------------------------------------------------------------------------------------------------
# Lets a transport send a cached reply without asking the provider, until something that it depends on changes.
#
# A provider names the *subjects* that each of its replies depends on. Before it replies to a change, it publishes every
# subject that the change affects. Subjects are strings of the provider's choice.


@dataclass(frozen=True, slots=True)
class Question:
    """One read by the autoscaler, with the name of the provider's method that answers it."""

    method: str  # node_groups, node_group_for_node, target_size, instances, template or options
    group: str = ""
    node: NodeRef | None = None


class ReadyReplies(Protocol):
    """The replies that a transport caches. All methods return at once; call them from the event loop only."""

    def publish(self, subjects: Collection[str]) -> None:
        """Drops all replies that depend on one of these, atomically."""

    def clear(self) -> None:
        """Drops all replies."""

    def close(self) -> None:
        """Sends no cached reply until the provider's ``replies_valid_until`` allows it: another process leads."""


class Provider(ABC):
    """Node groups, as the autoscaler sees them.

    Rules for every method:

    - It may be called at any time, before the first :meth:`refresh` too, and from two autoscalers at once for some
      seconds while their leadership changes hands. Calls that change one group are never made concurrently by
      cloudgraft; everything else may be.
    - The autoscaler times out after 5 s and makes thousands of calls per loop: answer from memory, and record a
      change instead of waiting until it is done.
    - Raise an error of :mod:`cloudgraft.sdk.errors`. Anything else is reported to the caller as a bug.
    - A group id argument was in the latest result of :meth:`node_groups`: cloudgraft refuses others itself.

    The methods under "optional" have a sensible default; override those that your cloud can do better.
    """

    # A dataclass or pydantic model for the provider's `options` in the configuration, as that of a driver: see
    # cloudgraft.sdk.driver.DriverDeclarations. None: the provider is constructed without arguments.
    Options: type | None = None

    # -- required ----------------------------------------------------------------------------------------------------

    @abstractmethod
    async def node_groups(self) -> Sequence[NodeGroup]:
        """Returns all groups. Ids are unique and stable; ``0 <= min_size <= max_size``.

        Must not fail and must not be partial: the autoscaler takes an error for "no groups at all". It reads the list,
        and min and max, only after a :meth:`refresh`.
        """

    @abstractmethod
    async def node_group_for_node(self, node: NodeRef) -> NodeGroup | None:
        """Returns the group of a node, or None when it is not yours (such as a control-plane node): never an error.

        Match the provider id, else the name. Must also return the group for ids of instances that never became nodes,
        for failed ones, and for a node being deleted until its Node object is gone. The group must be one of
        :meth:`node_groups`, with the same min and max.
        """

    @abstractmethod
    async def target_size(self, group: str) -> int:
        """Returns the desired size of the group: machines being created count, machines being deleted do not.

        Must reflect a change in the next call.
        """

    @abstractmethod
    async def instances(self, group: str) -> Sequence[Instance]:
        """Returns all machines of the group, also those being created or deleted. Ids are unique across all groups.

        List a machine that could not be created as CREATING with an error until :meth:`delete_nodes` deletes it: so the
        autoscaler learns of a stock-out within one loop.
        """

    @abstractmethod
    async def increase_size(self, group: str, delta: int) -> None:
        """Adds ``delta`` machines (``delta > 0``, and the new target is within max: cloudgraft has checked both).

        Return once the new target is recorded. After an error nothing may have been started; after success the
        target has grown by exactly ``delta``. Two calls are two increases.
        """

    @abstractmethod
    async def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        """Deletes exactly these machines and lowers the target by the number of those not being deleted already.

        Idempotent: a machine that is being deleted or already gone is not an error and changes nothing. A node of
        another group is an error, and then no machine may be deleted. Do not check ``min_size``: that is the
        autoscaler's job, and failed machines must be deleted even below it. Never replace a deleted machine.
        """

    @abstractmethod
    async def decrease_target_size(self, group: str, delta: int) -> None:
        """Cancels up to ``-delta`` requested machines that do not exist yet (``delta < 0``: cloudgraft has checked it).

        Never deletes a machine. The target falls to ``target + delta``, or to the number of existing machines if that
        is more. It is not an error when nothing can be cancelled.
        """

    # -- optional ----------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Called before every loop. An error ends that loop and has no other effect."""

    async def cleanup(self) -> None:
        """Called when the autoscaler shuts down. May be called twice or never; must not delete machines."""

    async def template(self, group: str) -> NodeTemplate:
        """Returns the template of a new node of the group. Without it a group cannot be scaled up from zero."""
        raise UnsupportedError("this provider has no node templates")

    async def options(self, group: str, defaults: AutoscalingOptions) -> AutoscalingOptions | None:
        """Returns the autoscaling options of this group, or None for the autoscaler's defaults.

        ``defaults`` holds the values of the autoscaler's flags. Four fifths of all calls come here: be quick.
        """
        raise UnsupportedError("this provider has no options of its own")

    async def node_price(self, node: NodeRef, start: datetime, end: datetime) -> float:
        """Returns the price of a node for that period. The node is mostly a template: use its labels or its name."""
        raise UnsupportedError("this provider knows no prices")

    async def pod_price(self, pod: Pod, start: datetime, end: datetime) -> float:
        """Returns the lowest possible price of a pod for that period, on a machine that fits it exactly."""
        raise UnsupportedError("this provider knows no prices")

    async def gpu_label(self) -> str:
        """Returns the key of the label with a node's GPU type; empty when there is none. Must not fail."""
        return ""

    async def gpu_types(self) -> Collection[str]:
        """Returns the GPU types on offer; only used in the autoscaler's metrics."""
        return ()

    # -- ready replies: without these, every call asks the provider --------------------------------------------------

    def dependencies(self, question: Question) -> Collection[str] | None:
        """Returns the subjects that the reply to this question depends on now; None when it must not be cached.

        A reply about a node may only depend on the node's provider id and name. No reply may depend on the time.
        """
        return None

    def follow(self, replies: ReadyReplies) -> None:
        """Publishes to ``replies``, from now on, every subject that a change affects, before replying to the change."""

    def replies_valid_until(self) -> float:
        """Returns until when cached replies may be sent, by CLOCK_BOOTTIME in seconds: 0, or the end of a lease."""
        return 0.0

    # -- life cycle --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Called once before the first call. Raise when the provider cannot be used: the server then does not start."""

    async def close(self) -> None:
        """Called once after the last call. Close connections and stop tasks here."""
