"""Whether a group's template is true of every machine that it may get, where those are not all alike. Pure.

The machines of a router come from several clouds. The autoscaler plans with one template, so that what is promised must
hold wherever a machine is made:

- Of every resource each of them has the same, or at least what the group's own template declares.
- Labels and taints that they have by themselves are the same, or are declared by the template and contradicted by none.
  Only labels that say where a node is and what it is called there may differ; then none of them is promised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cloudgraft.engine.groups.templates import (
    DEFAULT_PODS,
    INSTANCE_TYPE,
    REGION,
    ZONE,
    TemplateDeclaration,
    expected_labels,
)
from cloudgraft.sdk.driver import Shape
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity

__all__ = ["check_variants"]

_HOSTNAME: Final = "kubernetes.io/hostname"
_OLD_NAMES: Final = ("beta.kubernetes.io/", "failure-domain.beta.kubernetes.io/")
_MAY_DIFFER: Final = frozenset({INSTANCE_TYPE, ZONE, REGION, _HOSTNAME})


def check_variants(declared: TemplateDeclaration, shape: Shape, *, zone: str = "", region: str = "") -> None:
    """Raises InvalidArgumentError that names every difference, and whose it is."""
    if shape.problem:
        raise InvalidArgumentError(shape.problem)
    if not shape.variants:
        return
    places = {key: value for key, value in ((ZONE, zone), (REGION, region)) if value}
    problems = [
        *_capacity(declared.capacity, shape.variants),
        *_labels({**places, **declared.labels}, shape.variants),
        *_taints(declared, shape.variants),
    ]
    if problems:
        raise InvalidArgumentError(
            f"machines of shape {shape.name} are not alike, so no template is true of all: {'; '.join(problems)}"
        )


def _capacity(declared: Mapping[str, Quantity], variants: Sequence[Shape]) -> Iterator[str]:
    holds = {one.name: {"pods": DEFAULT_PODS, **one.capacity} for one in variants}
    for name in sorted({name for amounts in holds.values() for name in amounts} | set(declared)):
        known = {whose: amounts[name] for whose, amounts in holds.items() if name in amounts}
        if name in declared:
            less = [f"{whose} has {amount}" for whose, amount in known.items() if amount < declared[name]]
            if less:
                yield f"template.capacity.{name} is {declared[name]}, but {' and '.join(less)}"
        elif len(known) < len(holds) or len(set(known.values())) > 1:
            least = f"; set template.capacity.{name} to what each of them has, at most {min(known.values())}"
            yield f"{name}: {_told({whose: str(known.get(whose, 'not known')) for whose in holds})}{least}"


def _labels(declared: Mapping[str, str], variants: Sequence[Shape]) -> Iterator[str]:
    have = {one.name: expected_labels(one) for one in variants}
    for key in sorted({key for labels in have.values() for key in labels}):
        found = {whose: labels.get(key) for whose, labels in have.items()}
        if key in declared:
            others = {whose: value for whose, value in found.items() if value not in (None, declared[key])}
            if others:
                yield f"the template has the label {key}={declared[key]}, but {_told(others)}"
        elif len(set(found.values())) > 1 and not _may_differ(key):
            yield f"label {key}: {_told(found)}; declare it in template.labels, or choose machines that have the same"


def _may_differ(key: str) -> bool:
    return key in _MAY_DIFFER or key.startswith(_OLD_NAMES)


def _taints(declared: TemplateDeclaration, variants: Sequence[Shape]) -> Iterator[str]:
    promised = {(taint.key, taint.effect): taint.value for taint in declared.taints}
    have = {one.name: {(taint.key, taint.effect): taint.value for taint in one.taints} for one in variants}
    for key, effect in sorted({pair for taints in have.values() for pair in taints}):
        found = {whose: taints.get((key, effect)) for whose, taints in have.items()}
        if (key, effect) in promised:
            value = promised[key, effect]
            others = {whose: one for whose, one in found.items() if one not in (None, value)}
            if others:
                yield f"the template has the taint {key}={value}:{effect}, but {_told(others)}"
        elif len(set(found.values())) > 1:
            yield f"taint {key}:{effect}: {_told(found)}; declare it in template.taints, or choose other machines"


def _told(found: Mapping[str, str | None]) -> str:
    return ", ".join(
        f"{whose} has {'none' if value is None else value or 'it without a value'}" for whose, value in found.items()
    )
