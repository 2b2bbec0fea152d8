"""Checks the objects of a rendering: they name each other rightly, and pods may do as little as possible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Final

__all__ = ["problems"]

Object = Mapping[str, Any]
_NAME: Final = "app.kubernetes.io/name"
_SECURITY: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
_RBAC: Final = "rbac.authorization.k8s.io"


def problems(objects: Sequence[Object], *, has_certificates: bool) -> Iterator[str]:
    """One line for each thing that is wrong. ``has_certificates``: the chart sees to all that are mounted."""
    names = [_key(one) for one in objects]
    yield from (f"twice: {name}" for name in {name for name in names if names.count(name) > 1})
    yield from _bindings(objects)
    yield from _certificates(objects)
    deployments = _of(objects, "Deployment")
    for one in deployments:
        name = one["metadata"]["name"]
        labels = one["spec"]["template"]["metadata"]["labels"]
        if one["spec"]["selector"]["matchLabels"] != labels:
            yield f"Deployment {name} does not select its pod"
        budgets = [each for each in _of(objects, "PodDisruptionBudget") if _selected(each) == labels]
        if len(budgets) != 1:
            yield f"Deployment {name} has {len(budgets)} budgets"
    jobs = [*_of(objects, "Job"), *(one["spec"]["jobTemplate"] for one in _of(objects, "CronJob"))]
    templates = [one["spec"]["template"] for one in (*deployments, *jobs)]
    own = [container for template in templates for container in template["spec"]["containers"] if _is_own(container)]
    if len({container.get("imagePullPolicy") for container in own}) > 1:
        yield f"not pulled alike: {[container['name'] for container in own if 'imagePullPolicy' not in container]}"
    for template in templates:
        name = template["spec"]["containers"][0]["name"]
        for problem in (*_pod(template, objects), *_mounts(template, objects, has_certificates=has_certificates)):
            yield f"pod with {name}: {problem}"
    pods = {template["metadata"]["labels"][_NAME]: template["spec"] for template in templates}
    for one in _of(objects, "Service"):
        pod = pods.get(one["spec"]["selector"][_NAME], {"containers": []})
        served = {port["name"] for container in pod["containers"] for port in container.get("ports", ())}
        wanted = {port["targetPort"] for port in one["spec"]["ports"]}
        if not wanted <= served:
            yield f"Service {one['metadata']['name']}: no pod has {wanted - served}"
    for kind in ("NetworkPolicy", "PodDisruptionBudget"):
        for one in _of(objects, kind):
            if _selected(one)[_NAME] not in pods:
                yield f"{kind} {one['metadata']['name']}: selects no pod"


def _key(one: Object) -> tuple[str, str, str]:
    return one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]


def _of(objects: Sequence[Object], *kinds: str) -> Sequence[Object]:
    return [one for one in objects if one["kind"] in kinds]


def _bindings(objects: Sequence[Object]) -> Iterator[str]:
    accounts = {_key(one) for one in _of(objects, "ServiceAccount")}
    roles = {_key(one) for one in _of(objects, "Role", "ClusterRole")}
    bound = set()
    for one in _of(objects, "RoleBinding", "ClusterRoleBinding"):
        reference = one["roleRef"]
        where = one["metadata"]["namespace"] if reference["kind"] == "Role" else ""
        bound.add((reference["kind"], where, reference["name"]))
        for subject in one["subjects"]:
            if (subject["kind"], subject["namespace"], subject["name"]) not in accounts:
                yield f"{one['kind']} {one['metadata']['name']}: there is no account {subject['name']}"
    yield from (f"bound, and not there: {name}" for name in bound - roles)
    yield from (f"bound to nobody: {name}" for name in roles - bound)
    for one in _of(objects, "Role", "ClusterRole"):
        if any("*" in rule[key] for rule in one["rules"] for key in ("apiGroups", "resources", "verbs")):
            yield f"{one['kind']} {one['metadata']['name']}: has a wildcard"


def _is_own(container: Object) -> bool:
    return bool(container["image"].startswith("cloudgraft:"))


def _certificates(objects: Sequence[Object]) -> Iterator[str]:
    for one in _of(objects, "Certificate"):
        names, addresses = one["spec"].get("dnsNames", ()), one["spec"].get("ipAddresses", ())
        for host in (*names, *addresses):
            if _is_address(host) != (host in addresses):
                yield f"Certificate {one['metadata']['name']}: {host} is not what it stands under"


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _selected(one: Object) -> Object:
    selector: Object = one["spec"].get("podSelector") or one["spec"]["selector"]
    labels: Object = selector["matchLabels"]
    return labels


def _pod(template: Object, objects: Sequence[Object]) -> Iterator[str]:
    labels, spec = template["metadata"]["labels"], template["spec"]
    if spec["serviceAccountName"] not in {one["metadata"]["name"] for one in _of(objects, "ServiceAccount")}:
        yield "its account is not there"
    if not spec["securityContext"]["runAsNonRoot"] or spec["securityContext"]["runAsUser"] < 1:
        yield "may run as root"
    for container in spec["containers"]:
        if container["securityContext"] != _SECURITY:
            yield f"{container['name']} may do more than it must"
        if not {"requests", "limits"} <= container["resources"].keys():
            yield f"{container['name']} has no requests or no limits"
        if container.get("ports") and "livenessProbe" not in container:
            yield f"{container['name']} has no liveness probe"
    has_policy = any(_selected(one) == labels for one in _of(objects, "NetworkPolicy"))
    if any(map(_is_own, spec["containers"])) and not has_policy:
        yield "has no network policy"


def _mounts(template: Object, objects: Sequence[Object], *, has_certificates: bool) -> Iterator[str]:
    spec = template["spec"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    if len(volumes) != len(spec["volumes"]):
        yield "has two volumes of one name"
    mounted = {mount["name"] for container in spec["containers"] for mount in container["volumeMounts"]}
    if mounted != volumes.keys():
        yield f"mounts {sorted(mounted)} and has {sorted(volumes)}"
    there = {_key(one)[::2] for one in objects}
    issued = {one["spec"]["secretName"] for one in _of(objects, "Certificate")}
    issued |= {one["metadata"]["name"] for one in _of(objects, "Secret")}
    for volume in volumes.values():
        claim, config = volume.get("persistentVolumeClaim"), volume.get("configMap")
        if claim and ("PersistentVolumeClaim", claim["claimName"]) not in there:
            yield f"there is no claim {claim['claimName']}"
        if config and ("ConfigMap", config["name"]) not in there:
            yield f"there is no ConfigMap {config['name']}"
        secret = volume.get("secret", {}).get("secretName", "")
        if has_certificates and secret.endswith("-tls") and secret not in issued:
            yield f"nobody issues {secret}"
