"""What our own tests say of a driver whose checks cannot be judged."""

from __future__ import annotations

import pytest

from cloudgraft.conformance.driver import DriverSettings
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.simcloud.http.server import HttpServer
from cloudgraft.simcloud.options import SimulatedOptions
from tests.conformance.judging import judged


async def test_a_check_that_cannot_be_judged_is_named_with_its_reason() -> None:
    cloud = SimulatedCloud(SimulatedOptions(quota=1))
    server = HttpServer(cloud)
    server.start()
    try:
        with pytest.raises(AssertionError, match=r"inconclusive many_creates_at_once: \w+"):
            await judged(
                lambda: SimulatedDriver(SimulatedOptions(url=server.url)),
                DriverSettings(machine={"shape": "small"}),
                only=["many_creates_at_once"],
            )
    finally:
        server.stop()
        cloud.close()
