"""Reads the autoscaler's Deployments: flags, mounts, cloud-config, priorities, and rights."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Final

from cloudgraft.doctor.checks.autoscaler import mount_of
from cloudgraft.doctor.gather.api_reader import ApiReader
from cloudgraft.doctor.gather.connection import parse_cloud_config
from cloudgraft.doctor.picture import Autoscaler, CloudConfigSeen, Mount
from cloudgraft.doctor.releases import Flags, needed_rights
from cloudgraft.sdk.errors import CloudgraftError

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
    return [await _look(reader, deployment, container) for deployment, container in containers]


async def _look(reader: ApiReader, deployment: _Json, container: _Json) -> Autoscaler:
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
