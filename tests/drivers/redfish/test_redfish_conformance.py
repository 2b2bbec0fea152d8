"""The driver before the conformance suite, once, over a fake controller."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.conformance.driver import DriverSettings, Trouble
from cloudgraft.conformance.report import Status
from cloudgraft.drivers.redfish.driver import RedfishDriver
from tests.conditions import until
from tests.conformance.judging import judged
from tests.drivers.redfish.redfish_fake import PASSWORD, FakeRedfish, FakeSystem, Fault
from tests.drivers.redfish.redfish_stage import redfish_driver, redfish_hosts


@pytest.mark.thorough
@pytest.mark.timeout(240)  # its checks are many, and the machine may be busy
async def test_the_driver_passes_the_conformance_suite(tmp_path: Path) -> None:
    fake = FakeRedfish(*(FakeSystem(id=f"host-{number}") for number in range(20)))
    empty, busy = (FakeRedfish(FakeSystem(id="h", power=power)) for power in ("On", "Off"))
    busy.faults = [Fault(kind="error", status=503, message="Base.1.8.SessionLimitExceeded")]

    def troubled(trouble: Trouble) -> RedfishDriver | None:
        place = tmp_path / trouble.name
        place.mkdir(exist_ok=True)
        match trouble:
            case Trouble.STOCK_OUT:
                return redfish_driver(empty, place, hosts=redfish_hosts(empty, shape="metal"))
            case Trouble.RATE_LIMIT:
                return redfish_driver(busy, place, hosts=redfish_hosts(busy, shape="metal"))
            case Trouble.AWAY:
                (place / "account.json").write_text("{")
                return redfish_driver(fake, place)
        return None

    settings = DriverSettings(
        machine={"shape": "metal"},
        at_once=5,
        interruptions=4,
        late=timedelta(seconds=0.2),
        secrets=(PASSWORD,),
        troubled=troubled,
    )
    with fake, empty, busy:
        hosts = redfish_hosts(fake, shape="metal")
        more = {"hosts": hosts, "seed_directory": tmp_path, "seed_url": "https://seeds.example.org"}
        report = await judged(lambda: redfish_driver(fake, tmp_path, **more), settings)
        await until(lambda: swept(fake, redfish_driver(fake, tmp_path, **more)), what="all are off again")
    assert not report.left_behind
    assert [one.check for one in report.results if one.status is not Status.PASSED] == [
        "of_two_with_one_name_one_is_deleted",  # there are no two with one name
        "a_list_has_every_page",  # a list is no pages, but one request for each host
        "a_crash_in_mid_create_adds_one_at_most",  # it is no program of its own
        "a_lost_answer_is_an_unknown_outcome",  # its hosts are assigned in a file
        "prices_are_sane",  # nobody tells them
    ]


async def swept(fake: FakeRedfish, driver: RedfishDriver) -> bool:
    """Creates that were given up go on, and on a slow machine one of them ends after all has been swept."""
    for machine in await driver.list():
        await driver.delete(machine)
    await driver.close()
    return {system.power for system in fake.systems.values()} == {"Off"}
