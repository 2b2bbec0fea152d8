"""Reads the cluster: nodes, the autoscaler's Deployments, cloud-controller-managers, and rights."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from cloudgraft.doctor.checks.autoscaler import mount_of
from cloudgraft.doctor.gather.connection import parse_cloud_config
from cloudgraft.doctor.inputs import Autoscaler, CloudConfigSeen, Cluster, Mount, NodeCare
from cloudgraft.doctor.releases import Flags, Release, needed_rights
from cloudgraft.kube.errors import ExpiredError
from cloudgraft.kube.objects import NODES, Node
from cloudgraft.kube.rights import OWN_NAMESPACE, RIGHTS, Feature, Right
from cloudgraft.sdk.common.extras import check_installed
from cloudgraft.sdk.errors import CloudgraftError, NotFoundError, UnavailableError

if TYPE_CHECKING:
    from cloudgraft.kube.api import Api
    from cloudgraft.kube.client import KubeClient


# -- whole objects, as JSON, from the Kubernetes API: what doctor needs and the engine does not ------------------------


Json = Mapping[str, Any]
_PAGE = "500"


class ApiReader:
    """Reads and never changes anything. Every failure is an error of :mod:`cloudgraft.sdk.errors`."""

    def __init__(self, api: Api, client: KubeClient) -> None:
        self._api = api
        self.client = client

    async def deployments(self) -> Sequence[Json]:
        """Of all namespaces."""
        return await self._list("deployments", "apis/apps/v1/deployments")

    async def daemon_sets(self) -> Sequence[Json]:
        """Of all namespaces."""
        return await self._list("daemonsets", "apis/apps/v1/daemonsets")

    async def deployment(self, namespace: str, name: str) -> Json | None:
        """One Deployment; None when there is none."""
        path = f"apis/apps/v1/namespaces/{quote(namespace, safe='')}/deployments/{quote(name, safe='')}"
        return await self._get(f"the Deployment {namespace}/{name}", path)

    async def config_map(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """The content of a ConfigMap; None when there is none."""
        path = f"api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}"
        found = await self._get(f"the ConfigMap {namespace}/{name}", path)
        return None if found is None else found.get("data") or {}

    async def may(self, account: tuple[str, str], right: tuple[str, str, str]) -> bool:
        """Whether a service account, by namespace and name, has a right: group, resource, verb."""
        (namespace, name), (group, resource, verb) = account, right
        plain, _, subresource = resource.partition("/")
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{namespace}:{name}",
                "groups": [
                    "system:serviceaccounts",
                    f"system:serviceaccounts:{namespace}",
                    "system:authenticated",
                ],
                "resourceAttributes": {
                    "verb": verb,
                    "group": group,
                    "resource": plain,
                    "subresource": subresource,
                },
            },
        }
        path = "apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = await self._call("cannot ask for the rights of others", "POST", path, body=review)
        return bool(answer.get("status", {}).get("allowed"))

    async def close(self) -> None:
        """Closes all connections."""
        await self._api.close()

    async def _get(self, what: str, path: str) -> Json | None:
        try:
            return await self._call(f"cannot read {what}", "GET", path)
        except NotFoundError:
            return None

    async def _list(self, plural: str, path: str) -> Sequence[Json]:
        items: list[Json] = []
        query = {"limit": _PAGE}
        while True:
            try:
                page = await self._call(f"cannot list {plural}", "GET", path, query=query)
            except ExpiredError:  # it changed too much between two pages: the pages read so far are enough
                return items
            items += page.get("items") or ()
            query["continue"] = (page.get("metadata") or {}).get("continue", "")
            if not query["continue"]:
                return items

    async def _call(
        self, what: str, method: str, path: str, *, query: Mapping[str, str] | None = None, body: object = None
    ) -> Json:
        from cloudgraft.kube.api import Call  # noqa: PLC0415 - an extra, and slow to import

        data = await self._api.call(Call(what=what, method=method, path=path, query=query, body=body))
        try:
            read = json.loads(data)
        except ValueError as error:
            raise UnavailableError(f"{what}: the answer is not one of a Kubernetes API") from error
        if not isinstance(read, dict):
            raise UnavailableError(f"{what}: the answer is not one of a Kubernetes API")
        return read


def open_reader(kubeconfig: Path | None, *, timeout: float) -> ApiReader:
    """A reader for a kubeconfig file, or without one for the cluster that this runs in. Makes no call yet."""
    check_installed("talking to a Kubernetes API", "lightkube", extra="kubernetes")
    # Here and not above: an extra, and slow to import.
    from cloudgraft.kube.api import Api  # noqa: PLC0415
    from cloudgraft.kube.client import KubeClient  # noqa: PLC0415
    from cloudgraft.kube.credentials import from_kubeconfig, from_service_account  # noqa: PLC0415

    if kubeconfig is not None:
        api = Api(from_kubeconfig(kubeconfig), name=f"the kubeconfig {kubeconfig}", timeout=timeout)
    else:
        api = Api(from_service_account(), name="the service account", timeout=timeout)
    return ApiReader(api, KubeClient(api))


# -- finding autoscalers -----------------------------------------------------------------------------------------------


_Json = Mapping[str, Any]
Container = tuple[_Json, _Json]  # its Deployment, and itself
_VARIABLE: Final = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


def using_externalgrpc(deployments: Sequence[_Json]) -> list[Container]:
    """Those that say so."""
    return [(deployment, one) for deployment, one, flags in _all(deployments) if _provider(flags) == "externalgrpc"]


def likely_containers(deployment: _Json) -> list[Container]:
    """The autoscalers of a Deployment that the user names, whatever their flags: these may be the mistake."""
    containers = [(deployment, one) for one in _containers(deployment)]
    likely = [(d, one) for d, one in containers if "cluster-autoscaler" in one.get("image", "")]
    return using_externalgrpc([deployment]) or likely or containers[:1]


def autoscalers_of_others(deployments: Sequence[_Json]) -> Iterator[str]:
    """Describes autoscalers that use another cloud."""
    for deployment, one, flags in _all(deployments):
        if "cluster-autoscaler" in one.get("image", "") and _provider(flags) != "externalgrpc":
            meta, provider = deployment["metadata"], _provider(flags)
            has = f"has --cloud-provider={provider}" if provider else "has no --cloud-provider"
            yield f"{meta.get('namespace', '')}/{meta['name']} {has}"


def flags_of(container: _Json) -> Flags:
    """Its flags, also where a shell starts it; variables are put in as the kubelet does, as far as they are known."""
    known = {one["name"]: one["value"] for one in container.get("env") or () if "value" in one}
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    words = [_VARIABLE.sub(lambda found: known.get(found[1], found[0]), word) for word in words]
    if "-c" in words and words[0].rpartition("/")[2] in {"sh", "bash", "ash", "dash"}:
        words = [part for word in words[words.index("-c") + 1 :] for part in _split(word)]
    return Flags.parse(words)


def _split(script: str) -> list[str]:
    try:
        return shlex.split(script, comments=True)
    except ValueError:
        return script.split()


def _provider(flags: Flags) -> str:
    return flags.text("cloud-provider")


def _all(deployments: Sequence[_Json]) -> Iterator[tuple[_Json, _Json, Flags]]:
    for deployment in deployments:
        for container in _containers(deployment):
            yield deployment, container, flags_of(container)


def _containers(deployment: _Json) -> Sequence[_Json]:
    pod = ((deployment.get("spec") or {}).get("template") or {}).get("spec") or {}
    return pod.get("containers") or ()


# -- reading Deployments -----------------------------------------------------------------------------------------------


_PRIORITIES: Final = "cluster-autoscaler-priority-expander"
_AT_ONCE: Final = 8  # concurrent access reviews


async def look_at_autoscalers(reader: ApiReader, containers: Sequence[Container]) -> list[Autoscaler]:
    """Reads each autoscaler and its objects."""
    return [await _read_autoscaler(reader, deployment, container) for deployment, container in containers]


async def _read_autoscaler(reader: ApiReader, deployment: _Json, container: _Json) -> Autoscaler:
    meta, spec = deployment["metadata"], deployment["spec"]
    pod = spec["template"]["spec"]
    seen = Autoscaler(
        namespace=meta.get("namespace", ""),
        name=meta.get("name", ""),
        image=container.get("image", ""),
        flags=flags_of(container),
        replicas=spec.get("replicas", 1),
        mounts=tuple(_mounts(pod, container)),
    )
    seen = replace(seen, cloud_config=await _cloud_config(reader, seen, pod, container))
    if "priority" in seen.flags.words("expander"):
        seen = await _with_priorities(reader, seen)
    if seen.flags.text("kubeconfig"):
        return replace(seen, rights_trouble="it has --kubeconfig, and does not use its service account")
    return await _with_rights(reader, seen, pod.get("serviceAccountName", "default"))


# -- mounts ------------------------------------------------------------------------------------------------------------


def _mounts(pod: _Json, container: _Json) -> Iterator[Mount]:
    volumes = {volume["name"]: volume for volume in pod.get("volumes") or ()}
    for mount in container.get("volumeMounts") or ():
        yield Mount(
            path=mount["mountPath"],
            source=_source(volumes.get(mount["name"], {})),
            has_sub_path=bool(mount.get("subPath") or mount.get("subPathExpr")),
        )


def _source(volume: _Json) -> str:
    if "configMap" in volume:
        return f"ConfigMap {volume['configMap'].get('name', '')}"
    if "secret" in volume:
        return f"Secret {volume['secret'].get('secretName', '')}"
    return next((key for key in volume if key != "name"), "unknown")


async def _cloud_config(reader: ApiReader, seen: Autoscaler, pod: _Json, container: _Json) -> CloudConfigSeen | None:
    """The text that --cloud-config names, when it is in a ConfigMap; a Secret is not read."""
    path = seen.flags.text("cloud-config")
    mount = mount_of(seen.mounts, path) if path else None
    if mount is None or not mount.source.startswith("ConfigMap "):
        return None
    name = mount.source.removeprefix("ConfigMap ")
    where = f"ConfigMap {seen.namespace}/{name}"
    try:
        data = await reader.config_map(seen.namespace, name)
    except CloudgraftError:
        return None  # without the right to read it, nothing is known
    if data is None:
        return CloudConfigSeen(where=where, trouble="there is no such ConfigMap")
    key = _key(pod, container, mount, path)
    if key not in data:
        return CloudConfigSeen(where=where, trouble=f"it has no key {key}, which --cloud-config={path} needs")
    return parse_cloud_config(data[key], where)


def _key(pod: _Json, container: _Json, mount: Mount, path: str) -> str:
    """The key of its ConfigMap that holds a file."""
    raw = next(one for one in container["volumeMounts"] if one["mountPath"] == mount.path)
    inside = PurePosixPath(path).relative_to(mount.path)
    name = str(PurePosixPath(raw.get("subPath", "")) / inside)
    volume = next(volume for volume in pod["volumes"] if volume["name"] == raw["name"])
    items: dict[str, str] = {item["path"]: item["key"] for item in volume["configMap"].get("items") or ()}
    return items.get(name, name)


# -- priorities and rights ---------------------------------------------------------------------------------------------


async def _with_priorities(reader: ApiReader, seen: Autoscaler) -> Autoscaler:
    try:
        data = await reader.config_map(seen.config_namespace, _PRIORITIES)
    except CloudgraftError as error:
        return replace(seen, priorities_trouble=error.message)
    return replace(seen, priorities=data.get("priorities") if data is not None else None)


async def _with_rights(reader: ApiReader, seen: Autoscaler, account: str) -> Autoscaler:
    needed = needed_rights(seen.release, with_devices=seen.flags.is_true("enable-dynamic-resource-allocation"))
    gate = asyncio.Semaphore(_AT_ONCE)

    async def ask(right: tuple[str, str, str]) -> bool:
        async with gate:
            return await reader.may((seen.namespace, account), right)

    asked: dict[tuple[str, str, str], asyncio.Task[bool]] = {}
    trouble = ""
    try:
        async with asyncio.TaskGroup() as group:
            asked.update({right: group.create_task(ask(right)) for right in needed})
    except* CloudgraftError as errors:
        trouble = _first(errors)
    if trouble:
        return replace(seen, rights_trouble=trouble)
    missing = [right for right, task in asked.items() if not task.result()]
    return replace(seen, missing_rights=tuple(_written(right) for right in missing))


def _first(errors: BaseExceptionGroup[CloudgraftError]) -> str:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error.message if isinstance(error, CloudgraftError) else str(error)


def _written(right: tuple[str, str, str]) -> str:
    group, resource, verb = right
    return f"{verb} {resource}.{group}" if group else f"{verb} {resource}"


_CALL_SECONDS: Final = 15.0
_SECONDS: Final = 60.0
_CONTROLLER: Final = "cloud-controller-manager"


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


def _where_it_is_needed(feature: Feature, care: NodeCare) -> Iterator[Right]:
    for right in RIGHTS[feature]:
        is_own = feature is Feature.EVENTS and right.namespace == OWN_NAMESPACE
        yield replace(right, namespace=care.events_namespace) if is_own else right


async def _missing_rights(reader: ApiReader, care: NodeCare) -> dict[str, str]:
    """The rights that cloudgraft's own account lacks, and the configuration keys that need them."""
    uses = {
        Feature.NODES: True,
        Feature.PROVIDER_ID: care.sets_provider_id,
        Feature.LABELS: care.labels_nodes,
        Feature.REMOVAL: care.removes_nodes,
        Feature.EVENTS: bool(care.events_namespace),
        Feature.TOKENS: care.mints_tokens,
    }
    missing: dict[str, str] = {}
    for feature, is_used in uses.items():
        for right in _where_it_is_needed(feature, care) if is_used else ():
            try:
                # The right to read it may be for this one only, as in our manifests.
                name = care.events_deployment if right.resource == "deployments" else ""
                is_allowed = await reader.client.may(right, name=name)
            except NotFoundError:  # an API without authorization allows everything
                return {}
            if not is_allowed:
                missing.setdefault(str(right), feature.value)
    return missing
