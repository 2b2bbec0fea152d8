"""Which containers of which Deployments are autoscalers, and their flags."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cloudgraft.doctor.flags import Flags

__all__ = ["Container", "autoscalers_of_others", "flags_of", "likely_containers", "using_externalgrpc"]

_Json = Mapping[str, Any]
Container = tuple[_Json, _Json]  # its Deployment, and itself
_VARIABLE: Final = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


def using_externalgrpc(deployments: Sequence[_Json]) -> list[Container]:
    """Those that say so."""
    return [(deployment, one) for deployment, one, flags in _all(deployments) if _provider(flags) == "externalgrpc"]


def likely_containers(deployment: _Json) -> list[Container]:
    """Of a Deployment that somebody names: whatever is an autoscaler, for its flags may be the mistake."""
    containers = [(deployment, one) for one in _containers(deployment)]
    likely = [(d, one) for d, one in containers if "cluster-autoscaler" in one.get("image", "")]
    return using_externalgrpc([deployment]) or likely or containers[:1]


def autoscalers_of_others(deployments: Sequence[_Json]) -> Iterator[str]:
    """What there is of autoscalers that use another cloud, in words."""
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
