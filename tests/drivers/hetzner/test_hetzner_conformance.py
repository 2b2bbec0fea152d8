"""Runs the conformance suite over a fake project."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.conformance.driver import DriverSettings, Trouble
from cloudgraft.conformance.driver.proxy import LosingProxy
from cloudgraft.conformance.report import Status
from cloudgraft.drivers.hetzner.driver import HetznerDriver
from clouds.servers.hetzner_fake import FakeHetzner, Fault, Kind, Project
from tests.conditions import until
from tests.conformance.judging import judged
from tests.drivers.hetzner.hetzner_stage import MACHINE, hetzner_driver

_LIMITED = Fault(kind=Kind.ERROR, status=429, code="rate_limit_exceeded", times=-1)


class Troubles:
    """A project for each kind of trouble."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        self._stack = stack
        self._directory = directory

    def driver(self, trouble: Trouble) -> HetznerDriver:
        fake = self._stack.enter_context(FakeHetzner())
        directory = self._directory / trouble.name
        directory.mkdir(exist_ok=True)
        match trouble:
            case Trouble.QUOTA:
                fake.project.limit = 0
            case Trouble.STOCK_OUT:
                fake.project.sold_out = {"cx23"}
            case Trouble.RATE_LIMIT:
                fake.faults.order(_LIMITED)
            case Trouble.AUTHENTICATION:
                return hetzner_driver(fake, directory, token="wrong-" + "w" * 30)
            case Trouble.AWAY:
                return hetzner_driver(fake, directory, endpoint="http://127.0.0.1:9/v1")
            case Trouble.ERROR_AFTER | Trouble.LOST_ANSWER:
                proxy = self._stack.enter_context(LosingProxy(fake.url, trouble, path="/servers"))
                return hetzner_driver(fake, directory, endpoint=proxy.url)
        return hetzner_driver(fake, directory)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.mark.timeout(240)  # its checks are many, and the machine may be busy
async def test_the_driver_passes_the_conformance_suite(stack: ExitStack, tmp_path: Path) -> None:
    fake = stack.enter_context(FakeHetzner(Project(boot_time=0.1, delete_time=0.02)))
    settings = DriverSettings(
        machine=MACHINE,
        page_size=50,
        late=timedelta(seconds=0.2),
        secrets=(fake.token,),
        troubled=Troubles(stack, tmp_path).driver,
    )
    report = await judged(lambda: hetzner_driver(fake, tmp_path), settings)
    assert not report.left_behind
    assert [one.check for one in report.results if one.status is not Status.PASSED] == [
        "of_two_with_one_name_one_is_deleted",  # there are no two with one name
        "a_crash_in_mid_create_adds_one_at_most",  # it is no program of its own
    ]
    await until(lambda: swept(fake, hetzner_driver(fake, tmp_path)), what="nothing is left")


def swept(fake: FakeHetzner, driver: HetznerDriver) -> bool:
    """Creates that were given up go on, and on a slow machine one of them ends after all has been swept."""
    for machine in driver.list():
        driver.delete(machine)
    driver.close()
    return not fake.project.alive() and not fake.project.primary_ips
