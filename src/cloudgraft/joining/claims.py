"""What the engine tells of its machines to whoever looks after their nodes, and what it hears back."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cloudgraft.kube.objects import Node
from cloudgraft.sdk.types import Taint

__all__ = ["Claim", "JoinedNode", "NewMachine", "Stage"]


class Stage(enum.Enum):
    """How far a machine is, as far as its node is concerned."""

    WANTED = "wanted"  # there or coming: its node is expected, and looked after
    GOING = "going"  # failed, or being deleted: its node is left alone
    GONE = "gone"  # its cloud does not have it any more: its node is removed


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A machine of ours, and how its node can be known. What is not known is empty."""

    name: str
    cloud: str
    group: str
    stage: Stage
    provider_id: str = ""  # what its node carries, or is to carry
    machine_id: str = ""  # the cloud's own id; some clouds show it to the machine as its serial number or uuid
    addresses: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)  # what its group promises of its nodes
    is_observed: bool = False  # observeOnly: its node is matched, and never written to or removed
    sets_provider_id: bool = False  # whether it falls to us to write the providerID on its node
    # Seconds since the epoch: names, ids and addresses are given away again, so that its time is part of what it is.
    ordered_at: float = 0.0
    gone_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedNode:
    """The node of a machine."""

    node: Node
    unready_since: float | None = None  # seconds since the epoch; None while it is ready


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMachine:
    """A machine that is about to be created, as far as its user data is concerned."""

    name: str
    group: str
    cloud: str
    provider_id: str = ""  # when it is known before the machine exists
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Taint] = ()
    settings: Mapping[str, object] = field(default_factory=dict)  # the group's `machine` section
    user_data_limit: int | None = None  # bytes; the driver's
