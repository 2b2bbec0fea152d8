"""Defines the values of joining: claims about machines' nodes, the answers to them, and plans for user data.

Importing it does not load Jinja2.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from cloudgraft.kube.objects import Node
from cloudgraft.sdk.types import Taint


class Stage(enum.Enum):
    """A machine's lifecycle stage, as it concerns its node."""

    WANTED = "wanted"  # present or coming: its node is expected and maintained
    GOING = "going"  # failed, or being deleted: its node is not changed
    GONE = "gone"  # its cloud does not have it any more: its node is removed


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A machine of ours, and how its node can be recognized. Unknown fields are empty."""

    name: str
    cloud: str
    group: str
    stage: Stage
    provider_id: str = ""  # of its node, now or later
    machine_id: str = ""  # the cloud's own id; some clouds show it to the machine as its serial number or uuid
    addresses: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)  # from the template of its group
    is_observed: bool = False  # observeOnly: its node is matched, and never written to or removed
    sets_provider_id: bool = False  # whether cloudgraft sets the providerID of its node
    # Seconds since the epoch: names, ids and addresses are reused, so its time is part of its identity.
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


# -- How the machines of a group join ----------------------------------------------------------------------------------


_TEMPLATES: Final = Path(__file__).parent / "templates"
READY_MADE: Final = ("k3s", "kubeadm", "rke2", "talos")


def ready_made(name: str) -> str:
    """The text of a template that comes with cloudgraft."""
    return (_TEMPLATES / f"{name}.yaml.j2").read_text("utf-8")


def keep_trying() -> str:
    """A shell script that runs a command until it succeeds, or until a machine's token expires."""
    return (_TEMPLATES / "keep_trying.sh").read_text("utf-8").rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinPlan:
    """How the machines of a group join."""

    template: str = field(repr=False)  # its text
    file: str  # the file name in its errors
    server: str = ""
    ca_cert: str = field(default="", repr=False)  # PEM; empty: as the kubeconfig has it
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)  # the group's `machine` section
    token_ttl: timedelta = timedelta(minutes=30)
    token_groups: tuple[str, ...] = ()
