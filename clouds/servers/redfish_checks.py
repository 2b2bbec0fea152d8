"""What is to be seen on emulated controllers beside conformance: media, late power, hands, and accounts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from cloudgraft.config import Where, parse_options
from cloudgraft.drivers.redfish.driver import RedfishDriver
from cloudgraft.drivers.redfish.options import RedfishOptions
from cloudgraft.sdk.driver import Machine, MachineSpec, MachineState
from cloudgraft.sdk.errors import AuthenticationError, CloudgraftError, OutOfStockError, UnavailableError
from cloudgraft.validation.document import Document
from clouds.judge import Tell
from clouds.servers.libvirtd import Libvirtd
from clouds.servers.sushy_emulator import POOL, Emulator, Published, system_id

__all__ = ["Checks", "driver_of"]

_SECONDS: Final = 60.0
_LOOK: Final = 0.2  # seconds between two looks
_SECRET: Final = "#cloud-config\n# a-token-of-the-cluster"


class Checks:
    """All of them, on the same hosts. Each leaves nothing behind."""

    def __init__(
        self, directory: Path, tell: Tell, libvirtd: Libvirtd, published: Published, cloud: Mapping[str, Any]
    ) -> None:
        self._directory, self._tell = directory, tell
        self._libvirtd, self._published = libvirtd, published
        self._cloud = cloud

    def all(self) -> dict[str, Callable[[], None]]:
        """By name."""
        found: dict[str, Callable[[], Awaitable[None]]] = {
            "an image and user data are virtual media, and gone at the end": self.media,
            "a host that does not shut down loses its power": self.graceful,
            "power that changes late": self.late,
            "hosts switched on and off by hand": self.hands,
            "wrong credentials, and a certificate that nobody knows": self.refused,
            "two clusters with one account": self.two_clusters,
        }
        return {name: (lambda check=check: asyncio.run(check())) for name, check in found.items()}  # type: ignore[misc]  # a default binds it

    async def media(self) -> None:
        """The emulated controller fetches both over HTTP, and the virtual machine has them as drives."""
        (self._published.directory / "os.iso").write_bytes(b"an installer" * 1024)
        driver = self._driver()
        machine = await driver.create(_spec("m-1", image=f"{self._published.url}/os.iso", user_data=_SECRET))
        xml = self._libvirtd.virsh("dumpxml", machine.machine_id)
        volumes = self._libvirtd.volumes(POOL)
        seeds = [file.name for file in self._published.directory.glob("m-1.*.iso")]
        assert len(seeds) == 1, seeds
        assert any(name.startswith("os-iso-") for name in volumes), volumes
        (seed,) = (name for name in volumes if name.startswith("m-1-"))
        assert seed in xml, xml
        assert "device='cdrom'" in xml, xml
        assert _SECRET.encode() in (self._libvirtd.images / seed).read_bytes()
        await self._gone(driver, machine)
        assert not list(self._published.directory.glob("m-1.*")), "the seed is still published"
        left = self._libvirtd.virsh("dumpxml", "--inactive", machine.machine_id)
        assert "cdrom" not in left, left
        assert "floppy" not in left, left

    async def graceful(self) -> None:
        """Nothing on the host hears the power button, so that it is told twice, and the second time for good."""
        driver = self._driver(gracefulTime="2s")
        machine = await driver.create(_spec("m-1"))
        await driver.delete(machine)
        assert (await _only(driver)).state is MachineState.DELETING
        assert machine.machine_id in self._running()
        await _until(lambda: _is(driver, MachineState.RUNNING), "it is shown as still on")
        await self._gone(driver, machine)

    async def late(self) -> None:
        """The emulator without machines shows a change of power up to eleven seconds after it has answered."""
        names = ["fake-1", "fake-2"]
        emulator = Emulator(self._directory / "late", self._tell, fakes=names)
        emulator.start()
        hosts = [
            {"id": name, "url": emulator.url, "system": f"/redfish/v1/Systems/{system_id(name)}"} for name in names
        ]
        account = str(self._directory / "late.json")
        try:
            driver = self._driver(hosts=hosts, caFile=str(emulator.ca_file), stateFile=account, powerOnTime="20s")
            first, second = [await driver.create(_spec(name, shape="")) for name in ("m-1", "m-2")]
            await driver.delete(second)  # while it comes up: it must not be given away
            try:
                await driver.create(_spec("m-3", shape=""))
            except OutOfStockError:
                pass
            else:
                raise AssertionError("a host that may still come up was given away")
            await _until(lambda: _is(driver, MachineState.RUNNING, first.name), "the first runs")
            await self._gone(driver, first, second)
        finally:
            emulator.stop()

    async def hands(self) -> None:
        """One that is free and on is not given out; one that is taken and off is stopped."""
        driver = self._driver(powerOnTime="0s")
        self._libvirtd.virsh("start", "host-1")
        machine = await driver.create(_spec("m-1"))
        assert machine.machine_id == "host-2", machine
        self._libvirtd.virsh("destroy", "host-2")
        assert (await _only(driver)).state is MachineState.STOPPED
        await self._gone(driver, machine)
        assert self._running() == ["host-1"], "a host of somebody else was switched off"
        self._libvirtd.virsh("destroy", "host-1")

    async def refused(self) -> None:
        """Each has an error of its own, and nothing is switched."""
        wrong = self._directory / "wrong-password"
        wrong.write_text("not-the-password", "utf-8")
        await _expect(AuthenticationError, self._driver(passwordFile=str(wrong)).create(_spec("m-1")), "passwordFile")
        stranger = {key: value for key, value in self._cloud.items() if key != "caFile"}
        await _expect(UnavailableError, driver_of(stranger).create(_spec("m-1")), "certificate")
        assert not self._running()

    async def two_clusters(self) -> None:
        """Each sees the other's machines with the other's marks, and never gets their hosts."""
        ours, theirs = self._driver(), self._driver()
        first = await ours.create(_spec("m-1", cluster="c1"))
        second = await theirs.create(_spec("m-2", cluster="c2"))
        assert first.machine_id != second.machine_id
        marks = {machine.name: machine.tags["cloudgraft-cluster-id"] for machine in await ours.list()}
        assert marks == {"m-1": "c1", "m-2": "c2"}, marks
        await ours.delete(Machine(name="m-1", machine_id=second.machine_id))
        assert second.machine_id in self._running(), "a late delete of another name switched it off"
        await self._gone(ours, first)
        assert self._running() == [second.machine_id]
        await self._gone(theirs, second)

    def _driver(self, **options: Any) -> RedfishDriver:
        return driver_of({**self._cloud, **options})

    def _running(self) -> list[str]:
        return self._libvirtd.virsh("list", "--name").split()

    async def _gone(self, driver: RedfishDriver, *machines: Machine) -> None:
        """Deletes as the engine does: again, when a list shows what was deleted as running."""
        ids = {machine.machine_id for machine in machines}

        async def gone() -> bool:
            left = [machine for machine in await driver.list() if machine.machine_id in ids]
            for machine in left:
                if machine.state is not MachineState.DELETING:
                    await driver.delete(machine)
            return not left

        await _until(gone, "they are gone")


def driver_of(cloud: Mapping[str, Any]) -> RedfishDriver:
    """From a cloud's section of a configuration file."""
    section = {key: value for key, value in cloud.items() if key != "driver"}
    where = Where(document=Document.without_file("options"), base_dir=Path("/"), path=())
    return RedfishDriver(parse_options(RedfishOptions, section, where))


def _spec(name: str, *, cluster: str = "c1", user_data: str = "", **machine: object) -> MachineSpec:
    tags = {"cloudgraft-cluster": "lab", "cloudgraft-cluster-id": cluster, "cloudgraft-name": name}
    return MachineSpec(name=name, group="g", settings={"shape": "metal", **machine}, tags=tags, user_data=user_data)


async def _only(driver: RedfishDriver) -> Machine:
    found = await driver.list()
    assert len(found) == 1, found
    return found[0]


async def _is(driver: RedfishDriver, state: MachineState, name: str = "") -> bool:
    return any(machine.state is state and name in ("", machine.name) for machine in await driver.list())


async def _until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = time.monotonic() + _SECONDS
    while not await condition():
        assert time.monotonic() < deadline, f"did not happen in {_SECONDS:g} s: {what}"
        await asyncio.sleep(_LOOK)  # the hosts are asked again then; nobody tells when they have changed


async def _expect(kind: type[CloudgraftError], call: Awaitable[object], word: str) -> None:
    seen: CloudgraftError | None = None
    try:
        await call
    except CloudgraftError as error:
        seen = error
    assert seen is not None, f"nothing was raised in the place of {kind.__name__}"
    assert type(seen) is kind, f"{seen!r} is not {kind.__name__}"
    assert word in seen.message, f"{seen.message!r} does not say {word!r}"
