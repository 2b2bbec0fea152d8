"""Reads the cluster: nodes, autoscalers, cloud-controller-managers, and the rights of our own account."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cloudgraft.doctor.gather.api_reader import ApiReader, open_reader
from cloudgraft.doctor.gather.autoscalers import (
    autoscalers_of_others,
    likely_containers,
    look_at_autoscalers,
    using_externalgrpc,
)
from cloudgraft.doctor.picture import Autoscaler, Cluster, NodeCare
from cloudgraft.doctor.releases import Release
from cloudgraft.kube.objects import NODES, Node
from cloudgraft.kube.rights import RIGHTS, Feature
from cloudgraft.sdk.errors import CloudgraftError, NotFoundError

_CALL_SECONDS: Final = 15.0
_SECONDS: Final = 60.0
_CONTROLLER: Final = "cloud-controller-manager"
_Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterWanted:
    """The cluster to read, and the parts of it."""

    kubeconfig: Path | None = None  # None: the one that this runs in
    autoscaler: tuple[str, str] | None = None  # namespace and name; None: found by its flags
    own_account: NodeCare | None = None  # what cloudgraft does there, when the credentials are its own


async def look_at_cluster(wanted: ClusterWanted) -> tuple[Cluster | None, str]:
    """Reads the cluster; returns it, or the reason why nothing could be read."""
    try:
        reader = open_reader(wanted.kubeconfig, timeout=_CALL_SECONDS)
    except CloudgraftError as error:
        return None, error.message
    try:
        async with asyncio.timeout(_SECONDS):
            return await _look(reader, wanted), ""
    except CloudgraftError as error:
        return None, error.message
    except TimeoutError:
        return None, f"the Kubernetes API did not answer everything within {_SECONDS:g} s"
    except (LookupError, TypeError, AttributeError) as error:  # fields that every object has are missing
        return None, f"the answers are not those of a Kubernetes API: {error!r}"
    finally:
        await reader.close()


async def _look(reader: ApiReader, wanted: ClusterWanted) -> Cluster:
    """Reads all parts. The first call must succeed; each of the others may be refused."""
    release = Release.of_version(await reader.client.release())
    nodes, nodes_trouble = await _nodes(reader)
    autoscalers, autoscalers_trouble, deployments = await _autoscalers(reader, wanted.autoscaler)
    return Cluster(
        release=release,
        nodes=nodes,
        nodes_trouble=nodes_trouble,
        autoscalers=autoscalers,
        autoscalers_trouble=autoscalers_trouble,
        cloud_controllers=tuple(await _controllers(reader, deployments)),
        missing_rights=await _missing_rights(reader, wanted.own_account) if wanted.own_account else {},
    )


async def _nodes(reader: ApiReader) -> tuple[tuple[Node, ...] | None, str]:
    try:
        return (await reader.client.list(NODES)).items, ""
    except CloudgraftError as error:
        return None, error.message


async def _autoscalers(
    reader: ApiReader, named: tuple[str, str] | None
) -> tuple[tuple[Autoscaler, ...] | None, str, Sequence[_Json]]:
    try:
        if named is None:
            deployments = await reader.deployments()
            found = await look_at_autoscalers(reader, using_externalgrpc(deployments))
            return tuple(found), _others(deployments), deployments
        one = await reader.deployment(*named)
        if one is None:
            return (), f"there is no Deployment {named[0]}/{named[1]}", ()
        found = await look_at_autoscalers(reader, likely_containers(one))
    except CloudgraftError as error:
        return None, error.message, ()
    return tuple(found), "", await _deployments(reader)


def _others(deployments: Sequence[_Json]) -> str:
    """Mentions autoscalers of other clouds: they are not checked, but the user may mean one of them."""
    others = "; ".join(autoscalers_of_others(deployments))
    return f"no Deployment has a container with --cloud-provider=externalgrpc; {others}" if others else ""


async def _deployments(reader: ApiReader) -> Sequence[_Json]:
    """All of them, if that is allowed."""
    try:
        return await reader.deployments()
    except CloudgraftError:
        return ()


async def _controllers(reader: ApiReader, deployments: Sequence[_Json]) -> Iterator[str]:
    try:
        daemon_sets = await reader.daemon_sets()
    except CloudgraftError:
        daemon_sets = ()
    named = [("Deployment", one) for one in deployments] + [("DaemonSet", one) for one in daemon_sets]
    return (
        f"{kind} {one['metadata'].get('namespace', '')}/{one['metadata']['name']}"
        for kind, one in named
        if _is_controller(one["metadata"]["name"]) and (one.get("spec") or {}).get("replicas", 1)
    )


def _is_controller(name: str) -> bool:
    """Whether it is such a manager. One that only installs a manager where needed is none itself."""
    return _CONTROLLER in name and "operator" not in name


async def _missing_rights(reader: ApiReader, care: NodeCare) -> dict[str, str]:
    """The rights that cloudgraft's own account lacks, and the configuration keys that need them."""
    uses = {
        Feature.NODES: True,
        Feature.PROVIDER_ID: care.sets_provider_id,
        Feature.LABELS: care.labels_nodes,
        Feature.REMOVAL: care.removes_nodes,
        Feature.TOKENS: care.mints_tokens,
    }
    missing: dict[str, str] = {}
    for feature, is_used in uses.items():
        for right in RIGHTS[feature] if is_used else ():
            try:
                is_allowed = await reader.client.may(right)
            except NotFoundError:  # an API without authorization allows everything
                return {}
            if not is_allowed:
                missing.setdefault(str(right), feature.value)
    return missing
