"""Calls the Kubernetes API: get, list, watch, create, patch, delete, with values of our own.

Create one with :func:`cloudgraft.kube.connect.connect`, which says what to install when the extra is missing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any
from urllib.parse import quote

from msgspec import MsgspecError

from cloudgraft.kube.api import Api, Call
from cloudgraft.kube.credentials import plain_text
from cloudgraft.kube.decode import decode_change, decode_object, decode_page, decode_review, decode_version
from cloudgraft.kube.objects import Change, Kind, Listing, Manifest, PatchStyle, V
from cloudgraft.kube.rights import Right
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, UnavailableError

_METHODS = {"create": "POST", "patch": "PATCH", "delete": "DELETE"}  # other verbs read
_PAGE = 500
_WATCH_SECONDS = 60  # the server ends a watch after this; the next one continues there
_LONGEST_WATCH = _WATCH_SECONDS + 15.0


class KubeClient:
    """The API of one cluster. Every failure is an error of :mod:`cloudgraft.sdk.errors`.

    Use it from one event loop. An empty namespace means all of them in list and watch, and a kind without namespaces
    elsewhere.
    """

    def __init__(self, api: Api) -> None:
        self._api = api

    @property
    def server(self) -> str:
        """The address of the API, as a URL."""
        return self._api.server

    @property
    def kubeconfig(self) -> str:
        """The credentials of this client, if a foreign kubeconfig contained them: the checked parts only."""
        return plain_text(self._api.credentials)

    @property
    def authority(self) -> str:
        """The certificates of the API's authority, as PEM; empty when none is given."""
        return self._api.authority

    def raised(self, error: CloudgraftError) -> bool:
        """Whether this is the error of the last failed call: for callers that use several clusters at a time."""
        return self._api.last_failure is error

    async def may(self, right: Right, *, name: str = "") -> bool:
        """Whether the API would allow the action, on the object of this name or on any. Asking needs no right."""
        resource, _, subresource = right.resource.partition("/")
        attributes = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": subresource}
        if right.namespace:
            attributes["namespace"] = right.namespace
        if name:
            attributes["name"] = name
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        what = f"cannot find out whether the account may {right}"
        path = "apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        data = await self._api.call(Call(what=what, method="POST", path=path, body=review))
        with self._understood(what):
            return decode_review(data)

    async def release(self) -> str:
        """The release of the API server, such as ``v1.34.1``."""
        what = "cannot find out the release of the cluster"
        data = await self._api.call(Call(what=what, method="GET", path="version"))
        with self._understood(what):
            return decode_version(data)

    async def get(self, kind: Kind[V], name: str, *, namespace: str = "") -> V:
        """One object. Raises NotFoundError when there is none of that name."""
        return await self._object(kind, _call("read", kind, "get", namespace, name))

    async def list(self, kind: Kind[V], *, namespace: str = "") -> Listing[V]:
        """All objects of a kind. Raises ExpiredError when the list expired between two pages: list again."""
        items: list[V] = []
        size = 0
        query = {"limit": str(_PAGE)} | _selected(kind)
        while True:
            call = _call("list", kind, "list", namespace or kind.namespace, query=query)
            data = await self._api.call(call)
            with self._understood(call.what):
                page, version, more = decode_page(kind, data)
            items += page
            size += len(data)
            if size > self._api.most_listed:
                raise DeadlineError(f"{call.what}: the list has more than {self._api.most_listed >> 20} MiB")
            if not more:
                return Listing(items=tuple(items), version=version)
            query = query | {"continue": more}

    async def watch(self, kind: Kind[V], *, version: str, namespace: str = "") -> AsyncGenerator[Change[V], None]:
        """Yields changes after a version, for about a minute; then watch on from the last version.

        Raises ExpiredError when the API no longer has the changes since then: list again.
        """
        query = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        } | _selected(kind)
        call = _call("watch", kind, "watch", namespace or kind.namespace, query=query)
        async with aclosing(self._api.stream(call, seconds=_LONGEST_WATCH)) as lines:
            async for line in lines:
                with self._understood(call.what):
                    change = decode_change(kind, line)
                yield change

    async def create(self, kind: Kind[V], manifest: Manifest, *, namespace: str = "") -> V:
        """Creates an object. Raises AlreadyExistsError when there is one of that name."""
        return await self._object(kind, _call("create one of the", kind, "create", namespace, body=manifest))

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
        call = _call("change", kind, "patch", namespace, name, subresource, body=patch, media_type=style.value)
        return await self._object(kind, call)

    async def delete(
        self,
        kind: Kind[V],
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        grace_seconds: int | None = None,
        foreground: bool = False,
    ) -> None:
        """Deletes an object; with a uid, only that one. ``foreground``: it stays until its dependents are gone.

        Raises NotFoundError when there is none of that name, ConflictError when it has another uid.
        """
        options: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if foreground:
            options["propagationPolicy"] = "Foreground"
        await self._api.call(_call("delete", kind, "delete", namespace, name, body=options))

    async def close(self) -> None:
        """Closes all connections."""
        await self._api.close()

    async def _object(self, kind: Kind[V], call: Call) -> V:
        data = await self._api.call(call)
        with self._understood(call.what, is_change=call.is_change):
            return decode_object(kind, data)

    @contextmanager
    def _understood(self, what: str, *, is_change: bool = False) -> Iterator[None]:
        """Maps an undecodable response: it comes from a proxy, or from another server altogether."""
        unreadable = DeadlineError if is_change else UnavailableError
        try:
            yield
        except (MsgspecError, ValueError, RecursionError) as error:
            raise self._api.failed(unreadable(f"{what}: the answer is not one of a Kubernetes API: {error}")) from error


def _call(
    words: str, kind: Kind[V], verb: str, namespace: str, name: str = "", subresource: str = "", **rest: Any
) -> Call:
    """A call of the API's verb, with the right that it needs; ``words`` say what it does, for messages."""
    parts = [kind.base, *(("namespaces", quote(namespace, safe="")) if namespace else ()), kind.plural]
    parts += [quote(part, safe="") for part in (name, subresource) if part]
    resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
    return Call(
        what=f"cannot {words} {kind.plural}" + (f"/{name}" if name else ""),
        method=_METHODS.get(verb, "GET"),
        path="/".join(parts),
        right=Right(verb=verb, resource=resource, group=kind.group, namespace=namespace),
        **rest,
    )


def _selected(kind: Kind[V]) -> dict[str, str]:
    said = {"fieldSelector": kind.field_selector, "labelSelector": kind.label_selector}
    return {name: selector for name, selector in said.items() if selector}
