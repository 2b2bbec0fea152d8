"""Machine classes and Secrets in the files of a directory, such as a mounted ConfigMap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cloudgraft.config.section import hide_secrets
from cloudgraft.dock.classes.declared import Declared, SecretData, SecretId, Snapshot, class_of, named, secret_data
from cloudgraft.dock.classes.reading import FileStamp, listed, objects_in
from cloudgraft.sdk.errors import InvalidArgumentError

__all__ = ["DirectoryReader"]

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """What a file held when it was last good, and what is wrong with it now."""

    classes: tuple[Mapping[str, object], ...] = field(default=(), repr=False)
    secrets: Mapping[SecretId, SecretData] = field(default_factory=dict, repr=False)
    problem: str = ""


class DirectoryReader:
    """Reads a directory again when something in it has changed.

    A file that became unreadable stays as it was; so does everything while the directory is missing, and while files
    are being replaced as they are read.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen: dict[str, FileStamp] | None = None
        self._files: dict[str, _File] = {}
        self._declared: tuple[Declared, ...] = ()
        self._trouble = ""

    def read(self) -> Snapshot | None:
        """All that is there; None when nothing has changed. Blocks."""
        try:
            now = listed(self._directory, _SUFFIXES)
            if now == self._seen and not self._trouble:
                return None
            files = {name: self._file(name, stamp) for name, stamp in now.items()}
            if listed(self._directory, _SUFFIXES) != now:
                return None  # half old, half new: the next time
        except (OSError, InvalidArgumentError) as error:
            return self._unreadable(error)
        self._seen, self._files, self._trouble = now, files, ""
        return self._snapshot()

    def _unreadable(self, error: OSError | InvalidArgumentError) -> Snapshot | None:
        reason = error.strerror if isinstance(error, OSError) else error.message
        trouble = f"{self._directory}: cannot be read, and what was there stays: {reason}"
        if trouble == self._trouble:
            return None
        self._trouble = trouble
        return Snapshot(classes=self._declared, problems=(trouble,))

    def _file(self, name: str, stamp: FileStamp) -> _File:
        old = self._files.get(name, _File())
        if self._seen is not None and self._seen.get(name) == stamp:
            return old
        classes: list[Mapping[str, object]] = []
        secrets: dict[SecretId, SecretData] = {}
        path = self._directory / name
        try:
            for content in objects_in(path):
                if (content.get("apiVersion"), content.get("kind")) == ("v1", "Secret"):
                    secrets[_secret_id(content)] = secret_data(content)
                else:
                    hide_secrets(content)
                    classes.append(content)
        except InvalidArgumentError as error:
            told = error.message if error.message.startswith(str(path)) else f"{path}: {error.message}"
            return _File(classes=old.classes, secrets=old.secrets, problem=told)
        return _File(classes=tuple(classes), secrets=secrets)

    def _snapshot(self) -> Snapshot:
        secrets = {id_: data for file in self._files.values() for id_, data in file.secrets.items()}
        declared: dict[object, Declared] = {}
        problems = [file.problem for file in self._files.values() if file.problem]
        for name, content in ((name, content) for name, file in self._files.items() for content in file.classes):
            try:
                found = class_of(content, secrets.get)
            except InvalidArgumentError as error:
                problems.append(f"{self._directory / name}: {error.message}")
                continue
            if found.id in declared:
                problems.append(f"{self._directory / name}: machine class {found.name} is there twice")
            declared.setdefault(found.id, found)
        self._declared = tuple(declared.values())
        return Snapshot(classes=self._declared, problems=tuple(problems))


def _secret_id(content: Mapping[str, object]) -> SecretId:
    metadata = content.get("metadata")
    if not isinstance(metadata, Mapping):
        raise InvalidArgumentError("a Secret has no metadata.name")
    namespace = metadata.get("namespace") or ""
    return str(namespace), named(metadata)
