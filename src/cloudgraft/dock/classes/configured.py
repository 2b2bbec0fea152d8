"""Machine classes of the configuration, with their secrets in files, directories or the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from cloudgraft.config.sections.dock import DockClass
from cloudgraft.dock.classes.declared import Declared, SecretData, Snapshot, class_of, secret_data, shown
from cloudgraft.dock.classes.reading import FileStamp, listed, objects_in, read_small, stamp_of
from cloudgraft.sdk.errors import InvalidArgumentError

__all__ = ["ConfiguredReader"]

_Stamps = Mapping[str, FileStamp | None]


class ConfiguredReader:
    """Tells the classes of a configuration, and reads their secrets again when those have changed.

    A secret that cannot be read any more stays as it was.
    """

    def __init__(self, classes: Mapping[str, DockClass], environment: Mapping[str, str] = os.environ) -> None:
        self._classes = classes
        self._environment = environment
        self._seen: dict[str, _Stamps] = {}
        self._data: dict[str, SecretData] = {}
        self._problems: dict[str, str] = {}
        self._is_read = False

    def read(self) -> Snapshot | None:
        """All classes; None when nothing has changed. Blocks."""
        changed = [name for name, entry in self._classes.items() if self._is_changed(name, entry)]
        if self._is_read and not changed:
            return None
        for name in changed:
            self._read_secret(name, self._classes[name])
        self._is_read = True
        classes = []
        problems = list(self._problems.values())
        for name, entry in self._classes.items():
            try:
                classes.append(self._declared(name, entry))
            except InvalidArgumentError as error:
                problems.append(f"dock.classes.{name}: {error.message}")
        return Snapshot(classes=tuple(classes), problems=tuple(problems))

    def _declared(self, name: str, entry: DockClass) -> Declared:
        has_secret = entry.secret_file or entry.secret_dir or entry.secret_env is not None
        content: dict[str, object] = {
            "apiVersion": entry.api_version,
            "kind": entry.kind,
            "metadata": {"name": name},
            "providerSpec": entry.provider_spec,
            "nodeTemplate": entry.node_template,
            **({"secretRef": {"name": name}} if has_secret else {}),
        }
        declared = class_of(content, lambda _: self._data.get(name))
        return replace(declared, missing=self._problems.get(name, "")) if declared.missing else declared

    def _is_changed(self, name: str, entry: DockClass) -> bool:
        now = _stamps(entry)
        if self._seen.get(name) == now:
            return False
        self._seen[name] = now
        return True

    def _read_secret(self, name: str, entry: DockClass) -> None:
        try:
            data = self._secret(entry)
            if _stamps(entry) != self._seen[name]:  # half old, half new: the next time
                self._seen.pop(name)
                return
        except InvalidArgumentError as error:
            kept = "; what was there stays" if name in self._data else ""
            self._problems[name] = f"the secret of dock.classes.{name}: {error.message}{kept}"
            return
        self._problems.pop(name, None)
        self._data[name] = data

    def _secret(self, entry: DockClass) -> SecretData:
        if entry.secret_file is not None:
            return _from_file(entry.secret_file)
        if entry.secret_dir is not None:
            directory = entry.secret_dir
            return {name: read_small(directory / name) for name in _files(directory)}
        return _from_environment(entry.secret_env or {}, self._environment)


def _from_file(path: Path) -> SecretData:
    """A mapping of names to texts, or a whole Secret of Kubernetes."""
    objects = list(objects_in(path))
    if len(objects) != 1:
        raise InvalidArgumentError(f"{path}: must hold one mapping of names to values")
    content = objects[0]
    try:
        return secret_data(content if content.get("kind") == "Secret" else {"stringData": content})
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{path}: {error.message.removeprefix('stringData.')}") from None


def _from_environment(variables: Mapping[str, str], environment: Mapping[str, str]) -> SecretData:
    missing = [variable for variable in variables.values() if variable not in environment]
    if missing:
        raise InvalidArgumentError(f"the environment variable {shown(missing[0])} is not set")
    return {name: os.fsencode(environment[variable]) for name, variable in variables.items()}


def _files(directory: Path) -> dict[str, FileStamp]:
    try:
        return listed(directory)
    except OSError as error:
        raise InvalidArgumentError(f"{directory}: cannot be read: {error.strerror}") from None


def _stamps(entry: DockClass) -> _Stamps:
    """What changes when the secret does."""
    if entry.secret_file is not None:
        return {"": stamp_of(entry.secret_file)}
    if entry.secret_dir is None:
        return {}
    try:
        return listed(entry.secret_dir)
    except (OSError, InvalidArgumentError):
        return {"": None}
