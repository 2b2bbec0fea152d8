"""Decides which Secrets and ConfigMaps hold the files that a configuration names, and where they are mounted."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cloudgraft.deploy.files import NamedFile, Owner
from cloudgraft.validation.problems import KeyPath

_CHARTS_OWN: Final = frozenset({"config", "tls", "db", "dock", "front"})  # its directories below /etc/cloudgraft
_LONGEST: Final = 42  # characters of a name, by the chart's schema
_NO_KEY: Final = re.compile(r"[^-._a-zA-Z0-9]")


@dataclass(slots=True, kw_only=True)
class Mount:
    """A directory of the pod, with the files of one part of the configuration."""

    name: str
    is_secret: bool
    files: dict[str, Path] = field(default_factory=dict)  # the file on this host, by its name in the directory
    directory: Path | None = None  # all that this directory holds, in place of `files`
    used_by: list[KeyPath] = field(default_factory=list)

    @property
    def at(self) -> str:
        """Where it is in the pod."""
        return f"/etc/cloudgraft/{self.name}"

    def object_name(self, release: str) -> str:
        """The name of its Secret or ConfigMap."""
        return f"{release}-{self.name}"

    def sources(self) -> list[tuple[str, Path]]:
        """What `kubectl create` takes: names in the object, and files; a directory has no name."""
        return [("", self.directory)] if self.directory is not None else list(self.files.items())


def decide_mounts(files: Sequence[NamedFile], base_dir: Path) -> tuple[list[Mount], dict[KeyPath, str]]:
    """The mounts, and the path in the pod for each place in the configuration.

    The files of one part go together. They go into a Secret, unless none of them can hold one.
    """
    names = _Names()
    groups: dict[Owner, list[NamedFile]] = {}
    for file in files:
        if not file.is_directory:
            groups.setdefault(file.owner, []).append(file)
    mounts: list[Mount] = []
    paths: dict[KeyPath, str] = {}
    for owner, members in groups.items():
        mount = Mount(name=names.new(owner), is_secret=not all(file.is_public for file in members))
        mounts.append(mount)
        for file in members:
            source = absolute(file.text, base_dir)
            paths[file.path] = f"{mount.at}/{_add(mount, source)}"
            mount.used_by.append(file.path)
    for file in files:
        if file.is_directory:
            # A directory with credentials is one of a Secret; whatever else it holds is as safe there.
            name = names.new(Owner(kind=file.owner.name, name=_kebab(file.key)))
            source = absolute(file.text, base_dir)
            mounts.append(Mount(name=name, is_secret=True, directory=source, used_by=[file.path]))
            paths[file.path] = mounts[-1].at
    return mounts, paths


def absolute(text: str, base_dir: Path) -> Path:
    """The file on this host."""
    return Path(os.path.normpath(base_dir / text))


def _add(mount: Mount, source: Path) -> str:
    """Adds a file to a mount, unless it is there; returns its name."""
    known = next((name for name, path in mount.files.items() if path == source), None)
    if known is not None:
        return known
    plain = _NO_KEY.sub("-", source.name).lstrip(".") or "file"
    name, number = plain, 1
    while name in mount.files:
        number += 1
        name = f"{number}-{plain}"
    mount.files[name] = source
    return name


class _Names:
    """Names of mounts: each once, and none of the chart's own."""

    def __init__(self) -> None:
        self._taken = set(_CHARTS_OWN)

    def new(self, owner: Owner) -> str:
        candidates = [owner.name, f"{owner.kind}-{owner.name}", *_numbered(f"{owner.kind}-{owner.name}")]
        for each in candidates:
            name = _kebab(each)[:_LONGEST].rstrip("-")
            # Names that end with -tls are those of Secrets with certificates.
            if name and name not in self._taken and not name.endswith("-tls"):
                self._taken.add(name)
                return name
        raise AssertionError("a thousand parts with one name")


def _numbered(name: str) -> Iterable[str]:
    return (f"{number}-{name.removesuffix('-tls')}" for number in range(2, 1000))


def _kebab(text: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", text).lower()
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")
