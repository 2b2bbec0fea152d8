"""Finds what drivers take from their host and the image of the pod does not have: programs, libraries, state, homes."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from cloudgraft._version import __version__
from cloudgraft.config import parse_options
from cloudgraft.config.sections.clouds import EntryPointCloud, PluginCloud
from cloudgraft.config.sections.providers import EntryPointProvider, ExternalGrpcProvider, PluginProvider
from cloudgraft.deploy.draft import JOURNAL_DIRECTORY, Draft
from cloudgraft.deploy.files import NamedFile, class_of
from cloudgraft.drivers.exec.options import CommandOptions
from cloudgraft.plugins.registry import provider_class
from cloudgraft.sdk.driver import Place
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.validation.explain import item_type, keys_of, unwrap
from cloudgraft.validation.problems import KeyPath, printable

_IMAGE: Final = "goes into an image on top of cloudgraft's (docs/how-to/deploy-to-kubernetes.md)"
_SCRIPT: Final = re.compile(r"[\w.-]+\.(py|sh|js|mjs|rb|pl|jar)")
_LISTS: Final = frozenset({"machinesFile", "hostsFile", "configFile"})  # files that name other files


class HostNeeds:
    """What a configuration takes from its host. ``copies`` are the files of an image on top: there, and here."""

    def __init__(self, draft: Draft) -> None:
        """Nothing yet: :meth:`write` finds it."""
        self._draft = draft
        self.copies: dict[str, str] = {}
        self.packages: set[str] = set()

    def write(self, files: Sequence[NamedFile]) -> list[NamedFile]:
        """Rewrites programs and state, warns of the rest, and returns the files that are left to mount."""
        draft = self._draft
        for name, cloud in draft.config.clouds.items():
            path: KeyPath = ("clouds", name)
            if isinstance(cloud, PluginCloud):
                self._write_plugin(path, name, cloud.command)
            elif isinstance(cloud, EntryPointCloud):
                self._write_driver(path, name, cloud)
        for index, (name, entry) in enumerate(zip(draft.config.names(), draft.config.providers, strict=True)):
            path = ("providers", index)
            if isinstance(entry, PluginProvider):
                own = f"provider-{name}" if name in draft.config.clouds else name
                self._write_plugin(path, own, entry.command)
            elif isinstance(entry, ExternalGrpcProvider) and entry.address.startswith("unix:"):
                draft.warn((*path, "address"), "a socket of this host is not in the pod: use host:port")
            elif isinstance(entry, EntryPointProvider):
                self._write_provider(path, entry.type)
        return [file for file in files if not self._is_written(file)]

    def dockerfile(self) -> list[str]:
        """The image on top, if one is needed."""
        if not self.copies and not self.packages:
            return []
        return [
            f"FROM cloudgraft:{__version__}",
            "USER root",
            *(f"RUN pip install {package}" for package in sorted(self.packages)),
            *(f"COPY --chmod=555 {_copied(source, target)}" for target, source in self.copies.items()),
            "USER 65532:65532",
        ]

    # -- programs ----------------------------------------------------------------------------------------------------

    def _write_plugin(self, path: KeyPath, name: str, command: Sequence[str]) -> None:
        draft, home = self._draft, f"/opt/{name}"
        said = [str(word) for word in draft.at((*path, "command"))]
        given = draft.at((*path, "workingDirectory"))
        scripts = self._scripts((*path, "command"), said[1:])
        program = said[0]
        if "/" in program and not program.startswith("/"):
            target = posixpath.normpath(posixpath.join(home, program))
            draft.rewrite((*path, "command", 0), target)
            self.copies[target] = program
        if scripts or (given is not None and not str(given).startswith("/")):
            draft.rewrite((*path, "workingDirectory"), home)
            self._copy(path, scripts, str(given or ""), home)
        draft.warn(path, f"the plugin {printable(command[0])} {_IMAGE}")  # other words of it may be secret
        if draft.at((*path, "options")):
            draft.warn((*path, "options"), "files that a plugin's options name are not found: mount them yourself")

    def _write_driver(self, path: KeyPath, name: str, cloud: EntryPointCloud) -> None:
        draft, cls = self._draft, class_of(self._draft.config, name)
        if cls is None:
            return
        if not cls.__module__.startswith("cloudgraft."):
            self._write_package(path, "cloudgraft.drivers", cloud.driver)
            if not keys_of(cls.Options) and cloud.options:
                draft.warn(path, "its driver does not declare its options: files that they name are not found")
        if cls.Options is not None and issubclass(cls.Options, CommandOptions):
            self._write_commands(path, name, cloud, cls.Options)
        if cloud.driver == "libvirt":
            draft.warn(
                path, f"libvirt's library, and what its uri needs, {_IMAGE}; a pod cannot use libvirt of its host"
            )
        if cloud.driver == "ec2":
            _warn_of_aws(draft, path, cloud.options)
        if cloud.driver == "openstack":
            _warn_of_openstack(draft, path, cloud.options)
        if cloud.driver == "redfish" and cloud.options.get("seedDirectory"):
            message = "the chart has no volume that both the pod and your web server for images could use"
            draft.refuse((*path, "seedDirectory"), message, "use the plain manifests of deploy/, with such a volume")
        is_shared = cloud.driver == "simulated" and cloud.options.get("url")
        if draft.is_replicated and not is_shared and _keeps_state(cls.Options):
            message = f"the driver {cloud.driver} keeps its account of machines in a file, which replicas cannot share"
            draft.refuse((*path, "driver"), message, "use store.path, for one pod with a volume")

    def _write_provider(self, path: KeyPath, kind: str) -> None:
        try:
            is_ours = provider_class(kind).__module__.startswith("cloudgraft.")
        except CloudgraftError:
            return
        if not is_ours:
            self._write_package(path, "cloudgraft.providers", kind)
        if kind == "ec2-asg":
            _warn_of_aws(self._draft, path, self._draft.at((*path, "options")) or {})

    def _write_package(self, path: KeyPath, group: str, name: str) -> None:
        found = entry_points(group=group, name=name)
        package = next((_package(point) for point in found), "")
        if package:
            self.packages.add(package)
        self._draft.warn(path, f"the Python package {package or 'with its class'} {_IMAGE}")

    def _write_commands(self, path: KeyPath, name: str, cloud: EntryPointCloud, kind: type[CommandOptions]) -> None:
        draft, home = self._draft, f"/opt/{name}"
        options = parse_options(kind, cloud.options, draft.config.where(*path))
        commands = options.commands()
        given = str(draft.at((*path, "workingDirectory")) or "")
        scripts = [word for key, words in commands.items() for word in self._scripts((*path, key), words)]
        if given.startswith("/"):
            self._copy(path, scripts, "", given)
        elif given or scripts:
            draft.rewrite((*path, "workingDirectory"), home)
            self._copy(path, scripts, given, home)
        programs = sorted({printable(words[0]) for words in commands.values()})
        draft.warn(path, f"what it runs {_IMAGE}, with all that this calls: {', '.join(programs)}")
        draft.warn(path, "ports that its programs call are not known: add them to server.egressPorts")

    def _scripts(self, path: KeyPath, words: Sequence[str]) -> list[str]:
        """The words that name programs and scripts. What follows an option may hold a secret, and is not copied."""
        found: list[str] = []
        for index, word in enumerate(words):
            if not _is_here(word):
                continue
            if index and words[index - 1].startswith("-") and _SCRIPT.fullmatch(posixpath.basename(word)) is None:
                self._draft.warn(path, f"the file {printable(word)} is not found in the pod: mount it yourself")
            else:
                found.append(word)
        return found

    def _copy(self, path: KeyPath, scripts: Sequence[str], here: str, there: str) -> None:
        for script in scripts:
            source = posixpath.normpath(posixpath.join(here, script))
            if source.startswith("../"):
                text = f"{printable(source)} is not below the directory in which the image is built: copy it there"
                self._draft.warn(path, text)
            self.copies[posixpath.normpath(posixpath.join(there, script))] = source

    # -- files -------------------------------------------------------------------------------------------------------

    def _is_written(self, file: NamedFile) -> bool:
        """Whether a file is no matter of mounts, because it is one that a driver makes; moves that to the volume."""
        draft = self._draft
        if file.key == "workingDirectory" or (file.key == "seedDirectory" and file.is_directory):
            return True
        if file.place is Place.STATE_FILE:
            now = f"{JOURNAL_DIRECTORY}/{file.owner.kind}-{file.owner.name}.db"
            draft.rewrite(file.path, now)
            text = (
                f"in the pod it is {now}, on the volume of the journal: copy yours there, or its machines are unknown"
            )
            draft.warn(file.path, text)
            return True
        if file.place is Place.MADE:
            if draft.is_replicated:
                draft.refuse(file.path, "the driver writes there, and pods of server.mode replicas have no volume")
            now = f"{JOURNAL_DIRECTORY}/{file.owner.name}-{posixpath.basename(file.text)}"
            draft.rewrite(file.path, now)
            draft.warn(file.path, f"in the pod it is {now}, on the volume of the journal")
            return True
        if file.key in _LISTS:
            draft.warn(
                file.path, "files that this file names are not found: add them to the same Secret, and name them there"
            )
        return False


def _copied(source: str, target: str) -> str:
    """The words of a COPY, which takes blanks in the form of JSON only."""
    return f"{source} {target}" if not re.search(r"\s", source + target) else json.dumps([source, target])


def _is_here(word: str) -> bool:
    """Whether a word of a command names a file beside it, as far as the word itself says."""
    is_relative = "/" in word and not word.startswith(("/", "-")) and "://" not in word and "=" not in word
    return is_relative or _SCRIPT.fullmatch(word) is not None


def _keeps_state(annotation: Any) -> bool:
    """Whether options have a file that only one process may use, at any depth."""
    return any(
        key.place is Place.STATE_FILE or _keeps_state(key.annotation) or _keeps_state(item_type(key.annotation))
        for key in keys_of(unwrap(annotation)).values()
    )


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else ""


def _warn_of_aws(draft: Draft, path: KeyPath, options: Any) -> None:
    if options.get("profile"):
        draft.warn((*path, "profile"), "the pod has no ~/.aws: use accessKeyIdFile and secretAccessKeyFile, or a role")
    elif not options.get("accessKeyIdFile"):
        text = (
            "without files with a key it uses what AWS gives to the pod: annotate the account, or add port 80 to "
            "server.egressPorts for the metadata service of its host"
        )
        draft.warn(path, text)


def _warn_of_openstack(draft: Draft, path: KeyPath, options: Any) -> None:
    if options.get("cloud") and not options.get("configFile"):
        draft.warn((*path, "cloud"), "the pod has no clouds.yaml: name yours in configFile, and it is mounted")
    text = (
        "the catalog of an OpenStack names more endpoints: add their ports to server.egressPorts, such as 8774 and 9696"
    )
    draft.warn(path, text)
