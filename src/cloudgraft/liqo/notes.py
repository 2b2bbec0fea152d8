"""A note in the namespace for a peer that we consume it: made before all else of a peering, and the last of it to go.

Nothing else can tell for as long: the identity comes last and goes first, and the namespace may be anybody's. It is a
Secret because these are what the account may make and remove there; who may make namespaces may not change them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgraft.liqo import manifests
from cloudgraft.liqo.kinds import SECRETS, is_ours
from cloudgraft.liqo.present import ensure, find

if TYPE_CHECKING:  # an extra, and slow to import
    from cloudgraft.kube.client import KubeClient

__all__ = ["is_noted", "note"]


async def note(client: KubeClient, peer: str, space: str) -> None:
    """That from now on something of ours may be at either side."""
    await ensure(client, SECRETS, manifests.note(peer), space)


async def is_noted(client: KubeClient, space: str) -> bool:
    """Whether a peering was begun from here, and its end not finished."""
    found = await find(client, SECRETS, manifests.NOTE, space)
    return found is not None and is_ours(found)
