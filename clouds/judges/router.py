"""The router, judged by two simulated clouds, each a process with its own ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

from cloudgraft.conformance.driver import DriverSettings
from clouds.judge import Case, Judge, Tell
from clouds.servers.router_checks import CAPACITY, RouterChecks, clouds_of, router_section
from clouds.servers.simclouds import SimcloudServer

__all__ = ["JUDGE"]

_TIMES = {"bootTime": "200ms", "deleteTime": "200ms"}


class _RouterJudge(Judge):
    driver = "router"

    def missing(self) -> str:
        """Both clouds come with cloudgraft."""
        return ""

    @contextmanager
    def open(self, directory: Path, tell: Tell) -> Iterator[Case]:
        """The first cloud is small, so that the second is needed for the conformance suite too."""
        with ExitStack() as stack:
            rack = SimcloudServer(directory, "rack", {**_TIMES, "stock": {"small": 4}})
            burst = SimcloudServer(directory, "burst", _TIMES)
            for cloud in (rack, burst):
                cloud.start()
                stack.callback(cloud.stop)
            tell("both clouds are up")
            yield Case(
                judged_by="two simulated clouds of ours, each a process with its own ledger",
                cloud=router_section(),
                others=clouds_of(rack, burst),
                settings=DriverSettings(machine={"shape": "any"}, boot_time=timedelta(seconds=30)),
                alive=lambda: [*rack.alive(), *burst.alive()],
                capacity=CAPACITY,
                boot_time=timedelta(seconds=60),
                more=RouterChecks(directory, rack, burst).all(),
            )


JUDGE = _RouterJudge()
