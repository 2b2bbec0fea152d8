"""Finds or creates objects that must exist, whatever created them and wherever an earlier run stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from cloudgraft.kube.objects import CustomObject, Kind, Manifest
from cloudgraft.liqo.manifests import is_ours
from cloudgraft.sdk.common.backoff import Backoff
from cloudgraft.sdk.errors import AlreadyExistsError, ConflictError, NotFoundError

if TYPE_CHECKING:
    from cloudgraft.kube.client import KubeClient

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


async def steps() -> AsyncIterator[None]:
    """Looks, with pauses between them that grow. Without end: the one who asks sets the deadline."""
    backoff = Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE, factor=1.5)
    while True:
        yield
        await asyncio.sleep(backoff.next())


def name_of(manifest: Manifest) -> str:
    """The name in a manifest."""
    metadata = manifest["metadata"]
    return str(metadata["name"]) if isinstance(metadata, dict) else ""


async def find(client: KubeClient, kind: Kind[CustomObject], name: str, space: str = "") -> CustomObject | None:
    """The object of that name, or None."""
    try:
        return await client.get(kind, name, namespace=space)
    except NotFoundError:
        return None


async def ensure(client: KubeClient, kind: Kind[CustomObject], manifest: Manifest, space: str = "") -> CustomObject:
    """Returns the object of the manifest's name; creates it if missing. Waits out one that is being deleted."""
    async for _ in steps():
        found = await find(client, kind, name_of(manifest), space)
        if found is None:
            found = await _made(client, kind, manifest, space)
        if found is not None and not found.deleting:
            return found
    raise AssertionError  # steps have no end


async def ensure_any(client: KubeClient, kind: Kind[CustomObject], manifest: Manifest, space: str = "") -> CustomObject:
    """Returns any object that the kind's selector finds; creates the manifest's when there is none.

    For objects that Liqo expects once per peering: a foreign one is as good, and a second one would confuse it.
    """
    async for _ in steps():
        listed = (await client.list(kind, namespace=space)).items
        alive = sorted((one for one in listed if not one.deleting), key=lambda one: (not is_ours(one), one.name))
        if alive:
            return alive[0]
        if not listed:
            made = await _made(client, kind, manifest, space)
            if made is not None:
                return made
    raise AssertionError  # steps have no end


async def _made(client: KubeClient, kind: Kind[CustomObject], manifest: Manifest, space: str) -> CustomObject | None:
    try:
        return await client.create(kind, manifest, namespace=space)
    except AlreadyExistsError:  # another process was faster: read again
        return None


async def remove_ours(client: KubeClient, kind: Kind[CustomObject], space: str = "", *, only: str = "") -> int:
    """Requests the deletion of our objects that the kind's selector finds; returns how many still exist.

    ``only`` is the name of the one to delete, where others are needed for the peering in the other direction.
    """
    left = 0
    for one in (await client.list(kind, namespace=space)).items:
        if not is_ours(one) or one.name != (only or one.name):
            continue
        left += 1
        if not one.deleting:
            try:
                await client.delete(kind, one.name, namespace=one.namespace, uid=one.uid)
            except (NotFoundError, ConflictError):  # it is gone, or was replaced
                continue
    return left
