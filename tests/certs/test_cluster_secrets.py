"""Certificates in Secrets: made where they are missing, renewed in time, and never replaced without need."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from cloudgraft.certs.cluster_secrets import (
    AuthoritySecret,
    Change,
    Outcome,
    SecretsPlan,
    SignedSecret,
    renew_certificates,
)
from cloudgraft.cli.main import cloudgraft
from cloudgraft.kube.client import KubeClient
from cloudgraft.kube.connect import connect
from cloudgraft.kube.objects import SECRETS
from cloudgraft.sdk.errors import ConflictError, InvalidArgumentError, NotFoundError, PreconditionError
from tests.kube_api import KubeApi, Request

NOW = datetime(2026, 11, 18, tzinfo=UTC)
SERVER = SignedSecret(
    secret="server", name="cloudgraft", hosts=("cloudgraft.svc", "192.0.2.1"), usages=("server auth", "client auth")
)
CLIENT = SignedSecret(secret="client", name="caller", hosts=("caller",), usages=("client auth",))
PLAN = SecretsPlan(namespace="apps", authority=AuthoritySecret(secret="ca"), certificates=(SERVER, CLIENT))


@pytest.fixture
def api() -> Iterator[KubeApi]:
    server = KubeApi()
    server.start()
    for name in ("ca", "server", "client"):
        server.store.create("secrets", "apps", {"metadata": {"name": name}})
    yield server
    server.stop()


@pytest.fixture
async def client(api: KubeApi, tmp_path: Path) -> AsyncIterator[KubeClient]:
    connected = connect(api.kubeconfig(tmp_path))
    yield connected
    await connected.close()


def _data(api: KubeApi, name: str) -> dict[str, bytes]:
    stored = api.store.find("secrets", name, "apps")
    assert stored is not None
    return {key: b64decode(value) for key, value in stored.get("data", {}).items()}


def _certificate(api: KubeApi, name: str, key: str = "tls.crt") -> x509.Certificate:
    return x509.load_pem_x509_certificate(_data(api, name)[key])


def _outcomes(changes: list[Change]) -> dict[str, str]:
    return {change.secret: change.outcome.value for change in changes}


async def test_empty_secrets_are_filled_with_pairs_of_one_authority(api: KubeApi, client: KubeClient) -> None:
    assert set(_outcomes(await renew_certificates(client, PLAN, NOW)).values()) == {Outcome.MADE}
    authority = _certificate(api, "ca")
    for wanted in PLAN.certificates:
        made = _certificate(api, wanted.secret)
        made.verify_directly_issued_by(authority)
        assert _data(api, wanted.secret)["ca.crt"] == _data(api, "ca")["tls.crt"]
        key = load_pem_private_key(_data(api, wanted.secret)["tls.key"], None)
        assert key.public_key() == made.public_key()
        assert made.not_valid_after_utc - NOW == timedelta(days=90)
    usages = _certificate(api, "server").extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert {usage._name for usage in usages} == {"serverAuth", "clientAuth"}


async def test_good_certificates_are_left_alone(api: KubeApi, client: KubeClient) -> None:
    await renew_certificates(client, PLAN, NOW)
    before = [_data(api, name) for name in ("ca", "server", "client")]
    assert set(_outcomes(await renew_certificates(client, PLAN, NOW + timedelta(days=59))).values()) == {Outcome.KEPT}
    assert [_data(api, name) for name in ("ca", "server", "client")] == before
    assert [request.method for request in api.requests if request.method != "GET"] == ["PATCH"] * 3


async def test_a_certificate_is_renewed_before_its_end(api: KubeApi, client: KubeClient) -> None:
    await renew_certificates(client, PLAN, NOW)
    old = _certificate(api, "server")
    later = NOW + timedelta(days=60)
    assert _outcomes(await renew_certificates(client, PLAN, later)) == {
        "ca": "kept",
        "server": "renewed",
        "client": "renewed",
    }
    new = _certificate(api, "server")
    assert new.not_valid_after_utc - later == timedelta(days=90)
    assert new.public_key() != old.public_key()


async def test_a_renewed_authority_keeps_its_key_so_old_certificates_stay_valid(
    api: KubeApi, client: KubeClient
) -> None:
    await renew_certificates(client, PLAN, NOW)
    old = _certificate(api, "ca")
    outcomes = _outcomes(await renew_certificates(client, PLAN, NOW + timedelta(days=3650 - 730)))
    assert outcomes["ca"] == "renewed"
    new = _certificate(api, "ca")
    assert (new.public_key(), new.subject) == (old.public_key(), old.subject)
    _certificate(api, "server").verify_directly_issued_by(old)


@pytest.mark.parametrize("broken", ["hosts", "name", "usages", "key", "empty authority", "no certificate"])
async def test_a_certificate_that_does_not_fit_is_replaced(api: KubeApi, client: KubeClient, broken: str) -> None:
    await renew_certificates(client, PLAN, NOW)
    plan = PLAN
    changes: dict[str, dict[str, Any]] = {
        "hosts": {"hosts": ("other.svc",)},
        "name": {"name": "another"},
        "usages": {"usages": ("server auth",)},
    }
    if broken in changes:
        plan = replace(PLAN, certificates=(replace(SERVER, **changes[broken]), CLIENT))
    elif broken == "empty authority":
        empty = {"tls.crt": "", "tls.key": "", "ca.crt": ""}
        await client.patch(SECRETS, "ca", {"data": empty}, namespace="apps")
    else:
        secret, key, content = {
            "key": ("server", "tls.key", _data(api, "client")["tls.key"]),
            "no certificate": ("server", "tls.crt", b"nonsense"),
        }[broken]
        await client.patch(SECRETS, secret, {"data": {key: b64encode(content).decode()}}, namespace="apps")
    outcomes = _outcomes(await renew_certificates(client, plan, NOW))
    assert outcomes["server"] in {"made", "renewed"}
    assert outcomes["client"] == ("renewed" if broken == "empty authority" else "kept")
    _certificate(api, "server").verify_directly_issued_by(_certificate(api, "ca"))


@pytest.mark.parametrize(("key", "content"), [("tls.crt", b"nonsense"), ("tls.key", b"of another kind"), ("both", b"")])
async def test_an_authority_that_cannot_sign_is_never_replaced(
    api: KubeApi, client: KubeClient, key: str, content: bytes
) -> None:
    """It may be an operator's own, whose key would be lost."""
    await renew_certificates(client, PLAN, NOW)
    leaf = _data(api, "server")
    own = {key: content} if key != "both" else {"tls.crt": leaf["tls.crt"], "tls.key": leaf["tls.key"]}
    data = {name: b64encode(each).decode() for name, each in own.items()}
    await client.patch(SECRETS, "ca", {"data": data}, namespace="apps")
    before = [_data(api, name) for name in ("ca", "server", "client")]
    with pytest.raises(PreconditionError, match=r"Secret ca .* cannot sign"):
        await renew_certificates(client, PLAN, NOW)
    assert [_data(api, name) for name in ("ca", "server", "client")] == before


async def test_two_runs_at_once_do_not_mix_their_keys(api: KubeApi, client: KubeClient) -> None:
    """The API refuses a change that is based on an older version."""
    others: list[Any] = []

    def another_run_is_faster(request: Request) -> bool:
        if request.method == "PATCH" and not others:
            others.append(api.store.patch(("secrets", "apps", "ca"), lambda old: {**old, "data": {"other": ""}}))
        return False

    api.refuse(another_run_is_faster, 500)
    with pytest.raises(ConflictError):
        await renew_certificates(client, PLAN, NOW)
    assert _data(api, "ca") == {"other": b""}
    assert _data(api, "server") == {}


async def test_a_secret_that_is_not_there_is_named(api: KubeApi, client: KubeClient) -> None:
    plan = SecretsPlan(namespace="other", authority=PLAN.authority, certificates=())
    with pytest.raises(NotFoundError, match=r"secrets/ca.*kubectl -n other create secret generic ca"):
        await renew_certificates(client, plan, NOW)


def test_renewing_earlier_than_it_is_made_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="renewBefore"):
        AuthoritySecret(secret="ca", duration=timedelta(days=1), renew_before=timedelta(days=1))


def test_the_command_reads_the_file_of_its_help(api: KubeApi, tmp_path: Path) -> None:
    help_text = CliRunner().invoke(cloudgraft, ["certs", "secrets", "--help"]).output
    lines = help_text[help_text.index("namespace:") : help_text.index("Options:")].splitlines()
    indent = "\n  ".join(lines) if not lines[1].startswith("    ") else "\n".join(lines)
    text = "\n".join(line.removeprefix("    ") for line in ("    " + indent).splitlines())
    file = tmp_path / "certificates.yaml"
    file.write_text(text.replace("kube-system\n", "apps\n", 1))
    for name in ("cloudgraft-ca", "cloudgraft-server-tls", "cloudgraft-client-tls"):
        api.store.create("secrets", "apps", {"metadata": {"name": name}})
    words = ["certs", "secrets", "--config", str(file), "--kubeconfig", str(api.kubeconfig(tmp_path))]
    done = CliRunner().invoke(cloudgraft, words)
    assert done.exit_code == 0, done.output
    assert "made cloudgraft-server-tls; valid until" in done.output
