"""Runs a container's program as its pod says: its files only, its user, no privileges, in the network of its pod.

Kernel namespaces and mounts, by util-linux and coreutils alone, as of :mod:`tests.image.box`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from e2e.first_node.images import Image

__all__ = ["Mount", "Sandbox"]

# Of this machine, for every container: its C library and the shell.
_SYSTEM: Final = ("usr", "bin", "lib", "lib64", "etc/ld.so.cache")
_ENTER: Final = """
set -eu
at=$1 system=$2 mounts=$3 directory=$4 network=$5 hostname=$6
shift 6
echo "$hostname" >/proc/sys/kernel/hostname
mount -t tmpfs -o mode=755 tmpfs "$at"
mkdir "$at/proc" "$at/dev" "$at/etc" "$at/tmp"
mount -t proc proc "$at/proc"
mount --rbind /dev "$at/dev"
bind() {
  mkdir -p "$(dirname "$at$2")"
  if [ -d "$1" ]; then mkdir -p "$at$2"; else touch "$at$2"; fi
  mount --bind "$1" "$at$2"
  [ "$3" = rw ] || mount -o remount,bind,ro "$at$2"
}
for name in $system; do
  if [ -L "/$name" ]; then
    ln -s "$(readlink "/$name")" "$at/$name"
  elif [ -e "/$name" ]; then
    bind "/$name" "/$name" ro
  fi
done
while read -r from to how; do bind "$from" "$to" "$how"; done <"$mounts"
mkdir -p "$at$directory"
mount -o remount,ro "$at"
cd "$at"
exec nsenter --net="$network" chroot "$at" "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A file or directory of this machine, seen at a path of the container."""

    source: Path
    at: str
    is_writable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """One container, before it is started. ``root`` is an empty directory; only the container sees what is on it."""

    root: Path
    image: Image
    mounts: Sequence[Mount]
    environment: Mapping[str, str]
    user: int
    group: int
    network: str
    hostname: str

    def command(self, words: Sequence[str]) -> Sequence[str]:
        """As it is to be started outside. The process that is started becomes the container's own."""
        table = self.root.with_suffix(".mounts")
        files = [Mount(source=path, at=at) for at, path in self.image.files.items()]
        lines = (f"{one.source} {one.at} {'rw' if one.is_writable else 'ro'}\n" for one in (*files, *self.mounts))
        table.write_text("".join(lines), "utf-8")
        places = (str(self.root), " ".join(_SYSTEM), str(table), self.image.directory, self.network, self.hostname)
        return ["unshare", "--mount", "--uts", "sh", "-c", _ENTER, "-", *places, *self.confined(words)]

    def confined(self, words: Sequence[str]) -> Sequence[str]:
        """A command line that gives up all rights before it runs another, in the container's directory."""
        identity = ("--reuid", str(self.user), "--regid", str(self.group), "--groups", str(self.group))
        rights = ("--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--pdeathsig", "KILL")
        environment = {**self.image.environment, **self.environment}
        pairs = (f"{name}={value}" for name, value in environment.items())
        return ["setpriv", *identity, *rights, "env", "-i", "-C", self.image.directory, *pairs, *words]
