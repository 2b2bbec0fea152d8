"""Defines the options of the driver ``router`` and the ``machine:`` section of its groups."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

from cloudgraft.sdk.flaws import Flaws
from cloudgraft.sdk.types import Taint


class Order(enum.Enum):
    """Which backend is asked first."""

    LISTED = "listed"  # as they stand in the file
    CHEAPEST = "cheapest"  # by price; those without one last, and equal ones as they stand in the file


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendPrice:
    """What an hour of a machine costs, where its cloud does not tell it."""

    hourly: Decimal  # such as "0.05"; what one owns may cost 0
    currency: str  # such as EUR; one for all prices of a shape

    def __post_init__(self) -> None:
        """Refuses what is no price. A machine that one owns already may cost nothing."""
        flaws = Flaws()
        is_price = self.hourly.is_finite() and self.hourly >= 0
        flaws.expect(is_price, "hourly", "must be a number, and not negative")
        flaws.expect(self.currency, "currency", "must not be empty; write it like EUR")
        flaws.raise_any()


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """One cloud in which a machine of a shape may be made, and how it is made there."""

    cloud: str  # one of the `clouds` of this file, not another router
    machine: Mapping[str, Any] = field(default_factory=dict, repr=False)  # as a group of that cloud would have it
    price: BackendPrice | None = None  # instead of what the cloud tells


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterOptions:
    """Several clouds as one."""

    shapes: Mapping[str, Sequence[BackendOptions]]  # by a name of your choice: where such a machine may be made
    # Which of them is asked first: `listed` as they stand there, `cheapest` by price, those without one last
    order: Order = Order.LISTED
    cool_down: timedelta = timedelta(minutes=1)  # for how long a cloud that refused is asked after the others
    list_timeout: timedelta = timedelta(
        seconds=30
    )  # a cloud that does not list within this is away; less than `engine.listTimeout`

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        flaws = Flaws()
        flaws.expect(self.shapes, "shapes", "must not be empty: name at least one, with the clouds that can make it")
        flaws.expect_not_negative(coolDown=self.cool_down)
        flaws.expect_positive(listTimeout=self.list_timeout)
        for name, backends in self.shapes.items():
            flaws.expect(backends, ("shapes", name), "names no cloud in which it can be made")
            for cloud, count in Counter(backend.cloud for backend in backends).items():
                flaws.expect(count == 1, ("shapes", name), f"names the cloud {cloud} twice; each is asked once")
        flaws.raise_any()

    @property
    def clouds(self) -> tuple[str, ...]:
        """All clouds that it uses, each once, in the order in which they are first named."""
        return tuple(dict.fromkeys(backend.cloud for backends in self.shapes.values() for backend in backends))


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """The ``machine:`` section of a group: only which of the router's shapes. The rest is said there, for each cloud.

    Labels and taints are filled in from the group's template, for clouds that put them on their nodes themselves.
    """

    shape: str  # one of the router's `shapes`
    labels: Mapping[str, str] = field(default_factory=dict)  # filled in from the group's template: leave it out
    taints: Sequence[Taint] = ()  # filled in from the group's template: leave it out
