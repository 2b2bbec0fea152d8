"""All checks, in the order in which they are made: what others build on comes first, what changes much comes last."""

from __future__ import annotations

from typing import Final

from cloudgraft.conformance.check import Check
from cloudgraft.conformance.checks import (
    decrease,
    delete,
    for_node,
    gpu_pricing,
    groups,
    increase,
    instances,
    lifecycle,
    options,
    template,
    traces,
    transport,
    with_help,
)

__all__ = ["CHECKS"]

CHECKS: Final[tuple[Check, ...]] = (
    *transport.CHECKS_BEFORE_ALL,
    *transport.CHECKS,
    *groups.CHECKS,
    *for_node.CHECKS,
    *transport.CHECKS_AT_ONCE,
    *template.CHECKS,
    *options.CHECKS,
    *gpu_pricing.CHECKS,
    *increase.CHECKS,
    *instances.CHECKS,
    *for_node.CHECKS_WITH_MACHINES,
    *instances.CHECKS_OF_PLACEHOLDERS,
    *delete.CHECKS,
    *for_node.CHECKS_AFTER_DELETION,
    *decrease.CHECKS,
    *increase.CHECKS_AT_ONCE,
    *lifecycle.CHECKS,
    *traces.CHECKS,
    *delete.CHECKS_BY_NAME,
    *with_help.CHECKS,
    *lifecycle.CHECKS_AT_THE_END,
)
