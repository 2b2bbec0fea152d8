"""Judges the driver `redfish` by sushy-tools' emulator, over real virtual machines that play the hosts."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from cloudgraft.conformance.driver import DriverSettings, Trouble
from cloudgraft.conformance.driver.settings import AnyDriver
from cloudgraft.sdk.common.extras import install_command
from clouds.judge import Case, Judge, Tell
from clouds.servers.libvirtd import Libvirtd
from clouds.servers.sushy_emulator import PASSWORD, USER, Emulator, Published, define_hosts, system_id

__all__ = ["JUDGE"]

HOSTS: Final = tuple(f"host-{number}" for number in range(1, 13))
_PROGRAMS: Final = {
    "libvirtd": "libvirt-daemon libvirt-daemon-driver-qemu",
    "virsh": "libvirt-clients",
    "qemu-system-x86_64": "qemu-system-x86",
    "setpriv": "util-linux",
    "pkg-config": "pkg-config libvirt-dev",  # the emulator builds its binding to libvirt
    "gcc": "gcc libc6-dev",
}


class RedfishJudge(Judge):
    """An emulator of controllers, with a libvirt daemon of our own behind it."""

    driver = "redfish"

    def missing(self) -> str:
        """The packages are Debian's; the emulator itself is installed on the way."""
        path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
        packages = [package for name, package in _PROGRAMS.items() if shutil.which(name, path=path) is None]
        found = [f"apt-get install --no-install-recommends {' '.join(packages)}"] if packages else []
        if any(importlib.util.find_spec(name) is None for name in ("sushy", "pycdlib")):
            found.append(install_command("redfish"))
        return "; ".join(found)

    @contextmanager
    def open(self, directory: Path, tell: Tell) -> Iterator[Case]:
        """Starts all of it; the first time, the emulator is installed before."""
        from clouds.servers.redfish_checks import Checks  # noqa: PLC0415 - it needs sushy

        libvirtd = Libvirtd(directory)
        try:
            libvirtd.start()
            define_hosts(libvirtd, HOSTS)
            emulator = Emulator(directory / "emulator", tell, libvirt_uri=libvirtd.uri)
            with _running(emulator), Published(directory / "seeds") as published:
                cloud = _cloud(directory, emulator, published)
                yield Case(
                    judged_by=f"sushy-tools 2.2.0 over libvirtd {_version(libvirtd)} with QEMU, over TLS",
                    cloud=cloud,
                    settings=_settings(directory, cloud),
                    alive=lambda: _alive(libvirtd, Path(cloud["stateFile"])),
                    more=Checks(directory, tell, libvirtd, published, cloud).all(),
                )
        finally:
            libvirtd.stop()


@contextmanager
def _running(emulator: Emulator) -> Iterator[None]:
    emulator.start()
    try:
        yield
    finally:
        emulator.stop()


def _cloud(directory: Path, emulator: Emulator, published: Published) -> dict[str, Any]:
    password = directory / "password"
    password.write_text(PASSWORD, "utf-8")
    hosts = [
        {"id": name, "url": emulator.url, "system": f"/redfish/v1/Systems/{system_id(name)}", "shape": "metal"}
        for name in HOSTS
    ]
    return {
        "driver": "redfish",
        "hosts": hosts,
        "username": USER,
        "passwordFile": str(password),
        "caFile": str(emulator.ca_file),
        "stateFile": str(directory / "account.json"),
        "seedDirectory": str(published.directory),
        "seedUrl": published.url,
        "gracefulTime": "0s",  # there is no system on the hosts that could shut down
    }


def _settings(directory: Path, cloud: Mapping[str, Any]) -> DriverSettings:
    def troubled(trouble: Trouble) -> AnyDriver | None:
        from clouds.servers.redfish_checks import driver_of  # noqa: PLC0415 - it needs sushy

        account = directory / f"{trouble.name}.json"
        if trouble is Trouble.STOCK_OUT:
            host = cloud["hosts"][0]
            entry = {"host": host["id"], "name": "other", "providerID": "x", "since": "2026-01-01T00:00:00+00:00"}
            account.write_text(json.dumps({"version": 1, "taken": [entry]}), "utf-8")
            return driver_of({**cloud, "hosts": [host], "stateFile": str(account)})
        if trouble is Trouble.AWAY:  # the account: hosts that are away hide nothing
            account.write_text("{", "utf-8")
            return driver_of({**cloud, "stateFile": str(account)})
        return None

    return DriverSettings(
        machine={"shape": "metal"},
        at_once=4,
        interruptions=4,
        boot_time=timedelta(minutes=1),
        secrets=(PASSWORD,),
        troubled=troubled,
    )


def _alive(libvirtd: Libvirtd, account: Path) -> Sequence[str]:
    """The hosts that are on, by the name that has them; and those that are taken and off."""
    running = libvirtd.virsh("list", "--name").split()
    taken = _taken(account)
    return [taken.get(host, host) for host in running] + [f"{host} (off)" for host in taken if host not in running]


def _taken(account: Path) -> Mapping[str, str]:
    if not account.exists():
        return {}
    return {entry["host"]: entry["name"] for entry in json.loads(account.read_text("utf-8"))["taken"]}


def _version(libvirtd: Libvirtd) -> str:
    lines = libvirtd.virsh("version").splitlines()
    return next(line.split()[-1] for line in lines if line.startswith("Using library"))


JUDGE = RedfishJudge()
