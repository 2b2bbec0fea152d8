"""The consumer's side of a slice: it is completed, and what was granted becomes an identity and a virtual node."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from cloudgraft.demo.fake_liqo.cluster import Cluster
from cloudgraft.demo.fake_liqo.pace import Pace
from cloudgraft.demo.fake_liqo.script import Script
from cloudgraft.demo.fake_liqo.words import (
    CREATE_VIRTUAL_NODE,
    IDENTITIES,
    IDENTITY_TYPE,
    REMOTE,
    REPLICATION,
    SECRETS,
    SLICE_NAME,
    SLICES,
    VIRTUAL_NODES,
    accepted,
    owner,
    spec_of,
    status_of,
)
from cloudgraft.kube.objects import CustomObject

__all__ = ["SliceRequests", "local_slices"]


def local_slices(cluster: Cluster) -> list[CustomObject]:
    """The slices that this cluster asks others for. Of two with one name only one: a webhook refuses the other."""
    found = [each for each in cluster.all(SLICES) if each.labels.get(REPLICATION) == "true"]
    first: dict[str, CustomObject] = {}
    for each in sorted(found, key=lambda each: (each.created_at, each.namespace)):
        first.setdefault(each.name, each)
    return [each for each in found if first[each.name] is each or each.deleting]


class SliceRequests:
    """Plays the controllers of local slices, of identities, and of the creation of virtual nodes."""

    def __init__(self, cluster: Cluster, script: Script, pace: Pace) -> None:
        self._cluster = cluster
        self._script = script
        self._pace = pace

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
    """With what a virtual kubelet would get in; nobody does."""
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
