"""The Cluster Autoscaler as a process, with times of seconds instead of minutes."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from e2e.modules import Release
from e2e.processes import Program, free_ports

__all__ = ["Autoscaler", "flags_for", "loops_in"]

_LOOPS: Final = re.compile(
    r'^cluster_autoscaler_function_duration_seconds_count\{function="main"\} (\S+)', re.MULTILINE
)
# A loop every second, and nothing that waits for minutes.
_FLAGS: Final[Mapping[str, str]] = {
    "v": "5",
    "stderrthreshold": "info",
    "cloud-provider": "externalgrpc",
    "scan-interval": "1s",
    "scale-down-unneeded-time": "4s",
    "scale-down-unready-time": "4s",
    "scale-down-delay-after-add": "3s",
    "scale-down-delay-after-delete": "0s",
    "scale-down-delay-after-failure": "2s",
    "unremovable-node-recheck-timeout": "2s",
    "max-node-provision-time": "120s",
    "max-graceful-termination-sec": "20",
    "expander": "least-waste",  # up to 1.32 the default is to roll dice
}
_SINCE: Final[Mapping[str, Mapping[str, str]]] = {
    "1.26": {"leader-elect": "false", "node-delete-delay-after-taint": "1s"},
    "1.27": {"kube-client-qps": "200", "kube-client-burst": "400"},
}


def flags_for(release: Release, given: Mapping[str, str]) -> dict[str, str]:
    """The flags that a release knows, and over them what a scenario wants."""
    flags = dict(_FLAGS)
    for since, more in _SINCE.items():
        if release.is_at_least(since):
            flags |= more
    return flags | dict(given)


def loops_in(metrics: str) -> int:
    """How many main loops have ended, by the autoscaler's own metrics."""
    found = _LOOPS.search(metrics)
    return int(float(found.group(1))) if found else 0


class Autoscaler(Program):
    """One autoscaler. What it remembers, it forgets when it is killed; its flags stay."""

    def __init__(
        self,
        binary: Path,
        release: Release,
        directory: Path,
        *,
        kubeconfig: Path,
        cloud_config: Path,
        flags: Mapping[str, str],
    ) -> None:
        (port,) = free_ports(1)
        self.metrics = f"http://127.0.0.1:{port}/metrics"
        own = {"kubeconfig": str(kubeconfig), "cloud-config": str(cloud_config), "address": f"127.0.0.1:{port}"}
        words = [f"--{name}={value}" for name, value in flags_for(release, {**own, **flags}).items()]
        super().__init__("cluster-autoscaler", [binary, *words], directory / "cluster-autoscaler.log")

    def loops(self) -> int:
        """How many main loops it has ended since it was started; 0 while it does not answer."""
        try:
            with urllib.request.urlopen(self.metrics, timeout=5.0) as answer:
                return loops_in(answer.read().decode())
        except OSError:
            return 0
