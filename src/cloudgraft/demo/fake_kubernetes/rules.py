"""What the server makes of an object that is sent: defaults, and refusals of what can never be stored."""

from __future__ import annotations

import base64
import re
import secrets
from datetime import UTC, datetime
from typing import Final

from cloudgraft.demo.fake_kubernetes.refusals import Json, RefusedError
from cloudgraft.demo.fake_kubernetes.resources import Resource

__all__ = ["check_change", "check_manifest", "named", "prepare", "prepare_secret", "stamp"]

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.:]*[a-z0-9])?")  # with the colons that names of roles may have
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_LABEL_KEY: Final = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LONGEST_NAME: Final = 253
_LONGEST_VALUE: Final = 63


def stamp(moment: datetime | None = None) -> str:
    """A time as objects have it."""
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


def named(meta: Json) -> str:
    """The name that an object asks for, or one that begins as it asks."""
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
    """What was sent as text is kept as bytes."""
    texts = secret.pop("stringData", None) or {}
    encoded = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
    secret["data"] = (secret.get("data") or {}) | encoded


def check_change(resource: Resource, old: Json, new: Json, *, status_only: bool) -> None:
    """Refuses a change that no object allows, or not one of this kind."""
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
