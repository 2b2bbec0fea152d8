"""The smallest guest that proves something: a kernel and a busybox that print the seed to the serial console."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

__all__ = ["BEGIN", "END", "boot_files", "busybox", "cache_directory", "kernel"]

BEGIN: Final = "cloudgraft-seed-begin"
END: Final = "cloudgraft-seed-end"
_MODULES: Final = (  # in the order in which they need each other; what a kernel has built in is not among its files
    "virtio",
    "virtio_ring",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "scsi_common",
    "scsi_mod",
    "virtio_scsi",
    "cdrom",
    "sr_mod",
    "isofs",
)
_INIT: Final = f"""#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /dev /seed
$b mount -t devtmpfs dev /dev
for module in {" ".join(_MODULES)}; do
  [ -f /modules/$module.ko ] && $b insmod /modules/$module.ko
done
until $b mount -t iso9660 -o ro /dev/sr0 /seed 2>/dev/null; do $b sleep 1; done
echo {BEGIN}
$b cat /seed/user-data /seed/meta-data
echo {END}
while true; do $b sleep 3600; done
"""  # it must never end: the kernel would panic, and reboot for ever


def cache_directory() -> Path:
    """Where a kernel may lie that is not installed: the package as ``dpkg-deb -x`` unpacks it."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "cloudgraft" / "clouds" / "libvirt"


def busybox() -> Path | None:
    """One that needs no libraries."""
    return next((path for path in map(Path, ("/bin/busybox", "/usr/bin/busybox")) if path.exists()), None)


def kernel() -> tuple[Path, Path] | None:
    """A kernel and the directory of its modules: an unpacked one, else one of those that are installed."""
    for root in (cache_directory(), Path("/")):
        for image in sorted(root.glob("boot/vmlinuz-*"), reverse=True):
            modules = root / "lib" / "modules" / image.name.removeprefix("vmlinuz-")
            if modules.is_dir() and os.access(image, os.R_OK):
                return image, modules
    return None


def boot_files(directory: Path) -> dict[str, str]:
    """Puts the guest into the directory; what a group's ``boot`` says of it."""
    found, program = kernel(), busybox()
    assert found is not None
    assert program is not None
    image, initrd = directory / "vmlinuz", directory / "initrd"
    image.write_bytes(found[0].read_bytes())
    initrd.write_bytes(_initramfs(found[1], program))
    return {"kernel": str(image), "initrd": str(initrd), "cmdline": "console=ttyS0 quiet"}


def _initramfs(modules: Path, program: Path) -> bytes:
    found = {path.stem: path for path in modules.rglob("*.ko") if path.stem in _MODULES}
    files = {f"modules/{name}.ko": path.read_bytes() for name, path in found.items()}
    return _cpio(["bin", "modules"], {"bin/busybox": program.read_bytes(), "init": _INIT.encode(), **files})


def _cpio(directories: Sequence[str], files: Mapping[str, bytes]) -> bytes:
    entries = [_entry(name, 0o040755, b"") for name in directories]
    entries += [_entry(name, 0o100755, content) for name, content in files.items()]
    return b"".join([*entries, _entry("TRAILER!!!", 0, b"")])


def _entry(name: str, mode: int, content: bytes) -> bytes:
    """One file in the format "newc": a header of hexadecimal numbers, the name, the content; each filled up to four."""
    path = name.encode() + b"\0"
    numbers = (0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path), 0)
    header = b"070701" + b"".join(f"{number:08x}".encode() for number in numbers)
    return _filled(header + path) + _filled(content)


def _filled(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
