"""Installs the chart, and reads the configurations that it makes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.certificates import issued
from e2e.control_plane import ControlPlane
from e2e.helm import CHART, Helm
from e2e.kubectl import kubectl
from e2e.waiting import eventually

__all__ = ["Release"]

_NAME: Final = "cloudgraft"
_MOUNTED: Final = "/etc/cloudgraft/tls"  # in both pods
_SECONDS_TO_ISSUE: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One installation."""

    helm: Helm
    plane: ControlPlane
    namespace: str
    check: Callable[[], None]  # whether all that it needs is alive

    @property
    def address(self) -> str:
        """Where the chart lets the autoscaler call the server."""
        return str(self.cloud_config(Path(_MOUNTED))["address"])

    def install(self, values: Mapping[str, Any]) -> list[issued.Object]:
        """Returns what it asks cert-manager for, once that has made it. Its pods are not for the scheduler."""
        words = ("install", _NAME, str(CHART), "--namespace", self.namespace, "--values", "-")
        self._helm().run(*words, stdin=yaml.safe_dump(dict(values)))
        kubectl(self.plane, "-n", self.namespace, "scale", "deployments", "--all", "--replicas=0")
        return eventually(
            lambda: issued.certificates(self.plane, self.namespace),
            issued.are_settled,
            "every Certificate is ready",
            seconds=_SECONDS_TO_ISSUE,
            check=self.check,
        )

    def judge(self, directory: Path) -> None:
        """Raises AssertionError unless each Secret has what is asked for, and cloudgraft finds no fault with it."""
        found = list(issued.problems(self.plane, self.namespace, directory, address=self.address))
        assert not found, "\n".join(found)

    def tls_secrets(self) -> list[issued.Object]:
        """The Secrets that cert-manager has made for it, but for that of the chart's authority."""
        return [one for one in self._secrets() if one["metadata"]["name"] != f"{_NAME}-ca"]

    def secrets(self) -> set[str]:
        """The names of all of them."""
        return {one["metadata"]["name"] for one in self._secrets()}

    def uninstall(self) -> None:
        """As an operator would."""
        self._helm().run("uninstall", _NAME, "--namespace", self.namespace)

    def server_config(self, certificates: Path) -> dict[str, Any]:
        """Returns the pod's configuration, with this machine's directory of certificates and ports."""
        document = self._read(_NAME, "cloudgraft.yaml", certificates)
        for name in ("listen", "ops"):
            del document["server"][name]
        return document

    def cloud_config(self, certificates: Path) -> dict[str, Any]:
        """The same for the autoscaler."""
        return self._read("cluster-autoscaler-cloud-config", "cloud-config.yaml", certificates)

    def _secrets(self) -> list[issued.Object]:
        words = ("-n", self.namespace, "get", "secrets", "--field-selector", "type=kubernetes.io/tls", "-o", "json")
        return list(json.loads(kubectl(self.plane, *words))["items"])

    def _read(self, config_map: str, file: str, certificates: Path) -> dict[str, Any]:
        found = json.loads(kubectl(self.plane, "-n", self.namespace, "get", "configmap", config_map, "-o", "json"))
        document: dict[str, Any] = yaml.safe_load(found["data"][file].replace(_MOUNTED, str(certificates)))
        return document

    def _helm(self) -> Helm:
        return replace(self.helm, kubeconfig=self.plane.kubeconfig)
