"""`cloudgraft deploy render`: which files become Secrets and ConfigMaps, and where the pod finds them."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from cloudgraft.config import ConfigError
from tests.deploy.rendering import GROUP, SIM, commands, own, rendered, warnings

LAB = """\
cluster: prod
clouds:
  {name}:
    driver: proxmox
    url: https://pve1.example:8006
    user: cloudgraft@pve!scaler
    tokenFile: secrets/proxmox token
    caFile: /srv/pve-root-ca.pem
    region: lab
    shapes: {{small: {{cpu: 2, memory: 4Gi}}}}
nodeGroups: [{{id: a, cloud: {name}, maxSize: 3, machine: {{shape: small, template: ubuntu}}}}]
"""


def test_files_of_a_cloud_go_into_one_secret(tmp_path: Path) -> None:
    found = rendered(tmp_path, LAB.format(name="lab"))
    cloud = own(found)["clouds"]["lab"]
    assert cloud["tokenFile"] == "/etc/cloudgraft/lab/proxmox-token"
    assert cloud["caFile"] == "/etc/cloudgraft/lab/pve-root-ca.pem"
    assert found.values["server"]["mounts"] == [{"as": "lab", "secret": "cloudgraft-lab"}]
    (command,) = commands(found, tmp_path)
    assert shlex.split(command) == [
        *("kubectl", "-n", "kube-system", "create", "secret", "generic", "cloudgraft-lab"),
        "--from-file=proxmox-token=secrets/proxmox token",
        "--from-file=pve-root-ca.pem=/srv/pve-root-ca.pem",
    ]


def test_what_is_wrong_with_options_is_said_although_their_files_are_missing(tmp_path: Path) -> None:
    text = LAB.format(name="lab").replace("    tokenFile: secrets/proxmox token\n", "")
    with pytest.raises(ConfigError, match=r"clouds\.lab: give either tokenFile or passwordFile"):
        rendered(tmp_path, text)


@pytest.mark.parametrize(
    ("cloud", "mount"),
    [("tls", "cloud-tls-2"), ("config", "cloud-config"), ("server-tls", "2-cloud-server"), ("a" * 63, "a" * 42)],
)
def test_a_mount_never_has_a_name_of_the_chart(tmp_path: Path, cloud: str, mount: str) -> None:
    found = rendered(tmp_path, LAB.format(name=cloud))
    (entry,) = found.values["server"]["mounts"]
    assert entry["as"] not in {"config", "tls", "db", "dock", "front"}
    assert not entry["secret"].endswith("-tls")
    assert own(found)["clouds"][cloud]["tokenFile"] == f"/etc/cloudgraft/{entry['as']}/proxmox-token"
    if cloud != "tls":
        assert entry["as"] == mount


def test_authorities_alone_go_into_a_config_map(tmp_path: Path) -> None:
    text = SIM + GROUP + "kubernetes: {inCluster: true}\njoin: {file: join.j2, caFile: ca.crt}\n"
    found = rendered(tmp_path, text)
    assert found.values["server"]["mounts"] == [{"as": "join", "configMap": "cloudgraft-join"}]
    assert commands(found, tmp_path) == [
        "kubectl -n kube-system create configmap cloudgraft-join --from-file=join.j2=join.j2 --from-file=ca.crt=ca.crt"
    ]
    assert any("what is secret in it belongs into join.valuesFile" in one.text for one in found.remarks)


def test_one_file_with_a_secret_makes_all_of_them_a_secret(tmp_path: Path) -> None:
    text = SIM + GROUP + "kubernetes: {inCluster: true}\njoin: {file: join.j2, valuesFile: v.yaml}\n"
    assert rendered(tmp_path, text).values["server"]["mounts"] == [{"as": "join", "secret": "cloudgraft-join"}]


def test_files_of_one_name_keep_apart(tmp_path: Path) -> None:
    text = (
        SIM
        + "providers: [{type: externalgrpc, name: other, address: 'other.example:8086', "
        + "tls: {cert: client/tls.pem, key: key/tls.pem, ca: client/tls.pem}}]\n"
        + GROUP
    )
    found = rendered(tmp_path, text)
    assert own(found)["providers"][0]["tls"] == {
        "cert": "/etc/cloudgraft/other/tls.pem",
        "key": "/etc/cloudgraft/other/2-tls.pem",
        "ca": "/etc/cloudgraft/other/tls.pem",
    }


def test_a_directory_gets_a_mount_of_its_own(tmp_path: Path) -> None:
    dock = (
        "dock:\n"
        "  tls: {cert: c, key: k, clientCA: a}\n"
        "  drivers: [{name: a, kind: Acme, apiVersion: acme.example/v1, clientNames: [a], tokenFile: acme.token}]\n"
        "  classes:\n"
        "    small: {kind: Acme, apiVersion: acme.example/v1, secretDir: secrets/small}\n"
        "    large: {kind: Acme, apiVersion: acme.example/v1, secretEnv: {token: ACME_TOKEN}}\n"
    )
    found = rendered(tmp_path, SIM + GROUP + dock)
    assert found.values["dock"]["mode"] == "server"
    assert found.values["server"]["env"] == [
        {"name": "ACME_TOKEN", "valueFrom": {"secretKeyRef": {"name": "cloudgraft-env", "key": "ACME_TOKEN"}}}
    ]
    made = commands(found, tmp_path)
    assert "kubectl -n kube-system create secret generic cloudgraft-secret-dir --from-file=secrets/small" in made
    assert 'kubectl -n kube-system create secret generic cloudgraft-env --from-literal=ACME_TOKEN="$ACME_TOKEN"' in made
    assert "secretDir: /etc/cloudgraft/secret-dir" in found.values["dock"]["config"]
    assert "tokenFile: /etc/cloudgraft/drivers/acme.token" in found.values["dock"]["config"]


def test_no_content_of_a_file_is_shown(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "proxmox token").write_text("0d7e5b1c-very-secret")
    found = rendered(tmp_path, LAB.format(name="lab"))
    shown = [str(found.values), *(one.text for one in found.remarks), *commands(found, tmp_path)]
    assert not any("very-secret" in one for one in shown)


def test_a_secret_in_the_file_itself_is_named_and_not_repeated(tmp_path: Path) -> None:
    text = SIM + GROUP + "kubernetes: {inCluster: true}\njoin: {template: kubeadm, values: {password: hunter-22}}\n"
    (said,) = [one for one in warnings(rendered(tmp_path, text)) if "seems to be a secret" in one]
    assert said.startswith("join.values.password: ")
    assert "hunter" not in said


def test_a_state_file_moves_to_the_volume(tmp_path: Path) -> None:
    text = SIM.replace("url: 'http://sim.example:9400'", "stateFile: /srv/ledger.db") + GROUP
    found = rendered(tmp_path, text)
    assert own(found)["clouds"]["sim"]["stateFile"] == "/var/lib/cloudgraft/cloud-sim.db"
    assert any(one.startswith("clouds.sim.stateFile: in the pod it is ") for one in warnings(found))


def test_replicas_cannot_share_a_state_file(tmp_path: Path) -> None:
    store = "store: {postgresql: db.example/cg, user: cg, passwordFile: pw, ca: ca.pem}\n"
    text = "cluster: prod\nclouds: {sim: {driver: simulated}}\n" + GROUP + store
    with pytest.raises(ConfigError, match=r"clouds\.sim\.driver: the driver simulated keeps its account of machines"):
        rendered(tmp_path, text)
