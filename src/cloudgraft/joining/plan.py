"""Describes how the machines of a group join, as values. Importing it does not load Jinja2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

READY_MADE: Final = ("k3s", "kubeadm", "rke2", "talos")


def ready_made(name: str) -> str:
    """The text of a template that comes with cloudgraft."""
    return (Path(__file__).parent / "templates" / f"{name}.yaml.j2").read_text()


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
