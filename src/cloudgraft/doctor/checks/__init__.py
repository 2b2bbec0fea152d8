"""Runs all checks on a picture, one module per subject. Every check is pure: a picture in, findings out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from cloudgraft.doctor.checks import autoscaler, flags, nodes, server, tls
from cloudgraft.doctor.findings import Finding
from cloudgraft.doctor.picture import Picture

__all__ = ["CHECKS", "examine"]


CHECKS: Final[tuple[Callable[[Picture], Iterable[Finding]], ...]] = (
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


def examine(picture: Picture) -> list[Finding]:
    """Everything that is wrong, worst first. The same picture always gives the same findings."""
    found = {finding for check in CHECKS for finding in check(picture)}
    return sorted(found, key=lambda finding: finding.sort_key)
