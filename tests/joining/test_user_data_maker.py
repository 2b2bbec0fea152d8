"""What machines are told when they boot: right for the tools that read it, whatever the values are."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgraft.certs.issue import Validity, client_pair, new_authority
from cloudgraft.joining.claims import READY_MADE, JoinPlan, NewMachine, ready_made
from cloudgraft.joining.template import TemplateError, UserDataTemplate
from cloudgraft.joining.tokens import Tokens
from cloudgraft.joining.user_data import UserDataMaker
from cloudgraft.kube.client import KubeClient
from cloudgraft.sdk.errors import InvalidArgumentError, PermissionDeniedError
from cloudgraft.sdk.types import Taint
from tests.kube_api import KubeApi

AUTHORITY = new_authority(Validity.days(3))
CA = AUTHORITY.certificate_pem.decode()
TOKEN = "abcdef.0123456789abcdef"
SERVER = "https://10.0.0.1:6443"
TALOS = {"machineToken": "a.b", "machineCA": "Zm9v"}
TRYING = ["sh", "/var/lib/cloudgraft/keep-trying.sh", "1800", "sh", "/var/lib/cloudgraft/join.sh"]
MACHINE = NewMachine(
    name="m1",
    group="small",
    cloud="lab",
    provider_id="lab://m1",
    labels={"pool": "x", "topology.kubernetes.io/zone": "a", "node-role.kubernetes.io/worker": ""},
    taints=(Taint(key="dedicated", value="batch"), Taint(key="lone", effect="NoExecute")),
    settings={"shape": "s"},
)


def maker(template: str, values: Mapping[str, Any] | None = None, **more: Any) -> UserDataMaker:
    text = ready_made(template) if template in READY_MADE else template
    extra = TALOS if template == "talos" else {}
    plan = JoinPlan(
        template=text, file="join.yaml.j2", server=SERVER, ca_cert=CA, values={**extra, **(values or {})}, **more
    )
    return UserDataMaker({"small": plan}, cluster="prod")


async def made(template: str, values: Mapping[str, Any] | None = None, machine: NewMachine = MACHINE) -> str:
    return await maker(template, {"token": TOKEN, **(values or {})}).make(machine)


def mistakes(template: str, values: Mapping[str, Any] | None = None) -> list[str]:
    plan = JoinPlan(template=template, file="f.j2", values=values or {})
    with pytest.raises(TemplateError) as told:
        UserDataMaker({"small": plan}, cluster="prod")
    return str(told.value).splitlines()


def file_of(text: str) -> Any:
    """The configuration that cloud-init is to write, as the tool reads it."""
    assert text.startswith("#cloud-config\n")
    (entry,) = [entry for entry in yaml.safe_load(text)["write_files"] if entry["path"].endswith(".yaml")]
    assert entry["permissions"] == "0600"
    return yaml.safe_load(entry["content"])


# -- the templates that come with it -----------------------------------------------------------------------------------


async def test_kubeadm_joins_by_its_token_and_the_authoritys_public_key() -> None:
    text = await made("kubeadm", {"criSocket": "unix:///run/c.sock", "commands": ["swapoff -a"]})
    key = AUTHORITY.certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert file_of(text) == {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {
            "bootstrapToken": {
                "token": TOKEN,
                "apiServerEndpoint": "10.0.0.1:6443",
                "caCertHashes": [f"sha256:{hashlib.sha256(key).hexdigest()}"],
            }
        },
        "nodeRegistration": {
            "name": "m1",
            "criSocket": "unix:///run/c.sock",
            "taints": [
                {"key": "dedicated", "value": "batch", "effect": "NoSchedule"},
                {"key": "lone", "value": "", "effect": "NoExecute"},
            ],
            "kubeletExtraArgs": [
                {"name": "provider-id", "value": "lab://m1"},
                {"name": "node-labels", "value": "pool=x,topology.kubernetes.io/zone=a"},
            ],
        },
    }
    assert yaml.safe_load(text)["runcmd"] == ["swapoff -a", [*TRYING, "--cri-socket", "unix:///run/c.sock"]]


async def test_kubeadm_of_older_releases_takes_arguments_as_a_mapping() -> None:
    registration = file_of(await made("kubeadm", {"kubeadmAPI": "v1beta3"}))["nodeRegistration"]
    assert registration["kubeletExtraArgs"] == {
        "provider-id": "lab://m1",
        "node-labels": "pool=x,topology.kubernetes.io/zone=a",
    }
    bare = NewMachine(name="m1", group="small", cloud="lab")
    assert "kubeletExtraArgs" not in file_of(await made("kubeadm", machine=bare))["nodeRegistration"]


@pytest.mark.parametrize("template", ["k3s", "rke2"])
async def test_an_agent_of_k3s_and_rke2_checks_whom_it_gives_its_token(template: str) -> None:
    config = file_of(await made(template))
    assert config == {
        "server": SERVER,
        "token": f"K10{hashlib.sha256(CA.encode()).hexdigest()}::{TOKEN}",
        "node-name": "m1",
        "node-label": ["pool=x", "topology.kubernetes.io/zone=a"],
        "node-taint": ["dedicated=batch:NoSchedule", "lone=:NoExecute"],
        "kubelet-arg": ["provider-id=lab://m1"],
    }
    lasting = file_of(await made(template, {"token": "K10abc::server:password"}))
    assert lasting["token"] == "K10abc::server:password"


async def test_the_hash_of_a_chain_is_that_of_its_root() -> None:
    chain = client_pair(AUTHORITY, "an-intermediate", Validity.days(1)).certificate_pem.decode() + CA
    plan = JoinPlan(template="{{ token | with_ca_hash(ca_cert) }}", file="f", ca_cert=chain, values={"token": TOKEN})
    text = await UserDataMaker({"small": plan}, cluster="prod").make(MACHINE)
    root = hashlib.sha256(AUTHORITY.certificate.public_bytes(Encoding.DER)).hexdigest()
    assert text == f"K10{root}::{TOKEN}"


@pytest.mark.parametrize("template", ["k3s", "rke2"])
async def test_an_agent_is_installed_unless_the_image_has_it(template: str) -> None:
    (usual,) = yaml.safe_load(await made(template))["runcmd"]
    assert usual == [*TRYING, f"https://get.{template}.io"]
    values = {"version": "v1.34.1", "installer": "https://x/;rm -rf"}
    (other,) = yaml.safe_load(await made(template, values))["runcmd"]
    assert other == [*TRYING, "https://x/;rm -rf", "v1.34.1"]
    (none,) = yaml.safe_load(await made(template, {"install": False}))["runcmd"]
    assert none == TRYING


@pytest.mark.parametrize("template", ["kubeadm", "k3s", "rke2"])
async def test_a_machine_tries_for_as_long_as_its_token_is_good(template: str) -> None:
    plan = JoinPlan(
        template=ready_made(template),
        file="join.yaml.j2",
        server=SERVER,
        ca_cert=CA,
        values={"token": TOKEN},
        token_ttl=timedelta(minutes=90),
    )
    text = await UserDataMaker({"small": plan}, cluster="prod").make(MACHINE)
    assert yaml.safe_load(text)["runcmd"][-1][:3] == [*TRYING[:2], "5400"]


async def test_talos_gets_a_whole_machine_config() -> None:
    config = yaml.safe_load(await made("talos", {"install": {"disk": "/dev/vda"}, "clusterSecret": "s=="}))
    assert config["version"] == "v1alpha1"
    assert config["machine"] == {
        "type": "worker",
        "token": "a.b",
        "ca": {"crt": "Zm9v"},
        "network": {"hostname": "m1"},
        "install": {"disk": "/dev/vda"},
        "kubelet": {
            "extraConfig": {
                "registerWithTaints": [
                    {"key": "dedicated", "value": "batch", "effect": "NoSchedule"},
                    {"key": "lone", "value": "", "effect": "NoExecute"},
                ],
                "providerID": "lab://m1",
            }
        },
        "nodeLabels": {"pool": "x", "topology.kubernetes.io/zone": "a"},
    }
    assert config["cluster"] == {
        "secret": "s==",
        "clusterName": "prod",
        "controlPlane": {"endpoint": SERVER},
        "token": TOKEN,
        "ca": {"crt": base64.b64encode(CA.encode()).decode()},
    }


_NASTY = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ['"', "'", "\n", "a: b", "{{ x }}", "#", "- x", "\\", "\u2028", "\x85", "no", "\ufeff", "😀", "%", "|", "&a", "*a"]
)


@pytest.mark.parametrize("template", READY_MADE)
@settings(max_examples=6, deadline=None)
@given(_NASTY, _NASTY, _NASTY)
async def test_no_value_breaks_out_of_its_place(template: str, name: str, value: str, token: str) -> None:
    """What is in a value stays in it, whatever YAML would make of it."""
    await _hold_together(template, name, value, token)


@pytest.mark.thorough
@pytest.mark.parametrize("template", READY_MADE)
@settings(max_examples=50, deadline=None)
@given(_NASTY, _NASTY, _NASTY)
async def test_really_no_value_breaks_out(template: str, name: str, value: str, token: str) -> None:
    await _hold_together(template, name, value, token)


async def _hold_together(template: str, name: str, value: str, token: str) -> None:
    machine = NewMachine(
        name=name,
        group="small",
        cloud=value,
        provider_id=value,
        labels={value: value},
        taints=(Taint(key=value, value=name),),
    )
    values = {"token": token, "machineToken": value, "machineCA": value, "commands": [value]}
    text = await maker(template, values).make(machine)
    document = yaml.safe_load(text)
    if template == "talos":
        assert document["machine"]["token"] == value
        assert document["machine"]["network"]["hostname"] == name
        assert document["cluster"]["token"] == token
        return
    assert document["hostname"] == name
    assert document["runcmd"][0] == value
    content = file_of(text)
    if template == "kubeadm":
        assert content["discovery"]["bootstrapToken"]["token"] == token
        assert content["nodeRegistration"]["name"] == name
        assert content["nodeRegistration"]["taints"] == [{"key": value, "value": name, "effect": "NoSchedule"}]
    else:
        assert content["token"] == token
        assert content["node-name"] == name
        assert content["node-taint"] == [f"{value}={name}:NoSchedule"]


# -- templates of one's own --------------------------------------------------------------------------------------------


async def test_a_template_has_all_there_is_to_know() -> None:
    template = (
        "{{ name }} {{ group }} {{ cloud }} {{ cluster }} {{ provider_id }} {{ labels | json }} {{ settings.shape }} "
        "{{ values.items }} {{ taints | taint_args | join(',') }} {{ server | endpoint }} {{ ca_cert | sha256 }} "
        "{{ values.on }} {{ ca_cert_hash == ca_cert_hashes[0] }}\n"
    )
    maker_ = maker(template, {"items": "own", "on": True}, settings={"shape": "s"})
    digest = hashlib.sha256(CA.encode()).hexdigest()
    assert await maker_.make(MACHINE) == (
        'm1 small lab prod lab://m1 {"pool": "x", "topology.kubernetes.io/zone": "a", "node-role.kubernetes.io/worker"'
        f': ""}} s own dedicated=batch:NoSchedule,lone=:NoExecute 10.0.0.1:6443 {digest} true true\n'
    )


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("'a b' | sh", "'a b'"),
        ("'a\nb\nc' | indent(2)", "a\n  b\n  c"),
        ("'é' | b64", "w6k="),
        ("['a', 1, true] | join('-')", "a-1-true"),
        ("'aXb' | replace('X', 'Y')", "aYb"),
        ("{'a': [1, none, 'é\\n']} | yaml", '{"a": [1, null, "é\\n"]}'),
        ("['x'] | json", '["x"]'),
        ("'https://[fe80::1]' | endpoint", "[fe80::1]:443"),
        ("values.labels | kubelet_labels | label_args | join(' ')", "kubernetes.io/os= a.node.kubernetes.io/b= d="),
        ("values.get('a') is none", "true"),
        ("name.split('m') | last ~ '!'", "1!"),
        ("(1 + 2) * 3", "9"),
        ("(['a'] + ['b']) | yaml", '["a", "b"]'),
    ],
)
async def test_values_can_be_brought_into_forms(expression: str, expected: str) -> None:
    keys = ("kubernetes.io/os", "x.kubernetes.io/a", "a.node.kubernetes.io/b", "k8s.io/c", "d")
    assert await made("{{ (" + expression + ") }}", {"labels": dict.fromkeys(keys, "")}) == expected


# -- mistakes ----------------------------------------------------------------------------------------------------------


def test_all_unknown_names_are_reported_at_start_with_their_lines() -> None:
    assert mistakes("a\n{{ nam }}\n{% for x in lables %}{{ x }}{% endfor %}\n") == [
        "f.j2:2: nam is not known here (did you mean name?)",
        "f.j2:3: lables is not known here (did you mean labels?)",
    ]
    assert mistakes("{{ name | ymal }}\n{{ name is strng }}\n{% include 'x' %}") == [
        "f.j2:1: there is no filter ymal (did you mean yaml?)",
        "f.j2:2: there is no test strng (did you mean string?)",
        "f.j2:3: a template cannot read other files: write it in one",
    ]


def test_all_missing_values_are_reported_at_start_with_what_to_write() -> None:
    template = "{{ values.a | yaml }}\n{{ server }}{{ settings.b }}\n{{ token }}{{ ca_cert }}\n{{ values.c.d }}\n"
    told = mistakes(
        template + "{{ values.e is defined }}{{ values.f | default('') }}{% if provider_id %}{{ values.g }}{% endif %}"
    )
    assert [line.split(" is not ")[0] for line in told] == [
        "f.j2:1: values.a",
        "f.j2:2: server",
        "f.j2:2: settings.b",
        "f.j2:3: ca_cert",
        "f.j2:3: token",
        "f.j2:4: values.c",
        "f.j2:5: values.g",
    ]
    assert "write it into join.values" in told[0]
    assert "write join.server" in told[1]
    assert "machine section of the group" in told[2]
    assert "write kubernetes" in told[4]


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("\n\n{% if %}", "f.j2:3: Expected an expression"),
        ("{% for x in [1] %}", "f.j2:1: Unexpected end of template"),
        ("a\n{{ labels }}", "f.j2:2: a mapping cannot be shown as it is: use a filter"),
        ("a\n{{ none }}", "f.j2:2: nothing cannot be shown"),
        ("a\n{{ name | int / 0 }}", "f.j2:2: ZeroDivisionError"),
        ("a\n{{ name.__class__ }}", "f.j2:2: access to attribute '__class__'"),
        ("a\n{{ ''.__class__ }}", "f.j2: access to attribute '__class__'"),
        ("a\n{{ 'a'.center(9) }}", "f.j2:2: access to attribute 'center'"),
        ("a\n{{ labels | sh }}", "f.j2:2: a text or a number is wanted here"),
    ],
)
def test_any_other_mistake_is_reported_with_its_line(template: str, told: str) -> None:
    (line,) = mistakes(template)
    assert line.startswith(told)


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% set n = namespace(x='aaaa') %}{% for a in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "{% set n = namespace(x=['a']) %}{% for a in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{% set n = namespace(x=2) %}{% for a in range(999) %}{% set n.x = n.x * n.x %}{% endfor %}",
        "{% for a in range(9999) %}" + "a" * 200 + "{% endfor %}",
        "{{ 'a' * 10000000000 }}",
        "{{ 9 ** 999999999 }}",
        "{{ '%9999999999d' % 1 }}",
        "{{ range(9999999999) | list | length }}",
        "{{ ('a' ~ name) | replace('a', 'a' ~ name | indent(99999999)) }}",
        "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    ],
    ids=lambda template: template[:40],
)
def test_a_template_without_end_is_stopped(template: str) -> None:
    assert len(mistakes(template)) == 1


def test_mistakes_of_all_templates_are_reported_together() -> None:
    plans = {name: JoinPlan(template="{{ nam }}", file=f"{name}.j2") for name in ("a", "b")}
    with pytest.raises(TemplateError) as told:
        UserDataMaker(plans, cluster="prod")
    assert len(told.value.mistakes) == 2


def test_a_ready_made_template_says_what_it_lacks() -> None:
    plan = JoinPlan(template=ready_made("kubeadm"), file="the template kubeadm")
    with pytest.raises(TemplateError) as told:
        UserDataMaker({"small": plan}, cluster="prod")
    lacking = {mistake.message.split(" ")[0] for mistake in told.value.mistakes}
    assert lacking == {"server", "ca_cert_hashes", "token"}


def test_an_authority_that_is_none_is_refused() -> None:
    plan = JoinPlan(template="{{ ca_cert }}", file="f", ca_cert="nonsense")
    with pytest.raises(InvalidArgumentError, match=r"join\.caFile"):
        UserDataMaker({"small": plan}, cluster="prod")


# -- limits and credentials --------------------------------------------------------------------------------------------


async def test_what_is_too_large_for_the_cloud_is_refused_before_a_token_is_made(
    api: KubeApi, client: KubeClient
) -> None:
    tokens = Tokens(client, cluster="prod")
    plan = JoinPlan(template="é" * 50 + "{{ token }}", file="f")
    small = NewMachine(name="m1", group="small", cloud="lab", user_data_limit=122)
    with pytest.raises(InvalidArgumentError, match="123 bytes, but cloud lab takes at most 122"):
        await UserDataMaker({"small": plan}, cluster="prod", tokens=tokens).make(small)
    assert api.store.items("secrets") == []
    exact = NewMachine(name="m1", group="small", cloud="lab", user_data_limit=123)
    text = await UserDataMaker({"small": plan}, cluster="prod", tokens=tokens).make(exact)
    assert len(text.encode()) == 123


async def test_a_machine_gets_a_token_of_its_own_and_the_same_text_again(api: KubeApi, client: KubeClient) -> None:
    tokens = Tokens(client, cluster="prod")
    plan = JoinPlan(
        template="{{ token }} {{ token_id }} {{ token_secret }}",
        file="f",
        token_ttl=timedelta(minutes=5),
        token_groups=("system:bootstrappers:a", "system:bootstrappers:b"),
    )
    user_data = UserDataMaker({"small": plan}, cluster="prod", tokens=tokens)
    text = await user_data.make(MACHINE)
    (secret,) = api.store.items("secrets", "kube-system")
    token_id, token_secret = (base64.b64decode(secret["data"][f"token-{key}"]).decode() for key in ("id", "secret"))
    assert text == f"{token_id}.{token_secret} {token_id} {token_secret}"
    assert base64.b64decode(secret["data"]["auth-extra-groups"]) == b"system:bootstrappers:a,system:bootstrappers:b"
    assert await user_data.make(MACHINE) == text
    await user_data.settle("m1")
    assert api.store.items("secrets") == []


async def test_a_token_is_made_only_where_one_is_used(api: KubeApi, client: KubeClient) -> None:
    tokens = Tokens(client, cluster="prod")
    plans = {
        "none": JoinPlan(template="hello", file="f"),
        "lasting": JoinPlan(template="{{ token }}", file="g", values={"token": "lasting"}),
    }
    user_data = UserDataMaker(plans, cluster="prod", tokens=tokens)
    assert await user_data.make(NewMachine(name="m1", group="none", cloud="lab")) == "hello"
    assert await user_data.make(NewMachine(name="m2", group="lasting", cloud="lab")) == "lasting"
    assert await user_data.make(NewMachine(name="m3", group="other", cloud="lab")) == ""
    await user_data.settle("m1")
    assert api.requests == []


async def test_a_token_is_taken_back_though_no_group_gets_one_any_more(api: KubeApi, client: KubeClient) -> None:
    """The configuration has changed between the two."""
    tokens = Tokens(client, cluster="prod")
    before = UserDataMaker({"small": JoinPlan(template="{{ token }}", file="f")}, cluster="prod", tokens=tokens)
    await before.make(MACHINE)
    after = UserDataMaker({"small": JoinPlan(template="hello", file="f")}, cluster="prod", tokens=tokens)
    await after.settle("m1")
    assert api.store.items("secrets") == []


async def test_a_token_that_is_denied_is_the_machines_failure(api: KubeApi, client: KubeClient) -> None:
    api.denied = {("create", "secrets")}
    tokens = Tokens(client, cluster="prod")
    plan = JoinPlan(template="{{ token }}", file="f")
    with pytest.raises(PermissionDeniedError, match="may not create secrets"):
        await UserDataMaker({"small": plan}, cluster="prod", tokens=tokens).make(MACHINE)


def test_nothing_secret_is_in_a_plan_that_is_printed() -> None:
    plan = JoinPlan(template="t", file="f", values={"password": "swordfish"})
    assert "swordfish" not in repr(plan)


def test_a_template_that_uses_no_token_says_so() -> None:
    assert not UserDataTemplate("{{ name }}", "f").needs_token
    assert UserDataTemplate("{% if false %}{{ token_secret }}{% endif %}", "f").needs_token
