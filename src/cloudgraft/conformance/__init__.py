"""Tests any externalgrpc server, in whatever language, against the autoscaler's contract.

    report = await conformance.run(KitConfig(address="127.0.0.1:8086"))
    assert report.is_passed

:func:`run_blocking` is the same for programs without an event loop, and
:class:`cloudgraft.conformance.pytest_suite.ProviderConformance` the same as one pytest test per check.
"""

from cloudgraft.conformance.kit import KitConfig
from cloudgraft.conformance.report import Exchange, Report, Result, Status
from cloudgraft.conformance.run import Session, run, run_blocking

__all__ = ["Exchange", "KitConfig", "Report", "Result", "Session", "Status", "run", "run_blocking"]
