"""Runs the kit as pytest tests, one per check, for the author of a server.

    from cloudgraft.conformance.pytest_suite import ProviderConformance

    class TestMine(ProviderConformance):
        address = "127.0.0.1:8086"

A server that the tests start themselves, or a kit.yaml, comes by the fixture ``kit``::

    class TestMine(ProviderConformance):
        @pytest.fixture(scope="class")
        @classmethod
        def kit(cls):
            with my_server() as address:
                yield KitConfig(address=address, group="small")

A :class:`cloudgraft.sdk.Provider` is served by the suite itself, on a port of its own::

    class TestMine(ProviderConformance):
        def provider(self):
            return MyProvider()

The checks run once per class, in their order, and each test reports the result of one. With pytest-xdist keep a class
on one worker (``--dist loadscope``): two runs at once would disturb each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import ClassVar

import pytest

from cloudgraft.conformance.checks import CHECKS
from cloudgraft.conformance.kit import KitConfig
from cloudgraft.conformance.releases import NEWEST
from cloudgraft.conformance.report import Report, Result, Status
from cloudgraft.conformance.rules import RULES, Level
from cloudgraft.conformance.run import run
from cloudgraft.sdk.blocking import BlockingProvider
from cloudgraft.sdk.provider import Provider
from cloudgraft.testing.harness import serving


class ProviderConformance:
    """Inherit from it in a class whose name begins with ``Test``."""

    address: ClassVar[str] = ""
    """The server's address, unless the fixture ``kit`` or the method ``provider`` sets it."""
    release: ClassVar[str] = str(NEWEST)
    """The release of the autoscaler as which the calls are made."""

    def provider(self) -> Provider | BlockingProvider | None:
        """A provider for the suite to serve; None when the server runs already."""
        return None

    @pytest.fixture(scope="class")
    @classmethod
    def kit(cls) -> KitConfig:
        """The kit's configuration; with a provider its address is filled in."""
        return KitConfig(address=cls.address)

    @pytest.fixture(scope="class")
    @classmethod
    def conformance_report(cls, kit: KitConfig) -> Report:
        """The report of one run; shared by all tests of the class."""
        return asyncio.run(_report(kit, cls().provider(), cls.release))

    @pytest.mark.parametrize("check", [check.name for check in CHECKS])
    def test_conformance(self, check: str, conformance_report: Report) -> None:
        """One check of the kit."""
        results: Mapping[str, Result] = {result.check: result for result in conformance_report.results}
        _show(results[check])

    def test_nothing_is_left_behind(self, conformance_report: Report) -> None:
        """Every machine that the kit made could be deleted."""
        if conformance_report.left_behind:
            pytest.fail(f"left behind on the server: {', '.join(conformance_report.left_behind)}", pytrace=False)


async def _report(kit: KitConfig, provider: Provider | BlockingProvider | None, release: str) -> Report:
    if provider is None:
        return await run(kit, release=release)
    async with serving(provider) as served:
        return await run(kit.model_copy(update={"address": served.address}), release=release)


def _show(result: Result) -> None:
    if result.status in (Status.SKIPPED, Status.BLOCKED):
        pytest.skip(result.message)
    if result.status is Status.FAILED and result.level is Level.NOTE:
        pytest.xfail(f"worth knowing: {result.message}")
    if result.status is not Status.PASSED:
        pytest.fail(_explained(result), pytrace=False)


def _explained(result: Result) -> str:
    """The finding, why it matters, what to do, and the calls."""
    rules = [RULES[name] for name in result.rules]
    calls = [f"  {each.rpc}({each.sent}) -> {each.answered}  [{each.seconds:.3f} s]" for each in result.exchanges]
    return "\n".join(
        [
            f"{result.message}",
            f"rule: {result.title} ({', '.join(result.rules)}; {result.level})",
            f"why:  {rules[0].why}",
            f"fix:  {rules[0].fix}",
            "calls:",
            *calls,
        ]
    )
