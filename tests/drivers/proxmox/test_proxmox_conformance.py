"""The driver before the conformance suite, once, over a fake cluster with TLS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.conformance.driver import DriverSettings, Trouble
from cloudgraft.conformance.driver.proxy import LosingProxy
from cloudgraft.conformance.report import Status
from cloudgraft.drivers.proxmox.driver import ProxmoxDriver
from clouds.servers.proxmox_fake import Cluster, FakeProxmox, Fault, Kind
from tests.conformance.judging import judged
from tests.drivers.proxmox.proxmox_stage import MACHINE, proxmox_driver, soon

_LIMITED = Fault(kind=Kind.ERROR, status=429, times=-1, message="Too Many Requests")


class Troubles:
    """A cluster for each kind of trouble. Proxmox itself knows no quota."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        self._stack = stack
        self._directory = directory

    def driver(self, trouble: Trouble) -> ProxmoxDriver | None:
        fake = self._stack.enter_context(FakeProxmox())
        directory = self._directory / trouble.name
        directory.mkdir(exist_ok=True)
        match trouble:
            case Trouble.QUOTA:
                return None
            case Trouble.STOCK_OUT:
                for node in fake.cluster.nodes.values():
                    node.memory = 1 << 30
            case Trouble.RATE_LIMIT:
                fake.faults.order(_LIMITED)
            case Trouble.AUTHENTICATION:
                return proxmox_driver(fake, directory, secret="wrong-" + "w" * 30)
            case Trouble.AWAY:
                return proxmox_driver(fake, directory, url="http://127.0.0.1:9")
            case Trouble.ERROR_AFTER | Trouble.LOST_ANSWER:
                proxy = self._stack.enter_context(LosingProxy(fake.url, trouble, path="/clone"))
                return proxmox_driver(fake, directory, url=proxy.url)
        return proxmox_driver(fake, directory)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.mark.thorough
@pytest.mark.timeout(240)  # its checks are many, and the machine may be busy
async def test_the_driver_passes_the_conformance_suite(stack: ExitStack, tmp_path: Path) -> None:
    fake = stack.enter_context(FakeProxmox(Cluster(clone_time=0.05), tls=tmp_path))
    settings = DriverSettings(
        machine=MACHINE,
        at_once=3,
        interruptions=2,
        late=timedelta(seconds=0.2),
        secrets=(fake.token,),
        troubled=Troubles(stack, tmp_path).driver,
    )
    report = await judged(lambda: proxmox_driver(fake, tmp_path, ca_file=tmp_path / "ca.crt"), settings)
    assert not report.left_behind
    assert [one.check for one in report.results if one.status is not Status.PASSED] == [
        "of_two_with_one_name_one_is_deleted",  # there are no two of one VMID
        "a_list_has_every_page",  # it has one
        "a_crash_in_mid_create_adds_one_at_most",  # it is no program of its own
        "prices_are_sane",
    ]
    soon(lambda: swept(fake, proxmox_driver(fake, tmp_path, ca_file=tmp_path / "ca.crt")), "nothing is left")
    assert not fake.cluster.leftovers()


def swept(fake: FakeProxmox, driver: ProxmoxDriver) -> bool:
    """Creates that were given up go on, and on a slow machine one of them ends after all has been swept."""
    for machine in driver.list():
        driver.delete(machine)
    driver.close()
    return not fake.cluster.alive()
