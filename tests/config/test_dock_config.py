"""The section `dock`: what a good one becomes, and what is told of a bad one."""

from __future__ import annotations

import textwrap
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.config import Config, ConfigError, parse
from cloudgraft.config.sections.dock import Dock
from cloudgraft.sdk.secrecy import redacted

HEAD = "cluster: prod\n"
TOKEN = "0123456789abcdef"
ACME = "kind: AcmeMachineClass, apiVersion: machine.example/v1"
B = "kind: B, apiVersion: v1"
TLS = "tls: {cert: tls.crt, key: tls.key, clientCA: ca.crt}"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    for name in ("tls.crt", "tls.key", "ca.crt", "admin.conf"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "acme.token").write_text(f"{TOKEN}\n")
    (tmp_path / "short.token").write_text("hunter2\n")
    (tmp_path / "secret.yaml").write_text("token: x\n")
    (tmp_path / "classes").mkdir()
    return tmp_path


def _dock(text: str, base: Path) -> Dock:
    dock = _parse(text, base).dock
    assert dock is not None
    return dock


def _parse(text: str, base: Path) -> Config:
    return parse(HEAD + textwrap.dedent(text), base, name="f")


def _lines(text: str, base: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        _parse(text, base)
    return str(caught.value).splitlines()


def test_the_least_dock_is_for_this_host_alone(base: Path) -> None:
    """Law 9. A file may have a dock and nothing to serve the autoscaler with: `cloudgraft dock` runs it."""
    dock = _dock("dock: {}", base)
    assert (dock.listen, dock.tls, dock.drivers, dock.heartbeat) == ("127.0.0.1:5000", None, (), timedelta(seconds=5))
    assert _parse("providers: [{type: memory}]", base).dock is None


def test_a_whole_dock(base: Path) -> None:
    text = """
        kubernetes: {kubeconfig: admin.conf}
        dock:
          listen: 0.0.0.0:5000
          tls: {cert: tls.crt, key: tls.key, clientCA: ca.crt}
          heartbeat: 2s
          drivers:
            - {name: acme, kind: AcmeMachineClass, apiVersion: machine.example/v1, clientNames: [acme-driver]}
            - name: two
              kinds:
                - {kind: A, apiVersion: a.example/v1}
                - {kind: B, apiVersion: b.example/v1alpha1}
              clientNames: [two]
              tokenFile: acme.token
          classes:
            small:
              kind: AcmeMachineClass
              apiVersion: machine.example/v1
              providerSpec: {size: s, disks: [1, 2]}
              nodeTemplate: {capacity: {cpu: 2, memory: 4Gi}}
              secretFile: secret.yaml
          classesDir: classes
          kubernetes: {namespace: machines}
        """
    dock = _dock(text, base)
    assert [driver.all_kinds() for driver in dock.drivers] == [
        {("AcmeMachineClass", "machine.example/v1")},
        {("A", "a.example/v1"), ("B", "b.example/v1alpha1")},
    ]
    assert dock.drivers[1].token_file == base / "acme.token"
    assert dock.classes["small"].provider_spec == {"size": "s", "disks": [1, 2]}
    assert dock.classes["small"].secret_file == base / "secret.yaml"
    assert dock.kubernetes is not None
    assert (dock.kubernetes.namespace, dock.classes_dir) == ("machines", base / "classes")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("listen: «0.0.0.0:5000", "dock.listen: without TLS only a loopback address is allowed, because anyone"),
        (f"«{TLS}", "dock.drivers: is missing: with tls it says who may dial in (for example"),
        (
            f"drivers: [{{name: a, {ACME}, clientNames: «[x]}}]",
            "dock.drivers[0].clientNames: needs dock.tls.clientCA, which signs such certificates",
        ),
        (
            f"{TLS}, drivers: [«{{name: a, {ACME}}}]",
            "dock.drivers[0]: the driver a needs clientNames or tokenFile, to be known by",
        ),
        (
            f"drivers: [{{name: a, {ACME}, tokenFile: acme.token}}, «{{name: b, {ACME}}}]",
            "dock.drivers[1]: the driver b needs tokenFile, to be known by",
        ),
        (
            f"drivers: [{{name: a, {ACME}, tokenFile: «short.token}}]",
            "dock.drivers[0].tokenFile: must hold a token of at least 16 characters, or several, one a line (for exam",
        ),
        ("drivers: [«{name: a}]", "dock.drivers[0].kind: is missing (for example kind: AcmeMachineClass)"),
        (
            "drivers: [«{name: a, kind: A}]",
            "dock.drivers[0].apiVersion: is missing (for example apiVersion: machine.example/v1)",
        ),
        (
            f"drivers: [{{name: a, kinds: [{{{ACME}}}], kind: «A}}]",
            "dock.drivers[0].kind: does not go together with kinds (write it as one of them)",
        ),
        (
            "drivers: [{name: a, kind: «../x, apiVersion: v1}]",
            "dock.drivers[0].kind: must be letters and digits, at most 63, the first a letter (for example Acme",
        ),
        (
            "drivers: [{name: a, kind: A, apiVersion: «a/b/v1}]",
            "dock.drivers[0].apiVersion: must be group/version, in lower case (for example machine.example/v1)",
        ),
        (
            f"drivers: [{{name: a, {ACME}}}, {{name: «a, {ACME}}}]",
            "dock.drivers[1].name: the name a is already that of the driver a (each driver needs its own)",
        ),
        (
            f"{TLS}, drivers: [{{name: a, {ACME}, clientNames: [x]}}, {{name: b, {ACME}, clientNames: «[x]}}]",
            "dock.drivers[1].clientNames: x is already one of the driver a (one entry may have several kinds)",
        ),
        (
            f"engines: [{{name: e, {ACME}, clientNames: «[x]}}]",
            "dock.engines[0].clientNames: needs dock.tls.clientCA, which signs such certificates",
        ),
        (
            f"{TLS}, drivers: [{{name: a, {ACME}, clientNames: [x]}}], engines: [{{name: e, {B}, clientNames: «[x]}}]",
            "dock.engines[0].clientNames: x is already one of the driver a (one entry may have several kinds)",
        ),
        (
            f"drivers: [{{name: a, {ACME}, tokenFile: acme.token}}], engines: [«{{name: e, {ACME}}}]",
            "dock.engines[0]: the engine e needs tokenFile, to be known by",
        ),
        (
            f"drivers: [{{name: a, {B}, tokenFile: acme.token}}], engines: [{{name: e, {B}, tokenFile: «acme.token}}]",
            "dock.engines[0].tokenFile: this token is already one of the driver a (one entry may have several kinds)",
        ),
        (
            f"drivers: [{{name: a, {ACME}}}], engines: [{{name: «a, {ACME}}}]",
            "dock.engines[0].name: the name a is already that of the driver a (each engine needs its own)",
        ),
        ("engines: [«{name: e}]", "dock.engines[0].kind: is missing (for example kind: AcmeMachineClass)"),
        ("kubernetes: «{namespace: x}", "dock.kubernetes: needs kubernetes, to know where the cluster is"),
        (
            f"allowLocalSecrets: true, classes: {{s: {{{ACME}, secretFile: secret.yaml, secretEnv: «{{a: B}}}}}}",
            "dock.classes.s.secretEnv: a class has one secret (remove the others",
        ),
        (
            f"allowLocalSecrets: true, classes: {{s: {{{ACME}, secretEnv: {{a: «B-C}}}}}}",
            "dock.classes.s.secretEnv.a: must be the name of an environment variable (for example ACME_TOKEN)",
        ),
        (f"classes: {{«../etc: {{{ACME}}}}}", 'dock.classes."../etc": must be lower-case letters, digits'),
        ("classesDir: «nowhere", "dock.classesDir: no such directory:"),
        ("heartbeat: «0s", "dock.heartbeat: must be more than zero (for example 5s)"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, told: str, base: Path) -> None:
    """The place is where the «quote stands."""
    line = f"dock: {{{text}}}" if not text.startswith("«") else f"dock: «{{{text[1:]}}}"
    (problem,) = _lines(line.replace("«", ""), base)
    assert problem.startswith(f"f:2:{line.index('«') + 1}: {told}"), problem
    assert "hunter2" not in problem


def test_all_that_is_wrong_with_drivers_and_engines_is_told_at_once(base: Path) -> None:
    text = f"""
        dock:
          tls: {{cert: tls.crt, key: tls.key}}
          drivers:
            - {{name: a, {ACME}}}
            - {{name: a, {ACME}, clientNames: [x]}}
            - {{name: b, kind: B}}
          engines:
            - {{name: b, {ACME}, clientNames: [x]}}
            - {{nmae: c, {ACME}}}
          listn: 127.0.0.1:0
        """
    assert [line.split(":")[3].strip() for line in _lines(text, base)] == [
        "dock.drivers[0]",
        "dock.drivers[1].name",
        "dock.drivers[1].clientNames",
        "dock.drivers[2].apiVersion",
        "dock.drivers[2]",
        "dock.engines[0].name",
        "dock.engines[0].clientNames",
        "dock.engines[0].clientNames",
        "dock.engines[1]",
        "dock.engines[1].name",
        "dock.engines[1].nmae",
        "dock.listn",
    ]


def test_one_certificate_may_be_shared_by_those_whom_tokens_tell_apart(base: Path) -> None:
    (base / "b.token").write_text("fedcba9876543210\n")
    a, b = (f"{{name: {name}, {ACME}, clientNames: [x], tokenFile: {name}.token}}" for name in ("acme", "b"))
    assert len(_dock(f"dock: {{{TLS}, drivers: [{a}, {b}]}}", base).drivers) == 2
    assert len(_dock(f"dock: {{{TLS}, drivers: [{a}], engines: [{b}]}}", base).engines) == 1


def test_a_token_that_stands_where_its_file_belongs_is_not_repeated(base: Path) -> None:
    secret = "A" * 90
    a, b = (f"{{name: {name}, {ACME}, tokenFile: {secret}}}" for name in "ab")
    assert secret not in "".join(_lines(f"dock: {{drivers: [{a}, {b}]}}", base))


def test_tls_without_an_authority_of_clients_is_for_drivers_with_tokens(base: Path) -> None:
    tls = "tls: {cert: tls.crt, key: tls.key}, listen: '0.0.0.0:5000'"
    assert _dock(f"dock: {{{tls}, drivers: [{{name: a, {ACME}, tokenFile: acme.token}}]}}", base).drivers


def test_names_of_environment_variables_are_no_secrets_but_what_a_spec_calls_one_is(base: Path) -> None:
    """Law 9: passwords do not belong there, but they are shown nowhere."""
    spec = "providerSpec: {adminPassword: correct-horse}, secretEnv: {apiToken: ACME_API_TOKEN}"
    dock = _dock(f"dock: {{allowLocalSecrets: true, classes: {{s: {{{ACME}, {spec}}}}}}}", base)
    assert "correct-horse" not in repr(dock)
    assert redacted("correct-horse ACME_API_TOKEN") == "[secret] ACME_API_TOKEN"
