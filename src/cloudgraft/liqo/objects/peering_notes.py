"""A note in the namespace for a peer that we consume it: made before all else of a peering, and the last of it to go.

Nothing else can tell for as long: the identity comes last and goes first, and the namespace may be anybody's. It is a
Secret because these are what the account may make and remove there; who may make namespaces may not change them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgraft.kube.objects import PatchStyle
from cloudgraft.liqo.objects import manifests
from cloudgraft.liqo.objects.ensure import ensure, find
from cloudgraft.liqo.objects.kinds import ENDED, SECRETS, is_ours
from cloudgraft.sdk.errors import NotFoundError

if TYPE_CHECKING:  # an extra, and slow to import
    from cloudgraft.kube.client import KubeClient

__all__ = ["is_noted", "note", "note_end"]


async def note(client: KubeClient, peer: str, space: str) -> None:
    """That from now on something of ours may be at either side."""
    found = await ensure(client, SECRETS, manifests.note(peer), space)
    if is_ours(found) and ENDED in found.labels:
        patch = {"metadata": {"uid": found.uid, "labels": {ENDED: None}}}
        await client.patch(SECRETS, found.name, patch, namespace=space, style=PatchStyle.MERGE)


async def note_end(client: KubeClient, space: str) -> None:
    """That nothing of ours is left, though the namespace stays, which may say that it was made for our sake."""
    patch = {"metadata": {"labels": {ENDED: "true"}}}
    try:
        await client.patch(SECRETS, manifests.NOTE, patch, namespace=space, style=PatchStyle.MERGE)
    except NotFoundError:  # somebody took the whole namespace away
        return


async def is_noted(client: KubeClient, space: str) -> bool | None:
    """Whether a peering was begun from here and its end not finished; None where there is no note at all."""
    found = await find(client, SECRETS, manifests.NOTE, space)
    return None if found is None or not is_ours(found) else ENDED not in found.labels
