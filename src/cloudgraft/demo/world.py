"""Declares what the demo needs beside a provider: a clock it can move, machines, and a way to crash.

The day is played against :class:`World` and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cloudgraft.demo.cluster import Machine
from cloudgraft.sdk import Provider


@dataclass(frozen=True, slots=True, kw_only=True)
class Wreck:
    """The journal's content after a crash."""

    machines: int  # that the journal has
    unknown: int  # of them, those that were ordered and whose answer was never seen
    ordered: Sequence[str]  # machines that the cloud has made all the same, by the names of their future nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """The figures of the cloud's own ledger, and their differences from the journal."""

    machines: int  # made since the morning
    cost: float  # of all of them
    lost: int  # machines that only one of the two knows
    doubled: int  # machines made beyond one for each intent


class World(Protocol):
    """Time and machines, behind a provider."""

    @property
    def provider(self) -> Provider:
        """The provider to serve; after :meth:`die` it is another one."""

    def now(self) -> float:
        """The demo's time, in seconds since midnight."""

    async def advance(self, seconds: float) -> None:
        """Moves the time; when it returns, everything that was due has happened."""

    async def machines(self) -> Sequence[Machine]:
        """The machines that are up, those being shut down included: each has, or is about to have, a node."""

    async def die(self) -> Wreck:
        """Places the orders that are due, and crashes before it learns that the cloud has accepted one."""

    def books(self) -> Books:
        """The cloud's ledger, compared with the journal."""
