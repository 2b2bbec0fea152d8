"""The three kinds of patches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from cloudgraft.demo.fake_kubernetes.refusals import Json, RefusedError
from cloudgraft.demo.fake_kubernetes.resources import Resource

__all__ = ["patched"]

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
