"""Installs what a cluster with Liqo has: definitions of Liqo's kinds, and the refusals of its webhooks."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from cloudgraft.demo.fake_kubernetes import Json, KubeApi, RefusedError
from cloudgraft.demo.fake_kubernetes.resources import LIQO as KINDS
from cloudgraft.demo.fake_kubernetes.resources import Resource
from cloudgraft.demo.fake_liqo.words import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    DEFINITIONS,
    LIQO,
    NAMESPACES,
    NETWORKS,
    REPLICATED,
)
from cloudgraft.kube.client import KubeClient
from cloudgraft.kube.objects import CustomObject, Kind, PatchStyle, custom_kind
from cloudgraft.sdk.errors import AlreadyExistsError, NotFoundError

# -- definitions of kinds ----------------------------------------------------------------------------------------------
# They accept every field, and have Liqo's names, scopes and status subresources: enough for a real API server to serve
# these kinds where Liqo's chart cannot be had.


_PATIENCE: Final = 30.0
_OPEN: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def definition(resource: Resource) -> Mapping[str, Any]:
    """The definition of one kind."""
    version: dict[str, Any] = {
        "name": resource.base.rpartition("/")[2],
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _OPEN, "status": _OPEN}}},
    }
    if resource.has_status:
        version["subresources"] = {"status": {}}
    singular = resource.kind.lower()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.name},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {
                "plural": resource.plural,
                "singular": singular,
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
            },
            "versions": [version],
        },
    }


def definitions() -> list[Mapping[str, Any]]:
    """All of them."""
    return [definition(resource) for resource in KINDS]


async def install(client: KubeClient) -> None:
    """Makes an API server serve Liqo's kinds. Existing definitions, such as those of Liqo's chart, are not changed."""
    for manifest in definitions():
        with suppress(AlreadyExistsError):
            await client.create(DEFINITIONS, manifest)
    async with asyncio.timeout(_PATIENCE):
        for resource in KINDS:
            await _is_served(client, custom_kind(resource.base, resource.plural))


async def _is_served(client: KubeClient, kind: Kind[CustomObject]) -> None:
    while True:
        with suppress(NotFoundError):
            await client.list(kind)
            return
        await asyncio.sleep(0.1)


async def settle(client: KubeClient, cluster_id: str) -> None:
    """Creates Liqo's objects: its namespace, the cluster's id, address ranges, and the role for consumers."""
    await _ensure(client, NAMESPACES, {"metadata": {"name": LIQO}})
    labels = {"app.kubernetes.io/name": "clusterid-configmap"}
    named = {"name": "liqo-clusterid-configmap", "labels": labels}
    await _ensure(client, CONFIG_MAPS, {"metadata": named, "data": {"CLUSTER_ID": cluster_id}}, LIQO)
    rule = {
        "apiGroups": ["authentication.liqo.io", "offloading.liqo.io"],
        "resources": ["resourceslices", "resourceslices/status", "renews", "renews/status", "namespacemaps"],
        "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
    }
    await _ensure(client, CLUSTER_ROLES, {"metadata": {"name": "liqo-remote-controlplane"}, "rules": [rule]})
    digest = hashlib.sha256(cluster_id.encode()).digest()
    for number, kind in enumerate(("pod-cidr", "external-cidr")):
        cidr = f"10.{digest[number]}.0.0/16"
        meta = {"name": kind, "labels": {"ipam.liqo.io/network-type": kind}}
        network = {"apiVersion": "ipam.liqo.io/v1alpha1", "kind": "Network", "metadata": meta, "spec": {"cidr": cidr}}
        await _ensure(client, NETWORKS, network, LIQO)
        status = {"status": {"cidr": cidr}}
        await client.patch(NETWORKS, kind, status, namespace=LIQO, subresource="status", style=PatchStyle.MERGE)


async def _ensure(
    client: KubeClient, kind: Kind[CustomObject], manifest: Mapping[str, Any], namespace: str = ""
) -> None:
    with suppress(AlreadyExistsError):
        await client.create(kind, manifest, namespace=namespace)


# -- webhooks ----------------------------------------------------------------------------------------------------------
# The refusals of Liqo's webhooks, for the small API server: a real one cannot call a function in this process.


def guard_names(api: KubeApi) -> None:
    """Refuses a slice with the name of another one in any namespace: it becomes the name of a node."""

    def admit(resource: Resource, _namespace: str, manifest: Json) -> None:
        name = manifest["metadata"].get("name", "")
        if resource.kind != "ResourceSlice" or (manifest["metadata"].get("labels") or {}).get(REPLICATED) == "true":
            return
        if any(each["metadata"]["name"] == name for each in api.store.items(resource.name)):
            said = f'admission webhook "resourceslice.validate.liqo.io" denied the request: {name} is taken'
            raise RefusedError(403, "Forbidden", said)

    api.admission.append(admit)
