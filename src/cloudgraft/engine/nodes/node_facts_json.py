"""What was learned of a group's nodes as JSON, for the journal. Pure. See :mod:`cloudgraft.engine.groups.spec_json`."""

from __future__ import annotations

from collections.abc import Mapping

from cloudgraft.engine.groups.json_at import At
from cloudgraft.engine.groups.spec_json import taints_to_json
from cloudgraft.engine.nodes.node_facts import Facts
from cloudgraft.store.records import LearnedRecord

__all__ = ["facts_from_json", "facts_to_json"]


def facts_to_json(facts: Facts) -> dict[str, object]:
    """The facts as values that JSON has."""
    return {
        "labels": dict(facts.labels),
        "taints": taints_to_json(facts.taints),
        "capacity": {name: str(amount) for name, amount in facts.capacity.items()},
        "allocatable": {name: str(amount) for name, amount in facts.allocatable.items()},
        "varying": dict.fromkeys(sorted(facts.varying), ""),
        "settled": facts.is_settled,
    }


def facts_from_json(record: LearnedRecord) -> Facts | None:
    """The facts that were written, None for none yet; InvalidArgumentError says what of them cannot be read."""
    data: Mapping[str, object] = record.facts
    if not data:
        return None
    at = At(data, f"what the journal has learned of the group {record.group[:80]!r}")
    return Facts(
        labels=at.texts("labels"),
        taints=at.taints("taints"),
        capacity=at.amounts("capacity"),
        allocatable=at.amounts("allocatable"),
        varying=frozenset(at.texts("varying")),
        is_settled=at.value("settled", bool),
    )
