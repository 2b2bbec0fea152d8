"""A machine that somebody has renamed in its cloud, behind a router."""

from __future__ import annotations

from pathlib import Path

from cloudgraft.sdk.blocking import as_driver
from clouds.servers.hetzner_fake import FakeHetzner
from tests.drivers.hetzner.hetzner_stage import hetzner_driver, spec
from tests.router.routed import router


async def test_a_renamed_machine_is_found_under_the_name_that_it_was_ordered_by(tmp_path: Path) -> None:
    """Else an order whose answer was lost would not be seen, and a second machine would be made."""
    with FakeHetzner() as fake:
        cloud = hetzner_driver(fake, tmp_path)
        made = cloud.create(spec("m-1"))
        fake.project.update(int(made.machine_id), {"name": "pet"})
        driver = router({"hetzner": as_driver(cloud)})
        await driver.start()
        (machine,) = await driver.list()
        assert (machine.name, machine.machine_id) == ("m-1", f"hetzner/{made.machine_id}")
        await driver.delete(machine)
        assert not fake.project.alive()
        await driver.close()
