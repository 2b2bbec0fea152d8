"""What the configuration asks for, before the clouds were asked what their machine types hold and cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cloudgraft.engine.groups.prices import group_price
from cloudgraft.engine.groups.specs import CloudSettings, EngineSettings, GroupSpec, Money
from cloudgraft.engine.groups.templates import TemplateDeclaration, build_template, check_variants, given_labels
from cloudgraft.engine.nodes.node_facts import Facts
from cloudgraft.engine.nodes.tracking import Cluster, UserData
from cloudgraft.sdk.driver import Driver, Price, Shape
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.types import AutoscalingOptions
from cloudgraft.store.records import DeclaredGroup

__all__ = ["Catalog", "CloudDeclaration", "Composer", "DesiredState", "GroupDeclaration", "Joining", "complete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudDeclaration:
    """One cloud. ``fingerprint`` is anything that differs when the driver must be made anew."""

    settings: CloudSettings
    make: Callable[[], Driver] = field(compare=False)
    fingerprint: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeclaration:
    """One node group as it is written down."""

    id: str
    cloud: str
    min_size: int
    max_size: int
    machine: Mapping[str, object] = field(default_factory=dict)
    template: TemplateDeclaration = field(default_factory=TemplateDeclaration)
    zone: str = ""
    region: str = ""
    options: AutoscalingOptions | None = None
    price: Money | None = None

    @property
    def shape(self) -> str:
        """The machine type that its machines are of; empty when the settings name none."""
        return str(self.machine.get("shape", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredState:
    """All that is configured."""

    cluster: str
    clouds: Mapping[str, CloudDeclaration]
    groups: Sequence[GroupDeclaration]
    settings: EngineSettings = field(default_factory=EngineSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """The cluster that machines join, and what they are told for that; None where there is no such thing."""

    cluster: Cluster | None = None
    user_data: UserData | None = None


class Composer(Protocol):
    """Brings the configuration of the file and the groups that operators declared together."""

    turn: asyncio.Lock  # held from the reading of either until the engine has what came of it

    async def compose(self, declared: Sequence[DeclaredGroup]) -> tuple[DesiredState, Joining]:
        """All that is configured. Those that do not go together with the file are left out, visibly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """What a cloud offers; empty for a driver that cannot tell."""

    shapes: Mapping[str, Shape] = field(default_factory=dict)
    prices: Sequence[Price] = ()


def complete(
    declared: GroupDeclaration, catalog: Catalog, *, needs_price: bool, facts: Facts | None = None
) -> GroupSpec:
    """The group with its template and price; raises InvalidArgumentError that says what is missing.

    ``facts`` are what nodes were seen to have whose machines were made with the same settings.

    ``needs_price`` when a guard counts money: a group without a price would defeat it (law 10).
    """
    shape = catalog.shapes.get(declared.shape)
    if declared.shape and catalog.shapes and shape is None:
        offered = ", ".join(sorted(catalog.shapes))
        raise InvalidArgumentError(
            f"cloud {declared.cloud} has no machine type {declared.shape!r}; there is: {offered[:500]}"
        )
    if shape is not None:
        check_variants(declared.template, shape, zone=declared.zone, region=declared.region)
    price = group_price(declared.price, declared.shape, catalog.prices)
    if price is None and needs_price:
        raise InvalidArgumentError(
            "guards.maxSpendPerDay is set and this group has no price; set `price` for it, or remove the guard"
        )
    return GroupSpec(
        id=declared.id,
        cloud=declared.cloud,
        min_size=declared.min_size,
        max_size=declared.max_size,
        machine=declared.machine,
        template=build_template(declared.template, shape, zone=declared.zone, region=declared.region, facts=facts),
        labels=given_labels(declared.template, shape, zone=declared.zone, region=declared.region),
        taints=tuple(declared.template.taints),
        options=declared.options,
        price=price,
    )
