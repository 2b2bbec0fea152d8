"""What doctor sees of a real API, real files and a real server; and what it says when it cannot see."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudgraft.certs.authority import create_bundle
from cloudgraft.doctor.checks import examine
from cloudgraft.doctor.gather import Sources, gather
from tests.doctor.small_api import DEPLOYMENT, SmallApi, node, serving, with_autoscaler

CONFIG = """
cluster: prod
server:
  listen: 127.0.0.1:0
  tls: {cert: certs/server.crt, key: certs/server.key, clientCA: certs/ca.crt,
        allowedClients: [cluster-autoscaler-grpc-client]}
providers: [{type: memory}]
"""


@pytest.fixture
def api() -> Iterator[SmallApi]:
    with serving(SmallApi()) as found:
        found.put("api/v1/nodes/control-plane", node("control-plane"))
        yield found


@pytest.fixture
def config(tmp_path: Path) -> Path:
    create_bundle(tmp_path / "certs", hosts=["cloudgraft.kube-system.svc"])
    path = tmp_path / "cloudgraft.yaml"
    path.write_text(CONFIG)
    return path


def rewrite(path: Path, text: str) -> None:
    path.write_text(text)


async def ids(sources: Sources) -> set[str]:
    return {finding.entry.id for finding in examine(await gather(sources))}


async def test_a_clean_cluster_has_no_findings_and_is_only_read(api: SmallApi, config: Path, tmp_path: Path) -> None:
    with_autoscaler(api)
    assert await ids(Sources(config=config, kubeconfig=api.kubeconfig(tmp_path))) == set()
    assert api.methods == {"GET", "POST"}  # questions for rights are posted, and change nothing


async def test_flags_mounts_rights_and_release_of_a_real_deployment_are_seen(
    api: SmallApi, config: Path, tmp_path: Path
) -> None:
    with_autoscaler(
        api, "--expander=priority", "--scale-down-enabled=false", image="v1.35.1", cloud_config="address: other:8086\n"
    )
    api.denied = {("watch", "volumeattachments"), ("create", "pods/eviction")}
    sources = Sources(config=config, kubeconfig=api.kubeconfig(tmp_path))
    findings = examine(await gather(sources))
    assert {finding.entry.id for finding in findings} == {
        "expander-priority-no-configmap",
        "rbac-missing",
        "release-not-the-clusters",
        "scale-down-off",
        "tls-on-one-side",
    }
    (lacking,) = [finding.what for finding in findings if finding.entry.id == "rbac-missing"]
    assert lacking == "its service account may not watch volumeattachments.storage.k8s.io, create pods/eviction"


async def test_a_deployment_is_found_by_its_name_or_said_to_be_missing(
    api: SmallApi, config: Path, tmp_path: Path
) -> None:
    with_autoscaler(api)
    kubeconfig = api.kubeconfig(tmp_path)
    named = Sources(config=config, kubeconfig=kubeconfig, autoscaler=("kube-system", "cluster-autoscaler"))
    assert await ids(named) == set()
    missing = Sources(config=config, kubeconfig=kubeconfig, autoscaler=("kube-system", "nobody"))
    assert await ids(missing) == {"autoscaler-not-found", "cloud-config-unknown"}


async def test_a_chart_without_cloud_config_is_reported(api: SmallApi, config: Path, tmp_path: Path) -> None:
    with_autoscaler(api)
    container = api.objects[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]
    container["command"] = ["./cluster-autoscaler", "--cloud-provider", "externalgrpc", "--nodes=0:1:unused"]
    found = await ids(Sources(config=config, kubeconfig=api.kubeconfig(tmp_path)))
    assert found == {"no-cloud-config", "nodes-flag-ignored"}


async def test_what_may_not_be_read_is_reported_and_the_rest_is_checked(
    api: SmallApi, config: Path, tmp_path: Path
) -> None:
    with_autoscaler(api, "--scale-down-enabled=false")
    api.forbidden = {"api/v1/nodes", "apis/authorization.k8s.io/v1/subjectaccessreviews"}
    found = await ids(Sources(config=config, kubeconfig=api.kubeconfig(tmp_path)))
    assert found == {"nodes-unreadable", "rbac-unknown", "scale-down-off"}
    api.forbidden = {"apis/apps/v1/deployments"}
    found = await ids(Sources(config=config, kubeconfig=api.kubeconfig(tmp_path)))
    assert found == {"autoscaler-unreadable", "cloud-config-unknown"}


async def test_a_cluster_that_is_away_is_a_finding(api: SmallApi, config: Path, tmp_path: Path) -> None:
    with socket.socket() as bound:  # and not listening: nobody else gets the port, and nobody answers
        bound.bind(("127.0.0.1", 0))
        api.port = bound.getsockname()[1]
        found = await ids(Sources(config=config, kubeconfig=api.kubeconfig(tmp_path)))
    assert found == {"cluster-unreachable", "cloud-config-unknown"}


async def test_a_kubeconfig_that_is_none_is_a_finding(config: Path, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text("nonsense")
    found = await ids(Sources(config=config, kubeconfig=tmp_path / "kubeconfig"))
    assert found == {"cluster-unreachable", "cloud-config-unknown"}


async def test_answers_that_make_no_sense_are_a_finding(api: SmallApi, config: Path, tmp_path: Path) -> None:
    api.objects[DEPLOYMENT] = {"spec": {"template": {"spec": {"containers": [{"image": "cluster-autoscaler"}]}}}}
    found = await ids(Sources(config=config, kubeconfig=api.kubeconfig(tmp_path)))
    assert found == {"cluster-unreachable", "cloud-config-unknown"}


async def test_certificates_of_another_authority_are_reported_from_both_sides(config: Path, tmp_path: Path) -> None:
    """What the handshake would say in fewer words."""
    create_bundle(tmp_path / "others", hosts=["localhost"], client_name="stranger")
    cloud_config = tmp_path / "cloud-config.yaml"
    others = tmp_path / "others"
    cloud_config.write_text(
        f"address: elsewhere.example:1\nkey: {others}/client.key\ncert: {others}/client.crt\ncacert: {others}/ca.crt\n"
    )
    (others / "client.key").chmod(0o644)
    found = await ids(Sources(config=config, cloud_config=cloud_config))
    assert found == {
        "call-fails",
        "cluster-not-looked-at",
        "tls-client-not-allowed",
        "tls-client-untrusted",
        "tls-key-readable",
        "tls-name-missing",
        "tls-server-untrusted",
    }


async def test_a_cloud_config_of_the_autoscalers_container_is_compared_but_not_tried(
    config: Path, tmp_path: Path
) -> None:
    cloud_config = tmp_path / "cloud-config.yaml"
    cloud_config.write_text(
        "address: cloudgraft.kube-system.svc:8086\nkey: /no/k\ncert: /no/c\ncacert: /no/ca\ngrpc_timeout: 2s\n"
    )
    found = await ids(Sources(config=config, cloud_config=cloud_config))
    assert found == {"cluster-not-looked-at", "timeout-too-short"}


async def test_a_cloud_config_that_cannot_be_used_is_reported(config: Path, tmp_path: Path) -> None:
    cloud_config = tmp_path / "cloud-config.yaml"
    cloud_config.write_text("address: cloudgraft.kube-system.svc:8086\ncert: /no/c\n")
    found = await ids(Sources(config=config, cloud_config=cloud_config))
    assert found == {"cloud-config-invalid", "cluster-not-looked-at"}


async def test_all_problems_of_a_configuration_file_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "cloudgraft.yaml"
    path.write_text("cluster: prod\nclods: {}\nproviders: [{type: memroy}]\n")
    findings = examine(await gather(Sources(config=path)))
    told = [finding.what for finding in findings if finding.entry.id == "config-invalid"]
    assert len(told) == 2
    assert all(str(path) in what for what in told)


async def test_without_anything_only_notes_say_what_was_not_looked_at() -> None:
    assert await ids(Sources()) == {"config-missing", "cloud-config-unknown", "cluster-not-looked-at"}


async def test_the_account_of_the_configuration_is_asked_for_its_own_rights(
    api: SmallApi, config: Path, tmp_path: Path
) -> None:
    """Only that one: what somebody else's kubeconfig may do says nothing of cloudgraft."""
    with_autoscaler(api)
    api.denied = {("delete", "nodes"), ("create", "secrets"), ("get", "deployments")}
    api.kubeconfig(tmp_path)
    events = "events: {deployment: cloudgraft, namespace: apps}"
    join = "join: {template: kubeadm, server: https://10.0.0.1:6443}\n"
    kubernetes = f"kubernetes: {{kubeconfig: kubeconfig, {events}}}\n{join}"
    groups = "clouds: {sim: {driver: simulated}}\nnodeGroups: [{id: g, cloud: sim, maxSize: 3}]\n"
    rewrite(config, CONFIG.replace("providers: [{type: memory}]\n", kubernetes + groups))
    findings = examine(await gather(Sources(config=config)))
    assert {finding.what for finding in findings if finding.entry.id == "right-missing"} == {
        "it may not delete nodes, which kubernetes.removeNodes needs",
        "it may not create secrets in the namespace kube-system, which join.token needs",
        "it may not get deployments.apps in the namespace apps, which kubernetes.events needs",
    }
    found = await ids(Sources(config=config, kubeconfig=tmp_path / "kubeconfig"))
    assert "right-missing" not in found


@pytest.mark.parametrize(("allowed", "is_missing"), [("cloudgraft", False), ("web", True)])
async def test_a_right_to_read_only_its_own_deployment_is_enough(
    api: SmallApi, config: Path, tmp_path: Path, allowed: str, *, is_missing: bool
) -> None:
    """As our manifests and the chart give it."""
    api.only = {("get", "deployments"): allowed}
    api.kubeconfig(tmp_path)
    events = "events: {deployment: cloudgraft, namespace: apps}"
    kubernetes = f"kubernetes: {{kubeconfig: kubeconfig, {events}}}\n"
    groups = "clouds: {sim: {driver: simulated}}\nnodeGroups: [{id: g, cloud: sim, maxSize: 3}]\n"
    rewrite(config, CONFIG.replace("providers: [{type: memory}]\n", kubernetes + groups))
    assert ("right-missing" in await ids(Sources(config=config))) == is_missing


async def test_a_cloud_controller_manager_beside_cloudgraft_is_reported(
    api: SmallApi, config: Path, tmp_path: Path
) -> None:
    with_autoscaler(api)
    path = "apis/apps/v1/namespaces/kube-system/daemonsets/openstack-cloud-controller-manager"
    api.put(path, {"spec": {"template": {"spec": {"containers": []}}}})
    api.kubeconfig(tmp_path)
    rewrite(config, f"{CONFIG}kubernetes: {{kubeconfig: kubeconfig}}\n")
    assert await ids(Sources(config=config)) == {"two-set-provider-ids"}


def _wrapped(api: SmallApi, **changes: object) -> None:
    api.objects[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0].update(changes)


async def test_an_autoscaler_of_another_cloud_is_left_alone(api: SmallApi, config: Path, tmp_path: Path) -> None:
    """Nobody is told to turn it into ours; who means it, names it."""
    with_autoscaler(api)
    _wrapped(api, command=["./cluster-autoscaler", "--cloud-provider=aws", "--nodes=1:9:asg"])
    kubeconfig = api.kubeconfig(tmp_path)
    findings = examine(await gather(Sources(config=config, kubeconfig=kubeconfig)))
    assert {finding.entry.id for finding in findings} == {"autoscaler-not-found", "cloud-config-unknown"}
    (missing,) = [finding.what for finding in findings if finding.entry.id == "autoscaler-not-found"]
    assert "kube-system/cluster-autoscaler has --cloud-provider=aws" in missing
    named = Sources(config=config, kubeconfig=kubeconfig, autoscaler=("kube-system", "cluster-autoscaler"))
    assert "wrong-cloud-provider" in await ids(named)


async def test_flags_are_read_through_a_shell_and_variables(api: SmallApi, config: Path, tmp_path: Path) -> None:
    with_autoscaler(api)
    script = (
        "exec ./cluster-autoscaler --cloud-provider=externalgrpc --cloud-config=$(WHERE) --scale-down-enabled=false"
    )
    env = [{"name": "WHERE", "value": "/etc/cloudgraft/config/cloud-config.yaml"}]
    _wrapped(api, command=["/bin/sh", "-c"], args=[script], env=env)
    assert await ids(Sources(config=config, kubeconfig=api.kubeconfig(tmp_path))) == {"scale-down-off"}


async def test_the_account_of_an_autoscaler_with_a_kubeconfig_of_its_own_is_not_judged(
    api: SmallApi, config: Path, tmp_path: Path
) -> None:
    with_autoscaler(api, "--kubeconfig=/etc/kubernetes/workload.conf")
    api.denied = {("watch", "nodes")}
    assert await ids(Sources(config=config, kubeconfig=api.kubeconfig(tmp_path))) == {"rbac-unknown"}


async def test_priorities_are_looked_for_in_the_namespace_that_the_autoscaler_asks(
    api: SmallApi, config: Path, tmp_path: Path
) -> None:
    """Its flag --namespace, which is kube-system unless said."""
    with_autoscaler(api, "--expander=priority,least-waste", "--namespace=scaling")
    priorities = {"data": {"priorities": "10: ['.*']"}}
    api.put("api/v1/namespaces/scaling/configmaps/cluster-autoscaler-priority-expander", priorities)
    assert await ids(Sources(config=config, kubeconfig=api.kubeconfig(tmp_path))) == set()


async def test_a_cloud_controller_manager_is_seen_also_beside_a_named_autoscaler(
    api: SmallApi, config: Path, tmp_path: Path
) -> None:
    """An operator of such managers, as OpenShift has one everywhere, is none itself."""
    with_autoscaler(api)
    operator = "apis/apps/v1/namespaces/openshift/deployments/cluster-cloud-controller-manager-operator"
    api.put(operator, {"spec": {"template": {"spec": {"containers": []}}}})
    api.kubeconfig(tmp_path)
    rewrite(config, f"{CONFIG}kubernetes: {{kubeconfig: kubeconfig}}\n")
    named = Sources(config=config, autoscaler=("kube-system", "cluster-autoscaler"))
    assert await ids(named) == set()
    manager = "apis/apps/v1/namespaces/kube-system/deployments/hcloud-cloud-controller-manager"
    api.put(manager, {"spec": {"template": {"spec": {"containers": []}}}})
    assert await ids(named) == {"two-set-provider-ids"}


async def test_a_cloud_that_leaves_provider_ids_to_the_controller_does_not_quarrel_with_it(
    api: SmallApi, config: Path, tmp_path: Path
) -> None:
    with_autoscaler(api)
    path = "apis/apps/v1/namespaces/kube-system/daemonsets/openstack-cloud-controller-manager"
    api.put(path, {"spec": {"template": {"spec": {"containers": []}}}})
    api.kubeconfig(tmp_path)
    cloud = "{driver: exec, create: 'true', delete: 'true', list: 'true', providerIDBy: cloud_controller}"
    groups = f"clouds: {{lab: {cloud}}}\nnodeGroups: [{{id: g, cloud: lab, maxSize: 3}}]\n"
    kubernetes = "kubernetes: {kubeconfig: kubeconfig}\n"
    text = CONFIG.replace("providers: [{type: memory}]\n", kubernetes + groups)
    rewrite(config, text)
    assert "two-set-provider-ids" not in await ids(Sources(config=config))
    rewrite(config, text.replace("providerIDBy: cloud_controller", "idempotency: unique_name"))
    assert "two-set-provider-ids" in await ids(Sources(config=config))
