"""What ``kubeadm init`` leaves in a cluster so that machines can join it: a public ConfigMap, and some rights."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Final

import yaml
from lightkube import Client
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.models.rbac_v1 import PolicyRule, RoleRef, Subject
from lightkube.resources.core_v1 import ConfigMap
from lightkube.resources.rbac_authorization_v1 import ClusterRoleBinding, Role, RoleBinding

__all__ = ["prepare_for_kubeadm"]

_RBAC: Final = "rbac.authorization.k8s.io"
_JOINERS: Final = "system:bootstrappers:kubeadm:default-node-token"
_ROLES: Final = {
    "kubeadm:kubelet-bootstrap": "system:node-bootstrapper",
    "kubeadm:node-autoapprove-bootstrap": "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
}


def prepare_for_kubeadm(client: Client, server: str, authority: Path) -> None:
    """Does it; twice is fine."""
    meta = ObjectMeta(name="cluster-info", namespace="kube-public")
    _apply(client, ConfigMap(metadata=meta, data={"kubeconfig": _kubeconfig(server, authority)}))
    rights = ObjectMeta(name="kubeadm:bootstrap-signer-clusterinfo", namespace="kube-public")
    rule = PolicyRule(apiGroups=[""], resources=["configmaps"], resourceNames=["cluster-info"], verbs=["get"])
    _apply(client, Role(metadata=rights, rules=[rule]))
    anybody = Subject(kind="User", name="system:anonymous", apiGroup=_RBAC)
    reference = RoleRef(apiGroup=_RBAC, kind="Role", name="kubeadm:bootstrap-signer-clusterinfo")
    _apply(client, RoleBinding(metadata=rights, roleRef=reference, subjects=[anybody]))
    joiners = Subject(kind="Group", name=_JOINERS, apiGroup=_RBAC)
    for name, role in _ROLES.items():
        reference = RoleRef(apiGroup=_RBAC, kind="ClusterRole", name=role)
        _apply(client, ClusterRoleBinding(metadata=ObjectMeta(name=name), roleRef=reference, subjects=[joiners]))


def _apply(client: Client, thing: Any) -> None:
    client.apply(thing, field_manager="cloudgraft-e2e", force=True)


def _kubeconfig(server: str, authority: Path) -> str:
    data = base64.b64encode(authority.read_bytes()).decode()
    cluster = {"server": server, "certificate-authority-data": data}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "", "cluster": cluster}]})
