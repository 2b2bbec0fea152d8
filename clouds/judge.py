"""What judges a driver: something that plays its cloud, and that can be asked without the driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from cloudgraft.conformance import Report, Result
from cloudgraft.conformance.driver import DriverSettings
from cloudgraft.plugins.registry import Kind

__all__ = ["Case", "Judge", "Progress", "ProviderCase", "Tell"]

Tell = Callable[[str], None]  # a line of progress
Progress = Callable[[Result], None]  # is told of each check of a conformance suite


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A cloud that runs, and how a driver is judged by it."""

    judged_by: str  # its name and version, as it tells them
    cloud: Mapping[str, Any]  # a cloud's section of a configuration file, with `driver`
    settings: DriverSettings  # for the conformance suite; `machine` is used for the engine too
    # The names of the machines that there are, by asking the cloud itself and not the driver.
    alive: Callable[[], Sequence[str]]
    others: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # clouds of the file that `cloud` names
    capacity: Mapping[str, str] | None = None  # for the group's template, where the driver knows no shapes
    boot_time: timedelta = timedelta(minutes=2)  # until a machine that the engine ordered is running, at most
    # Whatever else is to be seen on this cloud, by name; each raises AssertionError when it does not hold.
    more: Mapping[str, Callable[[], None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderCase:
    """The same for a provider. There is no engine before it: how it is served, and scaled, is its judge's to know."""

    judged_by: str
    conformance: Callable[[Progress], Report]  # the conformance kit, before a server with the provider
    scale: Callable[[], None]  # up and down by the autoscaler's calls; raises AssertionError as the others do
    alive: Callable[[], Sequence[str]]
    more: Mapping[str, Callable[[], None]] = field(default_factory=dict)


class Judge(ABC):
    """How one cloud is had on this machine."""

    driver: str  # or the provider, by the name of its entry point
    kind: Kind = Kind.DRIVER

    @abstractmethod
    def missing(self) -> str:
        """Why this cloud cannot be had here, and what to install; empty when it can."""

    @abstractmethod
    def open(self, directory: Path, tell: Tell) -> AbstractContextManager[Case | ProviderCase]:
        """Starts the cloud with all its files below ``directory``; it is stopped when the context is left."""
