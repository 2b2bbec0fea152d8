"""The setting of a run, drawn from its seed: clouds, groups, demand, and what is configured."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal

from cloudgraft.engine.groups.desired import GroupDeclaration
from cloudgraft.engine.groups.specs import CloudSettings, EngineSettings, GuardLimits, Money, RepairSettings
from cloudgraft.engine.groups.templates import TemplateDeclaration
from cloudgraft.sdk.driver import Idempotency, Ownership
from cloudgraft.sdk.quantity import Quantity
from tests.simulation.cloud import CloudTraits

_TEMPLATE = TemplateDeclaration(capacity={"cpu": Quantity("4"), "memory": Quantity("8Gi")})


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What holds for a whole run unless its plan changes it."""

    seed: int
    clouds: Sequence[CloudTraits]
    groups: Sequence[GroupDeclaration]
    engine: EngineSettings
    observe_every: float
    guards: GuardLimits
    autoscalers: int
    period: float
    demand: dict[str, tuple[int, ...]] = field(default_factory=dict)  # by hour

    def wanted(self, group: str, hour: int) -> int:
        """How many nodes of a group are needed in an hour of the run."""
        curve = self.demand[group]
        return curve[hour % len(curve)]

    def cloud_settings(self, name: str) -> CloudSettings:
        """How a cloud is treated."""
        return CloudSettings(
            name=name,
            observe_every=timedelta(seconds=self.observe_every),
            create_timeout=timedelta(seconds=60),
            list_timeout=timedelta(seconds=60),
            delete_timeout=timedelta(seconds=60),
        )


def draw_setting(seed: int) -> Setting:
    """The same setting for the same seed."""
    dice = random.Random(f"setting {seed}")
    clouds = [_cloud(name, dice) for name in ("east", "west")]
    sizes = {"a": dice.randint(6, 10), "b": dice.randint(3, 6), "c": dice.randint(2, 5)}
    minima = {"a": dice.choice([0, 2, 4]), "b": dice.choice([0, 1]), "c": dice.choice([0, 1, 2])}
    groups = [_group(id_, "west" if id_ == "c" else "east", minima[id_], sizes[id_]) for id_ in sizes]
    guards = GuardLimits()
    if dice.random() < 0.4:
        guards = GuardLimits(
            max_machines=dice.choice([None, 12, 16]),
            max_creates_per_hour=dice.choice([None, 10, 20]),
            max_spend_per_day=dice.choice([None, Money(amount=Decimal(12), currency="EUR")]),
        )
    rare = random.Random(f"deletions {seed}")
    if rare.random() < 0.15:
        guards = replace(guards, max_deletes_per_hour=rare.choice([1, 3, 6]))
    return Setting(
        seed=seed,
        clouds=clouds,
        groups=groups,
        engine=EngineSettings(guards=guards, repair=RepairSettings()),
        observe_every=dice.choice([60.0, 90.0]),
        guards=guards,
        autoscalers=1,
        period=dice.choice([30.0, 45.0, 60.0]),
        demand={id_: _curve(minima[id_], sizes[id_], dice) for id_ in sizes},
    )


def _cloud(name: str, dice: random.Random) -> CloudTraits:
    return CloudTraits(
        name=name,
        idempotency=dice.choice(list(Idempotency)),
        ownership=dice.choice([Ownership.TAGS, Ownership.TAGS, Ownership.NAME]),
        list_delay=dice.choice([0.0, 0.0, 15.0, 45.0]),
        reuses_ids=dice.random() < 0.4,
        tells_provider_id=dice.random() < 0.3,
    )


def _group(id_: str, cloud: str, smallest: int, largest: int) -> GroupDeclaration:
    return GroupDeclaration(
        id=id_,
        cloud=cloud,
        min_size=smallest,
        max_size=largest,
        template=_TEMPLATE,
        price=Money(amount=Decimal("0.10"), currency="EUR"),
    )


def _curve(smallest: int, largest: int, dice: random.Random) -> tuple[int, ...]:
    level = dice.randint(smallest, largest)
    curve = []
    for _ in range(24):
        if dice.random() < 0.4:
            level = min(largest, max(smallest, level + dice.choice([-3, -2, -1, 1, 2, 3])))
        curve.append(level)
    return tuple(curve)
