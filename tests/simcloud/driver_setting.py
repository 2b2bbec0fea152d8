"""A simulated cloud and its driver, in process or over HTTP."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from cloudgraft.simcloud.chaos import Chaos
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.simcloud.http.server import HttpServer
from cloudgraft.simcloud.options import SimulatedOptions
from tests.simcloud.sim_world import Clock


class Setting:
    """A cloud whose time stands still, and a driver of it."""

    def __init__(self, way: str, **options: Any) -> None:
        self.clock = Clock()
        at_once = {"boot_time": timedelta(0), "delete_time": timedelta(0)}
        self.cloud = SimulatedCloud(SimulatedOptions(**{**at_once, **options}), clock=self.clock, ident="cafe")
        self.server = HttpServer(self.cloud)
        self.server.start()
        if way == "http":
            size = self.cloud.options.page_size
            self.driver = SimulatedDriver(SimulatedOptions(url=self.server.url, page_size=size, client="me"))
        else:
            self.driver = SimulatedDriver.of(self.cloud, client="me")

    def chaos(self, **chaos: object) -> None:
        self.cloud.set_chaos(Chaos.from_json(chaos))
