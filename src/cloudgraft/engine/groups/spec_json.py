"""A group's spec as JSON, for the journal: the group can then be served when it is no longer in the file. Pure.

Amounts and money are text, because a JSON number would not stay exact; durations are written as Go writes them. What a
later version adds is passed over when it is read, so that going back a version is possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from cloudgraft.engine.groups.json_at import At
from cloudgraft.engine.groups.specs import GroupSpec, Money
from cloudgraft.sdk.duration import format_duration, parse_duration
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.types import AutoscalingOptions, NodeCondition, NodeTemplate, Taint

__all__ = ["group_from_json", "group_to_json", "taints_to_json", "template_from_json", "template_to_json"]

_OPTIONS: Mapping[str, type] = {
    "scale_down_utilization_threshold": float,
    "scale_down_gpu_utilization_threshold": float,
    "scale_down_unneeded_time": timedelta,
    "scale_down_unready_time": timedelta,
    "max_node_provision_time": timedelta,
    "zero_or_max_node_scaling": bool,
    "ignore_daemon_sets_utilization": bool,
    "max_node_startup_time": timedelta,
    "allow_non_atomic_scale_up_to_max": bool,
}


# -- writing -----------------------------------------------------------------------------------------------------------


def group_to_json(spec: GroupSpec) -> dict[str, object]:
    """The spec as values that JSON has; machine settings that JSON cannot hold are an InvalidArgumentError."""
    return {
        "id": spec.id,
        "cloud": spec.cloud,
        "min_size": spec.min_size,
        "max_size": spec.max_size,
        "machine": _plain(spec.machine, "machine"),
        "template": {
            **template_to_json(spec.template),
            "name": spec.template.name,
            "provider_id": spec.template.provider_id,
        },
        "labels": dict(spec.labels),
        "taints": taints_to_json(spec.taints),
        "options": None if spec.options is None else _options_to_json(spec.options),
        "price": None if spec.price is None else {"amount": str(spec.price.amount), "currency": spec.price.currency},
    }


def _plain(value: object, path: str) -> object:
    """The same, in nothing but dicts and lists. The message names a place and a type: a value may be a secret."""
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and abs(value) < float("inf")):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    raise InvalidArgumentError(
        f"{path} is a {type(value).__name__} that JSON does not have: "
        "use text, numbers, true/false, lists and mappings with keys of text"
    )


def template_to_json(template: NodeTemplate) -> dict[str, object]:
    """A template, as far as it tells what a node is like: not the names that only a real one has."""
    return {
        "labels": dict(template.labels),
        "annotations": dict(template.annotations),
        "taints": taints_to_json(template.taints),
        "capacity": {name: str(amount) for name, amount in template.capacity.items()},
        "allocatable": {name: str(amount) for name, amount in template.allocatable.items()},
        "conditions": [
            {"type": c.type, "status": c.status, "reason": c.reason, "message": c.message} for c in template.conditions
        ],
        "unschedulable": template.unschedulable,
    }


def taints_to_json(taints: Iterable[Taint]) -> list[dict[str, str]]:
    """Taints as JSON has them."""
    return [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in taints]


def _options_to_json(options: AutoscalingOptions) -> dict[str, object]:
    values = {name: getattr(options, name) for name in _OPTIONS}
    return {
        name: format_duration(value) if isinstance(value, timedelta) else value
        for name, value in values.items()
        if value is not None
    }


# -- reading -----------------------------------------------------------------------------------------------------------


def group_from_json(data: Mapping[str, object]) -> GroupSpec:
    """The spec that was written; InvalidArgumentError says what of it cannot be read."""
    at = At(data, f"the journal's record of the group {str(data.get('id', ''))[:80]!r}")
    options, price = at.optional("options"), at.optional("price")
    names = at.inner("template")
    template = replace(template_from_json(names), name=names.text("name"), provider_id=names.text("provider_id"))
    return GroupSpec(
        id=at.text("id"),
        cloud=at.text("cloud"),
        min_size=at.value("min_size", int),
        max_size=at.value("max_size", int),
        machine=at.value("machine", dict),
        template=template,
        # A journal of a release that learned nothing: what was promised was what nodes were to be given.
        labels=at.texts("labels") if "labels" in at.keys else template.labels,
        taints=at.taints("taints") if "taints" in at.keys else template.taints,
        options=AutoscalingOptions(**_options_from_json(options)) if options else None,
        price=Money(amount=price.parsed("amount", _money), currency=price.text("currency")) if price else None,
    )


def template_from_json(at: At) -> NodeTemplate:
    """The template that was written."""
    return NodeTemplate(
        labels=at.texts("labels"),
        annotations=at.texts("annotations"),
        taints=at.taints("taints"),
        capacity=at.amounts("capacity"),
        allocatable=at.amounts("allocatable"),
        conditions=tuple(
            NodeCondition(
                type=condition.text("type"),
                status=condition.text("status"),
                reason=condition.text("reason"),
                message=condition.text("message"),
            )
            for condition in at.each("conditions")
        ),
        unschedulable=at.value("unschedulable", bool),
    )


def _options_from_json(at: At) -> dict[str, Any]:
    return {
        name: at.parsed(name, parse_duration) if kind is timedelta else at.value(name, kind)
        for name, kind in _OPTIONS.items()
        if name in at.keys
    }


def _money(text: str) -> Decimal:
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text[:80]!r} is not an amount of money") from None
    if not amount.is_finite():
        raise ValueError(f"{text[:80]!r} is not an amount of money")
    return amount
