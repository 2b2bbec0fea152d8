"""Finds differences between real nodes and their group's template. Pure.

Additional labels of real nodes do not count: they mislead no pod. Additional taints do: a pod that seemed to fit cannot
run on the node. Resources count when a node has noticeably less than the template.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from cloudgraft.engine.nodes.node_facts import SETTLED, Specimen, is_own_label, is_passing
from cloudgraft.kube.objects import Node
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import NodeTemplate, Taint

_LESS: Final = Fraction(98, 100)
_LESS_MEMORY: Final = Fraction(94, 100)  # firmware and kernel keep a few per cent of a machine's nominal memory
_NOTHING: Final = Quantity(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One difference, on how many nodes, and what to do about it."""

    subject: str  # such as "label pool": identifies the difference over time
    what: str
    todo: str


def find_drift(template: NodeTemplate, specimens: Sequence[Specimen], now: float) -> list[Drift]:
    """All differences between a group's template and its settled nodes."""
    nodes = [one.node for one in specimens if now - one.node.created_at >= SETTLED]
    if not nodes:
        return []
    return [*_labels(template, nodes), *_taints(template, nodes), *_resources(template, nodes)]


def _labels(template: NodeTemplate, nodes: Sequence[Node]) -> Iterator[Drift]:
    for key, value in template.labels.items():
        wrong = [node for node in nodes if node.labels.get(key) != value] if not is_own_label(key) else []
        if wrong:
            real = wrong[0].labels.get(key)
            has = f"have {key}={real}" if real is not None else "have no such label"
            yield Drift(
                subject=f"label {key}",
                what=f"the label {key}={value} is promised, and {_some(wrong, nodes)} {has}",
                todo="let `kubernetes.labelNodes` or the machines' user data set it, or correct template.labels",
            )


def _taints(template: NodeTemplate, nodes: Sequence[Node]) -> Iterator[Drift]:
    for taint in template.taints:
        wrong = [node for node in nodes if taint not in node.taints]
        if wrong:
            yield Drift(
                subject=f"taint {taint.key}:{taint.effect}",
                what=f"the taint {_text(taint)} is promised, and {_some(wrong, nodes)} do not have it",
                todo="let the machines' user data register nodes with it, or correct template.taints",
            )
    promised = {(taint.key, taint.effect) for taint in template.taints}
    real = {taint: None for node in nodes for taint in node.taints if not is_passing(taint)}
    for taint in real:
        # A taint on one of several nodes may be set by hand; one on all of them will be on a new node too.
        if (taint.key, taint.effect) not in promised and all(taint in node.taints for node in nodes):
            yield Drift(
                subject=f"taint {taint.key}:{taint.effect}",
                what=f"all {len(nodes)} nodes looked at have the taint {_text(taint)}, which is not promised",
                todo="add it to template.taints, if new nodes have it too: pods that do not tolerate it wait in vain",
            )


def _resources(template: NodeTemplate, nodes: Sequence[Node]) -> Iterator[Drift]:
    for name, promised in template.allocatable.items():
        least_good = promised.value * (_LESS_MEMORY if name == "memory" else _LESS)
        wrong = [node for node in nodes if node.allocatable.get(name, _NOTHING).value < least_good]
        if wrong:
            least = min(node.allocatable.get(name, _NOTHING) for node in wrong)
            yield Drift(
                subject=f"allocatable {name}",
                what=f"{promised} of {name} is promised, and {_some(wrong, nodes)} have as little as {least}",
                todo=f"lower template.allocatable.{name}, or raise template.reserved.{name}",
            )


def _some(wrong: Sequence[Node], nodes: Sequence[Node]) -> str:
    return f"{len(wrong)} of {len(nodes)} nodes (such as {wrong[0].name})"


def _text(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
