"""What a Kubernetes API server keeps, and by which rules it changes: the inside of :mod:`tests.kube.fake_api`."""

from __future__ import annotations

import base64
import copy
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

Json = dict[str, Any]
_MERGED_BY_TYPE = ("conditions", "addresses")  # the lists that a strategic patch merges instead of replacing them


class RefusedError(Exception):
    """An answer other than success."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": code,
            "reason": reason,
            "message": message,
        }
        self.code = code


@dataclass(frozen=True)
class Event:
    version: int
    plural: str
    type: str
    object: Json


@dataclass
class Store:
    """Objects, their versions, and what happened to them. Everything under one lock."""

    objects: dict[tuple[str, str, str], Json] = field(default_factory=dict)
    history: list[Event] = field(default_factory=list)
    version: int = 100
    oldest: int = 100  # events up to this version are forgotten
    changed: threading.Condition = field(default_factory=lambda: threading.Condition(threading.RLock()))

    def items(self, plural: str, namespace: str = "") -> list[Json]:
        with self.changed:
            keys = sorted(key for key in self.objects if key[0] == plural and namespace in ("", key[1]))
            return [copy.deepcopy(self.objects[key]) for key in keys]

    def find(self, plural: str, name: str, namespace: str = "") -> Json | None:
        with self.changed:
            return copy.deepcopy(self.objects.get((plural, namespace, name)))

    def compact(self) -> None:
        """Forgets the past: who watches from there must list again."""
        with self.changed:
            self.history.clear()
            self.oldest = self.version

    def create(self, plural: str, namespace: str, manifest: Json) -> Json:
        with self.changed:
            created = copy.deepcopy(manifest)
            meta = created.setdefault("metadata", {})
            key = (plural, namespace, meta["name"])
            if key in self.objects:
                raise RefusedError(409, "AlreadyExists", f'{plural} "{meta["name"]}" already exists')
            if namespace:
                meta["namespace"] = namespace
            meta.update(uid=str(uuid.uuid4()), creationTimestamp=_time())
            if plural == "pods":
                created["status"] = {"phase": "Pending"}  # whatever was sent: only status calls change a status
            if plural == "secrets":
                created["data"] = {
                    name: base64.b64encode(text.encode()).decode()
                    for name, text in created.pop("stringData", {}).items()
                }
            if plural == "nodes":  # as the admission plugin TaintNodesByCondition does
                taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
                created.setdefault("spec", {}).setdefault("taints", []).append(taint)
            return self._put(key, "ADDED", created)

    def patch(self, key: tuple[str, str, str], apply: Callable[[Json], Json], *, status_only: bool) -> Json:
        with self.changed:
            old = self._get(key)
            new = apply(copy.deepcopy(old))
            if new["metadata"]["uid"] != old["metadata"]["uid"]:
                raise RefusedError(422, "Invalid", "metadata.uid: Invalid value: field is immutable")
            if new["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]:
                raise RefusedError(409, "Conflict", "the object has been modified; please apply your changes to it")
            had = old.get("spec", {}).get("providerID", "") if key[0] == "nodes" else ""
            if had and not status_only and new.get("spec", {}).get("providerID") != had:
                message = 'spec: Forbidden: node updates may not change providerID except from "" to valid'
                raise RefusedError(422, "Invalid", message)
            if status_only:
                new = {**old, "status": new.get("status", {})}
            elif key[0] != "leases":  # leases have no status of their own
                new = {**new, "status": old.get("status", {})}
            return copy.deepcopy(old) if new == old else self._put(key, "MODIFIED", new)

    def delete(self, key: tuple[str, str, str], options: Json) -> Json:
        with self.changed:
            old = self._get(key)
            uid = options.get("preconditions", {}).get("uid")
            if uid is not None and uid != old["metadata"]["uid"]:
                raise RefusedError(409, "Conflict", f"the UID in the precondition ({uid}) does not match")
            grace = _grace(key[0], old, options)
            if grace == 0 and not old["metadata"].get("finalizers"):
                del self.objects[key]
                return self._record(key, "DELETED", old)
            end = datetime.now(UTC) + timedelta(seconds=grace)
            new = copy.deepcopy(old)
            new["metadata"].setdefault("deletionTimestamp", _time(end))
            new["metadata"]["deletionGracePeriodSeconds"] = grace
            return self._put(key, "MODIFIED", new)

    def events_after(self, version: int, plural: str) -> Iterator[Event]:
        return (event for event in self.history if event.version > version and event.plural == plural)

    def _get(self, key: tuple[str, str, str]) -> Json:
        try:
            return self.objects[key]
        except KeyError:
            raise RefusedError(404, "NotFound", f'{key[0]} "{key[2]}" not found') from None

    def _put(self, key: tuple[str, str, str], change: str, new: Json) -> Json:
        self.objects[key] = new
        return self._record(key, change, new)

    def _record(self, key: tuple[str, str, str], change: str, changed: Json) -> Json:
        self.version += 1
        changed["metadata"]["resourceVersion"] = str(self.version)
        snapshot = copy.deepcopy(changed)
        self.history.append(Event(self.version, key[0], change, snapshot))
        self.changed.notify_all()
        return snapshot


def merged(old: Any, patch: Any, *, strategic: bool, name: str = "") -> Any:
    """A merge patch; a strategic one also merges some lists, by the type of their entries."""
    if strategic and name in _MERGED_BY_TYPE and isinstance(old, list):
        entries = {entry["type"]: entry for entry in old}
        for entry in patch:
            entries[entry["type"]] = {**entries.get(entry["type"], {}), **entry}
        return list(entries.values())
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value, strategic=strategic, name=key)
    return result


def json_patched(target: Json, operations: list[Json]) -> Json:
    """A JSON patch, as far as it consists of tests and removals."""
    for operation in operations:
        *parents, last = operation["path"].strip("/").split("/")
        try:
            place: Any = target
            for part in parents:
                place = place[int(part) if isinstance(place, list) else part]
            index = int(last) if isinstance(place, list) else last
            if operation["op"] == "test" and place[index] != operation["value"]:
                raise RefusedError(422, "Invalid", "the server rejected our request due to an error in our request")
            if operation["op"] == "remove":
                del place[index]
        except (KeyError, IndexError):
            raise RefusedError(
                422, "Invalid", "the server rejected our request due to an error in our request"
            ) from None
    return target


def _grace(plural: str, old: Json, options: Json) -> int:
    """Only a bound pod that has not ended is given time."""
    if plural != "pods" or not old["spec"].get("nodeName") or old["status"]["phase"] in ("Succeeded", "Failed"):
        return 0
    default = int(old["spec"].get("terminationGracePeriodSeconds", 30))
    return int(options.get("gracePeriodSeconds", default))


def _time(moment: datetime | None = None) -> str:
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")
