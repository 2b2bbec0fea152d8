"""Runs commands in an image's root filesystem as Kubernetes would: read-only, as its user, without privileges.

Kernel namespaces and a read-only mount, by util-linux and coreutils alone. A container runtime would do the same, but
needs control groups and limits that are not to be had inside of every other container.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from scripts.make_image import Builder, Image

__all__ = ["Box", "Configuration", "open_box"]

# The volume is where the manifests have it.
_ENTER: Final = """
set -eu
root=$1 at=$2 data=$3 user=$4 memory=$5
shift 5
mount --bind "$root" "$at"
mount -t proc proc "$at/proc"
mount --rbind /dev "$at/dev"
mount -t tmpfs -o nosuid,nodev,mode=1777,size="$memory" tmpfs "$at/tmp"
# The volume's directory is no part of the image: containers are given it by their runtime.
mount -t tmpfs -o mode=755 tmpfs "$at/var/lib"
mkdir "$at/var/lib/cloudgraft"
mount --bind "$data" "$at/var/lib/cloudgraft"
mount -o remount,bind,ro "$at"
cd "$at"
exec setpriv --no-new-privs chroot --userspec="$user" --groups= "$at" sh -c 'cd /var/lib/cloudgraft && exec "$@"' - "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What the image says how it is to be run."""

    user: str
    environment: Mapping[str, str]
    entrypoint: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A root filesystem, and a directory that every command of it finds as its volume, and writes to."""

    root: Path
    at: Path  # where it is mounted, in the namespace of each command only
    data: Path
    configuration: Configuration
    memory: str = "64m"  # of /tmp

    def command(self, *words: str) -> Sequence[str | Path]:
        """As it is to be started outside, for a command line inside."""
        unshare = ("unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child")
        places = (self.root, self.at, self.data)
        entered = ("sh", "-c", _ENTER, "-", *places, self.configuration.user, self.memory)
        return *unshare, *entered, "env", "-i", *(f"{k}={v}" for k, v in self.configuration.environment.items()), *words

    def with_volume(self, data: Path) -> Box:
        """The same with a new directory as its volume, which belongs to the image's user."""
        data.mkdir()
        os.chown(data, *(int(number) for number in self.configuration.user.split(":")))
        return replace(self, data=data)

    def run(self, *words: str, seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Runs a command line inside, to its end."""
        return subprocess.run(self.command(*words), capture_output=True, text=True, timeout=seconds, check=False)

    def cloudgraft(self, *arguments: str) -> Sequence[str | Path]:
        """The command for the image's entry point with these arguments."""
        return self.command(*self.configuration.entrypoint, *arguments)


@contextmanager
def open_box(image: Image, directory: Path) -> Iterator[Box]:
    """The image's files, below the directory or where the builder has them."""
    configuration = _configuration(image)
    at = directory / "at"
    at.mkdir()
    with _files(image, directory) as root:
        yield Box(root=root, at=at, data=directory, configuration=configuration)


@contextmanager
def _files(image: Image, directory: Path) -> Iterator[Path]:
    builder = image.builder
    if builder.program == "buildah":
        container = builder.run("from", image.name)
        try:
            yield Path(builder.run("mount", container))
        finally:
            builder.run("rm", container)
        return
    container = builder.run("create", image.name)
    try:
        archive, root = directory / "root.tar", directory / "root"
        root.mkdir()
        builder.run("export", "-o", archive, container)
        subprocess.run(["tar", "-x", "--numeric-owner", "-f", archive, "-C", root], check=True)
        yield root
    finally:
        builder.run("rm", container)


def _configuration(image: Image) -> Configuration:
    told = _inspected(image.builder, image.name)
    environment = dict(line.split("=", 1) for line in told["Env"])
    return Configuration(user=told["User"], environment=environment, entrypoint=told["Entrypoint"])


def _inspected(builder: Builder, name: str) -> dict[str, Any]:
    if builder.program == "buildah":
        return dict(json.loads(builder.run("inspect", "--type", "image", name))["OCIv1"]["config"])
    return dict(json.loads(builder.run("image", "inspect", name))[0]["Config"])
