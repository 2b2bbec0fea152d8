"""The sections `kubernetes` and `join`: what a good one becomes, and what is told of a bad one."""

from __future__ import annotations

import re
import textwrap
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.certs.issue import Validity, new_authority
from cloudgraft.config import Config, ConfigError, parse
from cloudgraft.joining.claims import READY_MADE, ready_made
from cloudgraft.joining.match import Way
from cloudgraft.joining.node_changes import ClusterSettings
from cloudgraft.sdk.secrecy import redacted

HEAD = "cluster: prod\nclouds: {lab: {driver: plugin, command: [a]}}\n"
GROUP = "nodeGroups: [{id: g, cloud: lab, maxSize: 1}]\n"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "admin.conf").write_text("{}")
    (tmp_path / "ca.crt").write_bytes(new_authority(Validity.days(1)).certificate_pem)
    (tmp_path / "join.yaml.j2").write_text("hello {{ name }}")
    (tmp_path / "secrets.yaml").write_text("password: correct-horse\nnested: {list: [battery-staple]}\nshared: file\n")
    return tmp_path


def _parse(text: str, base: Path) -> Config:
    return parse(HEAD + textwrap.dedent(text), base, name="f")


def _lines(text: str, base: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        _parse(text, base)
    return str(caught.value).splitlines()


class Like(str):
    """A line in which "…" stands for anything."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return re.fullmatch(".*".join(map(re.escape, self.split("…"))), str(other)) is not None

    __hash__ = str.__hash__


# -- kubernetes --------------------------------------------------------------------------------------------------------


def test_the_least_kubernetes_does_everything(base: Path) -> None:
    config = _parse(GROUP + "kubernetes: {kubeconfig: admin.conf}", base)
    assert config.kubernetes is not None
    assert (config.kubernetes.kubeconfig, config.kubernetes.in_cluster) == (base / "admin.conf", False)
    assert config.kubernetes.as_settings() == ClusterSettings()
    assert _parse(GROUP, base).kubernetes is None


def test_every_part_of_it_can_be_switched_off(base: Path) -> None:
    text = """
        kubernetes:
          inCluster: true
          setProviderID: false
          labelNodes: false
          removeNodes: false
          matchBy: [address, machineID]
        """
    config = _parse(textwrap.dedent(text) + GROUP, base)
    assert config.kubernetes is not None
    assert config.kubernetes.in_cluster
    assert config.kubernetes.as_settings() == ClusterSettings(
        set_provider_id=False,
        label_nodes=False,
        remove_nodes=False,
        match_by=frozenset({Way.ADDRESS, Way.MACHINE_ID}),
    )


@pytest.mark.parametrize(
    ("section", "told"),
    [
        (
            "{}",
            "f:4:13: kubernetes.kubeconfig: is missing (for example kubeconfig: admin.conf, or …)",
        ),
        (
            "{inCluster: true, kubeconfig: admin.conf}",
            "f:4:43: kubernetes.kubeconfig: does not go together with inCluster (remove one of the two)",
        ),
        (
            "{kubeconfig: admin.cnf}",
            "f:4:26: kubernetes.kubeconfig: no such file: …/admin.cnf (did you mean admin.conf?)",
        ),
        (
            "{inCluster: true, matchBy: [nam]}",
            "f:4:41: kubernetes.matchBy[0]: must be one of name, address, machineID (did you mean name?)",
        ),
        ("{inCluster: true, matchBy: []}", "f:4:40: kubernetes.matchBy: needs at least one entry"),
        (
            "{inCluster: true, setProviderId: true}",
            "f:4:31: kubernetes.setProviderId: unknown key (did you mean setProviderID?)",
        ),
    ],
)
def test_what_is_wrong_with_it_is_told(base: Path, section: str, told: str) -> None:
    assert _lines(f"{GROUP}kubernetes: {section}", base) == [Like(told)]


# -- join --------------------------------------------------------------------------------------------------------------


def test_a_group_joins_as_the_file_says(base: Path) -> None:
    text = """
        kubernetes: {inCluster: true}
        join:
          template: kubeadm
          server: https://10.0.0.1:6443/
          caFile: ca.crt
          values: {criSocket: unix:///run/c.sock, shared: here}
          valuesFile: secrets.yaml
          token: {ttl: 10m, groups: ["system:bootstrappers:own"]}
        """
    config = _parse(textwrap.dedent(text) + GROUP, base)
    plan = config.joins()["g"].as_plan({"shape": "s"})
    assert (plan.template, plan.file) == (ready_made("kubeadm"), "the template kubeadm")
    assert plan.server == "https://10.0.0.1:6443"
    assert plan.ca_cert == (base / "ca.crt").read_text()
    assert plan.values == {
        "criSocket": "unix:///run/c.sock",
        "shared": "here",
        "password": "correct-horse",
        "nested": {"list": ["battery-staple"]},
    }
    assert (plan.token_ttl, plan.token_groups) == (timedelta(minutes=10), ("system:bootstrappers:own",))
    assert plan.settings == {"shape": "s"}
    assert redacted("correct-horse battery-staple") == "[secret] [secret]"
    assert "correct-horse" not in repr(config)
    assert redacted("system:bootstrappers:own") == "system:bootstrappers:own"  # says how tokens are made, and is none
    assert _parse(GROUP, base).joins() == {}


def test_the_keys_of_a_group_win_one_by_one(base: Path) -> None:
    text = """
        kubernetes: {inCluster: true}
        join:
          template: k3s
          server: https://10.0.0.1:6443
          values: {version: v1, colour: red}
          token: {ttl: 10m}
        nodeGroups:
          - {id: g, cloud: lab, maxSize: 1}
          - id: h
            cloud: lab
            maxSize: 1
            zones: [a, b]
            join:
              file: join.yaml.j2
              server: https://10.0.0.2:6443
              values: {colour: blue}
              token: {groups: ["system:bootstrappers:own"]}
        """
    config = _parse(text, base)
    plans = {group: join.as_plan({}) for group, join in config.joins().items()}
    assert list(plans) == ["g", "h-a", "h-b"]
    assert plans["g"].file == "the template k3s"
    assert plans["g"].token_groups == ("system:bootstrappers:k3s:default-node-token",)
    own = plans["h-b"]
    assert (own.template, own.file) == ("hello {{ name }}", str(base / "join.yaml.j2"))
    assert own.server == "https://10.0.0.2:6443"
    assert own.values == {"version": "v1", "colour": "blue"}
    assert (own.token_ttl, own.token_groups) == (timedelta(minutes=10), ("system:bootstrappers:own",))


def test_only_one_group_may_have_a_join(base: Path) -> None:
    text = "nodeGroups: [{id: g, cloud: lab, maxSize: 1}, {id: h, cloud: lab, maxSize: 1, join: {template: talos}}]"
    joins = _parse(text, base).joins()
    assert list(joins) == ["h"]
    assert joins["h"].as_plan({}).token_groups == ("system:bootstrappers:nodes",)


def test_every_ready_made_template_can_be_named(base: Path) -> None:
    for name in READY_MADE:
        assert _parse(f"{GROUP}join: {{template: {name}}}", base).joins()["g"].as_plan({}).template


@pytest.mark.parametrize(
    ("section", "told"),
    [
        (
            "{template: kubadm}",
            "f:4:18: join.template: must be one of kubeadm, k3s, rke2, talos (did you mean kubeadm?)",
        ),
        (
            "{template: k3s, file: join.yaml.j2}",
            "f:4:29: join.file: does not go together with template (remove one of the two)",
        ),
        (
            "{template: k3s, server: 10.0.0.1}",
            "f:4:31: join.server: must be an https URL without a path (for example https://10.0.0.1:6443)",
        ),
        (
            "{template: k3s, caFile: admin.conf}",
            "f:4:31: join.caFile: holds no certificate in PEM form (such as /etc/kubernetes/pki/ca.crt)",
        ),
        (
            "{template: k3s, valuesFile: join.yaml.j2}",
            "f:4:35: join.valuesFile: …/join.yaml.j2:1:1: must be a mapping of names to values (for …",
        ),
        (
            "{template: k3s, valuesFile: none.yaml}",
            "f:4:35: join.valuesFile: no such file: …/none.yaml (did you mean join.yaml.j2?)",
        ),
        (
            "{template: k3s, token: {}}",
            "f:4:30: join.token: needs kubernetes, where tokens are made (write that section as well)",
        ),
        (
            "{server: https://10.0.0.1}",
            "f:3:14: nodeGroups[0].join: has neither template nor file (for example template: kubeadm)",
        ),
        ("{template: k3s, value: {}}", "f:4:23: join.value: unknown key (did you mean values?)"),
    ],
)
def test_what_is_wrong_with_a_join_is_told(base: Path, section: str, told: str) -> None:
    assert _lines(f"{GROUP}join: {section}", base) == [Like(told)]


@pytest.mark.parametrize(
    ("token", "told"),
    [
        ("{ttl: 30s}", "join.token.ttl: must be between a minute and a day (for example 30m)"),
        ("{ttl: 25h}", "join.token.ttl: must be between a minute and a day (for example 30m)"),
        ("{groups: [admins]}", "join.token.groups[0]: must begin with system:bootstrappers:"),
        ("{groups: ['system:masters']}", "join.token.groups[0]: must begin with system:bootstrappers:"),
    ],
)
def test_what_is_wrong_with_tokens_is_told(base: Path, token: str, told: str) -> None:
    (line,) = _lines(f"{GROUP}kubernetes: {{inCluster: true}}\njoin: {{template: k3s, token: {token}}}", base)
    assert told in line


def test_what_is_wrong_with_the_join_of_a_group_is_told_there(base: Path) -> None:
    text = """
        nodeGroups:
          - {id: g, cloud: lab, maxSize: 1, join: {template: k3s, token: {ttl: 5m}}}
        """
    assert _lines(text, base) == ["f:5:66: nodeGroups[0].join.token: needs kubernetes, where tokens are made"]


def test_a_file_of_values_that_is_no_yaml_is_told_without_its_secrets(base: Path) -> None:
    (base / "bad.yaml").write_text("password: [correct-horse\n")
    (line,) = _lines(f"{GROUP}join: {{template: k3s, valuesFile: bad.yaml}}", base)
    assert "bad.yaml:2:1: not valid YAML" in line
    assert "correct-horse" not in line


def test_a_file_that_went_away_meanwhile_is_told(base: Path) -> None:
    join = _parse(f"{GROUP}join: {{file: join.yaml.j2}}", base).joins()["g"]
    (base / "join.yaml.j2").unlink()
    with pytest.raises(ConfigError, match=r"join\.yaml\.j2: no such file"):
        join.as_plan({})
