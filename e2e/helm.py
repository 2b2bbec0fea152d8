"""Helm: built once like the other programs, and called as an operator would call it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.build import Recipe, Tell, build
from e2e.modules import HELM_MODULE, HELM_VERSION, NEWEST_CONTROL_PLANE

__all__ = ["CHART", "Helm", "HelmError"]

CHART: Final = Path(__file__).resolve().parents[1] / "deploy" / "helm" / "cloudgraft"
_RECIPE: Final = Recipe(
    key=f"helm-{HELM_VERSION}",
    module=HELM_MODULE,
    version=HELM_VERSION,
    programs={"helm": f"{HELM_MODULE}/cmd/helm"},
)


# Without a cluster; helm's own build says that it is of 1.20.
_OPTIONS: Final = ("--namespace", "kube-system", "--kube-version", f"{NEWEST_CONTROL_PLANE}.0", "--values", "-")


class HelmError(Exception):
    """Helm refused. The text is what it printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Helm:
    """The program, and the cluster that it works in, if any."""

    binary: Path
    kubeconfig: Path | None = None

    @classmethod
    def built(cls, tell: Tell) -> Helm:
        """Builds it if it is not there yet. Raises CannotBuildError."""
        return cls(binary=build(_RECIPE, tell)["helm"])

    def run(self, *words: str, stdin: str = "", seconds: float = 120.0) -> str:
        """Its standard output; HelmError when it fails."""
        cluster = ["--kubeconfig", str(self.kubeconfig)] if self.kubeconfig else []
        done = subprocess.run(
            [str(self.binary), *cluster, *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if done.returncode:
            raise HelmError(f"helm {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def template_of(self, values: Mapping[str, Any]) -> str:
        """What the chart renders with these values, as YAML. Needs no cluster."""
        return self.run("template", "cloudgraft", str(CHART), *_OPTIONS, stdin=yaml.safe_dump(dict(values)))

    def lint(self, values: Mapping[str, Any]) -> None:
        """Raises HelmError when helm finds fault with the chart."""
        self.run("lint", "--strict", str(CHART), *_OPTIONS, stdin=yaml.safe_dump(dict(values)))
