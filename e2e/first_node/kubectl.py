"""Stands in for kubectl: ``exec`` runs the command in the container, everything else is the real kubectl's.

``kubectl exec`` goes through the kubelet's own server, which :mod:`e2e.first_node.kubelet` does not have. Here the same
command enters the same container by nsenter, with its user, files, network and environment.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["main", "write"]


def write(path: Path, kubectl: Path, running: Path) -> Path:
    """Writes a program that calls this one. ``running`` is what the kubelet writes."""
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "{kubectl}" "{running}" "$@"\n', "utf-8")
    path.chmod(0o755)
    return path


def main(kubectl: str, running: str, *words: str) -> None:
    """Runs the command, or becomes the real kubectl."""
    if "exec" not in words[:3]:
        os.execv(kubectl, [kubectl, *words])
    end = words.index("--")
    given = _parsed(words[:end])
    namespace = json.loads(Path(running).read_text("utf-8")).get(given.namespace, {})
    pods = [namespace[name] for name in _pods(kubectl, given.namespace, given.target) if namespace.get(name)]
    if not pods:
        sys.exit(f"error: no pod of {given.target} runs in the namespace {given.namespace}")
    container: Mapping[str, Any] = pods[0].get(given.container) or next(iter(pods[0].values()))
    enter = ["nsenter", "--target", str(container["process"]), "--mount", "--uts", "--net", "--root"]
    code = subprocess.run([*enter, *container["command"], *words[end + 1 :]], check=False).returncode
    if code:
        print(f"command terminated with exit code {code}", file=sys.stderr)  # as the real one does
    sys.exit(code)


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", "--namespace", default="default")
    parser.add_argument("verb")
    parser.add_argument("target")
    parser.add_argument("-c", "--container", default="")
    return parser.parse_args(words)


def _pods(kubectl: str, namespace: str, target: str) -> Sequence[str]:
    """The pods of a Deployment, or the one that is named."""
    kind, _, name = target.partition("/")
    if not name:
        return [kind.removeprefix("pod/")]
    ask = [kubectl, "-n", namespace, "get", "-o"]
    labels = subprocess.run([*ask, "json", target], capture_output=True, text=True, check=True).stdout
    selector = ",".join(
        f"{key}={value}" for key, value in json.loads(labels)["spec"]["selector"]["matchLabels"].items()
    )
    names = subprocess.run([*ask, "name", "pods", "-l", selector], capture_output=True, text=True, check=True).stdout
    return [one.removeprefix("pod/") for one in names.split()]


if __name__ == "__main__":
    main(*sys.argv[1:])
