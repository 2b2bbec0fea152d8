"""A small client of the Kubernetes API: list, watch, create, patch, delete, with values of our own.

Get one with :func:`cloudgraft.kube.connect.connect`, which says what to install when this cannot be imported.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from urllib.parse import quote

from msgspec import MsgspecError

from cloudgraft.kube.api import Api, Call
from cloudgraft.kube.decode import decode_change, decode_object, decode_page
from cloudgraft.kube.objects import Change, Kind, Listing, Manifest, PatchStyle, V
from cloudgraft.sdk.errors import UnavailableError

__all__ = ["KubeClient"]

_PAGE = 500
_WATCH_SECONDS = 60  # the server ends a watch after this; the next goes on where it ended
_SILENCE = _WATCH_SECONDS + 15.0


class KubeClient:
    """The API of one cluster. Every failure is an error of :mod:`cloudgraft.sdk.errors`.

    Use it from one event loop. An empty namespace means all of them in list and watch, and a kind without namespaces
    elsewhere.
    """

    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self, kind: Kind[V], *, namespace: str = "") -> Listing[V]:
        """All objects of a kind. Raises ExpiredError when the list became too old between two pages: begin again."""
        what = f"cannot list {kind.plural}"
        items: list[V] = []
        query = {"limit": str(_PAGE)} | _selected(kind)
        while True:
            data = await self._api.call(Call(what=what, method="GET", path=_path(kind, namespace), query=query))
            with _understood(what):
                page, version, more = decode_page(kind, data)
            items += page
            if not more:
                return Listing(items=tuple(items), version=version)
            query = query | {"continue": more}

    async def watch(self, kind: Kind[V], *, version: str, namespace: str = "") -> AsyncGenerator[Change[V], None]:
        """What happened after a version, as it happens, for about a minute; then watch on from the last version.

        Raises ExpiredError when the API no longer knows what happened since then: list again.
        """
        what = f"cannot watch {kind.plural}"
        query = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        } | _selected(kind)
        call = Call(what=what, method="GET", path=_path(kind, namespace), query=query)
        async with aclosing(self._api.stream(call, silence=_SILENCE)) as lines:
            async for line in lines:
                with _understood(what):
                    change = decode_change(kind, line)
                yield change

    async def create(self, kind: Kind[V], manifest: Manifest, *, namespace: str = "") -> V:
        """Creates an object. Raises AlreadyExistsError when there is one of that name."""
        call = Call(
            what=f"cannot create one of the {kind.plural}", method="POST", path=_path(kind, namespace), body=manifest
        )
        return await self._changed(kind, call)

    async def patch(
        self,
        kind: Kind[V],
        name: str,
        patch: Manifest | Sequence[Manifest],
        *,
        namespace: str = "",
        subresource: str = "",
        style: PatchStyle = PatchStyle.STRATEGIC,
    ) -> V:
        """Changes an object, or only its ``status``. Raises NotFoundError when there is none of that name."""
        path = _path(kind, namespace, name, subresource)
        what = f"cannot change {kind.plural}/{name}"
        return await self._changed(kind, Call(what=what, method="PATCH", path=path, body=patch, media_type=style.value))

    async def delete(
        self, kind: Kind[V], name: str, *, namespace: str = "", uid: str = "", grace_seconds: int | None = None
    ) -> None:
        """Deletes an object; with a uid, only that very one.

        Raises NotFoundError when there is none of that name, ConflictError when it has another uid.
        """
        options: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        what = f"cannot delete {kind.plural}/{name}"
        await self._api.call(Call(what=what, method="DELETE", path=_path(kind, namespace, name), body=options))

    async def close(self) -> None:
        """Closes all connections."""
        await self._api.close()

    async def _changed(self, kind: Kind[V], call: Call) -> V:
        data = await self._api.call(call)
        with _understood(call.what):
            return decode_object(kind, data)


def _path(kind: Kind[V], namespace: str, name: str = "", subresource: str = "") -> str:
    parts = [kind.base, *(("namespaces", quote(namespace, safe="")) if namespace else ()), kind.plural]
    parts += [quote(part, safe="") for part in (name, subresource) if part]
    return "/".join(parts)


def _selected(kind: Kind[V]) -> dict[str, str]:
    return {"fieldSelector": kind.field_selector} if kind.field_selector else {}


@contextmanager
def _understood(what: str) -> Iterator[None]:
    """An answer that is not of the API comes from something in between, or from another server altogether."""
    try:
        yield
    except (MsgspecError, ValueError) as error:
        raise UnavailableError(f"{what}: the answer is not one of a Kubernetes API: {error}") from error
