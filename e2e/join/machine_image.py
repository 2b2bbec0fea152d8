"""The disk from which machines boot: Debian with cloud-init, containerd, kubeadm and a kubelet. It is made once.

It lies in the cache by the hash of all it is made of. Only root can make it: files in it belong to others.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from e2e.build import Tell, cache_directory
from e2e.join.container_image import archive
from e2e.join.machine_files import ARCHIVE, FILES, PAUSE, WORKLOAD

__all__ = ["MachineImage", "machine_image", "missing"]

_SUITE: Final = "trixie"
_PACKAGES: Final = (
    "cloud-init",
    "containerd",
    "containernetworking-plugins",
    "curl",
    "dbus",
    "ethtool",
    "iproute2",
    "iptables",
    "kmod",
    "linux-image-cloud-amd64",
    "mount",
    "netbase",
    "procps",
    "runc",
    "systemd",
    "systemd-sysv",
    "udev",
)
_PROGRAMS: Final = {
    "debootstrap": "debootstrap",
    "mke2fs": "e2fsprogs",
    "qemu-img": "qemu-utils",
    "gcc": "gcc libc6-dev",
    "chroot": "coreutils",
}
_SIZE: Final = "4G"
_SECONDS: Final = 30 * 60.0  # of the longest step
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineImage:
    """The files that a machine boots from."""

    disk: Path  # in the format qcow2, of which overlays are made
    kernel: Path
    initrd: Path

    @property
    def files(self) -> Sequence[Path]:
        """All of them."""
        return (self.disk, self.kernel, self.initrd)


def missing() -> str:
    """Why it cannot be made here, and what to install; empty: it can."""
    packages = [package for name, package in _PROGRAMS.items() if shutil.which(name, path=_searched()) is None]
    if packages:
        return f"apt-get install --no-install-recommends {' '.join(packages)}"
    return "" if os.geteuid() == 0 else "only root can make the image of a machine"


def machine_image(programs: Mapping[str, Path], tell: Tell) -> MachineImage:
    """The image with these programs, from the cache where it is there."""
    files = {name: path.read_bytes() for name, path in programs.items()}
    source = Path(__file__).with_name("waits.c")
    digest = hashlib.sha256(repr((_SUITE, _PACKAGES, _SIZE, sorted(FILES.items()))).encode() + source.read_bytes())
    for name in sorted(files):
        digest.update(hashlib.sha256(files[name]).digest())
    home = cache_directory() / "machines" / digest.hexdigest()[:16]
    found = MachineImage(disk=home / "disk.qcow2", kernel=home / "vmlinuz", initrd=home / "initrd.img")
    if not all(path.exists() for path in found.files):
        home.mkdir(parents=True, exist_ok=True)
        tell("making the image of a machine (minutes, once)")
        with tempfile.TemporaryDirectory(prefix="cloudgraft-image-", dir=home) as directory:
            _make(Path(directory), files, source, found, tell)
    return found


def _make(work: Path, programs: Mapping[str, bytes], source: Path, found: MachineImage, tell: Tell) -> None:
    root = work / "root"
    _run("debootstrap", "--variant=minbase", _SUITE, str(root))
    tell("the image: its packages")
    (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n", "utf-8")  # nothing is started in a tree
    (root / "usr/sbin/policy-rc.d").chmod(0o755)
    _in_tree(root, "apt-get", "install", "--yes", "--no-install-recommends", *_PACKAGES)
    tell("the image: its own files, and the disk")
    for path, text in FILES.items():
        _write(root / path, text.encode())
    for name, content in programs.items():
        _write(root / "usr/bin" / name, content, mode=0o755)
    _run("gcc", "-static", "-Os", "-o", str(work / "waits"), str(source))
    _write(root / ARCHIVE, archive((work / "waits").read_bytes(), [PAUSE, WORKLOAD]))
    _in_tree(root, "systemctl", "enable", "systemd-networkd", "containerd", "kubelet", "report")
    _in_tree(root, "apt-get", "clean")
    (root / "usr/sbin/policy-rc.d").unlink()
    for link, target in {"vmlinuz": found.kernel, "initrd.img": found.initrd}.items():
        (kernel,) = (root / "boot").glob(f"{link}-*")
        shutil.copy(kernel, target)
    _run("mke2fs", "-q", "-t", "ext4", "-d", str(root), str(work / "disk.raw"), _SIZE)
    _run("qemu-img", "convert", "-O", "qcow2", str(work / "disk.raw"), str(work / "disk.qcow2"))
    (work / "disk.qcow2").replace(found.disk)


def _write(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


def _in_tree(root: Path, *command: str) -> None:
    _run("chroot", str(root), *command)


def _run(*command: str) -> None:
    environment = {**os.environ, "PATH": _searched(), "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    words = ["nice", "-n", "10", *command]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        end = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise RuntimeError(f"{' '.join(command[:3])} failed with code {done.returncode}:\n{end}")


def _searched() -> str:
    return f"{os.environ.get('PATH', '')}:{_PATH}"
