"""Lets a transport send an answer again without asking the provider, until something that it depends on changes.

A provider names the *subjects* that each of its answers depends on, and publishes every subject that a change touches
before the change is answered. Subjects are strings of the provider's choice.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from cloudgraft.sdk.types import NodeRef

__all__ = ["Question", "ReadyReplies"]


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
