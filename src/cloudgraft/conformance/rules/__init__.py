"""The contract as a table: every rule and trace, with its level, its reason and its remedy."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from cloudgraft.conformance.rules import (
    deletion,
    groups,
    lifecycle,
    nodes,
    options,
    pricing,
    sizes,
    template,
    traces,
    transport,
)
from cloudgraft.conformance.rules.rule import Level, Rule

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["RULES", "Level", "Rule"]

_THEMES = (transport, groups, nodes, sizes, deletion, template, options, pricing, lifecycle, traces)


def _in_order(rule: Rule) -> tuple[bool, int]:
    """R1, R2, ... R90, then T1, T2, ..."""
    return rule.id.startswith("T"), int(rule.id[1:])


RULES: Mapping[str, Rule] = MappingProxyType(
    {rule.id: rule for rule in sorted((rule for theme in _THEMES for rule in theme.RULES), key=_in_order)}
)
"""All rules by id, in order."""
