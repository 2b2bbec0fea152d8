"""`cloudgraft deploy render`: what becomes of sections that the chart writes, and of what a pod has not."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudgraft.config import ConfigError
from tests.deploy.rendering import GROUP, SIM, commands, own, rendered, warnings

JOIN = "join: {template: kubeadm, server: 'https://10.0.0.1:16443'}\n"


def test_a_journal_in_a_file_becomes_one_pod_with_a_volume(tmp_path: Path) -> None:
    found = rendered(tmp_path, SIM + GROUP + "store: {path: j.db, keepEvents: 48h}\n")
    server = found.values["server"]
    assert (server["mode"], server["cluster"], server["store"]) == ("single", "prod", {"keepEvents": "48h"})
    assert not {"store", "cluster"} & own(found).keys()


def test_a_database_becomes_replicas_with_its_secret(tmp_path: Path) -> None:
    store = (
        "store: {postgresql: 'db.example:6432/cg', user: cg, passwordFile: pw, ca: ca.pem, leaseDuration: 20s, "
        "sslmode: verify-ca}\n"
    )
    found = rendered(tmp_path, SIM + GROUP + store, name="edge")
    server = found.values["server"]
    assert server["mode"] == "replicas"
    assert server["postgresql"] == {"address": "db.example:6432/cg", "port": 6432, "user": "cg", "secret": "edge-db"}
    assert server["store"] == {"leaseDuration": "20s", "sslmode": "verify-ca"}
    assert commands(found, tmp_path) == [
        "kubectl -n kube-system create secret generic edge-db --from-file=password=pw --from-file=ca.crt=ca.pem"
    ]


def test_a_socket_of_a_database_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"store\.postgresql: pods reach a database by its host"):
        rendered(tmp_path, SIM + GROUP + "store: {postgresql: /run/postgresql/cg, user: cg}\n")


def test_settings_of_the_server_and_the_log_are_kept(tmp_path: Path) -> None:
    text = (
        "server: {listen: '127.0.0.1:8086', grace: 45s, limits: {streams: 20}, ops: null}\n"
        "log: {level: 7}\nadmin: {listen: 'unix:/run/cg.sock'}\n"
    )
    found = rendered(tmp_path, SIM + GROUP + text)
    assert found.values["server"]["settings"] == {"grace": "45s", "limits": {"streams": 20}}
    assert found.values["server"]["log"] == {"level": 5}
    assert found.values["pod"] == {"terminationGracePeriodSeconds": 65}
    said = warnings(found)
    assert any(one.startswith("log.level: 7 becomes 5") for one in said)
    assert any(one.startswith("admin: not taken over") for one in said)


def test_own_certificates_are_kept_when_they_are_said_to_exist(tmp_path: Path) -> None:
    tls = "server: {listen: '0.0.0.0:8086', tls: {cert: s.crt, key: s.key, clientCA: ca.crt, allowedClients: [ca]}}\n"
    found = rendered(tmp_path, SIM + GROUP + tls, certificates="existing")
    assert found.values["server"]["allowedClients"] == ["ca"]
    assert found.values["certificates"] == {"mode": "existing"}
    (command,) = commands(found, tmp_path)
    assert command.endswith(
        "cloudgraft-server-tls --from-file=tls.crt=s.crt --from-file=tls.key=s.key --from-file=ca.crt=ca.crt"
    )
    assert commands(rendered(tmp_path, SIM + GROUP + tls, certificates="job"), tmp_path) == []


def test_without_the_section_kubernetes_there_are_no_rights(tmp_path: Path) -> None:
    assert not any(rendered(tmp_path, SIM + GROUP).values["server"]["rights"].values())


def test_rights_are_those_that_the_sections_need(tmp_path: Path) -> None:
    text = SIM + GROUP + "kubernetes: {inCluster: true, labelNodes: false, removeNodes: false}\n" + JOIN
    assert rendered(tmp_path, text).values["server"]["rights"] == {
        "nodes": True,
        "setProviderID": True,
        "labelNodes": False,
        "removeNodes": False,
        "events": False,
        "tokens": True,
        "doctor": True,
    }


def test_the_account_of_the_pod_takes_the_place_of_a_kubeconfig(tmp_path: Path) -> None:
    text = SIM + GROUP + "kubernetes: {kubeconfig: admin.conf, events: {deployment: mine, namespace: ops}}\n"
    found = rendered(tmp_path, text, name="edge", namespace="autoscaling")
    events = {"deployment": "edge", "namespace": "autoscaling"}
    assert own(found)["kubernetes"] == {"events": events, "inCluster": True}
    assert any(one.startswith("kubernetes.kubeconfig: inCluster takes its place") for one in warnings(found))
    assert found.objects == ()


def test_files_that_follow_an_option_are_not_copied_into_an_image(tmp_path: Path) -> None:
    """They may hold a secret, which every layer of an image shows."""
    text = (
        "cluster: prod\n"
        'clouds: {lab: {driver: exec, create: ./c.sh, delete: ["./bin/del it", --token-file, secrets/api.token],\n'
        "  list: [python3, ../shared/list.py]}}\n"
        "nodeGroups: [{id: a, cloud: lab, maxSize: 3, template: {capacity: {cpu: 1, memory: 1Gi}}}]\n"
    )
    found = rendered(tmp_path, text)
    assert list(found.dockerfile)[2:-1] == [
        "COPY --chmod=555 c.sh /opt/lab/c.sh",
        'COPY --chmod=555 ["bin/del it", "/opt/lab/bin/del it"]',
        "COPY --chmod=555 ../shared/list.py /opt/shared/list.py",
    ]
    said = warnings(found)
    assert "clouds.lab.delete: the file secrets/api.token is not found in the pod: mount it yourself" in said
    assert any("../shared/list.py is not below the directory in which the image is built" in one for one in said)


def test_a_transport_that_only_the_image_has_is_no_problem(tmp_path: Path) -> None:
    text = "cluster: prod\nproviders: [{type: memory}]\nserver: {transport: native}\n"
    assert rendered(tmp_path, text).values["server"]["settings"] == {"transport": "native"}


def test_the_collector_of_traces_and_the_api_of_a_group_are_reached(tmp_path: Path) -> None:
    text = (
        "cluster: prod\n"
        "clouds: {sim: {driver: simulated, url: http://sim.example:9400}}\n"
        "nodeGroups:\n"
        "  - {id: a, cloud: sim, maxSize: 3, machine: {shape: small},\n"
        "     join: {template: kubeadm, server: 'https://10.0.0.1:7443'}}\n"
        "kubernetes: {inCluster: true}\n"
        "tracing: {endpoint: 'otel.monitoring:4317', insecure: true}\n"
    )
    assert rendered(tmp_path, text).values["server"]["egressPorts"] == [4317, 7443, 9400]


def test_egress_has_the_port_of_every_host_that_is_called(tmp_path: Path) -> None:
    text = (
        SIM
        + GROUP
        + "kubernetes: {inCluster: true}\n"
        + JOIN
        + "engine: {webhook: {url: 'https://a.example:8443/x'}}\n"
        "providers: [{type: externalgrpc, address: 'other.example:9086', tls: {cert: c, key: k, ca: a}}]\n"
    )
    found = rendered(tmp_path, text)
    assert found.values["server"]["egressPorts"] == [8443, 9086, 9400, 16443]
    assert found.reasons["server", "egressPorts", 2] == "sim.example of clouds.sim.url"


def test_a_host_that_is_the_pod_itself_is_named(tmp_path: Path) -> None:
    text = SIM.replace("sim.example", "127.0.0.1") + GROUP
    assert any(
        one.startswith("clouds.sim.url: 127.0.0.1 is the pod itself") for one in warnings(rendered(tmp_path, text))
    )


def test_the_autoscaler_waits_longer_than_the_deadlines(tmp_path: Path) -> None:
    found = rendered(tmp_path, SIM + GROUP + "engine: {createDeadline: 20m, joinDeadline: 20m}\n")
    assert found.values["autoscaler"] == {"flags": {"max-node-provision-time": "45m"}}


def test_scripts_go_into_an_image_and_find_their_directory(tmp_path: Path) -> None:
    text = (
        "cluster: prod\n"
        "clouds:\n"
        "  lab: {driver: exec, create: ./lab.sh create, delete: [bash, bin/lab.sh], list: /usr/bin/lab}\n"
        "  too: {driver: exec, create: ./lab.sh, delete: ./lab.sh, list: ./lab.sh}\n"
        "  own: {driver: plugin, command: [python3, mine.py], options: {a: b}}\n"
        "nodeGroups: [{id: a, cloud: lab, maxSize: 3, template: {capacity: {cpu: 1, memory: 1Gi}}}]\n"
    )
    found = rendered(tmp_path, text)
    clouds = own(found)["clouds"]
    assert (clouds["lab"]["workingDirectory"], clouds["own"]["workingDirectory"]) == ("/opt/lab", "/opt/own")
    assert list(found.dockerfile)[2:-1] == [
        "COPY --chmod=555 lab.sh /opt/lab/lab.sh",
        "COPY --chmod=555 bin/lab.sh /opt/lab/bin/lab.sh",
        "COPY --chmod=555 lab.sh /opt/too/lab.sh",
        "COPY --chmod=555 mine.py /opt/own/mine.py",
    ]
    said = warnings(found)
    assert any(one.startswith("clouds.lab: what it runs goes into an image on top") for one in said)
    assert any(one.startswith("clouds.own: the plugin python3 goes into an image on top") for one in said)


def test_a_dock_that_lets_in_anybody_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"dock\.drivers: in the pod: is missing"):
        rendered(tmp_path, SIM + GROUP + "dock: {}\n")


def test_the_file_of_a_node_manager_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nodeManager: this command makes values for the file of `cloudgraft serve`"):
        rendered(tmp_path, SIM + GROUP + "nodeManager: {}\n")


def test_rights_for_liqo_follow_its_driver(tmp_path: Path) -> None:
    text = (
        "cluster: prod\n"
        "clouds: {far: {driver: liqo, kubeconfig: admin.conf, liqoNamespace: mesh, sizes: {S: {cpu: 2, memory: 4Gi}}, "
        "discovery: {address: 'https://discovery.example:9010', tokenFile: t}}}\n"
        "nodeGroups: [{id: a, cloud: far, maxSize: 3, machine: {shape: S}}]\n"
    )
    found = rendered(tmp_path, text)
    assert found.values["liqo"] == {"consumer": ["server"], "namespace": "mesh"}
    assert found.values["server"]["egressPorts"] == [9010]
    assert "kubeconfig" not in own(found)["clouds"]["far"]
