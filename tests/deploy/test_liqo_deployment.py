"""deploy/liqo: the node manager, discovery, the agent, and the rights in both kinds of clusters, as one thing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudgraft._version import __version__
from cloudgraft.app.engine_wiring import desired_state
from cloudgraft.certs.authority import create_bundle
from cloudgraft.config import load
from cloudgraft.config.programs.discovery import load_discovery
from cloudgraft.config.programs.discovery_agent import load_agent
from cloudgraft.kube.rights import Right
from cloudgraft.sdk.duration import parse_duration
from tests.deploy.manifests import CLOUDGRAFT, DEPLOY, Manifests
from tests.kube.needed_rights import LIQO, PART_RIGHTS, TENANT, Part

MANAGER, DISCOVERY, AGENT = (Manifests.of(f"liqo/{name}") for name in ("node-manager", "discovery", "agent"))
CONSUMER, PROVIDER, CERTIFICATES = (Manifests.of(f"liqo/{name}") for name in ("consumer", "provider", "certificates"))
FILES = {"node-manager": MANAGER, "discovery": DISCOVERY, "agent": AGENT}
ALL = [MANAGER, DISCOVERY, AGENT, CONSUMER, PROVIDER, CERTIFICATES]
each = pytest.mark.parametrize("name", FILES)
each_server = pytest.mark.parametrize("name", ["node-manager", "discovery"])


def _config(name: str) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(FILES[name].one("ConfigMap")["data"][f"{name}.yaml"])
    return config


def _roles(manifests: Manifests) -> set[Right]:
    """What the roles give; those for the namespaces of peers as such."""
    found = set()
    for role in manifests.objects:
        where = role["metadata"].get("namespace", "")
        if role["metadata"]["name"].endswith("-tenant") or where.startswith("liqo-tenant-"):
            where = TENANT
        for rule in role.get("rules", ()):
            found |= {
                Right(verb=verb, resource=resource, group=group, namespace=where)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    return found


# -- rights ------------------------------------------------------------------------------------------------------------


def test_the_driver_may_do_exactly_what_it_needs_in_the_consumer() -> None:
    assert _roles(CONSUMER) == set(PART_RIGHTS[Part.CONSUMER])


def test_a_provider_gives_what_one_peering_needs_and_makes_the_namespace_itself() -> None:
    made = {Right(verb=verb, resource="namespaces") for verb in ("list", "create", "delete")}
    assert _roles(PROVIDER) == set(PART_RIGHTS[Part.PROVIDER]) - made
    (named,) = [one for one in PROVIDER.objects if one["kind"] == "ClusterRole"]
    assert named["rules"][0]["resourceNames"] == [PROVIDER.one("Namespace")["metadata"]["name"]]
    labels = PROVIDER.one("Namespace")["metadata"]["labels"]
    assert PROVIDER.one("Namespace")["metadata"]["name"] == f"liqo-tenant-{labels['liqo.io/remote-cluster-id']}"
    bound = [rule for one in PROVIDER.objects for rule in one.get("rules", ()) if "bind" in rule["verbs"]]
    assert [rule["resourceNames"] for rule in bound] == [["liqo-remote-controlplane"]]


def test_the_agent_only_measures() -> None:
    """Its file says the cluster's id, so it need not look for it."""
    assert "id" in _config("agent")["cluster"]
    assert _roles(AGENT) == set(PART_RIGHTS[Part.AGENT]) - {Right(verb="list", resource="configmaps")}


def test_every_role_is_bound_to_accounts_that_are_there() -> None:
    accounts = {
        (one["metadata"]["name"], one["metadata"]["namespace"])
        for manifests in (*ALL, CLOUDGRAFT)
        for one in manifests.objects
        if one["kind"] == "ServiceAccount"
    }
    for manifests in (CONSUMER, PROVIDER, AGENT):
        roles = {
            (one["kind"], one["metadata"]["name"], one["metadata"].get("namespace"))
            for one in manifests.objects
            if one["kind"] in ("Role", "ClusterRole")
        }
        bindings = [one for one in manifests.objects if one["kind"].endswith("Binding")]
        assert roles == {
            (one["roleRef"]["kind"], one["roleRef"]["name"], one["metadata"].get("namespace")) for one in bindings
        }
        for one in bindings:
            assert {(who["name"], who["namespace"]) for who in one["subjects"]} <= accounts
    spaces = {one["metadata"].get("namespace") for one in CONSUMER.objects if one["kind"] == "Role"}
    assert spaces == {LIQO}


# -- what the programs will read ---------------------------------------------------------------------------------------


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    """A directory with real files under the names that the mounts have them by."""
    bundle = create_bundle(tmp_path / "certs", hosts=["localhost"])
    for key, file in (("tls.crt", bundle.server_cert), ("tls.key", bundle.server_key), ("ca.crt", bundle.ca_cert)):
        shutil.copy(file, tmp_path / key)
    for key in ("vault.keys", "turin", "token", "peering.kubeconfig"):
        (tmp_path / key).write_text("A" * 43 + "=")
    return tmp_path


def _placed(name: str, mounts: Path) -> Path:
    """The configuration, with that directory in place of all mounts."""
    text: str = FILES[name].one("ConfigMap")["data"][f"{name}.yaml"]
    for place in ("/etc/cloudgraft/tls", "/etc/cloudgraft/agents", "/etc/cloudgraft/agent", "/etc/cloudgraft/vault"):
        text = text.replace(f"{place}/", f"{mounts}/")
    path = mounts / f"{name}.yaml"
    path.write_text(text.replace("/var/lib/cloudgraft", str(mounts)))
    return path


def test_the_configuration_of_the_node_manager_is_accepted(mounts: Path) -> None:
    """By the driver too, which checks its own options."""
    config = load(_placed("node-manager", mounts))
    assert [group.id for group in config.groups()] == ["remote-S", "remote-M"]
    (cloud,) = desired_state(config).clouds.values()
    assert cloud.settings.driver == "liqo"


def test_those_of_discovery_and_of_its_agent_are_accepted(mounts: Path) -> None:
    server, agent = load_discovery(_placed("discovery", mounts)), load_agent(_placed("agent", mounts))
    (known,) = [client for client in server.clients if client.role == "agent"]
    assert known.cluster == agent.cluster.id
    assert known.token_file is not None


@each
def test_the_arguments_and_the_configuration_name_files_that_are_mounted(name: str) -> None:
    manifests = FILES[name]
    *verb, flag, path = manifests.container["args"]
    assert (verb[-1], flag, Path(path).name) == ({"discovery": "serve"}.get(name, name), "--config", f"{name}.yaml")
    assert manifests.mounted(path)["configMap"]["name"] == manifests.one("ConfigMap")["metadata"]["name"]
    text = manifests.one("ConfigMap")["data"][f"{name}.yaml"]
    paths = [word.strip("{},") for word in text.split() if word.startswith(("/etc/cloudgraft/", "/var/"))]
    assert paths
    for each_path in paths:
        source = manifests.mounted(each_path)
        assert ("secret" in source) == each_path.startswith("/etc/")
        assert bool(manifests.mount(each_path).get("readOnly")) == each_path.startswith("/etc/")


# -- certificates ------------------------------------------------------------------------------------------------------


def test_the_names_in_certificates_are_those_that_the_others_look_for() -> None:
    found = {one["metadata"]["name"]: one["spec"] for one in CERTIFICATES.objects}
    for manifests, name in ((MANAGER, "cloudgraft-node-manager"), (DISCOVERY, "cloudgraft-discovery")):
        assert manifests.mounted("/etc/cloudgraft/tls/tls.crt")["secret"]["secretName"] == found[name]["secretName"]
        service = manifests.one("Service")["metadata"]
        assert f"{service['name']}.{service['namespace']}.svc" in found[name]["dnsNames"]
        assert "server auth" in found[name]["usages"]
    address = _config("node-manager")["clouds"]["remote"]["discovery"]["address"]
    host, _, port = address.removeprefix("https://").partition(":")
    assert host in found["cloudgraft-discovery"]["dnsNames"]
    assert int(port) == DISCOVERY.one("Service")["spec"]["ports"][0]["port"]
    callers = {entry["certificate"] for entry in _config("discovery")["clients"] if "certificate" in entry}
    callers |= {entry["certificate"] for entry in _config("node-manager")["nodeManager"]["clients"]}
    assert callers == {"cloudgraft-node-manager", "cloudgraft-front"}
    for name in callers:
        assert name in found[name]["dnsNames"]
        assert "client auth" in found[name]["usages"]
    for spec in found.values():
        assert parse_duration("720h") <= parse_duration(spec["renewBefore"]) < parse_duration(spec["duration"])
        assert spec["issuerRef"]["name"] == "cloudgraft-ca"


# -- pods and ports ----------------------------------------------------------------------------------------------------


@each_server
def test_the_ports_agree_and_the_service_is_inside_only(name: str) -> None:
    manifests, config = FILES[name], _config(name)
    section = config.get("nodeManager", config)
    ports = {port["name"]: port["containerPort"] for port in manifests.container["ports"]}
    assert ports["https"] == int(section["listen"].rpartition(":")[2])
    service = manifests.one("Service")["spec"]
    assert (service["type"], service["ports"][0]["targetPort"]) == ("ClusterIP", "https")
    assert service["ports"][0]["port"] == ports["https"]
    assert service["selector"] == manifests.pod["metadata"]["labels"]
    for probe, path in (("startupProbe", "/healthz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")):
        asked = manifests.container[probe]["httpGet"]
        assert asked["path"] == path
        assert asked["port"] == ("ops" if "ops" in ports else "https")
        assert asked.get("scheme", "HTTP") == ("HTTP" if "ops" in ports else "HTTPS")


@each
def test_only_who_must_may_call_and_be_called(name: str) -> None:
    manifests = FILES[name]
    policy = manifests.one("NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"] == manifests.pod["metadata"]["labels"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    served = {port["containerPort"] for port in manifests.container.get("ports", ())}
    assert {port["port"] for rule in policy.get("ingress", ()) for port in rule["ports"]} == served
    assert all("from" in rule for rule in policy.get("ingress", ()))


def test_fronts_get_through_to_the_node_manager_and_the_driver_to_discovery() -> None:
    policy = CONSUMER.one("NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"] == CLOUDGRAFT.pod["metadata"]["labels"]
    ways = {
        (to["podSelector"]["matchLabels"]["app.kubernetes.io/name"], port["port"])
        for rule in policy["egress"]
        for to in rule["to"]
        for port in rule["ports"]
    }
    assert ways == {("cloudgraft-node-manager", 9009), ("cloudgraft-discovery", 9010)}


@each
def test_the_pods_are_as_closed_as_cloudgrafts_own(name: str) -> None:
    manifests = FILES[name]
    assert manifests.container["image"] == f"cloudgraft:{__version__}"
    assert manifests.container["securityContext"] == CLOUDGRAFT.container["securityContext"]
    assert manifests.pod["spec"]["securityContext"] == CLOUDGRAFT.pod["spec"]["securityContext"]
    assert manifests.one("ServiceAccount")["automountServiceAccountToken"] is False
    assert manifests.pod["spec"]["automountServiceAccountToken"] is (name != "discovery")
    deployment = manifests.one("Deployment")["spec"]
    assert (deployment["replicas"], deployment["strategy"]["type"]) == (1, "Recreate")
    assert deployment["selector"]["matchLabels"] == manifests.pod["metadata"]["labels"]
    secrets = [volume["secret"] for volume in manifests.pod["spec"]["volumes"] if "secret" in volume]
    assert {secret["defaultMode"] for secret in secrets} == {0o440}
    budget = manifests.one("PodDisruptionBudget")["spec"]
    assert (budget["maxUnavailable"], budget["selector"]) == ("100%", deployment["selector"])
    assert {one["metadata"].get("namespace", "kube-system") for one in manifests.objects} == {"kube-system"}


# -- the whole ---------------------------------------------------------------------------------------------------------


def test_kustomize_takes_what_is_for_the_consumer() -> None:
    kustomization = yaml.safe_load((DEPLOY / "liqo/kustomization.yaml").read_text())
    files = {path.name for path in (DEPLOY / "liqo").glob("*.yaml")}
    assert set(kustomization["resources"]) == files - {"kustomization.yaml", "provider.yaml", "agent.yaml"}
    (image,) = kustomization["images"]
    assert f"{image['name']}:{image['newTag']}" == MANAGER.container["image"]


def test_no_object_is_there_twice_and_none_is_a_secret() -> None:
    beside = [Manifests.of(name) for name in ("cloudgraft", "cloudgraft-access", "certificates", "cluster-autoscaler")]
    objects = [one for manifests in (*ALL, *beside) for one in manifests.objects]
    names = [(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in objects]
    assert len(names) == len(set(names))
    assert "Secret" not in {kind for kind, *_ in names}
