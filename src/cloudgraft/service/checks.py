"""Validates clients' requests and providers' answers. Pure.

A client's mistake is an InvalidArgumentError. An invalid answer of a provider is an InternalError that names it, since
the autoscaler would crash on it or silently act on it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from cloudgraft.sdk.errors import InternalError, InvalidArgumentError
from cloudgraft.sdk.types import AutoscalingOptions, Instance, InstanceState, NodeGroup, NodeRef, NodeTemplate

INT32_MAX = 2**31 - 1
_LONGEST_ID = 1024
_LONGEST_SHOWN = 80

# Resources that every template must have, or the scheduler will never place a pod on it (R68).
NEEDED_RESOURCES = ("cpu", "memory", "pods")


# -- input -------------------------------------------------------------------------------------------------------------


def check_group_id(group: str) -> None:
    """Rejects an id that no group can have."""
    if not group:
        raise InvalidArgumentError("the node group id is empty")
    if len(group) > _LONGEST_ID:
        raise InvalidArgumentError(f"the node group id is longer than {_LONGEST_ID} characters")
    if not group.isprintable():
        raise InvalidArgumentError(f"the node group id {shown(group)} has control characters in it")


def check_increase(delta: int) -> None:
    """R43: rejects a delta that is not positive."""
    if delta <= 0:
        raise InvalidArgumentError(f"delta must be positive to increase a group's size, not {delta}")


def check_decrease(delta: int) -> None:
    """R59: rejects a delta that is not negative."""
    if delta >= 0:
        raise InvalidArgumentError(f"delta must be negative to decrease a group's target, not {delta}")


def check_within_max(group: NodeGroup, target: int, delta: int) -> None:
    """R43: rejects an increase beyond the maximum before anything is done."""
    if target + delta > group.max_size:
        raise InvalidArgumentError(
            f"node group {shown(group.id)} has a target of {target} and a maximum of {group.max_size}: "
            f"it cannot grow by {delta}"
        )


def check_node(node: NodeRef) -> None:
    """Rejects a node that has neither a name nor a provider id: nothing could ever match it."""
    if not node.name and not node.provider_id:
        raise InvalidArgumentError("the node has neither a name nor a provider id")
    if len(node.name) > _LONGEST_ID or len(node.provider_id) > _LONGEST_ID:
        raise InvalidArgumentError(f"the node's name or provider id is longer than {_LONGEST_ID} characters")


def check_nodes(nodes: Sequence[NodeRef]) -> None:
    """Rejects an empty deletion, and nodes that cannot be identified."""
    if not nodes:
        raise InvalidArgumentError("no nodes to delete were given")
    for node in nodes:
        check_node(node)


def check_period(start: datetime, end: datetime) -> None:
    """Rejects a period that ends before it begins."""
    if end < start:
        raise InvalidArgumentError(f"the period ends ({end.isoformat()}) before it begins ({start.isoformat()})")


def shown(text: str) -> str:
    """The text for a message: quoted, escaped, truncated."""
    return repr(text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…")


# -- answers -----------------------------------------------------------------------------------------------------------


def check_groups_answer(groups: object) -> Sequence[NodeGroup]:
    """R10, R11: ids must be present and unique, and sizes in order."""
    usable, problems = usable_groups(groups)
    if problems:
        raise InternalError(problems[0])
    return usable


def usable_groups(groups: object) -> tuple[list[NodeGroup], list[str]]:
    """The valid groups of an answer, and the errors of the others: one invalid group must not affect the rest."""
    if not isinstance(groups, Sequence):
        raise _invalid("node_groups()", f"{type(groups).__name__} instead of a sequence of NodeGroup")
    usable: dict[str, NodeGroup] = {}
    problems = []
    for group in groups:
        try:
            check_group_answer(group, "node_groups()")
        except InternalError as error:
            problems.append(error.message)
            continue
        if group.id in usable:
            problems.append(f"the provider's node_groups() answered with two groups with the id {shown(group.id)}")
        usable.setdefault(group.id, group)
    return list(usable.values()), problems


def check_group_answer(group: object, method: str) -> None:
    """Validates one group."""
    if not isinstance(group, NodeGroup):
        raise _invalid(method, f"{type(group).__name__} instead of a NodeGroup")
    try:
        check_group_id(group.id)
    except (InvalidArgumentError, TypeError) as error:
        raise _invalid(method, f"a group of which {error}") from None
    sizes = (group.min_size, group.max_size)
    if not all(_is_int32(size) for size in sizes) or group.min_size > group.max_size:
        raise _invalid(
            method,
            f"group {shown(group.id)} with min {group.min_size!r} and max {group.max_size!r}, "
            f"where 0 <= min <= max <= {INT32_MAX} must hold",
        )


def check_target_answer(target: object, group: str) -> int:
    """A target must be a whole number that fits the wire."""
    if not _is_int32(target):
        raise _invalid("target_size()", f"{target!r} for group {shown(group)}, not a whole number from 0 on")
    assert isinstance(target, int)  # noqa: S101 - _is_int32 has checked it
    return target


def check_instances_answer(instances: object, group: str) -> Sequence[Instance]:
    """R31, R34: ids must be present and unique, and errors must have a code."""
    if not isinstance(instances, Sequence):
        raise _invalid("instances()", f"{type(instances).__name__} instead of a sequence of Instance")
    seen = set()
    for instance in instances:
        if not isinstance(instance, Instance) or not isinstance(instance.state, InstanceState):
            raise _invalid("instances()", f"{instance!r} in group {shown(group)}, not an Instance")
        if not instance.id:
            raise _invalid("instances()", f"an instance without an id in group {shown(group)}")
        if instance.id in seen:
            raise _invalid("instances()", f"instance {shown(instance.id)} twice in group {shown(group)}")
        if instance.error is not None and not instance.error.code:
            raise _invalid("instances()", f"instance {shown(instance.id)} with an error that has no code")
        seen.add(instance.id)
    return instances


def check_template_answer(template: object, group: str) -> NodeTemplate:
    """R65: an empty template would crash the autoscaler."""
    if not isinstance(template, NodeTemplate):
        raise _invalid("template()", f"{type(template).__name__} for group {shown(group)}, not a NodeTemplate")
    if not template.allocatable and not template.capacity:
        raise _invalid("template()", f"a template for group {shown(group)} that has no resources")
    return template


def missing_resources(template: NodeTemplate) -> list[str]:
    """R68: the resources that a template lacks for a pod to fit on it."""
    return [name for name in NEEDED_RESOURCES if name not in template.allocatable]


def check_options_answer(options: object, group: str) -> AutoscalingOptions | None:
    """Options must be AutoscalingOptions without a negative duration."""
    if options is None:
        return None
    if not isinstance(options, AutoscalingOptions):
        raise _invalid("options()", f"{type(options).__name__} for group {shown(group)}, not AutoscalingOptions")
    durations = (
        options.scale_down_unneeded_time,
        options.scale_down_unready_time,
        options.max_node_provision_time,
        options.max_node_startup_time,
    )
    if any(duration is not None and duration < timedelta(0) for duration in durations):
        raise _invalid("options()", f"a negative duration for group {shown(group)}")
    return options


def check_price_answer(price: object, method: str) -> float:
    """A price must be a number from zero on."""
    if isinstance(price, bool) or not isinstance(price, int | float) or not math.isfinite(price) or price < 0:
        raise _invalid(method, f"{price!r} instead of a price from 0 on")
    return float(price)


def check_gpu_label_answer(label: object) -> str:
    """A label must be a string."""
    if not isinstance(label, str):
        raise _invalid("gpu_label()", f"{type(label).__name__} instead of a string")
    return label


def check_gpu_types_answer(types: object) -> Collection[str]:
    """The types must be strings."""
    if isinstance(types, str) or not isinstance(types, Collection) or not all(isinstance(t, str) for t in types):
        raise _invalid("gpu_types()", "something other than a collection of strings")
    return types


def _is_int32(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT32_MAX


def _invalid(method: str, what: str) -> InternalError:
    return InternalError(f"the provider's {method} answered with {what}")
