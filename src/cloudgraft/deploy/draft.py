"""Collects the values of the chart while they are decided, with the reason of each and what is left to do."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cloudgraft.config import Config, Problems
from cloudgraft.validation.problems import KeyPath, dotted

CHART: Final = "deploy/helm/cloudgraft"  # in the source tree
CONFIG_DIRECTORY: Final = "/etc/cloudgraft/config"  # where the chart mounts the configuration
JOURNAL_DIRECTORY: Final = "/var/lib/cloudgraft"  # where it mounts the volume


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What no configuration says, and the one who installs decides."""

    name: str = "cloudgraft"
    namespace: str = "kube-system"
    certificates: str = "certManager"
    autoscaler_release: str = ""  # empty: the chart's
    image: str = ""  # empty: the chart's, which is in no registry


@dataclass(frozen=True, slots=True)
class Remark:
    """What the reader has to know. A warning says that something is different in the cluster, or left to do."""

    text: str
    is_warning: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class NewObject:
    """A Secret or ConfigMap that must be there before the release."""

    kind: str  # as `kubectl create` calls it
    name: str
    files: Sequence[tuple[str, Path]] = ()  # keys and files; an empty key for all files of a directory
    variables: Sequence[str] = ()  # of the environment, under their own names

    def command(self, namespace: str, here: Path) -> str:
        """The command that creates it, for a shell in the directory ``here``. It names files, never their content."""
        words = ["kubectl", "-n", namespace, "create", *self.kind.split(), self.name]
        for key, path in self.files:
            shown = path.relative_to(here) if path.is_relative_to(here) else path
            words.append(f"--from-file={key}={shown}" if key else f"--from-file={shown}")
        # A shell puts in the values of variables.
        return " ".join([*map(shlex.quote, words), *(f'--from-literal={one}="${one}"' for one in self.variables)])


class Draft:
    """The values so far. ``own`` is the file's content, which becomes the configuration of the pod."""

    def __init__(self, config: Config, choices: Choices) -> None:
        """Starts with a copy of the file's content."""
        self.config = config
        self.choices = choices
        self.own: dict[str, Any] = deepcopy(dict(config.where().document.root.value))
        self.values: dict[str, Any] = {}
        self.reasons: dict[KeyPath, str] = {}  # by the path of the value; of a list also by the index
        self.remarks: list[Remark] = []
        self.objects: list[NewObject] = []
        self.problems = Problems()

    @property
    def is_replicated(self) -> bool:
        """Whether several pods share a journal in PostgreSQL."""
        return self.config.store.postgresql is not None

    def set(self, path: KeyPath, value: object, why: str = "") -> None:
        """Sets a value of the chart, such as ``("server", "mode")``."""
        here = self.values
        for part in path[:-1]:
            here = here.setdefault(str(part), {})
        here[str(path[-1])] = value
        if why:
            self.reasons[path] = why

    def warn(self, path: KeyPath, text: str) -> None:
        """Says what is different in the cluster, or left to do, about a key of the file."""
        self.remarks.append(Remark(f"{dotted(path)}: {text}"))

    def note(self, path: KeyPath, text: str) -> None:
        """Says what was done about a key of the file."""
        self.remarks.append(Remark(f"{dotted(path)}: {text}", is_warning=False))

    def refuse(self, path: KeyPath, message: str, hint: str = "") -> None:
        """Reports what the chart cannot express, at its place in the file."""
        self.problems.add(self.config.where().document.problem(path, message, hint))

    # -- the content of the file -------------------------------------------------------------------------------------

    def at(self, path: KeyPath) -> Any:
        """The value there; None for none."""
        here: Any = self.own
        for part in path:
            try:
                here = here[part]
            except (KeyError, IndexError, TypeError):
                return None
        return here

    def rewrite(self, path: KeyPath, value: object) -> None:
        """Replaces a value, or adds it to the mapping that is there."""
        self.at(path[:-1])[path[-1]] = value

    def drop(self, path: KeyPath) -> Any:
        """Removes a key and returns its value; None for none."""
        holder = self.at(path[:-1])
        return holder.pop(path[-1], None) if isinstance(holder, dict) else None
