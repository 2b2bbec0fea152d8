"""Amounts of memory, disk and the like, as options and settings have them."""

from __future__ import annotations

from collections.abc import Mapping

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.flaws import Flaws
from cloudgraft.sdk.quantity import Quantity

__all__ = ["amount", "check_amounts"]


def amount(value: str | int) -> Quantity:
    """A quantity as Kubernetes writes it; raises InvalidArgumentError for what is none, or less than none."""
    quantity = Quantity(value)
    if quantity < Quantity(0):
        raise InvalidArgumentError("must not be negative")
    return quantity


def check_amounts(flaws: Flaws, key: str, values: Mapping[str, str] | Mapping[str, str | int]) -> None:
    """Notes which values under a key are no amounts."""
    for name, value in values.items():
        with flaws.at((key, name)):
            amount(value)
