"""Stores objects by the rules of a Kubernetes API server."""

from __future__ import annotations

import copy
import threading
import uuid
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from cloudgraft.demo.fake_kubernetes.objects import check_change, named, prepare, prepare_secret, stamp
from cloudgraft.demo.fake_kubernetes.resources import Json, RefusedError, Resource, Resources, missing

Key = tuple[str, str, str]  # the kind by its plural or full name, the namespace, the name
_REMEMBERED: Final = 50_000  # events; a watch from before them must list again
_FOREGROUND: Final = "foregroundDeletion"  # the object waits for what it owns; a fake collector removes it
_SERVERS_OWN: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


@dataclass(frozen=True, slots=True)
class Event:
    """A change of one object; ``before`` is None for a new one."""

    version: int
    resource: str
    type: str
    object: Json
    before: Json | None


@dataclass
class Store:
    """Objects, their versions and their events. Everything under one lock."""

    resources: Resources = field(default_factory=Resources)
    objects: dict[Key, Json] = field(default_factory=dict)
    history: list[Event] = field(default_factory=list)
    version: int = 100
    oldest: int = 100  # events up to this version are forgotten
    changed: threading.Condition = field(default_factory=lambda: threading.Condition(threading.RLock()))

    def items(self, plural: str, namespace: str = "") -> list[Json]:
        """Copies of all objects of a kind, by namespace and name."""
        resource = self.resources.named(plural).name
        with self.changed:
            keys = sorted(key for key in self.objects if key[0] == resource and namespace in ("", key[1]))
            return [copy.deepcopy(self.objects[key]) for key in keys]

    def find(self, plural: str, name: str, namespace: str = "") -> Json | None:
        """A copy of one object."""
        with self.changed:
            return copy.deepcopy(self.objects.get((self.resources.named(plural).name, namespace, name)))

    def compact(self) -> None:
        """Forgets old events: a watch from there must list again."""
        with self.changed:
            self.history.clear()
            self.oldest = self.version

    def create(self, plural: str, namespace: str, manifest: Json) -> Json:
        """Creates an object. Raises RefusedError when there is one of that name."""
        resource = self.resources.named(plural)
        with self.changed:
            created = copy.deepcopy(manifest)
            meta = created.setdefault("metadata", {})
            key = (resource.name, namespace, named(meta))
            if key in self.objects:
                raise RefusedError(409, "AlreadyExists", f'{resource.name} "{meta["name"]}" already exists')
            if namespace:
                meta["namespace"] = namespace
            for name in _SERVERS_OWN:
                meta.pop(name, None)
            meta.update(uid=str(uuid.uuid4()), creationTimestamp=stamp())
            if resource.is_custom:  # its objects always say what they are, even in lists
                created |= {"apiVersion": resource.api_version, "kind": resource.kind}
            if resource.is_custom or resource.group == "apps":
                meta["generation"] = 1
            prepare(resource, created)
            if resource.plural == "customresourcedefinitions":
                self.resources.add(*Resource.defined_by(created))
            return self._put(key, "ADDED", created)

    def patch(self, key: Key, apply: Callable[[Json], Json], *, status_only: bool = False) -> Json:
        """Changes an object, or its status only. Removing the last finalizer of one being deleted deletes it."""
        resource = self.resources.named(key[0])
        key = (resource.name, *key[1:])
        with self.changed:
            old = self._get(key)
            new = apply(copy.deepcopy(old))
            check_change(resource, old, new, status_only=status_only)
            new = {**old, "status": new.get("status", {})} if status_only else _kept(resource, old, new)
            if new == old:
                return copy.deepcopy(old)
            if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers") and not _grace(old):
                return self._remove(key, new)
            return self._put(key, "MODIFIED", new)

    def delete(self, key: Key, options: Json) -> Json:
        """Deletes an object, or marks it as deleted while finalizers or a kubelet still hold it."""
        key = (self.resources.named(key[0]).name, *key[1:])
        with self.changed:
            old = self._get(key)
            uid = options.get("preconditions", {}).get("uid")
            if uid is not None and uid != old["metadata"]["uid"]:
                raise RefusedError(409, "Conflict", f"the UID in the precondition ({uid}) does not match")
            grace = _grace_asked(key[0], old, options)
            if key[0] == "namespaces":
                return self._end_namespace(key, old)
            is_foreground = options.get("propagationPolicy") == "Foreground"
            if grace == 0 and not old["metadata"].get("finalizers") and not is_foreground:
                return self._remove(key, old)
            new = _marked(old, grace)
            if is_foreground and _FOREGROUND not in new["metadata"].get("finalizers", ()):
                new["metadata"]["finalizers"] = [*new["metadata"].get("finalizers", ()), _FOREGROUND]
            return copy.deepcopy(old) if new == old else self._put(key, "MODIFIED", new)

    def events_after(self, version: int, resource: str) -> Sequence[Event]:
        """What happened to objects of a kind, by its full name, after a version."""
        begin = bisect_right(self.history, version, key=lambda event: event.version)
        return [event for event in self.history[begin:] if event.resource == resource]

    def _get(self, key: Key) -> Json:
        try:
            return self.objects[key]
        except KeyError:
            raise missing(key[0], key[2]) from None

    def _end_namespace(self, key: Key, old: Json) -> Json:
        """Deletes a namespace as its controller does: its objects go first, and no new ones are accepted."""
        if not old["metadata"].get("deletionTimestamp"):
            new = _marked(old, 0)
            new["status"] = {**new.get("status", {}), "phase": "Terminating"}
            old = self._put(key, "MODIFIED", new)
            for inside in [each for each in self.objects if each[1] == key[2]]:
                self.delete(inside, {"gracePeriodSeconds": 0})
        self._finish_namespace(key[2])
        return old

    def _finish_namespace(self, name: str) -> None:
        key = ("namespaces", "", name)
        found = self.objects.get(key)
        if found and found["metadata"].get("deletionTimestamp") and not any(each[1] == name for each in self.objects):
            self._remove(key, found)

    def _put(self, key: Key, change: str, new: Json) -> Json:
        before = self.objects.get(key)
        self.objects[key] = new
        return self._record(key, change, new, before)

    def _remove(self, key: Key, old: Json) -> Json:
        before = self.objects.pop(key)
        gone = self._record(key, "DELETED", old, before)
        if key[1]:
            self._finish_namespace(key[1])
        return gone

    def _record(self, key: Key, change: str, changed: Json, before: Json | None) -> Json:
        self.version += 1
        before = copy.deepcopy(before)
        changed["metadata"]["resourceVersion"] = str(self.version)
        snapshot = copy.deepcopy(changed)
        self.history.append(Event(self.version, key[0], change, snapshot, before))
        if len(self.history) > _REMEMBERED:
            del self.history[: _REMEMBERED // 2]
            self.oldest = self.history[0].version - 1
        self.changed.notify_all()
        return snapshot


def _kept(resource: Resource, old: Json, new: Json) -> Json:
    """A changed object with the server's own fields unchanged, and its generation counted."""
    if resource.name == "secrets":
        prepare_secret(new)
    if resource.has_status:
        new = {key: value for key, value in new.items() if key != "status"}
        new |= {"status": old["status"]} if "status" in old else {}
    own = {key: value for key, value in old["metadata"].items() if key in (*_SERVERS_OWN, "resourceVersion", "name")}
    rest = {key: value for key, value in new["metadata"].items() if key not in _SERVERS_OWN}
    new["metadata"] = {**rest, **own} | ({"namespace": old["metadata"]["namespace"]} if _has_space(old) else {})
    if "generation" in own and _content(new) != _content(old):
        new["metadata"]["generation"] += 1
    return new


def _has_space(item: Json) -> bool:
    return "namespace" in item["metadata"]


def _content(item: Json) -> Json:
    return {key: value for key, value in item.items() if key not in {"metadata", "status"}}


def _marked(old: Json, grace: int) -> Json:
    new = copy.deepcopy(old)
    meta = new["metadata"]
    if "generation" in meta and "deletionTimestamp" not in meta:
        meta["generation"] += 1
    meta.setdefault("deletionTimestamp", stamp(datetime.now(UTC) + timedelta(seconds=grace)))
    meta["deletionGracePeriodSeconds"] = grace
    return new


def _grace(item: Json) -> int:
    return int(item["metadata"].get("deletionGracePeriodSeconds") or 0)


def _grace_asked(resource: str, old: Json, options: Json) -> int:
    """The grace period: only a bound pod that has not ended gets one."""
    if resource != "pods" or not old["spec"].get("nodeName") or old["status"]["phase"] in ("Succeeded", "Failed"):
        return 0
    default = int(old["spec"].get("terminationGracePeriodSeconds", 30))
    return int(options.get("gracePeriodSeconds", default))
