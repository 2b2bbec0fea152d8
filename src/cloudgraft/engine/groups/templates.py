"""Builds a group's node template: the declaration overrides facts of real nodes, which override the shape. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Final

from cloudgraft.engine.nodes.node_facts import Facts
from cloudgraft.sdk.driver import Shape
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.quantity import InvalidQuantityError, Quantity
from cloudgraft.sdk.types import NodeTemplate, Taint

ARCH = "kubernetes.io/arch"
OS = "kubernetes.io/os"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"

DEFAULT_PODS = Quantity(110)  # the kubelet's default
_NOTHING = Quantity(0)
_PERCENTAGE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,9})?)%")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

Resources = Mapping[str, Quantity]


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateDeclaration:
    """The configured template of a group. Every field has a default that suits most groups."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Taint] = ()
    capacity: Resources = field(default_factory=dict)  # overrides the shape's
    allocatable: Resources = field(default_factory=dict)  # overrides the computed value
    reserved: Resources = field(default_factory=dict)  # kube-reserved and system-reserved together
    # Hard eviction thresholds as a kubelet takes them: a quantity, or a percentage of the capacity.
    eviction_memory: str = "100Mi"
    eviction_nodefs: str = "10%"


def build_template(
    declaration: TemplateDeclaration,
    shape: Shape | None = None,
    *,
    zone: str = "",
    region: str = "",
    facts: Facts | None = None,
) -> NodeTemplate:
    """Builds the template; raises InvalidArgumentError that names the key to set when no pod could ever fit (R68).

    The template has no label that only distinguishes groups, because the autoscaler balances equal groups (R72). It has
    neither name nor providerID: the autoscaler sets its own (R70).
    """
    real = facts or Facts()
    expected = {"pods": DEFAULT_PODS, **(shape.capacity if shape else {})} if not real.is_settled else {}
    capacity = {**expected, **real.capacity, **declaration.capacity}
    computed = _allocatable(capacity, declaration)
    allocatable = {**computed, **_real_allocatable(real, declaration), **declaration.allocatable}
    _check(capacity, allocatable)
    return NodeTemplate(
        labels=_labels(declaration, shape, zone, region, real),
        annotations=dict(declaration.annotations),
        taints=_taints(declaration, shape, real),
        capacity=capacity,
        allocatable=allocatable,
    )


def given_labels(
    declaration: TemplateDeclaration, shape: Shape | None = None, *, zone: str = "", region: str = ""
) -> dict[str, str]:
    """R69: labels to set on nodes, whether or not one has joined yet."""
    return _labels(declaration, shape, zone, region, Facts())


def _labels(
    declaration: TemplateDeclaration, shape: Shape | None, zone: str, region: str, real: Facts
) -> dict[str, str]:
    """R69: labels of the kubelet and the cloud, then of the shape, then of real nodes, then of the group."""
    labels = {} if real.is_settled else expected_labels(shape)
    labels.update(real.labels)
    labels.update({key: value for key, value in ((ZONE, zone), (REGION, region)) if value})
    return {**labels, **declaration.labels}


def expected_labels(shape: Shape | None) -> dict[str, str]:
    """R69: labels that the kubelet and the cloud set on a node of this shape by themselves."""
    labels = {ARCH: "amd64", OS: "linux"}
    # A node's label cannot hold any other name, nor one that its cloud does not use.
    if shape and not shape.variants and _LABEL_VALUE.fullmatch(shape.name):
        labels[INSTANCE_TYPE] = shape.name
    labels.update(shape.labels if shape else {})
    return labels


def _taints(declaration: TemplateDeclaration, shape: Shape | None, real: Facts) -> tuple[Taint, ...]:
    """A node has one taint for each key and effect: the declared one, else that of real nodes, else the shape's."""
    expected = () if shape is None or real.is_settled else shape.taints
    found: dict[tuple[str, str], Taint] = {}
    for taint in (*declaration.taints, *real.taints, *expected):
        found.setdefault((taint.key, taint.effect), taint)
    return tuple(found.values())


def _real_allocatable(real: Facts, declaration: TemplateDeclaration) -> dict[str, Quantity]:
    """The allocatable resources of real nodes, unless the declaration requires computing them."""
    said = {*declaration.capacity, *declaration.reserved}
    return {name: amount for name, amount in real.allocatable.items() if name not in said}


def _allocatable(capacity: Resources, declaration: TemplateDeclaration) -> dict[str, Quantity]:
    """Computes allocatable as the kubelet does."""
    kept_free = {"memory": declaration.eviction_memory, "ephemeral-storage": declaration.eviction_nodefs}
    allocatable = {}
    for name, amount in capacity.items():
        eviction = _threshold(kept_free[name], amount) if name in kept_free else _NOTHING
        allocatable[name] = _less(amount, declaration.reserved.get(name, _NOTHING) + eviction)
    for name, amount in capacity.items():
        if name.startswith("hugepages-") and "memory" in allocatable:  # the node reserves them from memory at boot
            allocatable["memory"] = _less(allocatable["memory"], amount)
    return allocatable


def _less(amount: Quantity, other: Quantity) -> Quantity:
    return max(amount - other, _NOTHING)


def _threshold(text: str, capacity: Quantity) -> Quantity:
    share = _PERCENTAGE.fullmatch(text)
    if share is None:
        try:
            return Quantity(text)
        except InvalidQuantityError:
            raise InvalidArgumentError(
                f"the eviction threshold {text!r} is neither a quantity nor a percentage, such as 100Mi or 10%"
            ) from None
    return Quantity(int(capacity.value * Fraction(Decimal(share[1])) / 100))


def _check(capacity: Resources, allocatable: Resources) -> None:
    """R68: without cpu, memory and pods nothing ever fits, and the autoscaler divides by the first two."""
    problems = [
        f"it has no {name}: set template.capacity.{name}, or machine.shape to a machine type whose {name} is known"
        for name in ("cpu", "memory", "pods")
        if capacity.get(name, _NOTHING) <= _NOTHING
    ]
    problems += [
        f"nothing of its {name} ({capacity[name]}) is left for pods: lower template.reserved.{name}"
        + (" or template.evictionHard" if name == "memory" else "")
        for name in ("cpu", "memory", "pods")
        if capacity.get(name, _NOTHING) > _NOTHING >= allocatable[name]
    ]
    problems += [
        f"template.allocatable.{name} is {amount}, more than the capacity of {capacity.get(name, _NOTHING)}"
        for name, amount in allocatable.items()
        if amount > capacity.get(name, _NOTHING)
    ]
    if problems:
        raise InvalidArgumentError(f"no pod could run on this group's nodes: {'; '.join(problems)}")


# -- variants ----------------------------------------------------------------------------------------------------------
# Checks that a group's template is true of every machine that it may get, where those differ.
#
# The machines of a router come from several clouds. The autoscaler plans with one template, so the template must hold
# wherever a machine is made:
#
# - Every machine has the same amount of each resource, or at least the amount that the group's template declares.
# - Labels and taints that machines have by themselves are the same, or the template declares them and none contradicts.
#   Only labels for a node's location and its name there may differ; then the template has none of them.


_HOSTNAME: Final = "kubernetes.io/hostname"
_OLD_NAMES: Final = ("beta.kubernetes.io/", "failure-domain.beta.kubernetes.io/")
_MAY_DIFFER: Final = frozenset({INSTANCE_TYPE, ZONE, REGION, _HOSTNAME})


def check_variants(declared: TemplateDeclaration, shape: Shape, *, zone: str = "", region: str = "") -> None:
    """Raises InvalidArgumentError that names every difference and the variant that has it."""
    if shape.problem:
        raise InvalidArgumentError(shape.problem)
    if not shape.variants:
        return
    places = {key: value for key, value in ((ZONE, zone), (REGION, region)) if value}
    problems = [
        *_capacity(declared.capacity, shape.variants),
        *_label_differences({**places, **declared.labels}, shape.variants),
        *_taint_differences(declared, shape.variants),
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


def _label_differences(declared: Mapping[str, str], variants: Sequence[Shape]) -> Iterator[str]:
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


def _taint_differences(declared: TemplateDeclaration, variants: Sequence[Shape]) -> Iterator[str]:
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
