"""What pages about a running deployment name is what the manifests have: labels, ports, mounts, directories."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import CLOUDGRAFT, DEPLOY, REPLICAS, ROOT

WATCH = ROOT / "docs/how-to/watch-cloudgraft.md"
RUNBOOK = ROOT / "docs/reference/alerts.md"
UPGRADE = ROOT / "docs/how-to/upgrade.md"
LABEL = "app.kubernetes.io/name"
_BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _blocks(page: Path) -> list[dict[str, Any]]:
    return [yaml.safe_load(block) for block in _BLOCK.findall(page.read_text())]


def _pods() -> Iterator[dict[str, Any]]:
    """The pods of all Deployments, of which some serve metrics."""
    for path in (*DEPLOY.glob("*.yaml"), *DEPLOY.glob("liqo/*.yaml")):
        for one in yaml.safe_load_all(path.read_text()):
            if one and one["kind"] == "Deployment":
                yield one["spec"]["template"]


def _meta_labels(pod: dict[str, Any]) -> Iterator[dict[str, str]]:
    """What Prometheus discovers: one target for each port of a container, with labels of these names."""
    own = {
        f"__meta_kubernetes_pod_label_{re.sub('[^a-zA-Z0-9_]', '_', name)}": value
        for name, value in pod["metadata"]["labels"].items()
    }
    for container in pod["spec"]["containers"]:
        for port in container.get("ports", ()):
            yield {**own, "__meta_kubernetes_pod_container_port_name": port["name"]}


def test_the_scrape_of_the_page_keeps_each_port_with_metrics_and_no_other() -> None:
    (scrape,) = next(block["scrape_configs"] for block in _blocks(WATCH) if "scrape_configs" in block)
    keep = [rule for rule in scrape["relabel_configs"] if rule.get("action") == "keep"]
    targets = [labels for pod in _pods() for labels in _meta_labels(pod)]
    kept = [
        labels
        for labels in targets
        if all(re.fullmatch(rule["regex"], labels.get(rule["source_labels"][0], "")) for rule in keep)
    ]
    assert kept == [labels for labels in targets if labels["__meta_kubernetes_pod_container_port_name"] == "ops"]
    assert len(kept) > 1


def test_the_pages_select_pods_by_a_label_that_they_have() -> None:
    for page in (RUNBOOK, UPGRADE):
        selectors = set(re.findall(r" -l (\S+?)=(\S+)", page.read_text()))
        assert selectors == {(LABEL, CLOUDGRAFT.pod["metadata"]["labels"][LABEL])}, page


def test_the_image_starts_where_pods_mount_the_configuration() -> None:
    (directory,) = re.findall(r"^WORKDIR (\S+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    for manifests in (CLOUDGRAFT, REPLICAS):
        assert manifests.mounted(f"{directory}/cloudgraft.yaml")["configMap"] == {"name": "cloudgraft"}


# -- what the page about upgrades applies ------------------------------------------------------------------------------


def _of_kind(kind: str) -> dict[str, Any]:
    (found,) = [block for block in _blocks(UPGRADE) if block.get("kind") == kind]
    return found


def _named(volume: dict[str, Any]) -> str:
    """The ConfigMap, Secret or claim of a volume."""
    return str(
        volume.get("configMap", {}).get("name")
        or volume.get("secret", {}).get("secretName")
        or volume.get("persistentVolumeClaim", {}).get("claimName")
        or "memory"
    )


def _mounted(pod: dict[str, Any]) -> dict[str, str]:
    volumes = {volume["name"]: _named(volume) for volume in pod["volumes"]}
    (container,) = pod["containers"]
    mounts = {mount["mountPath"]: volumes.pop(mount["name"]) for mount in container["volumeMounts"]}
    assert not volumes, "a volume that is not mounted"
    return mounts


def test_the_job_mounts_what_a_replica_mounts() -> None:
    job = _of_kind("Job")
    pod, replica = job["spec"]["template"]["spec"], REPLICAS.pod["spec"]
    assert _mounted(pod) == _mounted(replica)
    (container,) = pod["containers"]
    assert container["args"] == ["db", "upgrade", *REPLICAS.container["args"][1:]]


def test_the_pod_mounts_the_journal_where_the_server_does() -> None:
    assert _mounted(_of_kind("Pod")["spec"]).items() <= _mounted(CLOUDGRAFT.pod["spec"]).items()


@pytest.mark.parametrize("kind", ["Job", "Pod"])
def test_what_the_page_applies_may_do_no_more_than_the_server_and_gets_none_of_its_calls(kind: str) -> None:
    one = _of_kind(kind)
    template = one["spec"].get("template", one)
    assert (one["apiVersion"], one["metadata"]["namespace"]) in {("batch/v1", "kube-system"), ("v1", "kube-system")}
    assert template["metadata"]["labels"][LABEL] != CLOUDGRAFT.one("Service")["spec"]["selector"][LABEL]
    pod, server = template["spec"], CLOUDGRAFT.pod["spec"]
    assert (pod["securityContext"], pod["restartPolicy"]) == (server["securityContext"], "Never")
    assert not pod["automountServiceAccountToken"]
    (container,) = pod["containers"]
    assert container["securityContext"] == CLOUDGRAFT.container["securityContext"]
    assert container["image"] == CLOUDGRAFT.container["image"]
