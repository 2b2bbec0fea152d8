"""Judges the driver `libvirt` by a real libvirt daemon and real virtual machines, in software."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from cloudgraft.conformance.driver import DriverSettings, Trouble
from cloudgraft.conformance.driver.settings import AnyDriver
from cloudgraft.sdk.common.extras import install_command
from clouds.judge import Case, Judge, Tell
from clouds.servers.libvirt_guest import busybox, cache_directory, kernel
from clouds.servers.libvirtd import Libvirtd

__all__ = ["IMAGE", "JUDGE", "POOL", "missing_programs"]

POOL: Final = "vms"
IMAGE: Final = "image.qcow2"
_PROGRAMS: Final = {
    "libvirtd": "libvirt-daemon libvirt-daemon-driver-qemu",
    "virsh": "libvirt-clients",
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "setpriv": "util-linux",
}
_KERNEL: Final = "linux-image-cloud-amd64"


class LibvirtJudge(Judge):
    """A daemon of our own, with QEMU without KVM."""

    driver = "libvirt"

    def missing(self) -> str:
        """The packages are Debian's."""
        found = [missing_programs()]
        if busybox() is None:
            found.append("apt-get install --no-install-recommends busybox-static")
        if kernel() is None:
            found.append(f"apt-get install {_KERNEL}, or unpack it with dpkg-deb -x into {cache_directory()}")
        return "; ".join(filter(None, found))

    @contextmanager
    def open(self, directory: Path, tell: Tell) -> Iterator[Case]:
        """Starts the daemon, and makes a pool with an empty image in it."""
        from clouds.servers.libvirt_checks import Checks  # noqa: PLC0415 - it needs libvirt

        host = Libvirtd(directory)
        try:
            host.start()
            tell("libvirt: the daemon answers")
            host.make_pool(POOL, host.images)
            host.virsh("vol-create-as", POOL, IMAGE, "64M", "--format", "qcow2")
            cloud = _cloud(host)
            yield Case(
                judged_by=_version(host),
                cloud=cloud,
                settings=_settings(cloud),
                alive=lambda: _alive(host),
                capacity={"cpu": "1", "memory": "4Gi"},  # a template for pods; the machines themselves are smaller
                more=Checks(host, cloud).all(),
            )
        finally:
            host.stop()


def missing_programs() -> str:
    """Names the programs and libraries that are missing here, and how to install them; empty when none is."""
    packages = [package for name, package in _PROGRAMS.items() if _program(name) is None]
    found = [f"apt-get install --no-install-recommends {' '.join(packages)}"] if packages else []
    spec = importlib.util.find_spec("libvirt")
    if spec is None or spec.origin is None or importlib.util.find_spec("pycdlib") is None:
        found.append(f"{install_command('libvirt')}, which needs: apt-get install libvirt-dev pkg-config gcc")
    return "; ".join(found)


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _cloud(host: Libvirtd) -> dict[str, Any]:
    return {
        "driver": "libvirt",
        "uri": host.uri,
        "pool": POOL,
        "image": IMAGE,
        "networks": [],
        "domainType": "qemu",  # a /dev/kvm that is there need not work
        "consoleLogDirectory": str(host.consoles),
        "shapes": {"tiny": {"cpu": 1, "memory": "64Mi"}, "boots": {"cpu": 1, "memory": "192Mi", "disk": "128Mi"}},
        "keepalive": "2s",
    }


def _settings(cloud: Mapping[str, Any]) -> DriverSettings:
    def troubled(trouble: Trouble) -> AnyDriver | None:
        from clouds.servers.libvirt_driving import driver_of  # noqa: PLC0415 - it needs libvirt

        if trouble is Trouble.STOCK_OUT:
            return driver_of({**cloud, "maxMachines": 0})
        if trouble is Trouble.AWAY:
            return driver_of({**cloud, "uri": "qemu+unix:///session?socket=/nowhere/libvirt-sock"})
        return None

    return DriverSettings(
        machine={"shape": "tiny"},
        at_once=6,
        boot_time=timedelta(minutes=1),
        late=timedelta(seconds=20),  # a call that was given up goes on in its thread, and a busy QEMU takes its time
        troubled=troubled,
        interruptions=8,
    )


def _alive(host: Libvirtd) -> list[str]:
    """Domains, and volumes that no domain has: those would be leaked."""
    domains = host.domains()
    volumes = [name for name in host.volumes(POOL) if name != IMAGE]
    return domains + [name for name in volumes if not any(name.startswith(domain) for domain in domains)]


def _version(host: Libvirtd) -> str:
    lines = host.virsh("version").splitlines()
    library = next(line.split()[-1] for line in lines if line.startswith("Using library"))
    qemu = next(line.split()[-1] for line in lines if "hypervisor" in line)
    return f"libvirtd {library} with QEMU {qemu}, without KVM"


JUDGE = LibvirtJudge()
