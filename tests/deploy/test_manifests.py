"""The manifests in deploy/ fit together: with each other, with the code, and with the page that explains them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudgraft._version import __version__
from cloudgraft.certs.authority import create_bundle
from cloudgraft.certs.inspect import inspect_path
from cloudgraft.sdk.duration import parse_duration
from tests.deploy.manifests import AUTOSCALER, CLOUD_CONFIG, CLOUDGRAFT, DEPLOY, REPLICAS, ROOT, Manifests

PAGE = (ROOT / "docs/how-to/serve-the-autoscaler.md").read_text()
REPLICAS_PAGE = (ROOT / "docs/how-to/run-several-replicas.md").read_text()
SERVERS = ("cloudgraft", "cloudgraft-replicas")  # one of them is applied
each = pytest.mark.parametrize("name", [*SERVERS, "cluster-autoscaler"])
each_server = pytest.mark.parametrize("name", SERVERS)


def _flags(container: dict[str, Any]) -> dict[str, str]:
    return dict(argument.removeprefix("--").split("=", 1) for argument in container["command"] if "=" in argument)


def _secrets_of(page: str) -> dict[str, dict[str, str]]:
    """The Secrets that a page tells to make: name, then key and file."""
    found = {}
    for command in re.findall(r"^kubectl .* create secret generic (.+)$", page.replace("\\\n", " "), re.MULTILINE):
        name, *options = shlex.split(command)
        found[name] = dict(option.removeprefix("--from-file=").split("=") for option in options)
    return found


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


# -- what the programs will read ---------------------------------------------------------------------------------------


@each_server
@pytest.mark.thorough
def test_the_configuration_is_accepted_with_real_files_in_place_of_the_mounts(name: str, tmp_path: Path) -> None:
    bundle = create_bundle(tmp_path / "certs", hosts=[CLOUD_CONFIG.address.host])
    for key, file in (("tls.crt", bundle.server_cert), ("tls.key", bundle.server_key), ("ca.crt", bundle.ca_cert)):
        shutil.copy(file, tmp_path / key)
    (tmp_path / "password").write_text("secret")
    text: str = Manifests.of(name).one("ConfigMap")["data"]["cloudgraft.yaml"]
    for directory in ("/etc/cloudgraft/tls", "/etc/cloudgraft/db", "/var/lib/cloudgraft"):
        text = text.replace(directory, str(tmp_path))
    assert not {"/etc/", "/var/"} & set(re.findall("/[a-z]+/", text))
    path = tmp_path / "cloudgraft.yaml"
    path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "cloudgraft.cli", "serve", "--check", "--config", path],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "good (1 group)" in done.stdout


def test_the_cloud_config_asks_for_mtls() -> None:
    assert CLOUD_CONFIG.is_encrypted
    assert {CLOUD_CONFIG.key, CLOUD_CONFIG.cert, CLOUD_CONFIG.cacert} == {
        "/etc/cloudgraft/tls/tls.key",
        "/etc/cloudgraft/tls/tls.crt",
        "/etc/cloudgraft/tls/ca.crt",
    }


def test_the_arguments_name_files_that_are_mounted() -> None:
    for server in (CLOUDGRAFT, REPLICAS):
        verb, flag, config = server.container["args"]
        assert (verb, flag) == ("serve", "--config")
        assert server.mounted(config)["configMap"]["name"] == server.one("ConfigMap")["metadata"]["name"]
        assert Path(config).name in server.one("ConfigMap")["data"]
        for page in (PAGE, REPLICAS_PAGE):
            assert f"-- cloudgraft status -c {config}\n" in page
    flags = _flags(AUTOSCALER.container)
    assert flags["cloud-provider"] == "externalgrpc"
    volume = AUTOSCALER.mounted(flags["cloud-config"])
    assert volume["configMap"]["name"] == AUTOSCALER.one("ConfigMap")["metadata"]["name"]
    assert Path(flags["cloud-config"]).name in AUTOSCALER.one("ConfigMap")["data"]


def test_the_secrets_of_the_page_are_the_ones_that_are_mounted_with_the_keys_that_are_read() -> None:
    secrets = _secrets_of(PAGE)
    assert set(secrets) == {"cloudgraft-server-tls", "cloudgraft-client-tls"}
    tls = CLOUDGRAFT.config["server"]["tls"]
    assert REPLICAS.config["server"] == CLOUDGRAFT.config["server"]
    for manifests, paths, role in (
        (CLOUDGRAFT, {tls["cert"], tls["key"], tls["clientCA"]}, "server"),
        (REPLICAS, {tls["cert"], tls["key"], tls["clientCA"]}, "server"),
        (AUTOSCALER, {CLOUD_CONFIG.cert, CLOUD_CONFIG.key, CLOUD_CONFIG.cacert}, "client"),
    ):
        mounted = {manifests.mounted(path)["secret"]["secretName"] for path in paths}
        assert mounted == {f"cloudgraft-{role}-tls"}
        made = secrets[f"cloudgraft-{role}-tls"]
        assert {Path(path).name for path in paths} == set(made)
        assert made == {"tls.crt": f"certs/{role}.crt", "tls.key": f"certs/{role}.key", "ca.crt": "certs/ca.crt"}


def test_the_certificate_of_the_page_has_the_name_that_the_autoscaler_looks_for(tmp_path: Path) -> None:
    """R9: the host of `address`, which is the Service."""
    hosts = re.findall(r"^\$ cloudgraft certs init certs --host (\S+)$", PAGE, re.MULTILINE)
    service = CLOUDGRAFT.one("Service")["metadata"]
    assert hosts == [CLOUD_CONFIG.address.host] == [f"{service['name']}.{service['namespace']}.svc"]
    create_bundle(tmp_path, hosts=hosts)
    report = inspect_path(tmp_path, address=str(CLOUD_CONFIG.address))
    assert report.ok, report.findings
    clients = [info.common_name for info in report.certificates if info.purpose == "client"]
    assert clients == CLOUDGRAFT.config["server"]["tls"]["allowedClients"]


def test_the_secret_of_the_database_is_the_one_of_the_page() -> None:
    store = REPLICAS.config["store"]
    (secret,) = _secrets_of(REPLICAS_PAGE).items()
    paths = {store["passwordFile"], store["ca"]}
    assert {REPLICAS.mounted(path)["secret"]["secretName"] for path in paths} == {secret[0]}
    assert {Path(path).name for path in paths} == set(secret[1])


def test_the_journal_is_on_a_volume_that_outlives_the_pod() -> None:
    path = CLOUDGRAFT.config["store"]["path"]
    claim = CLOUDGRAFT.one("PersistentVolumeClaim")
    assert CLOUDGRAFT.mounted(path)["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert not CLOUDGRAFT.mount(path).get("readOnly")


def test_operators_have_a_socket_in_a_directory_that_can_be_written() -> None:
    assert "admin" not in CLOUDGRAFT.config  # beside the journal
    assert not REPLICAS.mount(REPLICAS.config["admin"]["listen"].removeprefix("unix:")).get("readOnly")


# -- the objects among each other --------------------------------------------------------------------------------------


@each_server
def test_the_ports_agree(name: str) -> None:
    manifests = Manifests.of(name)
    ports = {port["name"]: port["containerPort"] for port in manifests.container["ports"]}
    server = manifests.config["server"]
    assert ports == {"grpc": _port(server["listen"]), "ops": _port(server["ops"])}
    (served,) = manifests.one("Service")["spec"]["ports"]
    assert (served["targetPort"], served["port"]) == ("grpc", int(CLOUD_CONFIG.address.port))
    for probe, path in (("startupProbe", "/healthz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")):
        assert manifests.container[probe]["httpGet"] == {"path": path, "port": "ops"}
    assert manifests.pod["metadata"]["annotations"]["prometheus.io/port"] == str(ports["ops"])
    assert all(not server[key].startswith("127.") for key in ("listen", "ops"))


@each
def test_everything_is_in_one_namespace_and_selected_by_its_labels(name: str) -> None:
    manifests = Manifests.of(name)
    namespaces = {found["metadata"].get("namespace") for found in manifests.objects}
    assert namespaces - {None} == {"kube-system"}
    labels = manifests.pod["metadata"]["labels"]
    assert labels == {"app.kubernetes.io/name": name.removesuffix("-replicas")}
    assert manifests.one("Deployment")["spec"]["selector"]["matchLabels"] == labels
    assert manifests.pod["spec"]["serviceAccountName"] == manifests.one("ServiceAccount")["metadata"]["name"]
    if name in SERVERS:
        assert manifests.one("Service")["spec"]["selector"] == labels


def test_the_rights_are_bound_to_the_autoscaler_and_name_no_wildcard() -> None:
    for kind in ("ClusterRole", "Role"):
        role, binding = AUTOSCALER.one(kind), AUTOSCALER.one(f"{kind}Binding")
        assert binding["roleRef"] == {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": kind,
            "name": role["metadata"]["name"],
        }
        account = AUTOSCALER.one("ServiceAccount")["metadata"]
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
        ]
        assert all("*" not in rule[key] for rule in role["rules"] for key in ("apiGroups", "resources", "verbs"))


def test_only_what_shares_its_journal_has_replicas() -> None:
    assert CLOUDGRAFT.one("Deployment")["spec"]["replicas"] == 1
    assert REPLICAS.one("Deployment")["spec"]["replicas"] > 1
    assert "postgresql" in REPLICAS.config["store"]


@each_server
def test_servers_that_share_no_journal_never_run_at_once(name: str) -> None:
    manifests = Manifests.of(name)
    strategy = manifests.one("Deployment")["spec"]["strategy"]
    if "postgresql" not in manifests.config["store"]:
        assert strategy == {"type": "Recreate"}
        return
    # With a surge, two new pods could wait for the lease of the old leader, and calls reach the wrong one.
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "99%"}}
    container = manifests.pod["spec"]["containers"][0]
    assert "CLOUDGRAFT_ROLLOUT" in {variable["name"] for variable in container["env"]}
    assert container["readinessProbe"]["periodSeconds"] == 1


@each_server
def test_servers_have_time_to_end(name: str) -> None:
    manifests = Manifests.of(name)
    grace = parse_duration(manifests.config["server"].get("grace", "10s")).total_seconds()
    assert manifests.pod["spec"]["terminationGracePeriodSeconds"] > grace


# -- closed by default -------------------------------------------------------------------------------------------------


@each
def test_the_containers_may_do_as_little_as_possible(name: str) -> None:
    manifests = Manifests.of(name)
    pod = manifests.pod["spec"]["securityContext"]
    assert pod["runAsNonRoot"] is True
    assert pod["runAsUser"] > 0
    assert pod["runAsGroup"] == pod["fsGroup"] > 0
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert manifests.container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(manifests.pod["spec"])
    assert not any("hostPath" in volume for volume in manifests.pod["spec"]["volumes"])


@each
def test_keys_can_be_read_by_the_group_only_and_are_renewed_in_place(name: str) -> None:
    manifests = Manifests.of(name)
    secrets = [volume["secret"] for volume in manifests.pod["spec"]["volumes"] if "secret" in volume]
    assert {secret["defaultMode"] for secret in secrets} == {0o440}
    # A file that is mounted with subPath never changes.
    assert not any("subPath" in mount for mount in manifests.container["volumeMounts"])
    writable = [mount["name"] for mount in manifests.container["volumeMounts"] if not mount.get("readOnly")]
    assert writable == {"cloudgraft": ["journal", "tmp"], "cloudgraft-replicas": ["tmp"]}.get(name, [])


@each
def test_a_cluster_without_workers_can_get_its_first_one(name: str) -> None:
    """Who makes workers must be able to run before there are any."""
    tolerations = Manifests.of(name).pod["spec"]["tolerations"]
    assert {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"} in tolerations


@each_server
def test_scripts_have_a_home_and_room_to_write(name: str) -> None:
    """The driver exec puts user data into files, and the tools of clouds keep things in their user's home."""
    (home,) = re.findall(r"\bHOME=(\S+)", (DEPLOY / "Dockerfile").read_text())
    manifests = Manifests.of(name)
    assert not manifests.mount(f"{home}/file").get("readOnly")
    assert manifests.mounted(f"{home}/file")["emptyDir"] == {"medium": "Memory", "sizeLimit": "64Mi"}


@each_server
def test_only_cloudgrafts_own_pod_gets_the_token_of_its_account(name: str) -> None:
    manifests = Manifests.of(name)
    assert manifests.one("ServiceAccount")["automountServiceAccountToken"] is False
    assert manifests.pod["spec"]["automountServiceAccountToken"] is True
    assert "inCluster: true" in manifests.one("ConfigMap")["data"]["cloudgraft.yaml"]  # what it is for


@each
def test_no_secret_lies_in_the_manifests(name: str) -> None:
    assert all(found["kind"] != "Secret" for found in Manifests.of(name).objects)


# -- images ------------------------------------------------------------------------------------------------------------


def test_the_images_have_tags_of_a_release() -> None:
    assert CLOUDGRAFT.container["image"] == REPLICAS.container["image"] == f"cloudgraft:{__version__}"
    assert re.fullmatch(r"\S+/cluster-autoscaler:v1\.(2[5-9]|3[0-7])\.\d+", AUTOSCALER.container["image"])


def test_the_chart_is_of_this_release() -> None:
    chart = yaml.safe_load((DEPLOY / "helm/cloudgraft/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_the_dockerfile_and_the_page_build_the_image_that_is_deployed() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    build = f"docker build -f deploy/Dockerfile -t {CLOUDGRAFT.container['image']} ."
    assert build in dockerfile
    assert build in PAGE
    user = CLOUDGRAFT.pod["spec"]["securityContext"]
    assert f"USER {user['runAsUser']}:{user['runAsGroup']}" in dockerfile.splitlines()
    copied = re.findall(r"^COPY (?!--from)(.+)$", dockerfile, re.MULTILINE)
    sources = [word for line in copied for word in line.split()[:-1]]
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_the_values_for_helm_mount_what_the_cloud_config_names() -> None:
    (values,) = [
        yaml.safe_load(block)
        for block in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
        if "extraArgs" in block
    ]
    assert values == yaml.safe_load((DEPLOY / "helm/cluster-autoscaler-values.yaml").read_text())
    assert values["cloudProvider"] == "externalgrpc"
    flags = _flags(AUTOSCALER.container)
    given = {name: "true" if value is True else value for name, value in values["extraArgs"].items()}
    # The official chart sets the first two itself, and v is a matter of taste.
    assert given == {name: flags[name] for name in flags.keys() - {"cloud-provider", "namespace", "v"}}
    assert values["extraVolumeMounts"] == AUTOSCALER.container["volumeMounts"]
    volumes = {volume["name"]: volume for volume in values["extraVolumes"]}
    for volume in AUTOSCALER.pod["spec"]["volumes"]:
        source = volumes[volume["name"]]
        assert source.get("configMap") == volume.get("configMap")
        assert source.get("secret", {}).get("secretName") == volume.get("secret", {}).get("secretName")
    assert values["autoscalingGroups"]
