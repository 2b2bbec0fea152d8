"""Runs all checks, one module per subject. Every check is pure: inputs in, findings out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from cloudgraft.doctor.checks import autoscaler, flags, nodes, server, tls
from cloudgraft.doctor.findings import Finding
from cloudgraft.doctor.inputs import Inputs

__all__ = ["CHECKS", "examine"]


CHECKS: Final[tuple[Callable[[Inputs], Iterable[Finding]], ...]] = (
    server.check_sources,
    server.check,
    tls.check,
    autoscaler.check,
    flags.check,
    flags.check_expanders,
    flags.check_options,
    nodes.check,
    nodes.check_templates,
)


def examine(inputs: Inputs) -> list[Finding]:
    """Everything that is wrong, worst first. The same inputs always give the same findings."""
    found = {finding for check in CHECKS for finding in check(inputs)}
    return sorted(found, key=lambda finding: finding.sort_key)
