"""Reads machine classes and Secrets from the configuration and from files. No message repeats their content."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from cloudgraft.config.section import hide_secrets
from cloudgraft.config.sections.dock import DockClass
from cloudgraft.dock.classes.declared import (
    Declared,
    SecretData,
    SecretId,
    Snapshot,
    class_of,
    named,
    secret_data,
    shown,
)
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.validation.document import read_yaml
from cloudgraft.validation.problems import ConfigError, Problem

# -- Files of objects and of secrets -----------------------------------------------------------------------------------
# Messages never repeat their content.


FileStamp = tuple[int, int, int]
_MOST_BYTES: Final = 1 << 20
_MOST_FILES: Final = 2000
_BETWEEN: Final = re.compile(r"^---(?=\s|$)", re.MULTILINE)


def stamp_of(path: Path) -> FileStamp | None:
    """Returns a stamp that changes when the file does, links followed; None for anything but a plain file.

    Includes the inode: a replacement by rename, or of the link above it, may keep time and size.
    """
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def listed(directory: Path, suffixes: frozenset[str] = frozenset()) -> dict[str, FileStamp]:
    """Lists the files of a directory by name, without hidden ones. Raises OSError, InvalidArgumentError."""
    found: dict[str, FileStamp] = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(".") or (suffixes and Path(entry.name).suffix not in suffixes):
                continue
            stamp = stamp_of(Path(entry.path))
            if stamp is not None:
                found[entry.name] = stamp
            if len(found) > _MOST_FILES:
                raise InvalidArgumentError(f"there are more than {_MOST_FILES} files in {directory}")
    return dict(sorted(found.items()))


def read_small(path: Path) -> bytes:
    """Reads a file. Raises InvalidArgumentError when it is unreadable or too large."""
    try:
        with path.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InvalidArgumentError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > _MOST_BYTES:
        raise InvalidArgumentError(f"{path}: is larger than {_MOST_BYTES >> 20} MiB")
    return content


def objects_in(path: Path) -> Iterator[Mapping[str, object]]:
    """Returns the objects of a YAML or JSON file, with lists flattened. Raises InvalidArgumentError."""
    try:
        text = read_small(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidArgumentError(f"{path}: is not UTF-8") from None
    for content in [_from_json(text, path)] if path.suffix == ".json" else _from_yaml(text, path):
        yield from _flat(content, path)


def _flat(content: object, path: Path) -> Iterator[Mapping[str, object]]:
    if not isinstance(content, Mapping):
        raise InvalidArgumentError(f"{path}: must hold objects, with kind, apiVersion and metadata")
    items = content.get("items")
    if content.get("kind") == "List" and isinstance(items, list):
        for item in items:
            yield from _flat(item, path)
    else:
        yield content


def _from_json(text: str, path: Path) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidArgumentError(f"{path}:{error.lineno}:{error.colno}: not valid JSON") from None
    except RecursionError:
        raise InvalidArgumentError(f"{path}: is nested too deep") from None


def _from_yaml(text: str, path: Path) -> Iterator[object]:
    begin = 0
    for end in [*(match.start() for match in _BETWEEN.finditer(text)), len(text)]:
        part = _BETWEEN.sub("   ", text[begin:end], count=1)
        try:
            # keeps the line numbers of the file
            document = read_yaml("\n" * text.count("\n", 0, begin) + part, str(path))
        except ConfigError as error:
            raise InvalidArgumentError(_without_content(error.problems[0])) from None
        if document.problems:
            raise InvalidArgumentError(_without_content(document.problems[0]))
        if document.root.value is not None:
            yield document.root.value
        begin = end


def _without_content(problem: Problem) -> str:
    """Describes a YAML error without YAML's own message, which may quote a value."""
    message = "not valid YAML" if problem.message.startswith(("not valid YAML", "the tag")) else problem.message
    return f"{problem.file}:{problem.line}:{problem.column}: {message}"


# -- Files of a directory ----------------------------------------------------------------------------------------------
# Such as a mounted ConfigMap.


_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """The last valid content of a file, and its current error."""

    classes: tuple[Mapping[str, object], ...] = field(default=(), repr=False)
    secrets: Mapping[SecretId, SecretData] = field(default_factory=dict, repr=False)
    problem: str = ""


class DirectoryReader:
    """Rereads a directory when something in it has changed.

    Keeps the last valid content of a file that became unreadable. Keeps everything while the directory is missing, and
    while files are replaced during a read.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen: dict[str, FileStamp] | None = None
        self._files: dict[str, _File] = {}
        self._declared: tuple[Declared, ...] = ()
        self._trouble = ""

    def read(self) -> Snapshot | None:
        """Returns the content; None when nothing has changed. Blocks."""
        try:
            now = listed(self._directory, _SUFFIXES)
            if now == self._seen and not self._trouble:
                return None
            files = {name: self._file(name, stamp) for name, stamp in now.items()}
            if listed(self._directory, _SUFFIXES) != now:
                return None  # half old, half new: retry next time
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
            message = error.message if error.message.startswith(str(path)) else f"{path}: {error.message}"
            return _File(classes=old.classes, secrets=old.secrets, problem=message)
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
                problems.append(f"{self._directory / name}: machine class {found.value.name} is there twice")
            declared.setdefault(found.id, found)
        self._declared = tuple(declared.values())
        return Snapshot(classes=self._declared, problems=tuple(problems))


def _secret_id(content: Mapping[str, object]) -> SecretId:
    metadata = content.get("metadata")
    if not isinstance(metadata, Mapping):
        raise InvalidArgumentError("a Secret has no metadata.name")
    namespace = metadata.get("namespace") or ""
    return str(namespace), named(metadata)


# -- Classes of the configuration --------------------------------------------------------------------------------------
# Their secrets are in files, directories or the environment.


_Stamps = Mapping[str, FileStamp | None]


class ConfiguredReader:
    """Publishes the classes of a configuration, and rereads their secrets when those have changed.

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
        """Returns all classes; None when nothing has changed. Blocks."""
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
            if _stamps(entry) != self._seen[name]:  # half old, half new: retry next time
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
    """Reads a mapping of names to texts, or a whole Kubernetes Secret."""
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
    """Stamps that change when the secret does."""
    if entry.secret_file is not None:
        return {"": stamp_of(entry.secret_file)}
    if entry.secret_dir is None:
        return {}
    try:
        return listed(entry.secret_dir)
    except (OSError, InvalidArgumentError):
        return {"": None}
