"""A list that may lack machines never becomes one that is taken for all of them: no protocol has a word for it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cloudgraft.client import Address, CloudConfig
from cloudgraft.dock.runner import Speech
from cloudgraft.plugins.author import DriverServer
from cloudgraft.plugins.host.remote import RemoteDriver
from cloudgraft.sdk import CloudgraftError, Driver, Machine, MachineSpec, PartialList
from cloudgraft.server.listener import Access
from tests.dock.runner.drivers import running
from tests.dock.runner.small_hub import read, small_hub


class Sites(Driver):
    """Two places, one of which may be away."""

    def __init__(self, *, is_whole: bool) -> None:
        self._is_whole = is_whole
        self.deleted: list[str] = []

    async def create(self, spec: MachineSpec) -> Machine:
        return Machine(name=spec.name, machine_id=f"north/{spec.name}")

    async def delete(self, machine: Machine) -> None:
        self.deleted.append(machine.machine_id)

    async def list(self) -> Sequence[Machine]:
        return PartialList([], complete_for=["north/"], is_whole=self._is_whole)


@pytest.mark.parametrize("is_whole", [True, False])
async def test_a_plugin_cannot_answer_with_one(*, is_whole: bool) -> None:
    server = DriverServer(Sites(is_whole=is_whole), Access(listen="127.0.0.1:0"))
    await server.start()
    remote = RemoteDriver.connect(CloudConfig(address=Address.parse(server.address)))
    await remote.start()
    try:
        with pytest.raises(CloudgraftError, match="PartialList"):
            await remote.list()
    finally:
        await remote.close()
        await server.stop(0)


@pytest.mark.parametrize("is_whole", [True, False])
async def test_nor_can_a_driver_that_dials_in(*, is_whole: bool) -> None:
    async with small_hub() as hub, running(Sites(is_whole=is_whole), hub.address):
        visit = await hub.visit()
        await visit.ask(read())
        result = await visit.result()
        assert result.status.code != 0
        assert "PartialList" in result.status.message


async def test_nor_one_that_dials_in_as_in_2018_whose_delete_would_take_what_is_not_listed_for_gone() -> None:
    driver = Sites(is_whole=False)
    async with small_hub() as hub, running(driver, hub.address, speech=Speech.V0):
        visit = await hub.old_visit()
        assert "PartialList" in (await visit.ask("list")).listresponse.error
        assert "PartialList" in (await visit.ask("delete", machine_id="south/1")).deleteresponse.error
        assert driver.deleted == []
