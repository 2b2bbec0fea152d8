"""deploy/ as one thing: rights, certificates, policies, and what doctor says of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudgraft._version import __version__
from cloudgraft.certs.authority import create_bundle
from cloudgraft.doctor.checks import examine
from cloudgraft.doctor.gather import Sources, gather
from cloudgraft.doctor.releases import Release, needed_rights
from cloudgraft.kube.rights import Feature, Right
from cloudgraft.sdk.duration import parse_duration
from tests.deploy.manifests import AUTOSCALER, CLOUD_CONFIG, CLOUDGRAFT, DEPLOY, REPLICAS, Manifests
from tests.doctor.small_api import CLOUD_CONFIG as CLOUD_CONFIG_PATH
from tests.doctor.small_api import DEPLOYMENT, SmallApi, node, serving
from tests.kube.needed_rights import rights_of

ACCESS = Manifests.of("cloudgraft-access")
CERTIFICATES = Manifests.of("certificates")
KUSTOMIZATION = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
RELEASES = [Release(1, minor) for minor in range(25, 38)]


def _granted(role: dict[str, Any]) -> set[Right]:
    return {
        Right(group=group, resource=resource, verb=verb, namespace=role["metadata"].get("namespace", ""))
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


# -- rights ------------------------------------------------------------------------------------------------------------


def test_cloudgraft_may_do_exactly_what_its_features_need() -> None:
    granted = [_granted(one) for one in ACCESS.objects if one["kind"] in ("ClusterRole", "Role")]
    assert set().union(*granted) == set(rights_of(Feature))


def test_the_rights_are_bound_to_cloudgrafts_account() -> None:
    account = CLOUDGRAFT.one("ServiceAccount")["metadata"]
    assert account == REPLICAS.one("ServiceAccount")["metadata"]
    roles = [one for one in ACCESS.objects if one["kind"] in ("ClusterRole", "Role")]
    bindings = [one for one in ACCESS.objects if one["kind"] in ("ClusterRoleBinding", "RoleBinding")]
    for role, binding in zip(roles, bindings, strict=True):
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        assert binding["roleRef"]["kind"] == role["kind"]
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
        ]
        assert binding["metadata"].get("namespace") == role["metadata"].get("namespace")


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_the_autoscaler_may_do_what_each_release_needs(release: Release) -> None:
    granted = {(right.group, right.resource, right.verb) for right in _granted(AUTOSCALER.one("ClusterRole"))}
    assert set(needed_rights(release, with_devices=True)) <= granted


# -- certificates ------------------------------------------------------------------------------------------------------


def _certificate(name: str) -> dict[str, Any]:
    spec: dict[str, Any]
    (spec,) = [
        one["spec"] for one in CERTIFICATES.objects if one["metadata"]["name"] == name and "duration" in one["spec"]
    ]
    return spec


def test_the_secrets_of_cert_manager_are_the_ones_that_are_mounted() -> None:
    for manifests, name, cert in (
        (CLOUDGRAFT, "cloudgraft-server", CLOUDGRAFT.config["server"]["tls"]["cert"]),
        (REPLICAS, "cloudgraft-server", REPLICAS.config["server"]["tls"]["cert"]),
        (AUTOSCALER, "cloudgraft-client", CLOUD_CONFIG.cert),
    ):
        assert manifests.mounted(cert)["secret"]["secretName"] == _certificate(name)["secretName"]


def test_the_names_are_those_that_the_two_sides_look_for() -> None:
    """R9: the host of `address`; and one of allowedClients."""
    service = CLOUDGRAFT.one("Service")["metadata"]
    assert CLOUD_CONFIG.address.host == f"{service['name']}.{service['namespace']}.svc"
    assert CLOUD_CONFIG.address.host in _certificate("cloudgraft-server")["dnsNames"]
    client = _certificate("cloudgraft-client")
    for server in (CLOUDGRAFT, REPLICAS):
        assert {client["commonName"], *client["dnsNames"]} & set(server.config["server"]["tls"]["allowedClients"])
    assert "server auth" in _certificate("cloudgraft-server")["usages"]
    assert "client auth" in client["usages"]


def test_certificates_are_renewed_in_time_by_an_authority_that_outlives_them() -> None:
    authority = _certificate("cloudgraft-ca")
    assert authority["isCA"] is True
    for name in ("cloudgraft-ca", "cloudgraft-server", "cloudgraft-client"):
        spec = _certificate(name)
        before, duration = parse_duration(spec["renewBefore"]), parse_duration(spec["duration"])
        assert parse_duration("720h") <= before < duration
        # What it signs on the day before its own renewal still ends before it does.
        assert name == "cloudgraft-ca" or duration < parse_duration(authority["renewBefore"])


def test_the_chain_of_issuers_is_whole() -> None:
    issuers = {one["metadata"]["name"]: one["spec"] for one in CERTIFICATES.objects if one["kind"] == "Issuer"}
    assert issuers[_certificate("cloudgraft-ca")["issuerRef"]["name"]] == {"selfSigned": {}}
    for name in ("cloudgraft-server", "cloudgraft-client"):
        issuer = issuers[_certificate(name)["issuerRef"]["name"]]
        assert issuer == {"ca": {"secretName": _certificate("cloudgraft-ca")["secretName"]}}
    assert {one["metadata"]["namespace"] for one in CERTIFICATES.objects} == {"kube-system"}


# -- policies ----------------------------------------------------------------------------------------------------------


def test_only_the_autoscaler_may_call_and_all_may_read_metrics() -> None:
    policy = ACCESS.one("NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"] == CLOUDGRAFT.pod["metadata"]["labels"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    ports = {port["name"]: port["containerPort"] for port in CLOUDGRAFT.container["ports"]}
    calls, metrics = policy["ingress"]
    ((peer,),) = (calls["from"],)
    (names,) = peer["podSelector"]["matchExpressions"]
    # The second is what the official chart calls its pods with cloudProvider: externalgrpc.
    ours = AUTOSCALER.pod["metadata"]["labels"]["app.kubernetes.io/name"]
    values = [ours, "externalgrpc-cluster-autoscaler"]
    assert names == {"key": "app.kubernetes.io/name", "operator": "In", "values": values}
    assert [port["port"] for port in calls["ports"]] == [ports["grpc"]]
    assert [port["port"] for port in metrics["ports"]] == [ports["ops"]]


def test_the_way_out_is_to_names_the_api_clouds_and_the_database() -> None:
    rules = ACCESS.one("NetworkPolicy")["spec"]["egress"]
    assert {(port["protocol"], port["port"]) for rule in rules for port in rule["ports"]} == {
        ("UDP", 53),
        ("TCP", 53),
        ("TCP", 443),
        ("TCP", 6443),
    }
    extra = REPLICAS.one("NetworkPolicy")["spec"]
    assert extra["podSelector"]["matchLabels"] == REPLICAS.pod["metadata"]["labels"]
    opened = {port["port"] for rule in extra["egress"] for port in rule["ports"]}
    store, cloud = REPLICAS.config["store"]["postgresql"], REPLICAS.config["clouds"]["sim"]["url"]
    assert opened == {5432, int(cloud.rpartition(":")[2])}
    assert ":" not in store  # the port is PostgreSQL's own


@pytest.mark.parametrize(("budget", "pods"), [(ACCESS, CLOUDGRAFT), (ACCESS, REPLICAS), (AUTOSCALER, AUTOSCALER)])
def test_a_budget_lets_every_pod_go(budget: Manifests, pods: Manifests) -> None:
    """Without one, pods of kube-system keep their node. With 1, so does a leader: who waits is not ready."""
    spec = budget.one("PodDisruptionBudget")["spec"]
    assert spec["selector"]["matchLabels"] == pods.pod["metadata"]["labels"]
    assert spec["maxUnavailable"] == "100%"
    assert spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


# -- the whole ---------------------------------------------------------------------------------------------------------


def test_kustomize_takes_every_file_once_and_the_images_of_the_manifests() -> None:
    files = {path.name for path in DEPLOY.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(KUSTOMIZATION["resources"]) == files - {"cloudgraft-replicas.yaml", "alerts.yaml"}
    images = {f"{image['name']}:{image['newTag']}" for image in KUSTOMIZATION["images"]}
    assert images == {CLOUDGRAFT.container["image"], AUTOSCALER.container["image"]}


def test_no_object_is_there_twice() -> None:
    for server in (CLOUDGRAFT, REPLICAS):
        objects = [*CERTIFICATES.objects, *ACCESS.objects, *server.objects, *AUTOSCALER.objects]
        names = [(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in objects]
        assert len(names) == len(set(names))


def test_no_image_moves_by_itself() -> None:
    manifests = (*DEPLOY.glob("*.yaml"), *DEPLOY.glob("liqo/*.yaml"))
    for path in (*manifests, DEPLOY / "Dockerfile"):
        assert ":latest" not in path.read_text()
        for image in re.findall(r"^(?:ARG \w+=|\s*image: )(\S+)", path.read_text(), re.MULTILINE):
            assert re.search(r":v?\d", image), image


def test_the_image_is_built_in_stages_from_what_has_its_hash() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    head, native, build, final = dockerfile.split("\nFROM ")
    assert [stage.split()[0] for stage in (native, build, final)] == ["${RUST}", "${BASE}", "${BASE}"]
    assert len(re.findall(r"^ARG (?:BASE|RUST)=", head, re.MULTILINE)) == 2
    assert "--require-hashes" in native
    assert "--locked" in native
    assert "--require-hashes" in build
    assert "COPY --from=native" in build
    assert "pip" not in final
    assert "COPY --from=build" in final
    assert final.splitlines()[-4:] == [
        "USER 65532:65532",
        "EXPOSE 8086 8087",
        'ENTRYPOINT ["cloudgraft"]',
        'CMD ["--help"]',
    ]
    assert f"-t cloudgraft:{__version__} ." in dockerfile


def _written(text: str, directory: Path) -> Path:
    for mount in ("/etc/cloudgraft/tls", "/var/lib/cloudgraft"):
        text = text.replace(mount, str(directory))
    path = directory / "cloudgraft.yaml"
    path.write_text(text)
    return path


async def test_doctor_finds_nothing_wrong_with_any_of_it(tmp_path: Path) -> None:
    """The manifests in an API, with real certificates of the names that cert-manager is asked for."""
    bundle = create_bundle(
        tmp_path / "certs",
        hosts=_certificate("cloudgraft-server")["dnsNames"],
        client_name=_certificate("cloudgraft-client")["commonName"],
    )
    for name, file in (("tls.crt", bundle.server_cert), ("tls.key", bundle.server_key), ("ca.crt", bundle.ca_cert)):
        file.rename(tmp_path / name)
    config = _written(CLOUDGRAFT.one("ConfigMap")["data"]["cloudgraft.yaml"], tmp_path)
    granted = {(right.group, right.resource, right.verb) for right in _granted(AUTOSCALER.one("ClusterRole"))}
    with serving(SmallApi()) as api:
        api.version = AUTOSCALER.container["image"].rpartition(":")[2]
        api.put(DEPLOYMENT, AUTOSCALER.one("Deployment"))
        api.put(CLOUD_CONFIG_PATH, AUTOSCALER.one("ConfigMap"))
        api.put("api/v1/nodes/control-plane", node("control-plane"))
        release = Release.of_version(api.version)
        api.denied = {(r[2], r[1]) for r in needed_rights(release, with_devices=True) if r not in granted}
        findings = examine(await gather(Sources(config=config, kubeconfig=api.kubeconfig(tmp_path))))
    assert findings == []
