"""What Liqo believes of a peer: its ForeignCluster, which it makes by itself.

Liqo asks the peer's API all the time whether it lives, with the credentials that it found when it began. A Secret that
goes, or changes, is nothing that makes it look again: with credentials that were revoked meanwhile the peer would seem
dead for ever, also when it is peered with anew, and no node of it would become ready. A label that changes makes it
look. (Seen with Liqo 1.2.0.)
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from cloudgraft.kube.objects import PatchStyle
from cloudgraft.liqo.objects.ensure import find, steps
from cloudgraft.liqo.objects.kinds import FOREIGN_CLUSTERS
from cloudgraft.sdk.errors import NotFoundError, PermissionDeniedError

if TYPE_CHECKING:  # an extra, and slow to import
    from cloudgraft.kube.client import KubeClient

__all__ = ["forget_credentials", "is_consumer"]

log = logging.getLogger("cloudgraft.liqo")
_LOOK: Final = "cloudgraft/look"
_CONSUMERS: Final = ("Consumer", "ConsumerAndProvider")  # as Liqo says it of a cluster that has a Tenant here
_PATIENCE: Final = 10.0  # seconds; Liqo does it at once, unless it does not run


async def forget_credentials(client: KubeClient, cluster: str) -> None:
    """Has Liqo let go of the credentials that it knows a peer by; to be called while there is no identity for it.

    When it does not, that is told, and all else goes on.
    """
    limit = asyncio.timeout(_PATIENCE)
    try:
        async with limit:
            await _look_until_forgotten(client, cluster)
    except TimeoutError:
        if not limit.expired():
            raise
        log.warning("Liqo does not let go of what it knew of cluster %s: does its controller manager run?", cluster)
    except PermissionDeniedError as error:
        log.warning("Liqo may take cluster %s for dead when it is peered with again: %s", cluster, error.message)


async def _look_until_forgotten(client: KubeClient, cluster: str) -> None:
    async for _ in steps():
        found = await find(client, FOREIGN_CLUSTERS, cluster)
        status = found.content.get("status") if found is not None else None
        if not isinstance(status, Mapping) or not status.get("apiServerUrl"):
            return
        patch = {"metadata": {"labels": {_LOOK: secrets.token_hex(4)}}}
        try:
            await client.patch(FOREIGN_CLUSTERS, cluster, patch, style=PatchStyle.MERGE)
        except NotFoundError:
            return


async def is_consumer(client: KubeClient, cluster: str) -> bool:
    """Whether Liqo says that the peer consumes us. It looks at the Tenant, which our account here may not."""
    try:
        found = await find(client, FOREIGN_CLUSTERS, cluster)
    except PermissionDeniedError:
        return False
    status = found.content.get("status") if found is not None else None
    return isinstance(status, Mapping) and status.get("role") in _CONSUMERS
