"""Applies calls to objects, and sends the changes to watches."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from cloudgraft.demo.fake_kubernetes.objects import check_manifest, patched, stamp
from cloudgraft.demo.fake_kubernetes.resources import Json, Matches, RefusedError, Request, Route, missing, selection
from cloudgraft.demo.fake_kubernetes.store import Event

if TYPE_CHECKING:
    from cloudgraft.demo.fake_kubernetes.server import KubeApi

# -- calls -------------------------------------------------------------------------------------------------------------


def answer(api: KubeApi, route: Route, request: Request, body: bytes, media_type: str) -> Json:
    """The response to a call, or RefusedError."""
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
    """A token of a service account, which authenticates it from now on."""
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


# -- watches -----------------------------------------------------------------------------------------------------------


_TICK: Final = 0.2  # seconds between two checks whether it has ended


class Watching:
    """A watch from the version that is asked for; without one, all objects come first."""

    def __init__(self, api: KubeApi, route: Route, request: Request, matches: Matches) -> None:
        self._api = api
        self._route = route
        self._request = request
        self._matches = matches

    def lines(self, is_over: Callable[[], bool]) -> Iterator[Json]:
        """Its messages, until it ends; the last may be a bookmark."""
        store, query = self._api.store, self._request.query
        seen = int(query.get("resourceVersion") or 0)
        end = time.monotonic() + float(query.get("timeoutSeconds", "60"))
        if not seen:
            with store.changed:
                seen, items = store.version, store.items(self._route.resource.name, self._route.namespace)
            yield from ({"type": "ADDED", "object": item} for item in items if self._matches(item))
        while True:
            with store.changed:
                if seen < store.oldest:
                    break
                events = store.events_after(seen, self._route.resource.name)
                if not events:
                    seen = store.version
                    if is_over() or time.monotonic() > end:
                        break
                    store.changed.wait(_TICK)
                    continue
            for event in events:
                seen = event.version
                if message := self._message(event):
                    yield message
        if seen < store.oldest:
            gone = RefusedError(410, "Expired", f"too old resource version: {seen} ({store.oldest})")
            yield {"type": "ERROR", "object": gone.status}
        else:
            yield from self._last_bookmark(seen)

    def _message(self, event: Event) -> Json | None:
        """Reports an object that begins to match as added, and one that ceases to match as deleted."""
        if self._route.namespace not in ("", event.object["metadata"].get("namespace", "")):
            return None
        was = event.before is not None and self._matches(event.before)
        now = event.type != "DELETED" and self._matches(event.object)
        if not was and not now:
            return None
        change = "MODIFIED" if was and now else "ADDED" if now else "DELETED"
        return {"type": change, "object": event.object}

    def _last_bookmark(self, seen: int) -> Iterator[Json]:
        if self._api.sends_bookmarks and self._request.query.get("allowWatchBookmarks") == "true":
            stump: Json = {"metadata": {"resourceVersion": str(seen), "creationTimestamp": None}}
            if self._request.plural == "pods":
                stump["spec"] = {"containers": None}  # exactly as the real server sends it
            yield {"type": "BOOKMARK", "object": stump}
