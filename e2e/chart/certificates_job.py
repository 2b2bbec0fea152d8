"""Does what the pods of the chart's Job do: the same command and file, with the rights of their account."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from cloudgraft.certs.inspect import inspect_path
from e2e.control_plane import ControlPlane
from e2e.kubectl import kubeconfig_of, kubectl

__all__ = ["problems"]

_NAME: Final = "cloudgraft-certificates"


def problems(plane: ControlPlane, namespace: str, directory: Path) -> Iterator[str]:
    """One line for each thing that is wrong. Call it after each revision: what is there must have been kept."""
    directory.mkdir(exist_ok=True)
    file = directory / "certificates.yaml"
    file.write_text(_read(plane, namespace, "configmap", _NAME)["data"][file.name], "utf-8")
    account = kubeconfig_of(plane, _NAME, directory / "kubeconfig", namespace=namespace)
    template = _read(plane, namespace, "cronjob", _NAME)["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = template["containers"]
    words = [str(file) if word.endswith(f"/{file.name}") else word for word in container["args"]]
    first, second = (_outcomes(words, account) for _ in range(2))
    if set(second.values()) != {"kept"}:
        yield f"the Job changes what is good: {second}, after {first}"
    for name in sorted(first):
        data = _read(plane, namespace, "secret", name).get("data", {})
        for key, value in data.items():
            (directory / key).write_bytes(base64.b64decode(value))
        report = inspect_path(directory / "tls.crt")
        if {"tls.crt", "tls.key", "ca.crt"} != data.keys() or not report.ok:
            yield f"Secret {name} has {sorted(data)}: {report.findings}"


def _outcomes(words: list[str], account: Path) -> dict[str, str]:
    command = [sys.executable, "-m", "cloudgraft.cli", *words, "--kubeconfig", str(account), "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60.0, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return {one["secret"]: one["outcome"] for one in json.loads(done.stdout)}


def _read(plane: ControlPlane, namespace: str, kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kubectl(plane, "-n", namespace, "get", kind, name, "-o", "json"))
    return found
