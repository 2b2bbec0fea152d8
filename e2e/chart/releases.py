"""The chart's own autoscaler has the rights that its release needs, and flags that it knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from cloudgraft.doctor.releases import KNOWN, NEWEST, OLDEST, Flags, Release, needed_rights
from e2e.helm import Helm

__all__ = ["problems"]


def problems(helm: Helm) -> Iterator[str]:
    """One line for each release that lacks something, or has the rights of devices for nothing."""
    for minor in range(OLDEST[1], NEWEST[1] + 1):
        release = Release(1, minor)
        for has_devices in (False, True):
            if not has_devices or minor >= KNOWN["enable-dynamic-resource-allocation"][0]:
                yield from (f"{release}: {problem}" for problem in _of(helm, release, has_devices=has_devices))
    yield from _beside_another(helm)


def _beside_another(helm: Helm) -> Iterator[str]:
    """The autoscaler of a second installation in one namespace has a lease and a status of its own."""
    objects = [one for one in yaml.safe_load_all(helm.template_of({"name": "edge"})) if one]
    named = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    pod = named["Deployment", "edge-autoscaler"]["spec"]["template"]["spec"]
    flags = Flags.parse(pod["containers"][0]["command"])
    rules = named["Role", "edge-autoscaler"]["rules"]
    rights = {(rule["resources"][0], name) for rule in rules for name in rule.get("resourceNames", ())}
    for flag, resource in (("leader-elect-resource-name", "leases"), ("status-config-map-name", "configmaps")):
        name = flags.text(flag)
        if not name.startswith("edge-") or (resource, name) not in rights:
            yield f"a second installation: --{flag} is {name!r}, and its rights are {sorted(rights)}"


def _of(helm: Helm, release: Release, *, has_devices: bool) -> Iterator[str]:
    flags = {"enable-dynamic-resource-allocation": True} if has_devices else {}
    objects = list(yaml.safe_load_all(helm.template_of({"autoscaler": {"release": str(release), "flags": flags}})))
    granted, needed = _granted(objects), set(needed_rights(release, with_devices=has_devices))
    yield from (f"lacks the right to {right}" for right in needed - granted)
    if {group for group, _, _ in granted} > {group for group, _, _ in needed} | {"coordination.k8s.io"}:
        yield f"has rights in {sorted({group for group, _, _ in granted})}"
    (deployment,) = [
        one for one in objects if one["kind"] == "Deployment" and one["metadata"]["name"] == "cluster-autoscaler"
    ]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    for flag in Flags.parse(container["command"]).values:
        first, last = KNOWN.get(flag, (OLDEST[1], NEWEST[1]))
        if not first <= release.minor <= last:
            yield f"does not know --{flag}"
    if not container["image"].endswith(f":v{release}"):
        yield f"is {container['image']}"


def _granted(objects: list[Mapping[str, Any]]) -> set[tuple[str, str, str]]:
    roles = [one for one in objects if one["kind"] == "ClusterRole" and one["metadata"]["name"] == "cluster-autoscaler"]
    return {
        (group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
