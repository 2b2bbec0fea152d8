"""The host of the machines: a libvirt daemon of our own, and QEMU with a network that needs no root.

A guest sees the host's loopback device at :data:`HOST`. libvirt's own networks and bridges would need root and change
the machine that this runs on, so that the network card is added behind libvirt's back, by a script in QEMU's place.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

from clouds.servers.libvirtd import Libvirtd
from e2e.join.machine_image import MachineImage
from e2e.join.reports import Reports

__all__ = ["HOST", "Host"]

HOST: Final = "10.0.2.2"
_POOL: Final = "machines"
_IMAGE: Final = "debian.qcow2"
# Without KVM, QEMU's most able processor offers an instruction (cmpxchg16b) at which kernels sometimes panic.
_EMULATOR: Final = """#!/bin/sh
case " $* " in
*" -uuid "*)
  for word; do
    shift
    [ "$word" = max ] && word=max,-cx16
    set -- "$@" "$word"
  done
  set -- "$@" -netdev user,id=outside -device virtio-net-pci,netdev=outside,bus=pcie.0,addr=0x10
  ;;
esac
exec {qemu} "$@"
"""
_KERNEL_ARGUMENTS: Final = (
    "root=/dev/vda rw console=ttyS0 panic=1 quiet mitigations=off"
    " systemd.condition_needs_update=0 systemd.mask=serial-getty@ttyS0.service"  # neither is worth its time here
    # On a busy host even systemd's journal takes longer to start than systemd waits for a service.
    " systemd.default_timeout_start_sec=3600 systemd.service_watchdogs=no"
)


class Host:
    """It runs from the first machine to the last. Use :meth:`start` and :meth:`stop`."""

    def __init__(self, directory: Path, image: MachineImage) -> None:
        qemu = shutil.which("qemu-system-x86_64")
        self._daemon = Libvirtd(directory, emulator=_EMULATOR.replace("{qemu}", str(qemu)))
        self._image = image
        self.reports = Reports()

    def start(self) -> None:
        """Starts the daemon, with the image in its pool, and the server for what machines report."""
        self.reports.start()
        files = {_IMAGE: self._image.disk, "vmlinuz": self._image.kernel, "initrd.img": self._image.initrd}
        for name, path in files.items():
            target = self._daemon.images / name
            shutil.copyfile(path, target)
            target.chmod(0o644)
        self._daemon.start()
        self._daemon.make_pool(_POOL, self._daemon.images)

    def stop(self) -> None:
        """Ends all that runs. Consoles are kept with the logs."""
        self._daemon.stop()
        self.reports.stop()

    def section(self) -> dict[str, Any]:
        """The cloud, in cloudgraft's configuration."""
        return {**self.cloud(), "engine": {"observeEvery": "2s"}}

    def cloud(self) -> dict[str, Any]:
        """The part of it that the driver reads."""
        return {
            "driver": "libvirt",
            "uri": self._daemon.uri,
            "pool": _POOL,
            "image": _IMAGE,
            "networks": [],
            "domainType": "qemu",
            "cpuMode": "maximum",
            "consoleLogDirectory": str(self._daemon.consoles),
            "shapes": {"node": {"cpu": 2, "memory": "1536Mi"}},
        }

    def machine(self) -> dict[str, Any]:
        """The section ``machine`` of a group."""
        files = {"kernel": "vmlinuz", "initrd": "initrd.img"}
        boot = {key: str(self._daemon.images / name) for key, name in files.items()}
        return {"shape": "node", "boot": {**boot, "cmdline": f"{_KERNEL_ARGUMENTS} report={self.address}"}}

    @property
    def address(self) -> str:
        """Where machines find the server for their reports."""
        return f"http://{HOST}:{self.reports.port}"

    def running(self) -> list[str]:
        """The domains that run."""
        return self._daemon.virsh("list", "--name").split()

    def uuid(self, name: str) -> str:
        """The domain's, by libvirt's own word."""
        return self._daemon.virsh("domuuid", name).strip()

    def left(self) -> list[str]:
        """Domains and volumes of machines, whatever their state."""
        own = {_IMAGE, "vmlinuz", "initrd.img"}
        return self._daemon.domains() + [name for name in self._daemon.volumes(_POOL) if name not in own]

    def console(self, name: str) -> str:
        """What a machine has printed so far."""
        path = self._daemon.consoles / f"{name}.log"
        return path.read_text("utf-8", "replace") if path.exists() else ""
