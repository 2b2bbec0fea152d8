"""Which groups there are: the configuration's, completed by what the clouds offer, and those that are draining.

Pure. What the autoscaler is told of groups changes only at a Refresh (R4), which is when this is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from cloudgraft.engine.fleet import Group
from cloudgraft.engine.groups.desired import Blueprint, Catalog, complete
from cloudgraft.engine.groups.prices import common_currency
from cloudgraft.engine.groups.spec_json import group_from_json, group_to_json
from cloudgraft.engine.groups.specs import GroupSpec, Money
from cloudgraft.engine.nodes.node_facts import Facts
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError
from cloudgraft.sdk.types import NodeGroup
from cloudgraft.store.records import GroupRecord

__all__ = ["Roster", "as_group", "from_records", "make_roster", "record_of", "shown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """The groups that are configured and complete, and why others are not."""

    specs: Mapping[str, GroupSpec] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)  # id -> reason
    stale: Mapping[str, str] = field(default_factory=dict)  # served as last known; id -> reason


def make_roster(
    blueprint: Blueprint,
    catalogs: Mapping[str, Catalog],
    known: Mapping[str, GroupSpec],
    learned: Callable[[str, Mapping[str, object]], Facts | None],
) -> Roster:
    """Completes every declared group; where that is not possible, its last valid spec still serves (law 6).

    ``learned`` tells what nodes of a group have whose machines were made with the settings given.
    """
    specs: dict[str, GroupSpec] = {}
    left_out: dict[str, str] = {}
    stale: dict[str, str] = {}
    for declared in blueprint.groups:
        catalog = catalogs.get(declared.cloud)
        try:
            caps = _caps(blueprint, declared.cloud)
            facts = learned(declared.id, declared.machine)
            spec = complete(declared, catalog or Catalog(), needs_price=bool(caps), facts=facts)
            common_currency({**caps, **({declared.id: spec.price} if spec.price else {})})
            specs[declared.id] = spec
        except InvalidArgumentError as error:
            reason = error.message if catalog else f"cloud {declared.cloud} has not told yet what it offers"
            old = known.get(declared.id)
            if old is None or old.cloud != declared.cloud:
                left_out[declared.id] = reason
                continue
            if catalog:  # else it is a matter of time, and the cloud's own state tells why
                stale[declared.id] = reason
            specs[declared.id] = replace(old, min_size=declared.min_size, max_size=declared.max_size)
    common_currency({spec.id: spec.price for spec in specs.values() if spec.price})
    return Roster(specs=specs, left_out=left_out, stale=stale)


def _caps(blueprint: Blueprint, cloud: str) -> dict[str, Money]:
    """The limits to what machines of this cloud may cost: they are of use only in the currency of the prices."""
    declared = blueprint.clouds.get(cloud)
    limits = {"guards.maxSpendPerDay": blueprint.settings.guards}
    if declared:
        limits[f"that of cloud {cloud}"] = declared.settings.guards
    return {whose: limit.max_spend_per_day for whose, limit in limits.items() if limit.max_spend_per_day is not None}


def shown(group: Group) -> NodeGroup:
    """What the autoscaler is told of a group. One that is draining may only shrink."""
    spec = group.spec
    debug = f"cloud {spec.cloud}" if group.is_configured else f"cloud {spec.cloud}, draining"
    if not group.is_configured:
        return NodeGroup(id=spec.id, min_size=0, max_size=group.target, debug=debug)
    return NodeGroup(id=spec.id, min_size=spec.min_size, max_size=spec.max_size, debug=debug)


def as_group(spec: GroupSpec, *, is_configured: bool = True) -> Group:
    """A group without machines yet."""
    blank = NodeGroup(id=spec.id, min_size=spec.min_size, max_size=spec.max_size)
    group = Group(spec, blank, is_configured)
    group.shown = shown(group)
    return group


def record_of(spec: GroupSpec, *, configured: bool = True) -> GroupRecord:
    """The group as it goes into the journal."""
    return GroupRecord(id=spec.id, cloud=spec.cloud, spec=group_to_json(spec), configured=configured)


def from_records(records: Iterable[GroupRecord]) -> tuple[list[Group], dict[str, str]]:
    """The groups of the journal, and what is wrong with those that cannot be read."""
    groups: list[Group] = []
    broken: dict[str, str] = {}
    for record in records:
        try:
            groups.append(as_group(group_from_json(record.spec), is_configured=record.configured))
        except CloudgraftError as error:
            broken[record.id] = f"its entry in the journal cannot be read: {error.message}"
    return groups, broken
