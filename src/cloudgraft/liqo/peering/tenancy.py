"""Manages cluster ids, the namespace for a peer, its ForeignCluster, and rights to request slices."""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
from typing import TYPE_CHECKING, Final

from cloudgraft.kube.objects import CustomObject, PatchStyle
from cloudgraft.kube.rights import Right
from cloudgraft.liqo import manifests
from cloudgraft.liqo.ensure import ensure, ensure_any, find, steps
from cloudgraft.liqo.manifests import (
    CLUSTER_ID_MAPS,
    FOREIGN_CLUSTERS,
    IDENTITY_TYPE,
    NAMESPACES,
    REMOTE,
    ROLE_BINDINGS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SLICES,
    TENANT_NAMESPACES,
    TENANTS,
    about,
    is_ours,
    section,
)
from cloudgraft.liqo.peering.network import Side
from cloudgraft.liqo.placement import ClusterError
from cloudgraft.sdk.errors import NotFoundError, PermissionDeniedError
from cloudgraft.sdk.secrecy import hide

if TYPE_CHECKING:
    from cloudgraft.kube.client import KubeClient

# -- ForeignCluster of a peer ------------------------------------------------------------------------------------------
# Liqo creates it, and polls the peer's API with the credentials that it found when it began. A Secret that is deleted
# or changed does not make it reload them: with credentials that were revoked meanwhile the peer would seem dead for
# ever, even after peering again, and none of its nodes would become ready. A changed label makes it reload.
# (Seen with Liqo 1.2.0.)


log = logging.getLogger("cloudgraft.liqo")
_LOOK: Final = "cloudgraft/look"
_CONSUMERS: Final = ("Consumer", "ConsumerAndProvider")  # Liqo's roles of a cluster that has a Tenant here
_FORGETS_WITHIN: Final = 10.0  # seconds; Liqo does it at once, unless it is not running


async def forget_credentials(client: KubeClient, cluster: str) -> None:
    """Makes Liqo drop its cached credentials for a peer; call it while there is no identity for the peer.

    If Liqo does not, this logs a warning and continues.
    """
    limit = asyncio.timeout(_FORGETS_WITHIN)
    try:
        async with limit:
            await _look_until_forgotten(client, cluster)
    except TimeoutError:
        if not limit.expired():
            raise
        log.warning("Liqo keeps its old credentials for cluster %s: check that its controller manager runs", cluster)
    except PermissionDeniedError as error:
        log.warning("Liqo may consider cluster %s dead when it is peered again: %s", cluster, error.message)


async def _look_until_forgotten(client: KubeClient, cluster: str) -> None:
    async for _ in steps():
        found = await find(client, FOREIGN_CLUSTERS, cluster)
        if not section(found, "status").get("apiServerUrl"):
            return
        patch = {"metadata": {"labels": {_LOOK: secrets.token_hex(4)}}}
        try:
            await client.patch(FOREIGN_CLUSTERS, cluster, patch, style=PatchStyle.MERGE)
        except NotFoundError:
            return


async def is_consumer(client: KubeClient, cluster: str) -> bool:
    """Whether Liqo says that the peer consumes us. It reads the Tenant, which our account here may not."""
    try:
        found = await find(client, FOREIGN_CLUSTERS, cluster)
    except PermissionDeniedError:
        return False
    return section(found, "status").get("role") in _CONSUMERS


# -- Cluster ids, namespaces and rights --------------------------------------------------------------------------------


async def cluster_id_of(client: KubeClient, liqo: str) -> str:
    """The id that Liqo has given a cluster. Raises NotFoundError without Liqo."""
    for one in (await client.list(CLUSTER_ID_MAPS, namespace=liqo)).items:
        found = section(one, "data").get("CLUSTER_ID")
        if isinstance(found, str) and found:
            return found
    raise NotFoundError(
        f"the cluster has no ConfigMap with {CLUSTER_ID_MAPS.label_selector} in the namespace {liqo}: is Liqo "
        "installed there?"
    )


async def peers_of(client: KubeClient) -> dict[str, CustomObject]:
    """The namespaces for peers, by the peer's id."""
    found = (await client.list(TENANT_NAMESPACES)).items
    return {one.labels[REMOTE]: one for one in found if REMOTE in one.labels and not one.deleting}


async def ensure_namespace(client: KubeClient, peer: str, consumer: str) -> str:
    """Returns the name of the namespace for a peer; creates it if missing. ``consumer`` marks for whom.

    Searching for one under another name needs rights that a provider need not grant.
    """
    async for _ in steps():
        usual = await find(client, NAMESPACES, manifests.tenant_namespace(peer))
        if usual is not None and usual.labels.get(REMOTE) == peer:
            if not usual.deleting:
                return usual.name
            continue
        try:
            found = (await peers_of(client)).get(peer)
        except PermissionDeniedError:
            found = None
        if found is not None:
            return found.name
        if usual is not None and not usual.deleting:
            raise ClusterError(f"the namespace {usual.name} is not for {peer}: label it {REMOTE}={peer}, or remove it")
        if usual is None:
            return (await ensure(client, NAMESPACES, manifests.namespace(peer, consumer))).name
    raise AssertionError  # steps have no end


async def find_identity(client: KubeClient, provider: str, space: str) -> CustomObject | None:
    """The credentials of the consumer's Liqo for a provider; the last object that peering creates."""
    for one in (await client.list(about(SECRETS, provider), namespace=space)).items:
        if one.labels.get(IDENTITY_TYPE) == "ControlPlane" and not one.deleting:
            return one
    return None


async def let_in(provider: Side, given: str) -> str:
    """Allows the consumer to request slices; returns the kubeconfig for that.

    ``given`` is the kubeconfig that we used ourselves: it serves if its owner may not create accounts, but may request
    slices.
    """
    found = await ensure_any(
        provider.client, about(TENANTS, provider.peer), manifests.tenant(provider.peer), provider.space
    )
    if section(found, "spec").get("authzPolicy") != "TolerateNoHandshake" and not is_ours(found):
        raise ClusterError(
            f"the foreign Tenant {found.name} in {provider.space} wants a handshake: finish that peering with "
            "liqoctl, or remove the Tenant"
        )
    try:
        await ensure(provider.client, SERVICE_ACCOUNTS, manifests.service_account(provider.peer), provider.space)
        binding = manifests.role_binding(provider.peer, provider.space)
        await ensure(provider.client, ROLE_BINDINGS, binding, provider.space)
    except PermissionDeniedError as error:
        return await _as_given(provider, given, error)
    return await _account_config(provider)


async def _as_given(provider: Side, given: str, refused: PermissionDeniedError) -> str:
    asking = Right(verb="create", resource=SLICES.plural, group=SLICES.group, namespace=provider.space)
    if await provider.client.may(asking):
        return given
    raise ClusterError(
        f"its kubeconfig may neither make an account for us ({refused.message}) nor {asking}: bind its user to the "
        f"ClusterRole liqo-remote-controlplane in {provider.space}"
    ) from refused


async def _account_config(provider: Side) -> str:
    await ensure(provider.client, SECRETS, manifests.token_secret(provider.peer), provider.space)
    async for _ in steps():  # the cluster's own controller adds the token
        secret = await find(provider.client, SECRETS, manifests.TOKEN, provider.space)
        token = section(secret, "data").get("token")
        if isinstance(token, str) and token:
            plain = _plain(token)
            hide(plain)
            client = provider.client
            return manifests.kubeconfig(client.server, client.authority, plain, provider.space)
    raise AssertionError  # steps have no end


def _plain(token: str) -> str:
    try:
        return base64.b64decode(token).decode()
    except ValueError:
        raise ClusterError(
            f"the token in the Secret {manifests.TOKEN} there cannot be read: delete the Secret"
        ) from None


async def ensure_identity(consumer: Side, remote_space: str, config: str) -> None:
    """Gives the consumer's Liqo its credentials. Updates an outdated identity of ours."""
    wanted = manifests.identity_secret(consumer.peer, remote_space, config)
    client, name = consumer.client, manifests.identity_name(consumer.peer)
    found = await find_identity(client, consumer.peer, consumer.space) or await find(
        client, SECRETS, name, consumer.space
    )
    if found is None or found.deleting:
        await forget_credentials(client, consumer.peer)
        await ensure(client, SECRETS, wanted, consumer.space)
    elif is_ours(found) and (found.content.get("data") != wanted["data"] or IDENTITY_TYPE not in found.labels):
        # For a moment it is not an identity, so that Liqo drops the old one.
        hidden = {"metadata": {"uid": found.uid, "labels": {IDENTITY_TYPE: None}}}
        await client.patch(SECRETS, found.name, hidden, namespace=found.namespace, style=PatchStyle.MERGE)
        await forget_credentials(client, consumer.peer)
        patch = {"metadata": {"uid": found.uid, "labels": {IDENTITY_TYPE: "ControlPlane"}}, "data": wanted["data"]}
        await client.patch(SECRETS, found.name, patch, namespace=found.namespace, style=PatchStyle.MERGE)
