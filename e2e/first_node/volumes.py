"""Materialises the volumes of a pod as directories, with the owners and modes that a kubelet gives them."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from e2e.first_node.api import Api, Object

__all__ = ["NotReadyError", "Volumes"]

_MODE: Final = 0o644


class NotReadyError(Exception):
    """Something that is to be mounted is not there yet. The text is as `kubectl describe pod` would have it."""


class Volumes:
    """Of one pod, in a directory of its own."""

    def __init__(self, api: Api, pod: Object, directory: Path) -> None:
        self._api = api
        self._meta = pod["metadata"]
        self._spec = pod["spec"]
        self._directory = directory
        self._core = f"/api/v1/namespaces/{self._meta['namespace']}"

    def prepare(self) -> Mapping[str, tuple[Path, bool]]:
        """The directory of each volume by its name, and whether containers may write there. May be called again."""
        return {volume["name"]: self._prepare(volume) for volume in self._spec.get("volumes", ())}

    def remove(self) -> None:
        """Removes what only this pod had."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def _prepare(self, volume: Mapping[str, Any]) -> tuple[Path, bool]:
        (kind,) = volume.keys() - {"name"}
        given, path = volume[kind], self._directory / volume["name"]
        match kind:
            case "emptyDir":
                path.mkdir(parents=True, exist_ok=True)
                return self._owned(path, 0o2777), True
            case "persistentVolumeClaim":
                return self._owned(self._claimed(given["claimName"]), 0o2775), True
            case "configMap" | "secret":
                files = self._files(kind, given)
            case "projected":
                files = {}
                for source in given["sources"]:
                    ((part, what),) = source.items()
                    files |= self._files(part, what)
            case _:
                raise NotImplementedError(f"volume {volume}")
        return self._written(path, files, int(given.get("defaultMode", _MODE))), False

    def _claimed(self, name: str) -> Path:
        claim = self._api.find(f"{self._core}/persistentvolumeclaims/{name}")
        if claim is None or claim["status"].get("phase") != "Bound":
            raise NotReadyError(f"persistentvolumeclaim {name!r} is not bound")
        volume = self._api.find(f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}")
        assert volume is not None
        return Path(volume["spec"]["hostPath"]["path"])

    def _files(self, kind: str, given: Mapping[str, Any]) -> Mapping[str, bytes]:
        match kind:
            case "configMap":
                found = self._found("configmaps", given["name"])
                data = {key: text.encode() for key, text in found.get("data", {}).items()}
                return _selected(data, given, f"configmap {given['name']!r}")
            case "secret":
                found = self._found("secrets", given["secretName"])
                data = {key: base64.b64decode(text) for key, text in found.get("data", {}).items()}
                return _selected(data, given, f"secret {given['secretName']!r}")
            case "serviceAccountToken":
                return {given["path"]: self._token(given["expirationSeconds"])}
            case "downwardAPI":
                paths = {item["path"]: item["fieldRef"]["fieldPath"] for item in given["items"]}
                assert set(paths.values()) == {"metadata.namespace"}, paths
                return {path: self._meta["namespace"].encode() for path in paths}
            case _:
                raise NotImplementedError(f"source {kind} of a projected volume")

    def _found(self, plural: str, name: str) -> Object:
        found = self._api.find(f"{self._core}/{plural}/{name}")
        if found is None:
            raise NotReadyError(f"{plural.removesuffix('s')} {name!r} not found")
        return found

    def _token(self, seconds: int) -> bytes:
        bound = {"apiVersion": "v1", "kind": "Pod", "name": self._meta["name"], "uid": self._meta["uid"]}
        spec = {"expirationSeconds": seconds, "boundObjectRef": bound}
        path = f"{self._core}/serviceaccounts/{self._spec['serviceAccountName']}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        return str(self._api.create(path, request)["status"]["token"]).encode()

    @property
    def _group(self) -> int:
        return int(self._spec.get("securityContext", {}).get("fsGroup", 0))

    def _owned(self, path: Path, mode: int) -> Path:
        os.chown(path, 0, self._group)
        path.chmod(mode)
        return path

    def _written(self, path: Path, files: Mapping[str, bytes], mode: int) -> Path:
        path.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            file = path / name
            file.touch(mode=0o600)
            file.write_bytes(data)
            os.chown(file, 0, self._group)
            file.chmod(mode | (0o440 if self._group else 0))
        return path


def _selected(data: Mapping[str, bytes], given: Mapping[str, Any], what: str) -> Mapping[str, bytes]:
    """The keys that the volume names, or all."""
    if "items" not in given:
        return data
    missing = [item["key"] for item in given["items"] if item["key"] not in data]
    if missing:
        raise NotReadyError(f"references non-existent {what} key: {', '.join(missing)}")
    return {item["path"]: data[item["key"]] for item in given["items"]}
