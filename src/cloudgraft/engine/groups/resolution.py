"""Resolves the configured groups against the clouds' catalogs, and decides which are served."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from cloudgraft.engine.clock import Clock
from cloudgraft.engine.fleet import Fleet, Group
from cloudgraft.engine.groups.desired import Catalog, DesiredState, complete
from cloudgraft.engine.groups.prices import ReferencePrice, common_currency, reference_price
from cloudgraft.engine.groups.spec_json import group_from_json, group_to_json
from cloudgraft.engine.groups.specs import GroupSpec, Money
from cloudgraft.engine.new_records import happened
from cloudgraft.engine.nodes.learned_templates import LearnedTemplates, same_settings
from cloudgraft.engine.nodes.node_facts import Facts
from cloudgraft.engine.writer import Writer
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError
from cloudgraft.sdk.types import NodeGroup
from cloudgraft.store.records import Change, Contents, Event, GroupRecord, LearnedRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResolution:
    """The configured groups that are complete, and why others are not."""

    specs: Mapping[str, GroupSpec] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)  # id -> reason
    stale: Mapping[str, str] = field(default_factory=dict)  # served with their last valid spec; id -> reason


def resolve_groups(
    desired_state: DesiredState,
    catalogs: Mapping[str, Catalog],
    known: Mapping[str, GroupSpec],
    learned: Callable[[str, Mapping[str, object]], Facts | None],
) -> GroupResolution:
    """Completes every declared group; where that is not possible, its last valid spec is still served (law 6).

    ``learned`` returns the learned facts of a group's nodes whose machines were made with the given settings.
    """
    specs: dict[str, GroupSpec] = {}
    left_out: dict[str, str] = {}
    stale: dict[str, str] = {}
    for declared in desired_state.groups:
        catalog = catalogs.get(declared.cloud)
        try:
            caps = spend_caps(desired_state, declared.cloud)
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
            if catalog:  # else the catalog has yet to come, and the cloud's own state says why
                stale[declared.id] = reason
            specs[declared.id] = replace(old, min_size=declared.min_size, max_size=declared.max_size)
    common_currency({spec.id: spec.price for spec in specs.values() if spec.price})
    return GroupResolution(specs=specs, left_out=left_out, stale=stale)


def spend_caps(desired_state: DesiredState, cloud: str) -> dict[str, Money]:
    """The spending limits for this cloud. They work only in the currency of the prices."""
    declared = desired_state.clouds.get(cloud)
    limits = {"guards.maxSpendPerDay": desired_state.settings.guards}
    if declared:
        limits[f"that of cloud {cloud}"] = declared.settings.guards
    return {whose: limit.max_spend_per_day for whose, limit in limits.items() if limit.max_spend_per_day is not None}


def shown(group: Group) -> NodeGroup:
    """The group as published to the autoscaler. A draining group may only shrink."""
    spec = group.spec
    debug = f"cloud {spec.cloud}" if group.is_configured else f"cloud {spec.cloud}, draining"
    if not group.is_configured:
        return NodeGroup(id=spec.id, min_size=0, max_size=group.target, debug=debug)
    return NodeGroup(id=spec.id, min_size=spec.min_size, max_size=spec.max_size, debug=debug)


def as_group(spec: GroupSpec, *, is_configured: bool = True) -> Group:
    """A group without machines."""
    blank = NodeGroup(id=spec.id, min_size=spec.min_size, max_size=spec.max_size)
    group = Group(spec, blank, is_configured)
    group.shown = shown(group)
    return group


def record_of(spec: GroupSpec, *, configured: bool = True) -> GroupRecord:
    """The group's record for the journal."""
    return GroupRecord(id=spec.id, cloud=spec.cloud, spec=group_to_json(spec), configured=configured)


def from_records(records: Iterable[GroupRecord]) -> tuple[list[Group], dict[str, str]]:
    """The groups of the journal, and errors by id for those that cannot be read."""
    groups: list[Group] = []
    broken: dict[str, str] = {}
    for record in records:
        try:
            groups.append(as_group(group_from_json(record.spec), is_configured=record.configured))
        except CloudgraftError as error:
            broken[record.id] = f"its entry in the journal cannot be read: {error.message}"
    return groups, broken


# -- served groups -----------------------------------------------------------------------------------------------------
# Groups that are configured and complete, and groups that are draining. The published groups change only at a Refresh
# (R4).


log = logging.getLogger("cloudgraft.engine")


class Groups:
    """Reconciles the groups of journal, memory and configuration."""

    def __init__(self, fleet: Fleet, writer: Writer, clock: Clock, desired_state: DesiredState) -> None:
        self.resolution = GroupResolution()
        self.shown: tuple[NodeGroup, ...] = ()  # as last published
        self.reference_price: ReferencePrice | None = None
        self._fleet = fleet
        self._writer = writer
        self._clock = clock
        self._desired_state = desired_state
        self._applied: tuple[object, ...] = ()  # inputs of the last resolution
        self._placed: set[str] = set()  # clouds whose groups are resolved, as far as possible
        self._broken: dict[str, str] = {}  # groups whose record in the journal cannot be read
        self.shown_ids: frozenset[str] = frozenset()  # R18: the groups published to the autoscaler
        self._learned_templates = LearnedTemplates(fleet)

    def load(self, contents: Contents) -> None:
        """Loads the journal's groups into memory; after a reload, the published groups stay unchanged."""
        groups, self._broken = from_records(contents.groups)
        known = {group.spec.id: group for group in groups}
        for old in self._fleet.groups.values():
            if old.spec.id in known:
                known[old.spec.id] = Group(old.spec, old.shown, old.is_configured)
        self._fleet.load(contents, known.values())

    async def apply(self, desired_state: DesiredState, catalogs: Mapping[str, Catalog]) -> None:
        """Applies the configuration, with the catalogs of the clouds that have answered."""
        self._desired_state = desired_state
        learned_templates = dict(self._fleet.learned)
        made_of = (desired_state, *sorted(catalogs.items(), key=lambda item: item[0]), learned_templates)
        if made_of != self._applied:
            before, self.resolution = self.resolution, self._resolve(catalogs)
            _tell_of_misfits(before, self.resolution, catalogs)
            self.reference_price = reference_price(self.resolution.specs.values())
        await self._writer.write(self._change)
        for spec in self.resolution.specs.values():
            self._fleet.take_group(spec)
            self._fleet.groups[spec.id].learned = learned_templates.get(spec.id)
        for id_ in self._draining():
            self._fleet.groups[id_].is_configured = False
        self._fleet.tell_of_groups()  # templates and options change from this moment on
        self._applied, self._placed = made_of, set(catalogs)

    def is_placed(self, cloud: str) -> bool:
        """Whether the groups of this cloud are resolved, as far as possible."""
        return cloud in self._placed

    def _resolve(self, catalogs: Mapping[str, Catalog]) -> GroupResolution:
        known = {group.spec.id: group.spec for group in self._fleet.groups.values()}
        try:
            return resolve_groups(self._desired_state, catalogs, known, self._learned_templates.of)
        except InvalidArgumentError as error:  # different currencies: found once the clouds have reported prices
            log.error("the groups keep their former configuration", extra={"error": error.message})  # noqa: TRY400
            declared = {group.id for group in self._desired_state.groups}
            specs = {id_: spec for id_, spec in known.items() if id_ in declared}
            return GroupResolution(specs=specs, left_out=dict.fromkeys(declared - set(specs), error.message))

    def _draining(self) -> list[str]:
        declared = {group.id for group in self._desired_state.groups}
        return [id_ for id_ in self._fleet.groups if id_ not in declared]

    def _change(self) -> Change:
        now, groups = self._clock.now(), self._fleet.groups
        records: list[GroupRecord] = []
        events: list[Event] = []
        removed: list[str] = []
        learned: list[LearnedRecord] = []
        for spec in self.resolution.specs.values():
            old = groups.get(spec.id)
            if old is None or old.spec != spec or not old.is_configured:
                records.append(record_of(spec))
                events.append(_configured(old, spec, now))
            if old is not None and old.spec is not spec and not _is_same_promise(old.spec, spec):
                learned.append(LearnedRecord(group=spec.id, settings=spec.machine, since=now, facts={}))
        for id_ in self._draining():
            group = groups[id_]
            if not group.machines:
                removed.append(id_)
                events.append(happened("removed", now, "no machine is left in it", cloud=group.spec.cloud, group=id_))
            elif group.is_configured:
                records.append(record_of(group.spec, configured=False))
                message = f"it is no longer configured; {len(group.machines)} machines are left in it"
                events.append(happened("draining", now, message, cloud=group.spec.cloud, group=id_))
        return Change(groups=records, removed_groups=removed, learned=learned, events=events)

    def publish(self) -> None:
        """Publishes the groups that the autoscaler sees from now on.

        Omits a group of a cloud that was never listed (law 11), unless the autoscaler knows the group already: one that
        moved to a new cloud still has its machines in the old one (R12).
        """
        order = {group.id: place for place, group in enumerate(self._desired_state.groups)}
        groups = sorted(
            self._fleet.groups.values(), key=lambda group: (order.get(group.spec.id, len(order)), group.spec.id)
        )
        for group in groups:
            group.shown = self._shown(group)
        ready = self._fleet.adopted_clouds
        self.shown = tuple(g.shown for g in groups if g.spec.cloud in ready or g.spec.id in self.shown_ids)
        self.shown_ids = frozenset(group.id for group in self.shown)
        self._fleet.tell_of_groups()

    def _shown(self, group: Group) -> NodeGroup:
        """Under observeOnly the minimum is the target: the autoscaler drains a node before its deletion fails (R54)."""
        told, cloud = shown(group), self._desired_state.clouds.get(group.spec.cloud)
        if cloud is None or not cloud.settings.observe_only:
            return told
        least, most = max(told.min_size, group.target), max(told.max_size, group.target)
        return replace(told, min_size=least, max_size=most, debug=f"{told.debug}, observeOnly")

    def cloud_of(self, group: str) -> str:
        """The cloud of a configured group, also while it is not served; empty when it is not configured."""
        return next((declared.cloud for declared in self._desired_state.groups if declared.id == group), "")

    def left_out(self, why_not: Callable[[str], str]) -> dict[str, str]:
        """Groups that are not served, and why; ``why_not`` returns why a cloud was not listed."""
        found = {**self._broken, **self.resolution.left_out}
        for id_, spec in self.resolution.specs.items():
            if spec.cloud not in self._fleet.adopted_clouds:
                found[id_] = why_not(spec.cloud) or f"cloud {spec.cloud} has not been listed yet"
        return found


def _is_same_promise(old: GroupSpec, new: GroupSpec) -> bool:
    """Whether facts learned from nodes of the old spec apply to the new one."""
    one, other = (old.cloud, dict(old.labels), tuple(old.taints)), (new.cloud, dict(new.labels), tuple(new.taints))
    return one == other and same_settings(old.machine, new.machine)


def _configured(old: Group | None, spec: GroupSpec, now: float) -> Event:
    if old is None:
        message = f"a new group: min {spec.min_size}, max {spec.max_size}"
    elif not old.is_configured:
        message = "it is configured again"
    else:
        parts = [
            name
            for name in ("cloud", "min_size", "max_size", "machine", "template", "options", "price")
            if getattr(old.spec, name) != getattr(spec, name)
        ]
        message = f"changed: {', '.join(parts)}"
    return happened("configured", now, message, cloud=spec.cloud, group=spec.id)


def _tell_of_misfits(before: GroupResolution, after: GroupResolution, known: Container[str]) -> None:
    """Logs each group that cannot be served as configured, once per reason; ``known`` clouds have reported."""
    for group, reason in after.left_out.items():
        if before.left_out.get(group) != reason:
            log.warning("a group is not served: %s", reason, extra={"group": group})
    for group, reason in after.stale.items():
        if before.stale.get(group) != reason and after.specs[group].cloud in known:
            log.warning("a group is served with its former configuration: %s", reason, extra={"group": group})
