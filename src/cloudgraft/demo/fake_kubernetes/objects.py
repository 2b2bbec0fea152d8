"""Processes objects that are sent: patches, defaults, and refusals."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, cast

from cloudgraft.demo.fake_kubernetes.resources import Json, RefusedError, Resource

# -- patches -----------------------------------------------------------------------------------------------------------


_KEYS: Final = {  # the lists that a strategic patch merges instead of replacing them, and by which key
    "conditions": "type",
    "addresses": "type",
    "ownerReferences": "uid",
    "containers": "name",
    "imagePullSecrets": "name",
}
_JSON: Final = "application/json-patch+json"
_MERGE: Final = "application/merge-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"


def patched(resource: Resource, old: Json, patch: Any, style: str) -> Json:
    """The object with the patch on it. Custom objects have no strategic patches. Raises RefusedError."""
    style = style.partition(";")[0].strip()
    if style == _JSON:
        return _operated(old, patch)
    if style == _MERGE or (style == _STRATEGIC and not resource.is_custom):
        return cast("Json", _merged(old, patch, strategic=style == _STRATEGIC))
    known = f"{_JSON}, {_MERGE}" + ("" if resource.is_custom else f", {_STRATEGIC}")
    raise RefusedError(415, "UnsupportedMediaType", f"the body of the request was in an unknown format - use: {known}")


def _merged(old: Any, patch: Any, *, strategic: bool, name: str = "") -> Any:
    if strategic and name == "finalizers" and isinstance(old, list):
        return [*old, *(entry for entry in patch if entry not in old)]
    if strategic and name in _KEYS and isinstance(old, list):
        return _merged_list(old, patch, _KEYS[name])
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value, strategic=strategic, name=key)
    return result


def _merged_list(old: list[Json], patch: list[Json], key: str) -> list[Json]:
    entries = {entry[key]: entry for entry in old}
    for entry in patch:
        if entry.get("$patch") == "delete":
            entries.pop(entry[key], None)
        else:
            entries[entry[key]] = {**entries.get(entry[key], {}), **entry}
    return list(entries.values())


def _operated(target: Json, operations: Sequence[Json]) -> Json:
    for operation in operations:
        try:
            _operate(target, operation)
        except (KeyError, IndexError, ValueError):
            raise _rejected() from None
    return target


def _operate(target: Json, operation: Json) -> None:
    """Tests, removals, additions and replacements; nothing moves or copies."""
    *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:])
    place: Any = target
    for part in parents:
        place = place[int(part) if isinstance(place, list) else part]
    if operation["op"] == "add" and isinstance(place, list):
        place.insert(len(place) if last == "-" else int(last), operation["value"])
        return
    index = int(last) if isinstance(place, list) else last
    match operation["op"]:
        case "add":
            place[index] = operation["value"]
        case "replace":
            del place[index]  # what is not there cannot be replaced
            _operate(target, {**operation, "op": "add"})
        case "remove":
            del place[index]
        case "test":
            if place[index] != operation["value"]:
                raise _rejected()
        case other:
            raise RefusedError(422, "Invalid", f"operation {other!r} is not known here")


def _rejected() -> RefusedError:
    return RefusedError(422, "Invalid", "the server rejected our request due to an error in our request")


# -- defaults and validation -------------------------------------------------------------------------------------------


_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.:]*[a-z0-9])?")  # with the colons that names of roles may have
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_LABEL_KEY: Final = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LONGEST_NAME: Final = 253
_LONGEST_VALUE: Final = 63


def stamp(moment: datetime | None = None) -> str:
    """A time as objects have it."""
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


def named(meta: Json) -> str:
    """The name of an object, or one generated with its prefix."""
    if not meta.get("name") and meta.get("generateName"):
        alphabet = "bcdfghjklmnpqrstvwxz2456789"
        meta["name"] = meta["generateName"] + "".join(secrets.choice(alphabet) for _ in range(5))
    if not meta.get("name"):
        raise RefusedError(422, "Invalid", "metadata.name: Required value: name or generateName is required")
    return str(meta["name"])


def check_manifest(resource: Resource, manifest: Json, namespace: str) -> None:
    """Refuses an object that belongs elsewhere, or whose name or labels are not allowed."""
    meta = manifest.get("metadata") or {}
    for key, right in (("apiVersion", resource.api_version), ("kind", resource.kind)):
        said = manifest.get(key, "" if resource.is_custom else right)
        if said != right:
            raise RefusedError(
                400, "BadRequest", f"the {key} in the data ({said!r}) is not the expected one ({right!r})"
            )
    if meta.get("namespace", namespace) != namespace:
        raise RefusedError(400, "BadRequest", "the namespace of the object does not match the namespace on the request")
    name = meta.get("name", "")
    if name and (len(name) > _LONGEST_NAME or not _NAME.fullmatch(name)):
        raise RefusedError(422, "Invalid", f"metadata.name: Invalid value: {name!r}: a lowercase RFC 1123 name must be")
    for key, value in (meta.get("labels") or {}).items():
        if not _LABEL_KEY.fullmatch(key) or len(key.rpartition("/")[2]) > _LONGEST_VALUE:
            raise RefusedError(422, "Invalid", f"metadata.labels: Invalid value: {key!r}: name part must be valid")
        if not isinstance(value, str) or len(value) > _LONGEST_VALUE or not _LABEL_VALUE.fullmatch(value):
            raise RefusedError(422, "Invalid", f"metadata.labels: Invalid value: {value!r}: a valid label must be")


def prepare(resource: Resource, created: Json) -> None:
    """Fills in what the server adds to a new object. A status that was sent counts for nodes only."""
    if resource.name == "pods":
        created["status"] = {"phase": "Pending"}
    elif resource.name == "namespaces":
        created["spec"] = {"finalizers": ["kubernetes"]}
        created["status"] = {"phase": "Active"}
    elif resource.name == "nodes":  # as the admission plugin TaintNodesByCondition does
        taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        created.setdefault("spec", {}).setdefault("taints", []).append(taint)
    elif resource.plural == "customresourcedefinitions":
        conditions = [{"type": kind, "status": "True"} for kind in ("NamesAccepted", "Established")]
        created["status"] = {"conditions": conditions, "acceptedNames": created["spec"]["names"]}
    elif resource.has_status:
        created.pop("status", None)
    if resource.name == "secrets":
        created.setdefault("type", "Opaque")
        prepare_secret(created)


def prepare_secret(secret: Json) -> None:
    """Stores data that was sent as text as bytes."""
    texts = secret.pop("stringData", None) or {}
    encoded = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
    secret["data"] = (secret.get("data") or {}) | encoded


def check_change(resource: Resource, old: Json, new: Json, *, status_only: bool) -> None:
    """Refuses changes to immutable fields, of all objects or of this kind."""
    if new["metadata"].get("uid", "") not in ("", old["metadata"]["uid"]):
        raise RefusedError(422, "Invalid", "metadata.uid: Invalid value: field is immutable")
    if new["metadata"].get("resourceVersion", "") not in ("", old["metadata"]["resourceVersion"]):
        raise RefusedError(409, "Conflict", "the object has been modified; please apply your changes to it")
    if status_only:
        return
    if old["metadata"].get("deletionTimestamp"):
        more = set(new["metadata"].get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ())
        if more:
            raise RefusedError(422, "Invalid", f"metadata.finalizers: Forbidden: no new finalizers: {sorted(more)}")
    had = old.get("spec", {}).get("providerID", "") if resource.name == "nodes" else ""
    if had and new.get("spec", {}).get("providerID") != had:
        message = 'spec: Forbidden: node updates may not change providerID except from "" to valid'
        raise RefusedError(422, "Invalid", message)
