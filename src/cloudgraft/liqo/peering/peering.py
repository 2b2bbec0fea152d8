"""Peers with a remote cluster, and ends the peering, by plain objects at both sides.

Every step reads first and creates what is missing, so that any process can interrupt and repeat it. The identity at the
consumer is created last: if it exists, the two are peered, and the provider is only probed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from cloudgraft.discovery.model import Market, NetworkMode
from cloudgraft.kube.connect import connect_foreign
from cloudgraft.kube.networks import AllowedNetworks
from cloudgraft.kube.objects import CustomObject, PatchStyle
from cloudgraft.liqo import manifests
from cloudgraft.liqo.ensure import ensure, find, remove_ours, steps
from cloudgraft.liqo.manifests import (
    CONSUMER,
    ENDED,
    NAMESPACES,
    ROLE_BINDINGS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SLICES,
    TENANTS,
    TOKEN,
    VIRTUAL_NODE_OBJECTS,
    about,
    identity_name,
    is_ours,
    tenant_namespace,
)
from cloudgraft.liqo.options import LiqoOptions
from cloudgraft.liqo.peering.network import NETWORK_KINDS, Side, connect_networks
from cloudgraft.liqo.peering.tenancy import (
    cluster_id_of,
    ensure_identity,
    ensure_namespace,
    find_identity,
    forget_credentials,
    is_consumer,
    let_in,
    peers_of,
)
from cloudgraft.liqo.placement import Candidate, ClusterError, at_cluster
from cloudgraft.sdk.errors import (
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionError,
    UnavailableError,
)

if TYPE_CHECKING:
    from cloudgraft.kube.client import KubeClient

# -- Note of a peering -------------------------------------------------------------------------------------------------
# A Secret in the namespace for the peer, created first and deleted last. Nothing else lasts as long: the identity comes
# last and goes first, and the namespace may be foreign. It is a Secret because the account may create and delete these
# there; a right to create namespaces does not include changing them.


async def note(client: KubeClient, peer: str, space: str) -> None:
    """Records that objects of ours may exist at either side from now on."""
    found = await ensure(client, SECRETS, manifests.note(peer), space)
    if is_ours(found) and ENDED in found.labels:
        patch = {"metadata": {"uid": found.uid, "labels": {ENDED: None}}}
        await client.patch(SECRETS, found.name, patch, namespace=space, style=PatchStyle.MERGE)


async def note_end(client: KubeClient, space: str) -> None:
    """Records that no object of ours is left, though the namespace stays, which may be marked as created for us."""
    patch = {"metadata": {"labels": {ENDED: "true"}}}
    try:
        await client.patch(SECRETS, manifests.NOTE, patch, namespace=space, style=PatchStyle.MERGE)
    except NotFoundError:  # the whole namespace was deleted
        return


async def is_noted(client: KubeClient, space: str) -> bool | None:
    """Whether a peering was begun from here and not completely ended; None without a note."""
    found = await find(client, SECRETS, manifests.NOTE, space)
    return None if found is None or not is_ours(found) else ENDED not in found.labels


# -- Peering -----------------------------------------------------------------------------------------------------------


log = logging.getLogger("cloudgraft.liqo")


class Peering:
    """The peerings of one consumer. At most one task at a time works on each."""

    def __init__(
        self, client: KubeClient, consumer: Callable[[], Awaitable[str]], market: Market, options: LiqoOptions
    ) -> None:
        """``consumer`` returns the id of our own cluster."""
        self._client = client
        self._consumer = consumer
        self._market = market
        self._options = options
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._began: dict[str, float] = {}  # when the first attempt began; a call may be cancelled and repeated
        self._doubted: set[str] = set()  # clusters whose existing peering did not work

    def doubt(self, cluster: str) -> None:
        """Marks a peering whose cluster did not respond: the next time everything is checked, at both sides."""
        self._doubted.add(cluster)

    async def ensure(self, candidate: Candidate) -> str:
        """Peers with a cluster, unless it is peered; returns the local namespace for it.

        Raises ClusterError when that fails or times out.
        """
        cluster = candidate.cluster
        async with self._locks[cluster]:
            space = await self._peered(cluster)
            if space and cluster not in self._doubted:
                await self._check_alive(cluster)
                return space
            limit = asyncio.timeout_at(self._deadline(cluster))
            try:
                async with limit:
                    space = await self._peer(candidate)
            except TimeoutError:
                if not limit.expired():
                    raise
                self._began.pop(cluster, None)
                raise ClusterError("peering with it did not end in time") from None
            except ClusterError:
                self._began.pop(cluster, None)
                raise
            self._began.pop(cluster, None)
            self._doubted.discard(cluster)
            return space

    def _deadline(self, cluster: str) -> float:
        """The deadline, the same for a cancelled attempt that is repeated soon."""
        now, patience = asyncio.get_running_loop().time(), self._options.timeouts.peering.total_seconds()
        began = self._began.get(cluster, now)
        if now - began > 2 * patience:  # the earlier attempt was abandoned
            began = now
        self._began[cluster] = began
        return began + patience

    async def peered(self) -> set[str]:
        """The clusters that have a namespace here: exact enough for ranking."""
        return set(await peers_of(self._client))

    async def _peered(self, cluster: str) -> str:
        usual = await find(self._client, NAMESPACES, tenant_namespace(cluster))
        space = usual if usual is not None and not usual.deleting else (await peers_of(self._client)).get(cluster)
        if space is None or await find_identity(self._client, cluster, space.name) is None:
            return ""
        return space.name

    async def _peer(self, candidate: Candidate) -> str:
        cluster, consumer_id = candidate.cluster, await self._consumer()
        space = await ensure_namespace(self._client, cluster, consumer_id)
        await note(self._client, cluster, space)
        consumer = Side(client=self._client, cluster=consumer_id, peer=cluster, space=space)
        given = await self._credentials(cluster)
        if given is None:
            raise ClusterError("discovery has no credentials for it: put its kubeconfig there")
        async with self._provider(cluster, given) as client:
            with at_cluster(f"cannot peer with {cluster}", client):
                remote_space = await ensure_namespace(client, consumer_id, consumer_id)
                provider = Side(client=client, cluster=cluster, peer=consumer_id, space=remote_space)
                config = await let_in(provider, client.kubeconfig)
                gateway = self._options.networking
                if gateway.enabled and candidate.network.mode is not NetworkMode.DISABLED:
                    liqo = self._options.liqo_namespace
                    await connect_networks(consumer, provider, candidate.network, gateway, liqo)
        await ensure_identity(consumer, remote_space, config)
        log.info("peered with cluster %s", cluster)
        return space

    async def _check_alive(self, cluster: str) -> None:
        """Raises ClusterError when a peered cluster does not respond.

        Liqo never releases a slice whose provider is dead, and a name is unique in the whole consumer: after a request
        to a dead provider, the machine could not be created elsewhere any more.
        """
        given = await self._credentials(cluster)
        if given is not None:
            async with self._provider(cluster, given):
                pass

    async def _credentials(self, cluster: str) -> str | None:
        """None when discovery has none. Raises ClusterError when it cannot return them."""
        try:
            return await self._market.credentials(cluster)
        except NotFoundError:
            return None
        # an error of this cluster, not of discovery
        except (PreconditionError, InternalError, InvalidArgumentError) as error:
            raise ClusterError(f"discovery cannot give out its credentials: {error.message}") from error

    @asynccontextmanager
    async def _provider(self, cluster: str, given: str) -> AsyncIterator[KubeClient]:
        """A client of the remote cluster, whose id is verified."""
        timeout = self._options.timeouts.api.total_seconds()
        try:
            networks = AllowedNetworks.of(self._options.allowed_networks)
            client = await connect_foreign(given, name="its kubeconfig", networks=networks, timeout=timeout)
        except InvalidArgumentError as error:
            raise ClusterError(f"{error.message}: correct it in discovery") from None
        try:
            with at_cluster("cannot verify that its kubeconfig leads there", client):
                found = await _id_behind(client, self._options.liqo_namespace)
            if found != cluster:
                raise ClusterError(f"its kubeconfig leads to cluster {found!r} instead: correct it in discovery")
            yield client
        finally:
            await client.close()

    async def undo(self, cluster: str, is_needed: Callable[[], bool]) -> bool:
        """Deletes what we created for an unused peering; True when nothing of ours is left.

        ``is_needed`` is called once no other task works on the peering: a create may have started using it meanwhile.

        Foreign objects stay, with all that they need. Raises ClusterError when the other side is unreachable: then the
        namespace here stays too, and the next round retries.
        """
        async with self._locks[cluster]:
            space = (await peers_of(self._client)).get(cluster)
            if space is None or is_needed() or await self._is_used(space.name) or is_needed():
                return space is None
            if not await self._is_begun(cluster, space):
                return True  # a foreign peering, perhaps in the other direction; it uses what we may have added to it
            limit = asyncio.timeout(self._options.timeouts.peering.total_seconds())
            try:
                async with limit:
                    return await self._undo(cluster, space.name, remove_space=is_ours(space))
            except TimeoutError:
                if not limit.expired():
                    raise
                raise ClusterError("the end of the peering took too long") from None

    async def _is_begun(self, cluster: str, space: CustomObject) -> bool:
        """Whether objects of ours for a peering exist, may soon exist, or are not completely deleted."""
        identity = await find_identity(self._client, cluster, space.name)
        if identity is not None:
            return is_ours(identity)
        noted = await is_noted(self._client, space.name)
        if noted is not None:
            return noted
        return is_ours(space) and space.labels.get(CONSUMER) == await self._consumer()

    async def _is_shared(self, cluster: str, space: str) -> bool:
        """Whether the peer consumes us, as far as visible here: it has an account, or Liqo has seen its Tenant."""
        return await find(self._client, SECRETS, TOKEN, space) is not None or await is_consumer(self._client, cluster)

    async def _undo(self, cluster: str, space: str, *, remove_space: bool) -> bool:
        await note(self._client, cluster, space)  # a peering older than the notes has none yet
        async for _ in steps():  # Liqo keeps the identity until it no longer needs the credentials
            if not await remove_ours(self._client, about(SECRETS, cluster), space, only=identity_name(cluster)):
                break
        await forget_credentials(self._client, cluster)
        is_shared = await self._is_shared(cluster, space)
        given = await self._credentials(cluster)
        if given is None:
            log.warning("discovery has no credentials for cluster %s any more: our objects there stay", cluster)
        else:
            async with self._provider(cluster, given) as client:
                consumer_id = await self._consumer()
                with at_cluster(f"cannot undo the peering at {cluster}", client):
                    is_shared |= await _clear(client, consumer_id)
        await self._finish(cluster, space, is_shared=is_shared, remove_space=remove_space)
        log.info("no longer peered with cluster %s: nothing of it was in use", cluster)
        return True

    async def _finish(self, cluster: str, space: str, *, is_shared: bool, remove_space: bool) -> None:
        """Deletes what is left here, and the note last: it goes with the namespace, if that goes.

        If the peer consumes us, its Tenant is in the namespace, and needs that and the network.
        """
        if is_shared:
            await note_end(self._client, space)
            return
        for kind in NETWORK_KINDS:
            await remove_ours(self._client, about(kind, cluster), space)
        if not remove_space:
            await remove_ours(self._client, about(SECRETS, cluster), space)
            return
        found = await find(self._client, NAMESPACES, space)
        if found is not None and not found.deleting:
            await self._client.delete(NAMESPACES, space, uid=found.uid)

    async def _is_used(self, space: str) -> bool:
        for kind in (SLICES, VIRTUAL_NODE_OBJECTS):
            if (await self._client.list(kind, namespace=space)).items:
                return True
        return False


async def _id_behind(client: KubeClient, liqo: str) -> str:
    try:
        return await cluster_id_of(client, liqo)
    except (NotFoundError, UnavailableError) as error:  # no Liqo, no Kubernetes, or no server
        raise ClusterError(f"its kubeconfig leads to no cluster with Liqo: {error.message}") from error


async def _clear(client: KubeClient, consumer: str) -> bool:
    """At the provider: deletes all our objects for the consumer, and the namespace, if that is ours as well.

    The provider may itself consume our cluster: then the network and the namespaces serve that too, at both sides.
    Returns whether it does, is about to, or has yet to end that.
    """
    space = await find(client, NAMESPACES, tenant_namespace(consumer)) or (await peers_of(client)).get(consumer)
    if space is None or space.deleting:
        return False
    has_identity = await find_identity(client, consumer, space.name) is not None
    is_shared = has_identity or await is_noted(client, space.name) is True
    await remove_ours(client, about(TENANTS, consumer), space.name)
    for kind in () if is_shared else NETWORK_KINDS:
        await remove_ours(client, about(kind, consumer), space.name)
    await remove_ours(client, about(ROLE_BINDINGS, consumer), space.name)
    await remove_ours(client, about(SECRETS, consumer), space.name, only=TOKEN if is_shared else "")
    await remove_ours(client, about(SERVICE_ACCOUNTS, consumer), space.name)
    if is_ours(space) and not is_shared:
        tenants = (await client.list(TENANTS, namespace=space.name)).items
        if all(is_ours(one) for one in tenants):
            await client.delete(NAMESPACES, space.name, uid=space.uid)
    return is_shared
