"""Installs what a cluster with Liqo has: its objects, and the refusals of its webhooks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from cloudgraft.demo.fake_kubernetes import Json, KubeApi, RefusedError
from cloudgraft.demo.fake_kubernetes.resources import Resource
from cloudgraft.demo.fake_liqo.words import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    LIQO,
    NAMESPACES,
    NETWORKS,
    REPLICATED,
)
from cloudgraft.kube.client import KubeClient
from cloudgraft.kube.objects import CustomObject, Kind, PatchStyle
from cloudgraft.sdk.errors import AlreadyExistsError


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
