"""What ``kubeadm init`` leaves in a cluster, made by kubeadm's own phases."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml
from lightkube.resources.core_v1 import ConfigMap, Secret

from e2e.control_plane import ControlPlane
from e2e.kubernetes import Cluster

__all__ = ["bootstrap_secrets", "prepare"]

_API: Final = "kubeadm.k8s.io/v1beta4"
_PHASES: Final = (("upload-config", "kubeadm"), ("upload-config", "kubelet"), ("bootstrap-token", "--skip-token-print"))


def prepare(
    plane: ControlPlane, cluster: Cluster, kubeadm: Path, directory: Path, *, version: str, server: str
) -> None:
    """Runs the phases, and has cluster-info name the address at which machines find the API server."""
    kubeconfig = yaml.safe_load(plane.kubeconfig.read_text("utf-8"))
    authority = base64.b64encode(plane.authority.read_bytes()).decode()
    kubeconfig["clusters"][0]["cluster"] = {"server": plane.server, "certificate-authority-data": authority}
    with_authority = directory / "kubeadm.kubeconfig"
    with_authority.touch(mode=0o600)
    with_authority.write_text(yaml.safe_dump(kubeconfig), "utf-8")
    config = directory / "kubeadm.yaml"
    config.write_text(yaml.safe_dump_all(_documents(version, server)), "utf-8")
    for phase in _PHASES:
        files = ["--kubeconfig", str(with_authority), "--config", str(config)]
        command = [str(kubeadm), "init", "phase", *phase, *files]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60.0, check=False)
        assert done.returncode == 0, f"kubeadm init phase {' '.join(phase)}: {done.stderr}"
    info = cluster.client.get(ConfigMap, "cluster-info", namespace="kube-public")
    text = (info.data or {})["kubeconfig"].replace(plane.server, server)
    cluster.client.patch(ConfigMap, "cluster-info", {"data": {"kubeconfig": text}}, namespace="kube-public")


def bootstrap_secrets(cluster: Cluster) -> list[str]:
    """The secret half of every token that cloudgraft has made and not taken back."""
    labels: Any = {"app.kubernetes.io/managed-by": "cloudgraft"}
    found = cluster.client.list(Secret, namespace="kube-system", labels=labels)
    return [base64.b64decode((secret.data or {})["token-secret"]).decode() for secret in found]


def _documents(version: str, server: str) -> list[dict[str, Any]]:
    init = {"nodeRegistration": {"criSocket": "unix:///run/containerd/containerd.sock", "name": "control-plane"}}
    cluster = {"kubernetesVersion": version, "controlPlaneEndpoint": server.removeprefix("https://")}
    return [
        {"apiVersion": _API, "kind": "InitConfiguration", **init},
        {"apiVersion": _API, "kind": "ClusterConfiguration", **cluster},
    ]
