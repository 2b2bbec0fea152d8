"""The books, compared: the journal, the clouds' ledgers and the cluster must tell the same story."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, Protocol

from e2e.journal import Journal

__all__ = ["Books", "compare"]


class Books(Protocol):
    """A cloud's ledger."""

    def ledger(self) -> list[dict[str, Any]]:
        """Every machine that was ever made."""


def compare(journal: Journal, clouds: Iterable[Books], provider_ids: Collection[str]) -> None:
    """Raises AssertionError unless everything agrees, at a moment at which nothing is under way.

    No name was made twice (law 3), no machine was ever made that the journal does not know, what is alive in a cloud is
    alive in the journal, and the nodes of the cluster are the machines that are alive.
    """
    machines = [machine for cloud in clouds for machine in cloud.ledger()]
    alive = [machine for machine in machines if machine["goneAt"] is None]
    doubles = [name for name, count in Counter(machine["name"] for machine in machines).items() if count > 1]
    assert not doubles, f"made twice: {doubles}"
    unknown = {machine["name"] for machine in machines} - {row["name"] for row in journal.machines}
    assert not unknown, f"in a cloud's ledger, but not in the journal: {unknown}"
    ours = {name for name, row in journal.alive().items() if row["state"] != "failed"}
    theirs = {machine["name"] for machine in alive}
    assert ours == theirs, f"alive in the journal only: {ours - theirs}; in a cloud only: {theirs - ours}"
    ids = {machine["providerId"] for machine in alive}
    nodes = set(provider_ids)
    assert nodes == ids, f"nodes without a machine: {nodes - ids}; machines without a node: {ids - nodes}"
