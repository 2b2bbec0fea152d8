"""kubectl, as an operator would call it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from e2e.control_plane import ControlPlane

__all__ = ["kubeconfig_of", "kubectl"]


def kubectl(plane: ControlPlane, *words: str, stdin: str = "") -> str:
    """What it prints; an AssertionError with what it complains of, when it fails."""
    command = [str(plane.kubectl), "--kubeconfig", str(plane.kubeconfig), *words]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60.0, check=False)
    assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
    return done.stdout


def kubeconfig_of(plane: ControlPlane, account: str, path: Path, *, namespace: str = "kube-system") -> Path:
    """Writes the kubeconfig of a service account, with a token that is good for an hour."""
    token = kubectl(plane, "-n", namespace, "create", "token", account, "--duration", "1h").strip()
    config = yaml.safe_load(plane.kubeconfig.read_text("utf-8"))
    config["users"][0]["user"] = {"token": token}
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config), "utf-8")
    return path
