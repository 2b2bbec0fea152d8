"""From a picture to findings: all checks, in one go."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from cloudgraft.doctor.checks import autoscaler, expanders, flags, nodes, options, server, sources, templates, tls
from cloudgraft.doctor.findings import Finding
from cloudgraft.doctor.picture import Picture

__all__ = ["CHECKS", "examine"]

CHECKS: Final[tuple[Callable[[Picture], Iterable[Finding]], ...]] = (
    sources.check,
    server.check,
    tls.check,
    autoscaler.check,
    flags.check,
    expanders.check,
    options.check,
    nodes.check,
    templates.check,
)


def examine(picture: Picture) -> list[Finding]:
    """Everything that is wrong, worst first. The same picture always gives the same findings."""
    found = {finding for check in CHECKS for finding in check(picture)}
    return sorted(found, key=lambda finding: finding.sort_key)
