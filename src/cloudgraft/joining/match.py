"""Matches nodes to machines, also where several machines exist for one intent. Pure, and never a guess."""

from __future__ import annotations

import enum
import ipaddress
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from cloudgraft.joining.claims import Claim, Stage
from cloudgraft.kube.objects import Node

_HOSTNAME: Final = "kubernetes.io/hostname"
_SKEW: Final = 60.0  # seconds by which the clocks of the cluster and of this host may differ


class Way(enum.Enum):
    """How a node without a providerID is matched. The value is its name in the configuration."""

    NAME = "name"
    ADDRESS = "address"
    MACHINE_ID = "machineID"


class ProblemKind(enum.Enum):
    """The kind of a problem."""

    TWO_NODES = "two_nodes"
    TWO_MACHINES = "two_machines"
    OTHER_PROVIDER_ID = "other_provider_id"
    NAMED_OTHERWISE = "named_otherwise"
    STRANGER = "stranger"
    OTHER_LABEL = "other_label"
    REFUSED = "refused"  # by the Kubernetes API


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The reason why a node is not changed, for people.

    ``machine`` is empty when it could be any, and ``node`` when it is all of them.
    """

    kind: ProblemKind
    node: str
    machine: str = ""
    message: str

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """The node of each machine that has one, by the machine's name, as a key of :attr:`Node.key`."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    disputed: AbstractSet[str] = frozenset()  # names of machines that may have one of several nodes
    problems: tuple[Problem, ...] = ()


def matched(
    claims: Sequence[Claim], nodes: Iterable[Node], ways: Collection[Way], *, since: Mapping[str, float] | None = None
) -> Matches:
    """Finds the node of each machine.

    ``since`` has, by name, the time since when a machine has been expected (seconds since the epoch). A node that came
    later, matches no machine and has no providerID may be that machine under a wrong name; that is reported.
    """
    return _Matching(claims, ways, since or {}).run(sorted(nodes, key=lambda node: node.key))


class _Matching:
    """One run, with its indexes."""

    def __init__(self, claims: Sequence[Claim], ways: Collection[Way], since: Mapping[str, float]) -> None:
        self._ways = ways
        self._since = since
        self._claims = {claim.name: claim for claim in claims}
        self._by_provider_id: dict[str, list[Claim]] = defaultdict(list)
        for claim in self._claims.values():
            if claim.provider_id:
                self._by_provider_id[claim.provider_id].append(claim)
        self._by: dict[Way, dict[str, list[Claim]]] = {}  # made when it is needed: most nodes have a providerID
        self._nodes: dict[str, str] = {}
        self._problems: list[Problem] = []
        self._disputed: set[str] = set()

    def run(self, nodes: Sequence[Node]) -> Matches:
        exact: dict[str, list[Node]] = defaultdict(list)
        guesses: dict[str, list[Node]] = defaultdict(list)
        for node in nodes:
            claims = self._exact(node) if node.provider_id else self._alike(node, self._ways)
            chosen = self._only(node, claims)
            if chosen is not None:
                (exact if node.provider_id else guesses)[chosen.name].append(node)
            elif not claims and not self._doubt(node) and node.provider_id:
                self._report_other_id(node)
        self._settle(exact)
        self._settle(guesses)
        self._report_unknown_nodes(nodes)
        disputed = self._disputed - self._nodes.keys()
        return Matches(nodes=self._nodes, disputed=disputed, problems=tuple(self._problems))

    def _exact(self, node: Node) -> list[Claim]:
        return _those_that_are(self._by_provider_id.get(node.provider_id, ()), node)

    def _doubt(self, node: Node) -> bool:
        """Whether a node is too old for the one machine that it fits. Perhaps the clocks differ.

        It does not count as that machine's node, but it is not certain either that the machine has not joined.
        Addresses and machine ids are left out: those of a dead node may be another machine's by now.
        """
        names = keys_of_node(node, Way.NAME) if Way.NAME in self._ways else set()
        alike = [claim for name in names for claim in self._index(Way.NAME).get(name, ())]
        fitting = self._by_provider_id.get(node.provider_id, []) if node.provider_id else alike
        found = {claim.name for claim in fitting if claim.stage is Stage.WANTED}
        self._disputed |= found
        return bool(found)

    def _alike(self, node: Node, ways: Collection[Way]) -> list[Claim]:
        """Machines that may have this node, by all ways together: a match on which two ways differ is not certain."""
        found = {
            claim.name: claim
            for way in ways
            for key in keys_of_node(node, way)
            for claim in self._index(way).get(key, ())
        }
        return _those_that_are(found.values(), node)

    def _index(self, way: Way) -> dict[str, list[Claim]]:
        if way not in self._by:
            self._by[way] = defaultdict(list)
            for claim in self._claims.values():
                for key in keys_of_claim(claim, way):
                    self._by[way][key].append(claim)
        return self._by[way]

    def _only(self, node: Node, claims: Sequence[Claim]) -> Claim | None:
        if len(claims) > 1:
            self._disputed.update(claim.name for claim in claims)
            names = " and ".join(claim.name for claim in claims[:3])
            by = f"providerID {node.provider_id}" if node.provider_id else "name, address or machine id"
            self._report(
                ProblemKind.TWO_MACHINES,
                node,
                f"node {node.name} fits more than one machine by its {by}: {names}; it is left alone. Let no two "
                "machines share a name, an address or an id, or narrow kubernetes.matchBy",
            )
        return claims[0] if len(claims) == 1 else None

    def _settle(self, found: Mapping[str, Sequence[Node]]) -> None:
        """Keeps the certain matches. A machine with a node by its providerID gets no second one by another way."""
        for machine, nodes in found.items():
            rivals = [node.name for node in nodes]
            if machine in self._nodes:
                rivals.insert(0, self._nodes[machine].lstrip("/"))
            if len(rivals) == 1:
                self._nodes[machine] = nodes[0].key
                continue
            self._disputed.add(machine)
            for node in nodes:
                self._report(
                    ProblemKind.TWO_NODES,
                    node,
                    f"machine {machine} fits more than one node: {', '.join(rivals[:3])}; "
                    f"{node.name} is left alone. Find out which is the machine, and delete the other Node object",
                    machine,
                )

    def _report_other_id(self, node: Node) -> None:
        for claim in self._alike(node, self._ways):
            if claim.stage is Stage.WANTED and claim.provider_id:
                self._report(
                    ProblemKind.OTHER_PROVIDER_ID,
                    node,
                    f"node {node.name} looks like machine {claim.name}, but carries the providerID {node.provider_id} "
                    f"instead of {claim.provider_id}. A providerID never changes: if it is this machine, stop what "
                    "writes that one, delete the Node object, and restart its kubelet",
                    claim.name,
                )

    def _report_unknown_nodes(self, nodes: Sequence[Node]) -> None:
        """Reports nodes that match no machine, while machines are expected."""
        taken = set(self._nodes.values())
        waiting = [
            claim for claim in self._claims.values() if claim.stage is Stage.WANTED and claim.name not in self._nodes
        ]
        soonest = min((self._since.get(claim.name, float("inf")) for claim in waiting), default=float("inf"))
        others = [way for way in Way if way not in self._ways]
        for node in nodes if waiting else ():
            if node.key in taken or node.provider_id or self._alike(node, self._ways):
                continue
            known = [claim for claim in self._alike(node, others) if claim.name not in self._nodes]
            if len(known) == 1 and known[0].stage is Stage.WANTED:
                self._report_other_way(node, known[0])
            elif node.created_at + _SKEW >= soonest:
                names = ", ".join(claim.name for claim in waiting[:3])
                self._report(
                    ProblemKind.STRANGER,
                    node,
                    f"node {node.name} has joined under an unexpected name, and has no providerID, while "
                    f"{names} {'is' if len(waiting) == 1 else 'are'} waited for. If it is one of them, let it take its "
                    "machine's name as its node name, or add address or machineID to kubernetes.matchBy",
                )

    def _report_other_way(self, node: Node, claim: Claim) -> None:
        others = [way for way in Way if way not in self._ways]
        way = next(way for way in others if keys_of_node(node, way) & keys_of_claim(claim, way))
        self._report(
            ProblemKind.NAMED_OTHERWISE,
            node,
            f"node {node.name} has the {way.value} of machine {claim.name}, but kubernetes.matchBy does not go by it. "
            f"Add {way.value} there, or let the machine join under its own name",
            claim.name,
        )

    def _report(self, kind: ProblemKind, node: Node, message: str, machine: str = "") -> None:
        self._problems.append(Problem(kind=kind, node=node.name, machine=machine, message=message))


def _those_that_are(claims: Iterable[Claim], node: Node) -> list[Claim]:
    """Leaves out machines that are gone, if there are others; of several that are gone, any will do."""
    found = [claim for claim in claims if _is_of_its_time(claim, node)]
    if len(found) < 2:
        return found
    found.sort(key=lambda claim: claim.name)
    return [claim for claim in found if claim.stage is not Stage.GONE] or found[:1]


def _is_of_its_time(claim: Claim, node: Node) -> bool:
    if claim.stage is Stage.GONE:
        return claim.gone_at is None or node.created_at <= claim.gone_at + _SKEW
    return node.ready or max(node.created_at, node.ready_since) + _SKEW >= claim.ordered_at


def keys_of_claim(claim: Claim, way: Way) -> set[str]:
    """The keys by which a machine is matched."""
    if way is Way.NAME:
        return {claim.name}
    if way is Way.MACHINE_ID:
        return {_uuid(claim.machine_id)} - {""}
    # The address of a machine that is gone may be another machine's by now, whose node must not be removed.
    return set() if claim.stage is Stage.GONE else {_address(address) for address in claim.addresses if address}


def keys_of_node(node: Node, way: Way) -> set[str]:
    """The keys of a node's machine."""
    if way is Way.NAME:
        return {node.name, node.labels.get(_HOSTNAME, node.name)}
    if way is Way.MACHINE_ID:
        return {_uuid(node.machine_id), _uuid(node.system_uuid)} - {""}
    return {_address(address) for address in node.addresses if address}


@lru_cache(maxsize=1 << 15)
def _address(text: str) -> str:
    """Normalizes an address: IPv6 addresses can be written in many forms."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text.lower().rstrip(".")


def _uuid(text: str) -> str:
    """Normalizes a UUID: /etc/machine-id has no dashes, and firmware differs in upper and lower case."""
    plain = text.lower().replace("-", "")
    return plain if len(plain) == 32 and plain.isalnum() else text.lower()


# -- several machines for one intent -----------------------------------------------------------------------------------
# Pure, and never a guess.
# All of them have the same name, and only one of their providerIDs is claimed. So they are compared with every node
# there is, before one of them is deleted.


_CLOCKS_DIFFER: Final = 3600.0  # seconds between the clocks of a cloud and of the cluster


@dataclass(frozen=True, slots=True)
class Rivals:
    """Which of such machines have nodes, by the ids that their cloud gave them."""

    joined: AbstractSet[str] = frozenset()  # have a node, ready or not
    ready: AbstractSet[str] = frozenset()  # have one that is ready
    unclear: AbstractSet[str] = frozenset()  # may have a node that may also be another one's

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
    """Matches by the providerID where both have one; else by the name, which only these machines ever had.

    Nodes may have other names, so the other configured ways count too: such a node of a duplicate is in no claim, and
    nothing else would show that it has joined.
    """
    exact = [claim for claim in claims if claim.provider_id and claim.provider_id == node.provider_id]
    if exact:
        return exact
    open_to = [claim for claim in claims if not (claim.provider_id and node.provider_id)]
    names = keys_of_node(node, Way.NAME)
    return [claim for claim in open_to if claim.name in names] or [c for c in open_to if _is_confirmed(c, node, ways)]


def _narrowed(claims: Sequence[Claim], node: Node, ways: Collection[Way]) -> Sequence[Claim]:
    """Of several that fit: not those that were made after the node came, and rather those that another way confirms.

    Where all of them seem to have come later, the clocks prove nothing.
    """
    if len(claims) < 2:
        return claims
    early = [claim for claim in claims if claim.ordered_at <= node.created_at + _CLOCKS_DIFFER] or claims
    return [claim for claim in early if _is_confirmed(claim, node, ways)] or early


def _is_confirmed(claim: Claim, node: Node, ways: Collection[Way]) -> bool:
    """Whether a node is a machine's by another way than its name."""
    return any(keys_of_node(node, way) & keys_of_claim(claim, way) for way in ways if way is not Way.NAME)
