"""Scenario 15: deploy/. The API server takes every manifest, and the autoscaler scales with the rights they give it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from e2e.config import cloud, document, node_group
from e2e.kubectl import kubeconfig_of, kubectl
from e2e.kubernetes import Workload
from e2e.scenarios.scenario import Scenario
from e2e.stage import Stage

__all__ = ["SCENARIO"]

_DEPLOY: Final = Path(__file__).resolve().parents[2] / "deploy"
_NOT_SENT: Final = (
    "alerts.yaml",  # of the Prometheus operator, which is not here
    "certificates.yaml",  # of cert-manager, which has a run of its own: e2e.certificates
    "kustomization.yaml",  # of kubectl
)
_RIGHTS: Final = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
_OWN: Final = ("cloud-provider", "cloud-config", "v")  # said by the scenario itself
_TWO: Final = Workload(name="two", replicas=2, cpu="1500m", memory="3000Mi")  # one fills a node


def _run(stage: Stage) -> None:
    for path in sorted(_DEPLOY.glob("*.yaml")):
        if path.name not in _NOT_SENT:
            kubectl(stage.plane, "apply", "--dry-run=server", "--validate=strict", "-f", str(path))
    objects = list(yaml.safe_load_all((_DEPLOY / "cluster-autoscaler.yaml").read_text("utf-8")))
    stage.apply(yaml.safe_dump_all([one for one in objects if one["kind"] in _RIGHTS]))
    account = kubeconfig_of(stage.plane, "cluster-autoscaler", stage.directory / "cluster-autoscaler.conf")

    sim = stage.start_cloud()
    stage.start_server(document(clouds={"sim": cloud(sim.url)}, groups=[node_group("plain", "small")]))
    flags: dict[str, Any] = {"namespace": "kube-system", "leader-elect": "true", **_flags(objects)}
    autoscaler = stage.start_autoscaler(kubeconfig=account, **flags)
    stage.cluster.run(_TWO)
    stage.until_equal(lambda: stage.cluster.running("two"), 2, "the number of pods that run")
    stage.settle({"plain": 2})
    stage.cluster.scale("two", 0)
    stage.settle({})
    refused = [line for line in autoscaler.log.read_text("utf-8", "replace").splitlines() if "is forbidden" in line]
    assert not refused, f"the autoscaler was refused {len(refused)} times: {refused[0]}"


def _flags(objects: list[dict[str, Any]]) -> dict[str, str]:
    """Those of the Deployment."""
    deployment = next(one for one in objects if one["kind"] == "Deployment")
    words = deployment["spec"]["template"]["spec"]["containers"][0]["command"][1:]
    pairs = [word.removeprefix("--").partition("=") for word in words]
    return {name: value for name, _, value in pairs if name not in _OWN}


SCENARIO: Final = Scenario(
    number=15, seconds=30, title="the manifests are accepted, and their rights suffice", run=_run
)
