"""The files of `cloudgraft discovery serve` and `agent`: all problems at once, each with its line."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from cloudgraft.app.discovery_agent import settings_of
from cloudgraft.config.programs.discovery import DiscoveryConfig, load_discovery
from cloudgraft.config.programs.discovery_agent import load_agent
from cloudgraft.discovery.agent.measure import Margin
from cloudgraft.discovery.model import NetworkMode
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.validation.problems import ConfigError


def written(directory: Path, text: str) -> Path:
    for name in ("s.crt", "s.key", "ca.crt", "vault.keys", "a.token", "kube.conf"):
        (directory / name).touch()
    path = directory / "discovery.yaml"
    path.write_text(text)
    return path


def problems(directory: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_discovery(written(directory, text))
    return [str(problem).removeprefix(f"{directory}/") for problem in caught.value.problems]


def test_the_least_that_a_server_needs_is_where_to_listen(tmp_path: Path) -> None:
    config = load_discovery(written(tmp_path, "listen: 127.0.0.1:0\n"))
    assert config.store.path == tmp_path / "discovery.db"
    assert (config.vault, config.tls, config.clients, config.legacy_list) == (None, None, (), False)
    assert config.stale_after == timedelta(seconds=45)


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    config = load_discovery(
        written(
            tmp_path,
            """\
listen: 0.0.0.0:9010
tls: {cert: s.crt, key: s.key, clientCA: ca.crt}
clients:
  - {name: manager, role: node-manager, certificate: node-manager}
  - {name: turin, role: agent, cluster: turin, tokenFile: a.token}
store: {postgresql: db.example/discovery, user: cloudgraft, ca: ca.crt}
vault: {keyFile: vault.keys}
staleAfter: 20s
auditLog: audit.log
importSecrets: {kubeconfig: kube.conf, namespace: demo}
legacyList: true
""",
        )
    )
    assert [(client.role, client.cluster) for client in config.clients] == [("node-manager", None), ("agent", "turin")]
    assert config.store.postgresql is not None
    assert (config.store.postgresql.host, config.store.postgresql.sslmode) == ("db.example", "verify-full")
    assert config.store.path is None
    assert config.import_secrets is not None


def test_all_problems_are_told_at_once_with_their_lines(tmp_path: Path) -> None:
    told = problems(
        tmp_path,
        """\
listen: 0.0.0.0:9010
clients:
  - {name: a, role: node-manger, tokenFile: a.token}
  - {name: a, role: agent, certificate: x}
  - {name: c, role: operator, cluster: y}
store: {postgresql: nonsense}
vault: {}
stale: 5s
""",
    )
    lines = [int(line.split(":")[1]) for line in told]
    assert lines == sorted(lines)
    text = "\n".join(told)
    for expected in (
        "1:9: listen: without TLS only a loopback address is allowed",
        "clients[0].role: must be one of agent, node-manager, operator, read-only (did you mean node-manager?)",
        "clients[1].certificate: needs tls.clientCA",
        "clients[1].cluster: is missing: an agent speaks for one cluster",
        "clients[1].name: the name a is there twice",
        "clients[2]: needs tokenFile, to be known by",
        "clients[2].cluster: only goes together with role: agent",
        "store.postgresql: must be host/database or host:port/database",
        "neither keyFile nor keyEnv is there",
        "stale: unknown key (did you mean staleAfter?)",
    ):
        assert expected in text


def test_with_tls_at_least_one_client_must_be_named(tmp_path: Path) -> None:
    (told,) = problems(tmp_path, "tls: {cert: s.crt, key: s.key}\n")
    assert told.startswith("discovery.yaml:1:1: clients: is missing: with tls it says who may call (for example")


def test_two_clients_with_the_same_credentials_are_refused(tmp_path: Path) -> None:
    told = problems(
        tmp_path,
        "clients:\n- {name: a, role: operator, tokenFile: a.token}\n- {name: b, role: read-only, tokenFile: a.token}\n",
    )
    assert "has the same certificate and tokenFile as a client before it" in told[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the file is empty"),
        ("- 1\n", "must be a mapping"),
        ("listen: unix:/x\n", "must be host:port"),
        ("listen: [1\n", "not valid YAML"),
        ("store: {path: a.db, postgresql: db/x, user: y}\n", "does not go together with postgresql"),
        ("store: {user: x}\n", "only goes together with postgresql"),
        ("store: {postgresql: db/x}\n", "user: is missing"),
        ("vault: {keyFile: vault.keys, keyEnv: KEYS}\n", "does not go together with keyFile"),
        ("vault: {keyEnv: a-b}\n", "must be the name of an environment variable"),
        ("importSecrets: {namespace: demo}\n", "importSecrets.kubeconfig: is missing"),
        ("tls: {cert: nowhere.crt, key: s.key}\n", "no such file"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    assert any(expected in problem for problem in problems(tmp_path, text))


def test_a_file_that_is_not_there_is_told_with_the_least_that_it_could_say(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no such file .*listen: 127"):
        load_discovery(tmp_path / "nothing.yaml")


def test_unreadable_bytes_and_a_directory_are_reported_as_in_the_main_file(tmp_path: Path) -> None:
    path = tmp_path / "discovery.yaml"
    path.write_bytes(b"listen: 127.0.0.1:9010\nlog: \xff\n")
    with pytest.raises(ConfigError, match=r"discovery\.yaml:2:6: is not UTF-8"):
        load_discovery(path)
    with pytest.raises(ConfigError, match="is a directory"):
        load_discovery(tmp_path)


def test_every_key_says_what_it_means() -> None:
    assert [name for name, field in DiscoveryConfig.model_fields.items() if not field.description] == []


# -- the agent ---------------------------------------------------------------------------------------------------------


def test_an_agents_file_becomes_its_settings(tmp_path: Path) -> None:
    config = load_agent(
        written(
            tmp_path,
            """\
server: {address: https://discovery.example:9010/, tls: {ca: ca.crt}, tokenFile: a.token}
kubernetes: {kubeconfig: kube.conf}
cluster:
  id: turin
  labels: {country: italy}
  maxNodes: 3
  network: {mode: addressOverride, address: 192.0.2.1, nodePort: 30000}
share: {margin: {cpu: 12.5%, memory: 2Gi}, tolerate: [nvidia.com/gpu], resources: [cpu, memory]}
prices: {currency: EUR, unit: {cpu: "0.02"}, fixedPerNode: "0"}
credentialsFile: kube.conf
heartbeat: 2s
""",
        )
    )
    assert config.server.address == "https://discovery.example:9010"
    settings = settings_of(config, "turin")
    assert settings.rules.margins == {"cpu": Margin(share=Fraction(1, 8)), "memory": Margin(amount=Quantity("2Gi"))}
    assert settings.rules.only == {"cpu", "memory"}
    assert settings.spec.network.mode is NetworkMode.ADDRESS_OVERRIDE
    assert settings.prices is not None
    assert settings.prices.unit == {"cpu": Decimal("0.02")}
    assert (settings.every, settings.credentials_file) == (2.0, tmp_path / "kube.conf")


def test_an_agents_problems_are_told_at_once(tmp_path: Path) -> None:
    text = """\
server: {address: http://discovery.example:9010, tls: {ca: ca.crt, cert: s.crt}}
kubernetes: {inCluster: true, kubeconfig: kube.conf}
cluster: {id: Turin, network: {mode: addressOverride}}
share: {margin: {cpu: 200%}}
prices: {currency: euro, unit: {cpu: 0.02}}
"""
    with pytest.raises(ConfigError) as caught:
        load_agent(written(tmp_path, text))
    found = {problem.key: problem.message for problem in caught.value.problems}
    assert found.keys() == {
        "server.address",
        "server.tls.key",
        "kubernetes.kubeconfig",
        "cluster.id",
        "cluster.network.address",
        "share.margin.cpu",
        "prices.currency",
        "prices.unit.cpu",
    }
