"""Installs the chart into a real API server, upgrades it through its modes, rolls it back, and takes it away."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.build import Tell
from e2e.chart import certificates_job
from e2e.chart.modes import covering
from e2e.control_plane import ControlPlane
from e2e.helm import CHART, Helm
from e2e.kubectl import kubectl
from e2e.liqo_definitions import define
from e2e.module_files import module_directory
from e2e.waiting import eventually

__all__ = ["define_kinds", "play"]

_NAMESPACE: Final = "autoscaling"
_RELEASE: Final = "cloudgraft"
_OPERATOR: Final = "github.com/prometheus-operator/prometheus-operator"
_KINDS: Final = (  # of others, which the chart makes objects of: module, version, and where in it their definitions are
    ("github.com/cert-manager/cert-manager", "v1.20.3", "deploy/crds/cert-manager.io_*.yaml"),
    (_OPERATOR, "v0.92.0", "example/prometheus-operator-crd/*_servicemonitors.yaml"),
    (_OPERATOR, "v0.92.0", "example/prometheus-operator-crd/*_prometheusrules.yaml"),
)
_SECONDS_TO_GO: Final = 120.0
_COME_AND_GO: Final = ("events", "events.events.k8s.io", "leases.coordination.k8s.io")


def define_kinds(plane: ControlPlane, work: Path) -> None:
    """Has the API server serve the kinds of cert-manager and of the Prometheus operator. Raises CannotBuildError."""
    for module, version, inside in _KINDS:
        for path in sorted(module_directory(module, version, work).glob(inside)):
            define(plane, path)


def play(helm: Helm, plane: ControlPlane, directory: Path, tell: Tell) -> Iterator[str]:
    """One line for each thing that is wrong."""
    helm = replace(helm, kubeconfig=plane.kubeconfig)
    for namespace in (_NAMESPACE, "liqo"):
        kubectl(plane, "create", "namespace", namespace)
    before = eventually(lambda: _everything(plane), _has_defaults, "namespaces are complete", seconds=_SECONDS_TO_GO)
    first, *others = covering()
    _install(helm, "install", first.values)
    yield from _differences(helm, plane, first.name)
    manifest = _manifest(helm)
    for one in others:
        _install(helm, "upgrade", one.values)
        yield from _differences(helm, plane, one.name)
    yield from _certificates_by_the_job(helm, plane, directory)
    tell(f"installed, and upgraded {len(others)} times")
    helm.run("rollback", _RELEASE, "1", "--namespace", _NAMESPACE)
    if _manifest(helm) != manifest:
        yield "helm rollback: the manifest is not that of the first revision"
    yield from _differences(helm, plane, "after helm rollback")
    helm.run("uninstall", _RELEASE, "--namespace", _NAMESPACE)
    left = eventually(
        lambda: _everything(plane) - before, lambda seen: not seen, "nothing is left", seconds=_SECONDS_TO_GO
    )
    yield from (f"helm uninstall leaves {name}" for name in sorted(left))


def _certificates_by_the_job(helm: Helm, plane: ControlPlane, directory: Path) -> Iterator[str]:
    """Has the Job fill the Secrets, and sees that an upgrade of the release keeps what is in them."""
    asked = {"certificates": {"mode": "job"}}
    _install(helm, "upgrade", asked)
    yield from certificates_job.problems(plane, _NAMESPACE, directory / "job")
    before, job = _secrets(plane), _jobs(plane)
    changed = {**asked, "pod": {"terminationGracePeriodSeconds": 40}}
    _install(helm, "upgrade", changed)
    if _secrets(plane) != before:
        yield "helm upgrade changes the Secrets that the Job has filled"
    other = _jobs(plane)
    if other == job:
        yield "helm upgrade runs no new Job, and the pod is another one"
    _install(helm, "upgrade", changed)
    if _jobs(plane) != other:
        yield "helm upgrade without a change has another Job"
    yield from certificates_job.problems(plane, _NAMESPACE, directory / "job")


def _secrets(plane: ControlPlane) -> str:
    selector = ("-l", f"app.kubernetes.io/instance={_RELEASE}", "-o", "jsonpath={.items[*].data}")
    return kubectl(plane, "-n", _NAMESPACE, "get", "secrets", *selector)


def _jobs(plane: ControlPlane) -> str:
    selector = ("-l", f"app.kubernetes.io/instance={_RELEASE}", "-o", "jsonpath={.items[*].metadata.uid}")
    return kubectl(plane, "-n", _NAMESPACE, "get", "jobs", *selector)


def _install(helm: Helm, verb: str, values: Mapping[str, Any]) -> None:
    words = (verb, _RELEASE, str(CHART), "--namespace", _NAMESPACE, "--values", "-")
    helm.run(*words, stdin=yaml.safe_dump(dict(values)))


def _manifest(helm: Helm) -> str:
    return helm.run("get", "manifest", _RELEASE, "--namespace", _NAMESPACE)


def _differences(helm: Helm, plane: ControlPlane, what: str) -> Iterator[str]:
    """What the API server refuses of it when it is strict, or has otherwise than helm believes."""
    manifest = _manifest(helm)
    kubectl(plane, "apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=manifest)
    command = [str(plane.kubectl), "--kubeconfig", str(plane.kubeconfig), "diff", "-f", "-"]
    done = subprocess.run(command, input=manifest, capture_output=True, text=True, timeout=60.0, check=False)
    if done.returncode:
        yield f"{what}: the cluster differs from the manifest: {done.stdout or done.stderr}"
    wanted = {_named(one) for one in yaml.safe_load_all(manifest) if one}
    for extra in _labelled(plane) - wanted:
        yield f"{what}: {extra} is of no use any more, and there"


def _named(one: Mapping[str, Any]) -> tuple[str, str]:
    return one["kind"], one["metadata"]["name"]


def _labelled(plane: ControlPlane) -> set[tuple[str, str]]:
    """What says that it is of this release; a Service hands its labels down to what is made for it."""
    selector = ("-l", f"app.kubernetes.io/instance={_RELEASE}", "-o", "yaml")
    kinds = ",".join(kind for kind in _kinds(plane) if not kind.startswith(("endpoint", "controllerrevisions")))
    listed = yaml.safe_load(kubectl(plane, "get", kinds, "-A", *selector))
    return {_named(one) for one in listed["items"]}


def _everything(plane: ControlPlane) -> frozenset[str]:
    """Every object of the cluster, by kind, namespace and name."""
    columns = "custom-columns=K:.kind,S:.metadata.namespace,N:.metadata.name"
    return frozenset(kubectl(plane, "get", ",".join(_kinds(plane)), "-A", "--no-headers", "-o", columns).splitlines())


def _kinds(plane: ControlPlane) -> Sequence[str]:
    found = kubectl(plane, "api-resources", "--verbs=list", "-o", "name").split()
    return [kind for kind in found if kind not in _COME_AND_GO and not kind.startswith("componentstatuses")]


def _has_defaults(everything: frozenset[str]) -> bool:
    """Whether the controllers have put into new namespaces what they put into each."""
    words = [line.split() for line in everything]
    namespaces = sum(1 for kind, *_ in words if kind == "Namespace")
    return all(
        sum(1 for one in words if (one[0], one[2]) == made) == namespaces
        for made in (("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt"))
    )
