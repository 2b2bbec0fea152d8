"""One watch: what happened to objects of a kind, as it happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from cloudgraft.demo.fake_kubernetes.calls import Request
from cloudgraft.demo.fake_kubernetes.refusals import Json, RefusedError
from cloudgraft.demo.fake_kubernetes.resources import Route
from cloudgraft.demo.fake_kubernetes.selectors import Matches
from cloudgraft.demo.fake_kubernetes.store import Event

if TYPE_CHECKING:
    from cloudgraft.demo.fake_kubernetes.server import KubeApi

__all__ = ["Watching"]

_TICK: Final = 0.2  # seconds between two looks at whether it is over


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
        """An object that comes to match is told as new, and one that ceases to as gone."""
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
