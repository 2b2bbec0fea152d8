"""What calls do to objects."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cloudgraft.demo.fake_kubernetes.calls import Request
from cloudgraft.demo.fake_kubernetes.patches import patched
from cloudgraft.demo.fake_kubernetes.refusals import Json, RefusedError, missing
from cloudgraft.demo.fake_kubernetes.resources import Route
from cloudgraft.demo.fake_kubernetes.rules import check_manifest, stamp
from cloudgraft.demo.fake_kubernetes.selectors import selection

if TYPE_CHECKING:
    from cloudgraft.demo.fake_kubernetes.server import KubeApi

__all__ = ["answer"]


def answer(api: KubeApi, route: Route, request: Request, body: bytes, media_type: str) -> Json:
    """What a call gives, or RefusedError."""
    _check_subresource(route, request)
    if request.method == "GET":
        return _read(api, route) if route.name else _page(api, route, request)
    sent = json.loads(body) if body else {}
    match request.method:
        case "POST":
            return _token(api, route, sent) if route.subresource == "token" else _create(api, route, sent)
        case "PUT":
            return _replace(api, route, sent)
        case "PATCH":
            return _patch(api, route, sent, media_type)
    return api.store.delete((route.resource.name, route.namespace, route.name), sent)


def _check_subresource(route: Route, request: Request) -> None:
    known = {"": True, "status": route.resource.has_status, "token": route.resource.name == "serviceaccounts"}
    if not known.get(route.subresource, False):
        raise RefusedError(404, "NotFound", "the server could not find the requested resource")
    if request.method != "GET" and bool(route.name) is (request.method == "POST" and route.subresource != "token"):
        raise RefusedError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def _read(api: KubeApi, route: Route) -> Json:
    found = api.store.find(route.resource.name, route.name, route.namespace)
    if found is None:
        raise missing(route.resource.name, route.name)
    return found


def _patch(api: KubeApi, route: Route, patch: object, media_type: str) -> Json:
    def apply(old: Json) -> Json:
        new = patched(route.resource, old, patch, media_type)
        check_manifest(route.resource, new, route.namespace)
        return new

    key = (route.resource.name, route.namespace, route.name)
    return api.store.patch(key, apply, status_only=route.subresource == "status")


def _create(api: KubeApi, route: Route, manifest: Json) -> Json:
    if route.resource.namespaced:
        space = api.store.find("namespaces", route.namespace)
        if space is None:
            raise missing("namespaces", route.namespace)
        if space["metadata"].get("deletionTimestamp"):
            message = f"unable to create new content in namespace {route.namespace} because it is being terminated"
            raise RefusedError(403, "Forbidden", message)
    check_manifest(route.resource, manifest, route.namespace)
    for admit in api.admission:
        admit(route.resource, route.namespace, manifest)
    return api.store.create(route.resource.name, route.namespace, manifest)


def _replace(api: KubeApi, route: Route, manifest: Json) -> Json:
    check_manifest(route.resource, manifest, route.namespace)
    meta = manifest.get("metadata") or {}
    if meta.get("name") != route.name:
        raise RefusedError(400, "BadRequest", "the name of the object does not match the name on the URL")
    if route.resource.is_custom and not meta.get("resourceVersion"):
        message = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
        raise RefusedError(422, "Invalid", message)
    key = (route.resource.name, route.namespace, route.name)
    return api.store.patch(key, lambda _: manifest, status_only=route.subresource == "status")


def _token(api: KubeApi, route: Route, request: Json) -> Json:
    """A token of a service account, with which it gets in from now on."""
    if api.store.find("serviceaccounts", route.name, route.namespace) is None:
        raise missing("serviceaccounts", route.name)
    seconds = int((request.get("spec") or {}).get("expirationSeconds") or 3600)
    user = api.users.of_account(route.namespace, route.name)
    until = stamp(datetime.now(UTC) + timedelta(seconds=seconds))
    meta = {"name": route.name, "namespace": route.namespace, "creationTimestamp": stamp()}
    return {**request, "metadata": meta, "status": {"token": user.token, "expirationTimestamp": until}}


def _page(api: KubeApi, route: Route, request: Request) -> Json:
    """All pages show the moment of the first; a token that is too old is 410, as in etcd after a compaction."""
    store, query = api.store, request.query
    matches = selection(route.resource, query)
    with store.changed:
        version, begin = map(int, query.get("continue", f"{store.version}:0").split(":"))
        if version < store.oldest:
            raise RefusedError(410, "Expired", "The provided continue parameter is too old")
        items = [item for item in store.items(route.resource.name, route.namespace) if matches(item)]
    limit = min(int(query.get("limit", "1000000")), api.page_limit)
    meta = {"resourceVersion": str(version)}
    if begin + limit < len(items):
        meta["continue"] = f"{version}:{begin + limit}"
    page = items[begin : begin + limit]
    kind = f"{route.resource.kind}List"
    return {"kind": kind, "apiVersion": route.resource.api_version, "metadata": meta, "items": page}
