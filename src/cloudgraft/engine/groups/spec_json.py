"""Converts a group's spec to and from JSON for the journal, to serve a group that is no longer in the file. Pure.

Reading ignores fields that a later version added, so that a downgrade is possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cloudgraft.engine.groups.specs import GroupSpec, Money
from cloudgraft.json_codec import (
    AMOUNTS,
    DURATION,
    FLAG,
    MONEY,
    NUMBER,
    OBJECT,
    TAINTS,
    TEXT,
    TEXTS,
    WHOLE,
    Codec,
    Form,
    Key,
    items,
    maybe,
    record,
)
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.types import AutoscalingOptions, NodeCondition, NodeTemplate

_CONDITION: Final = record(NodeCondition, type=TEXT, status=TEXT, reason=TEXT, message=TEXT)
_LIKE: Final[Mapping[str, Form[Any]]] = {
    "labels": TEXTS,
    "annotations": TEXTS,
    "taints": TAINTS,
    "capacity": AMOUNTS,
    "allocatable": AMOUNTS,
    "conditions": items(_CONDITION),
    "unschedulable": FLAG,
}
TEMPLATE: Final = record(NodeTemplate, _LIKE)  # without the names that only a real node has
_OPTIONS: Final[Mapping[str, Form[Any]]] = {
    "scale_down_utilization_threshold": NUMBER,
    "scale_down_gpu_utilization_threshold": NUMBER,
    "scale_down_unneeded_time": DURATION,
    "scale_down_unready_time": DURATION,
    "max_node_provision_time": DURATION,
    "zero_or_max_node_scaling": FLAG,
    "ignore_daemon_sets_utilization": FLAG,
    "max_node_startup_time": DURATION,
    "allow_non_atomic_scale_up_to_max": FLAG,
}
# Only the options that a group overrides.
OPTIONS: Final = {name: Key(form, may_miss=True, leaves_out=(None,)) for name, form in _OPTIONS.items()}


def _group(*, template: NodeTemplate, **rest: Any) -> GroupSpec:
    """Releases before template learning stored no labels and taints: nodes get those of the template."""
    return GroupSpec(template=template, **{"labels": template.labels, "taints": template.taints, **rest})


_GROUP: Final = Codec(
    record(
        _group,
        id=TEXT,
        cloud=TEXT,
        min_size=WHOLE,
        max_size=WHOLE,
        machine=OBJECT,
        template=record(NodeTemplate, _LIKE, name=TEXT, provider_id=TEXT),
        labels=Key(TEXTS, may_miss=True),
        taints=Key(TAINTS, may_miss=True),
        options=Key(maybe(record(AutoscalingOptions, OPTIONS)), may_miss=True),
        price=Key(maybe(record(Money, amount=MONEY, currency=TEXT)), may_miss=True),
    )
)


def group_to_json(spec: GroupSpec) -> dict[str, object]:
    """The spec as JSON values; raises InvalidArgumentError for machine settings that JSON cannot hold."""
    return {**_GROUP.write(spec), "machine": _plain(spec.machine, "machine")}


def group_from_json(data: Mapping[str, object]) -> GroupSpec:
    """Reads a spec; raises InvalidArgumentError that says what cannot be read."""
    return _GROUP.read(data, f"the journal's record of the group {str(data.get('id', ''))[:80]!r}")


def _plain(value: object, path: str) -> object:
    """The value with plain dicts and lists. Errors name the place and the type only: the value may be a secret."""
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
