"""Plays slices on both sides: the consumer asks for them, the provider grants them."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from cloudgraft.demo.fake_liqo.cluster import Cluster, Controller, Rules
from cloudgraft.demo.fake_liqo.words import (
    CREATE_VIRTUAL_NODE,
    IDENTITIES,
    IDENTITY_TYPE,
    NAMESPACES,
    QUOTAS,
    REMOTE,
    REPLICATED,
    REPLICATION,
    SECRETS,
    SLICE_NAME,
    SLICES,
    TENANT_FINALIZER,
    TENANT_NAMESPACE,
    TENANTS,
    TOKEN_SECRETS,
    VIRTUAL_NODES,
    accepted,
    condition,
    owner,
    spec_of,
    status_of,
    with_condition,
)
from cloudgraft.kube.objects import CustomObject, custom_kind

# -- consumer ----------------------------------------------------------------------------------------------------------
# The consumer completes a slice, and turns the granted resources into an identity and a virtual node.


def local_slices(cluster: Cluster) -> list[CustomObject]:
    """The slices that this cluster requests. Names are unique: a webhook refuses a second one."""
    found = [each for each in cluster.all(SLICES) if each.labels.get(REPLICATION) == "true"]
    first: dict[str, CustomObject] = {}
    for each in sorted(found, key=lambda each: (each.created_at, each.namespace)):
        first.setdefault(each.name, each)
    return [each for each in found if first[each.name] is each or each.deleting]


class SliceRequests(Controller):
    """Plays the controllers of local slices, of identities, and of the creation of virtual nodes."""

    async def turn(self) -> None:
        """Does what is due."""
        for found in local_slices(self._cluster):
            if not found.deleting:
                await self._complete(found)
                await self._identify(found)
                await self._make_virtual(found)

    def _is_due(self, found: CustomObject, step: str) -> bool:
        rules = self._script.rules(found.labels.get(REMOTE, ""), found.name)
        return self._pace.due((found.uid, step), rules.delay(step))

    async def _complete(self, found: CustomObject) -> None:
        spec = spec_of(found)
        if spec.get("csr") and spec.get("consumerClusterID") and spec.get("providerClusterID"):
            return
        if self._is_due(found, "request"):
            request = f"-----BEGIN CERTIFICATE REQUEST-----\n{found.uid}\n-----END CERTIFICATE REQUEST-----\n"
            made = {
                "consumerClusterID": self._cluster.id,
                "providerClusterID": found.labels.get(REMOTE, ""),
                "csr": base64.b64encode(request.encode()).decode(),
            }
            await self._cluster.change(SLICES, found, {"spec": made | spec})

    async def _identify(self, found: CustomObject) -> None:
        name = f"resourceslice-{found.name}"
        identity = self._cluster.find(IDENTITIES, name, found.namespace)
        if identity is None:
            if accepted(found, "Authentication") and self._is_due(found, "identity"):
                await self._cluster.create(IDENTITIES, _identity(name, found), found.namespace)
        elif not status_of(identity).get("kubeconfigSecretRef"):
            secret = f"kubeconfig-{name}"
            await self._cluster.create(SECRETS, _secret(secret, identity), found.namespace)
            await self._cluster.report(IDENTITIES, identity, {"kubeconfigSecretRef": {"name": secret}})

    async def _make_virtual(self, found: CustomObject) -> None:
        wanted = found.annotations.get(CREATE_VIRTUAL_NODE, "false").lower() != "false"
        if not wanted or not (accepted(found, "Authentication") and accepted(found, "Resources")):
            return
        identity = self._cluster.find(IDENTITIES, f"resourceslice-{found.name}", found.namespace)
        secret: Any = status_of(identity).get("kubeconfigSecretRef") if identity else None
        if not secret or not found.labels.get(REMOTE):
            return
        granted = {"hard": status_of(found).get("resources") or {}}
        virtual = self._cluster.find(VIRTUAL_NODES, found.name, found.namespace)
        if virtual is None:
            if self._is_due(found, "virtualNode"):
                await self._cluster.create(VIRTUAL_NODES, _virtual(found, granted, secret), found.namespace)
        elif not virtual.deleting and spec_of(virtual).get("resourceQuota") != granted:
            await self._cluster.change(VIRTUAL_NODES, virtual, {"spec": {"resourceQuota": granted}})


def _identity(name: str, found: CustomObject) -> Mapping[str, object]:
    remote = found.labels.get(REMOTE, "")
    labels = {REMOTE: remote, SLICE_NAME: found.name}
    return {
        "apiVersion": "authentication.liqo.io/v1beta1",
        "kind": "Identity",
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner(found, "ResourceSlice")]},
        "spec": {
            "clusterID": remote,
            "type": "ResourceSlice",
            "authParams": status_of(found).get("authParams") or {},
        },
    }


def _secret(name: str, identity: CustomObject) -> Mapping[str, object]:
    """The credentials of the virtual kubelet, which the fake does not run."""
    text = json.dumps({"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": []})
    labels = {REMOTE: identity.labels.get(REMOTE, ""), IDENTITY_TYPE: "ResourceSlice"}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner(identity, "Identity")]},
        "data": {"kubeconfig": base64.b64encode(text.encode()).decode()},
    }


def _virtual(found: CustomObject, granted: Mapping[str, object], secret: object) -> Mapping[str, object]:
    remote = found.labels[REMOTE]
    labels = {REMOTE: remote, SLICE_NAME: found.name}
    return {
        "apiVersion": "offloading.liqo.io/v1beta1",
        "kind": "VirtualNode",
        "metadata": {"name": found.name, "labels": labels, "ownerReferences": [owner(found, "ResourceSlice")]},
        "spec": {
            "clusterID": remote,
            "createNode": True,
            "kubeconfigSecretRef": secret,
            "resourceQuota": granted,
            "labels": {REMOTE: remote, **(status_of(found).get("nodeLabels") or {})},
        },
    }


# -- provider ----------------------------------------------------------------------------------------------------------


PROVIDER_KINDS: Final = (NAMESPACES, TENANTS, SLICES, QUOTAS, TOKEN_SECRETS)
# Granted where nothing is requested.
_DEFAULTS: Final = {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "20Gi"}


class Grants(Controller):
    """Plays the controllers of tenants and of slices from elsewhere, and the one that fills Secrets of accounts."""

    async def turn(self) -> None:
        """Does what is due."""
        for tenant in self._cluster.all(TENANTS):
            await self._cluster.hold(TENANTS, tenant, TENANT_FINALIZER, wanted=not tenant.deleting)
            if spec_of(tenant).get("authzPolicy") == "TolerateNoHandshake":  # no fake has keys to compare
                await self._cluster.report(TENANTS, tenant, {"tenantNamespace": tenant.namespace})
        slices = [each for each in self._cluster.all(SLICES) if each.labels.get(REPLICATED) == "true"]
        for found in slices:
            await self._judge(found)
        present = {(each.namespace, _user(each)) for each in slices}
        for quota in self._cluster.all(QUOTAS):
            if (quota.namespace, quota.name) not in present:
                await self._cluster.delete(QUOTAS, quota)
        for secret in self._cluster.all(TOKEN_SECRETS):
            await self._fill(secret)

    async def _fill(self, secret: CustomObject) -> None:
        """Makes a token for an account's Secret, where no controller does."""
        data: Any = secret.content.get("data") or {}
        account = secret.annotations.get("kubernetes.io/service-account.name", "")
        if data.get("token") or not account:
            return
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 86400},
        }
        kind = custom_kind("api/v1", f"serviceaccounts/{account}/token")
        made = await self._cluster.client.create(kind, request, namespace=secret.namespace)
        filled = {
            "token": status_of(made)["token"],
            "namespace": secret.namespace,
            "ca.crt": self._cluster.client.authority,
        }
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in filled.items()}
        # Only if unchanged: where the cluster's own controller was faster, its token is in use already.
        patch = {"metadata": {"resourceVersion": secret.version}, "data": encoded}
        await self._cluster.change(SECRETS, secret, patch)

    async def _judge(self, found: CustomObject) -> None:
        spec = spec_of(found)
        consumer = spec.get("consumerClusterID", "")
        tenant = self._tenant(consumer, found.namespace)
        rules = self._script.rules(self._cluster.id, found.name)
        if found.deleting or not consumer or not spec.get("csr") or tenant is None or rules.dead:
            return
        if not condition(found, "Authentication"):
            if self._pace.due((found.uid, "authentication"), rules.delay("authentication")):
                await self._authenticate(found, rules)
        elif condition(found, "Authentication")["status"] == "Accepted":
            await self._grant(found, tenant, rules)

    def _tenant(self, consumer: str, namespace: str) -> CustomObject | None:
        """The tenant of the slice; the namespace must be that tenant's own."""
        space = self._cluster.find(NAMESPACES, namespace)
        if space is None or space.labels.get(TENANT_NAMESPACE) != "true" or space.labels.get(REMOTE) != consumer:
            return None
        tenants = (each for each in self._cluster.all(TENANTS) if each.namespace == namespace)
        return next((each for each in tenants if spec_of(each).get("clusterID") == consumer), None)

    async def _authenticate(self, found: CustomObject, rules: Rules) -> None:
        if rules.deny_authentication:
            reply = ("Denied", "ResourceSliceAuthenticationDenied", "ResourceSlice authentication denied")
            await self._cluster.report(SLICES, found, {"conditions": with_condition(found, "Authentication", *reply)})
            return
        reply = ("Accepted", "ResourceSliceAuthenticationAccepted", "ResourceSlice authentication accepted")
        parameters = {
            "ca": base64.b64encode(self._cluster.client.authority.encode()).decode(),
            "signedCRT": base64.b64encode(b"signed by nobody").decode(),
            "apiServer": self._cluster.client.server,
        }
        conditions = with_condition(found, "Authentication", *reply)
        await self._cluster.report(SLICES, found, {"conditions": conditions, "authParams": parameters})

    async def _grant(self, found: CustomObject, tenant: CustomObject, rules: Rules) -> None:
        if not condition(found, "Resources") and not self._pace.due((found.uid, "resources"), rules.delay("resources")):
            return
        denied = _denial(found, tenant, rules)
        if denied is not None:
            conditions = with_condition(found, "Resources", "Denied", *denied)
            await self._cluster.report(SLICES, found, {"conditions": conditions})
            return
        if spec_of(tenant).get("tenantCondition", "Active") == "Cordoned":
            return  # what was granted stays as it was
        granted = {**_DEFAULTS, **_texts(spec_of(found).get("resources") or {}), **rules.grant}
        reply = ("Accepted", "ResourceSliceResourcesAccepted", "ResourceSlice resources accepted")
        status = {"conditions": with_condition(found, "Resources", *reply), "resources": granted}
        await self._cluster.report(SLICES, found, status)
        await self._limit(found, granted)

    async def _limit(self, found: CustomObject, granted: Mapping[str, str]) -> None:
        quota = self._cluster.find(QUOTAS, _user(found), found.namespace)
        if quota is None:
            await self._cluster.create(QUOTAS, _quota(found, granted), found.namespace)
        elif spec_of(quota).get("resources") != granted:
            await self._cluster.change(QUOTAS, quota, {"spec": {"resources": granted}})


def _denial(found: CustomObject, tenant: CustomObject, rules: Rules) -> tuple[str, str] | None:
    """The refusal, if nothing is granted: a reason and a message."""
    if rules.deny:
        return rules.deny, rules.deny_message or "the provider denies the resources"
    state = spec_of(tenant).get("tenantCondition", "Active")
    is_new = condition(found, "Resources").get("status") != "Accepted"
    if state == "Drained" or (state == "Cordoned" and is_new):
        return "ResourceSliceResourcesDenied", "ResourceSlice resources denied"
    return None


def _texts(resources: Mapping[str, object]) -> dict[str, str]:
    return {key: str(value) for key, value in resources.items()}


def _user(found: CustomObject) -> str:
    """The user of the consumer's virtual kubelet for that slice."""
    consumer = spec_of(found).get("consumerClusterID", "")
    return f"{found.name}-{hashlib.sha256(consumer.encode()).digest()[:6].hex()}"


def _quota(found: CustomObject, granted: Mapping[str, str]) -> Mapping[str, object]:
    user = _user(found)
    return {
        "apiVersion": "offloading.liqo.io/v1beta1",
        "kind": "Quota",
        "metadata": {"name": user, "ownerReferences": [owner(found, "ResourceSlice")]},
        "spec": {"user": user, "resources": granted, "limitsEnforcement": "None"},
    }
