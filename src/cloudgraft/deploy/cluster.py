"""Decides how the pod reaches the cluster, which rights it needs there, and how long the autoscaler must wait."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from cloudgraft.config.sections.clouds import EntryPointCloud
from cloudgraft.deploy.draft import Draft
from cloudgraft.validation.problems import KeyPath

_CHARTS_WAIT: Final = timedelta(minutes=30)  # the chart's max-node-provision-time
_MARGIN: Final = timedelta(minutes=5)


def write_cluster(draft: Draft) -> None:
    """Sets the rights, and puts the pod's own account in the place of kubeconfigs."""
    _write_account(draft)
    _write_rights(draft)
    _write_liqo(draft)
    engine = draft.config.engine
    wait = engine.create_deadline + engine.join_deadline
    if wait >= _CHARTS_WAIT:
        minutes = f"{-(-(wait + _MARGIN) // timedelta(minutes=1))}m"
        why = "more than engine.createDeadline and engine.joinDeadline together"
        draft.set(("autoscaler", "flags"), {"max-node-provision-time": minutes}, why)


def _write_account(draft: Draft) -> None:
    section: KeyPath = ("kubernetes",)
    if draft.config.kubernetes is None:
        return
    if draft.drop((*section, "kubeconfig")) is not None:
        draft.own["kubernetes"] = {**draft.own["kubernetes"], "inCluster": True}
        text = "inCluster takes its place: install the release in the cluster that machines join"
        draft.warn((*section, "kubeconfig"), text)
    events = draft.config.kubernetes.events
    ours = {"deployment": draft.choices.name, "namespace": draft.choices.namespace}
    if events is not None:
        if {"deployment": events.deployment, "namespace": events.namespace} != ours:
            draft.note((*section, "events"), f"events are about the Deployment {ours['deployment']} of this release")
        draft.rewrite((*section, "events"), ours)


def _write_rights(draft: Draft) -> None:
    reach = draft.config.kubernetes
    has_joins = bool(draft.config.joins())
    rights: dict[str, Any] = {
        "nodes": reach is not None,
        "setProviderID": reach is not None and reach.set_provider_id,
        "labelNodes": reach is not None and reach.label_nodes,
        "removeNodes": reach is not None and reach.remove_nodes,
        "events": reach is not None and reach.events is not None,
        "tokens": reach is not None and has_joins,
        "doctor": reach is not None,
    }
    reasons = {
        "nodes": "kubernetes",
        "setProviderID": "kubernetes.setProviderID",
        "labelNodes": "kubernetes.labelNodes",
        "removeNodes": "kubernetes.removeNodes",
        "events": "kubernetes.events",
        "tokens": "join, whose templates get bootstrap tokens",
        "doctor": "cloudgraft doctor, in the pod",
    }
    draft.set(("server", "rights"), rights, "in the cluster, by the feature that needs them (docs/reference/rbac.md)")
    if reach is None:
        draft.reasons["server", "rights"] = (
            "none: without the section `kubernetes` the pod gets no token of its account"
        )
    for name, reason in reasons.items():
        if rights[name]:
            draft.reasons["server", "rights", name] = reason
    if reach is None and has_joins:
        draft.note(("join",), "without the section `kubernetes` cloudgraft makes no tokens for machines")


def _write_liqo(draft: Draft) -> None:
    for name, cloud in draft.config.clouds.items():
        if not isinstance(cloud, EntryPointCloud) or cloud.driver != "liqo":
            continue
        path: KeyPath = ("clouds", name)
        draft.set(("liqo", "consumer"), ["server"], f"the rights of clouds.{name}")
        namespace = cloud.options.get("liqoNamespace")
        if namespace:
            draft.set(("liqo", "namespace"), namespace, f"clouds.{name}.liqoNamespace")
        if draft.drop((*path, "kubeconfig")) is not None:
            text = "the pod's own account takes its place: install the release in the cluster that gets the nodes"
            draft.warn((*path, "kubeconfig"), text)
        draft.note(
            path, "it calls the APIs of remote clusters: add ports other than 443 and 6443 to server.egressPorts"
        )
