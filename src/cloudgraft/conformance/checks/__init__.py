"""Lists all checks in the order of a run: what others build on comes first, what changes much comes last."""

from __future__ import annotations

from typing import Final

from cloudgraft.conformance.check import Check
from cloudgraft.conformance.checks import (
    delete,
    gpu_pricing,
    groups,
    nodes,
    options,
    sizes,
    traces,
    transport,
    with_help,
)
from cloudgraft.conformance.stage import Stage

__all__ = ["CHECKS"]

CHECKS: Final[tuple[Check[Stage], ...]] = (
    *transport.CHECKS_BEFORE_ALL,
    *transport.CHECKS,
    *groups.CHECKS,
    *nodes.FOR_NODE_CHECKS,
    *transport.CHECKS_AT_ONCE,
    *groups.TEMPLATE_CHECKS,
    *options.CHECKS,
    *gpu_pricing.CHECKS,
    *sizes.INCREASE_CHECKS,
    *nodes.INSTANCES_CHECKS,
    *nodes.CHECKS_WITH_MACHINES,
    *nodes.CHECKS_OF_PLACEHOLDERS,
    *delete.CHECKS,
    *nodes.CHECKS_AFTER_DELETION,
    *sizes.DECREASE_CHECKS,
    *sizes.CHECKS_AT_ONCE,
    *transport.LIFECYCLE_CHECKS,
    *traces.CHECKS,
    *delete.CHECKS_BY_NAME,
    *with_help.CHECKS,
    *transport.CHECKS_AT_THE_END,
)
