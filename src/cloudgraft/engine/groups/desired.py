"""Models the desired configuration, before clouds were asked for their machine types and prices."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudDeclaration:
    """One cloud. ``fingerprint`` changes when the driver must be recreated."""

    settings: CloudSettings
    make: Callable[[], Driver] = field(compare=False)
    fingerprint: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeclaration:
    """One node group as configured."""

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
        """The machine type of its machines; empty when the settings name none."""
        return str(self.machine.get("shape", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredState:
    """The whole configuration."""

    cluster: str
    clouds: Mapping[str, CloudDeclaration]
    groups: Sequence[GroupDeclaration]
    settings: EngineSettings = field(default_factory=EngineSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """The cluster that machines join, and their user data; None for either that is not configured."""

    cluster: Cluster | None = None
    user_data: UserData | None = None


class Composer(Protocol):
    """Combines the configuration file with the groups that operators declared."""

    turn: asyncio.Lock  # held from reading either until the engine has the result

    async def compose(self, declared: Sequence[DeclaredGroup]) -> tuple[DesiredState, Joining]:
        """Combines both. Omits declared groups that conflict with the file, and reports them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """A cloud's machine types and prices; empty for a driver that reports none."""

    shapes: Mapping[str, Shape] = field(default_factory=dict)
    prices: Sequence[Price] = ()


def complete(
    declared: GroupDeclaration, catalog: Catalog, *, needs_price: bool, facts: Facts | None = None
) -> GroupSpec:
    """Completes the group with its template and price; raises InvalidArgumentError that says what is missing.

    ``facts`` were learned from nodes whose machines were made with the same settings.

    ``needs_price`` is set when a guard counts money: a group without a price would defeat it (law 10).
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
