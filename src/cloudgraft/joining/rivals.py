"""Which of several machines for one intent have joined the cluster. Pure, and never by guess.

All of them have the same name, and only one of their providerIDs is claimed. So they are compared with every node
there is, before one of them is deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from cloudgraft.joining.claims import Claim
from cloudgraft.joining.match import Way, keys_of_claim, keys_of_node
from cloudgraft.kube.objects import Node

__all__ = ["Rivals", "rivals"]

_CLOCKS_DIFFER: Final = 3600.0  # seconds between the clocks of a cloud and of the cluster


@dataclass(frozen=True, slots=True)
class Rivals:
    """What the nodes tell of such machines, by the ids that their cloud gave them."""

    joined: AbstractSet[str] = frozenset()  # have a node, ready or not
    ready: AbstractSet[str] = frozenset()  # have one that is ready
    unclear: AbstractSet[str] = frozenset()  # may have a node that may as well be another's of them

    @property
    def any(self) -> AbstractSet[str]:
        """Those that have a node, or may have one."""
        return self.joined | self.unclear


def rivals(claims: Sequence[Claim], nodes: Iterable[Node], ways: Collection[Way]) -> Rivals:
    """Compares machines that were made for one intent, each a claim of its own, with the nodes."""
    joined: set[str] = set()
    ready: set[str] = set()
    unclear: set[str] = set()
    for node in nodes:
        found = {claim.machine_id for claim in _narrowed(_fitting(claims, node, ways), node, ways)}
        if len(found) > 1:
            unclear |= found
            continue
        joined |= found
        if node.ready:
            ready |= found
    return Rivals(frozenset(joined), frozenset(ready), frozenset(unclear))


def _fitting(claims: Sequence[Claim], node: Node, ways: Collection[Way]) -> Sequence[Claim]:
    """By the providerID where both have one; else by the name, which nobody but these machines ever had.

    Nodes may have names of their own, so also by what else the configuration goes by: such a node of a double is in no
    claim, and nothing else would tell that it has joined.
    """
    exact = [claim for claim in claims if claim.provider_id and claim.provider_id == node.provider_id]
    if exact:
        return exact
    open_to = [claim for claim in claims if not (claim.provider_id and node.provider_id)]
    names = keys_of_node(node, Way.NAME)
    return [claim for claim in open_to if claim.name in names] or [c for c in open_to if _is_told(c, node, ways)]


def _narrowed(claims: Sequence[Claim], node: Node, ways: Collection[Way]) -> Sequence[Claim]:
    """Of several that fit: not those that were made after the node came, and rather those that another way tells.

    Where all of them seem to have come later, it is the clocks that tell nothing.
    """
    if len(claims) < 2:
        return claims
    early = [claim for claim in claims if claim.ordered_at <= node.created_at + _CLOCKS_DIFFER] or claims
    return [claim for claim in early if _is_told(claim, node, ways)] or early


def _is_told(claim: Claim, node: Node, ways: Collection[Way]) -> bool:
    """Whether a node is a machine's by another way than its name."""
    return any(keys_of_node(node, way) & keys_of_claim(claim, way) for way in ways if way is not Way.NAME)
