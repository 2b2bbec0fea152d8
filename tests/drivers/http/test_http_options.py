"""What a configuration may say of a receiver, its files, and what each answer means."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.certs.authority import Bundle, create_bundle, issue_client
from cloudgraft.certs.defaults import DEFAULT_HOSTS
from cloudgraft.config import ConfigError, Where, parse_options
from cloudgraft.drivers.http.driver import HttpDriver
from cloudgraft.drivers.http.errors import OTHER, TABLE, Row, refusal
from cloudgraft.drivers.http.options import Options
from cloudgraft.sdk.common.extras import install_command
from cloudgraft.sdk.driver import Idempotency, Ownership, ProviderIdBy
from cloudgraft.sdk.errors import (
    CloudgraftError,
    ConflictError,
    InternalError,
    InvalidArgumentError,
    PreconditionError,
    Retry,
    error_table,
)
from cloudgraft.validation.document import Document
from cloudgraft.validation.explain import keys_of
from tests.drivers.http.misbehaving_server import Rogue, answers

Started = Callable[[Options], HttpDriver]
PAGE = (Path(__file__).resolve().parents[3] / "docs/reference/http-driver.md").read_text()
EMPTY = answers(200, {"machines": []})


def read(directory: Path, **options: object) -> Options:
    """As from a file in this directory."""
    where = Where(document=Document.without_file("options"), base_dir=directory, path=())
    return parse_options(Options, options, where)


# -- the file ----------------------------------------------------------------------------------------------------------


def test_a_file_says_where_the_receiver_is_and_what_its_cloud_is_like(tmp_path: Path) -> None:
    options = read(
        tmp_path,
        url="https://machines.example:8443/v1/",
        caFile="ca.crt",
        hmacKeyFile="hmac.key",
        timeout="20s",
        maxBody=4096,
        ownership="name",
        idempotency="unique_name",
        listDelay="30s",
        completeList=False,
        providerID="acme://{name}",
        providerIDBy="kubelet",
        userDataLimit=16384,
    )
    assert options.base == "https://machines.example:8443/v1"
    assert (options.ca_file, options.hmac_key_file) == (tmp_path / "ca.crt", tmp_path / "hmac.key")
    traits = HttpDriver(options).traits
    assert (traits.ownership, traits.idempotency) == (Ownership.NAME, Idempotency.UNIQUE_NAME)
    assert (traits.list_delay, traits.complete_list) == (timedelta(seconds=30), False)
    assert (traits.provider_id, traits.provider_id_by) == ("acme://{name}", ProviderIdBy.KUBELET)
    assert traits.user_data_limit == 16384


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"url": "machines.example"}, "not an address"),
        ({"url": "ftp://machines.example"}, "not an address"),
        ({"url": "https://"}, "not an address"),
        ({"url": "https://a:0"}, "not an address"),
        ({"url": "https://a b"}, "not an address"),
        ({"url": "https://a:x"}, "not an address"),
        ({"url": "https://me:hunter22@a"}, "without credentials"),
        ({"url": "https://a/?token=x"}, "without a query"),
        ({"url": "http://machines.example"}, "insecure: true"),
        ({"certFile": "a.crt"}, "certFile: goes together with keyFile"),
        ({"url": "http://127.0.0.1:1", "caFile": "ca.crt"}, "caFile: is for https"),
        ({"timeout": "0s"}, "timeout: must be more than zero"),
        ({"connectTimeout": "-1s"}, "connectTimeout: must be more than zero"),
        ({"retries": -1}, "retries: must not be negative"),
        ({"maxBody": 10}, "maxBody: must be between"),
        ({"providerID": "acme://x"}, "must hold {name}"),
        ({"userDataLimit": -1}, "userDataLimit: must not be negative"),
        ({"tokenfile": "x"}, "tokenFile"),
    ],
    ids=str,
)
def test_what_can_never_work_is_refused(wrong: dict[str, object], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, **{"url": "https://machines.example", **wrong})
    assert words in str(caught.value)
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize(
    "more",
    [{"url": "http://127.0.0.1:80"}, {"url": "http://localhost"}, {"url": "http://a.example", "insecure": True}],
    ids=str,
)
def test_http_is_for_this_host_or_for_who_says_so(more: dict[str, object], tmp_path: Path) -> None:
    """Law 9."""
    assert not read(tmp_path, **more).is_encrypted


def test_without_its_library_the_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(PreconditionError, match=re.escape(f"which is not installed: {install_command('http')}")):
        HttpDriver(Options(url="https://machines.example"))


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["ca_file", "hmac_key_file", "token_file"])
async def test_a_file_that_cannot_be_used_is_named(option: str, tmp_path: Path, started: Started) -> None:
    key = "".join(part.capitalize() if index else part for index, part in enumerate(option.split("_")))
    file = tmp_path / "it"
    with Rogue(EMPTY) as rogue:
        url = f"{'https' if option == 'ca_file' else 'http'}://127.0.0.1:{rogue.port}"
        driver = started(Options(**{"url": url, option: file}))  # type: ignore[arg-type]  # the parametrized one is a file
        for content in (None, b"", b"\xff\xfe", b"\x07" * 40):
            if content is not None:
                file.write_bytes(content)
            with pytest.raises(PreconditionError, match=f"^(list: )?{key}.*{file.name}"):
                await driver.list()
        assert rogue.seen == []


async def test_certificates_that_cannot_be_used_are_named(tmp_path: Path, bundle: Bundle, started: Started) -> None:
    garbage = tmp_path / "garbage"
    garbage.write_text("-----BEGIN PRIVATE KEY-----")
    locked = tmp_path / "locked.key"
    locked.write_bytes(_with_passphrase(bundle.client_key))
    for key, words in (
        (bundle.server_key, "are not a PEM certificate and its key"),
        (garbage, "are not a PEM certificate and its key"),
        (tmp_path / "nothing", "No such file"),
        (locked, "protected by a passphrase"),
    ):
        options = Options(url="https://127.0.0.1:9", cert_file=bundle.client_cert, key_file=key)
        with pytest.raises(PreconditionError, match=words):
            await started(options).list()


def _with_passphrase(key: Path) -> bytes:
    from cryptography.hazmat.primitives import serialization as forms

    loaded = forms.load_pem_private_key(key.read_bytes(), None)
    lock = forms.BestAvailableEncryption(b"secret")
    return loaded.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, lock)


async def test_a_new_certificate_is_used_when_its_files_change(
    tmp_path: Path, started: Started, caplog: pytest.LogCaptureFixture
) -> None:
    """And a pair that does not fit, as in the middle of a rotation, is not: the old one stays."""
    made = create_bundle(tmp_path / "certs", hosts=DEFAULT_HOSTS, client_name="first")
    cert, key = issue_client(made.directory, "second")
    with Rogue(EMPTY, bundle=made, asks_client=True) as rogue:
        driver = started(rogue.options(cert_file=made.client_cert, key_file=made.client_key))
        await driver.list()
        made.client_cert.write_bytes(cert.read_bytes())
        with caplog.at_level(logging.WARNING):
            await driver.list()
            await driver.list()
        made.client_key.write_bytes(key.read_bytes())
        await driver.list()
        assert [request.client for request in rogue.seen] == ["first", "first", "first", "second"]
    assert [record.message for record in caplog.records] == ["new TLS files cannot be used, the old ones stay"]


async def test_a_new_secret_is_used_when_its_file_changes(
    tmp_path: Path, started: Started, caplog: pytest.LogCaptureFixture
) -> None:
    """And a file that is being written is not: the old one stays."""
    file = tmp_path / "token"
    with Rogue(EMPTY) as rogue:
        driver = started(rogue.options(token_file=file))
        with caplog.at_level(logging.WARNING):
            for content in ("first-token\n", "", "second-token"):
                file.write_text(content)
                await driver.list()
        sent = [request.headers["authorization"] for request in rogue.seen]
        assert sent == ["Bearer first-token", "Bearer first-token", "Bearer second-token"]
    assert [record.message for record in caplog.records] == ["a new secret cannot be used, the old one stays"]


# -- what answers mean -------------------------------------------------------------------------------------------------


def title(row: Row) -> str:
    """The statuses of a row, as the reference page writes them."""
    first, last = row.statuses[0], row.statuses[-1]
    return str(first) if first == last else f"{first}-{last}"


@pytest.mark.parametrize("row", TABLE, ids=title)
def test_every_row_of_the_table_holds(row: Row) -> None:
    for status in (row.statuses[0], row.statuses[-1]):
        first = next(each for each in TABLE if status in each.statuses)
        for is_change, kind in ((True, first.change), (False, first.read)):
            error = refusal("create of a", status, {}, b"", is_change=is_change)
            assert type(error) is kind
            assert error.message.startswith(f"create of a: the receiver answered {status}")


@pytest.mark.parametrize("kind", error_table(), ids=lambda kind: kind.slug)
def test_a_code_counts_more_than_a_status(kind: type[CloudgraftError]) -> None:
    body = b'{"error": {"code": "%s", "message": "because"}}' % kind.slug.encode()
    for status in (400, 409, 418, 501, 503):
        error = refusal("create of a", status, {}, body, is_change=True)
        assert type(error) is kind
        assert f"({kind.slug}): because" in error.message
    assert type(refusal("list", 500, {}, body, is_change=False)) is kind
    assert refusal("create of a", 500, {}, body, is_change=True).retry is Retry.SETTLE_FIRST


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"error": 1}', b'{"error": {"code": "NoSuchCode", "message": "x"}}'])
def test_a_code_that_nobody_knows_leaves_the_status(body: bytes) -> None:
    assert type(refusal("create of a", 400, {}, body, is_change=True)) is InvalidArgumentError


def test_other_statuses() -> None:
    assert type(refusal("create of a", 418, {}, b"", is_change=True)) is PreconditionError
    for status in (206, 299, 600, 999):
        assert type(refusal("create of a", status, {}, b"", is_change=True)) is InternalError
    assert type(refusal("delete of a", 409, {}, b"", is_change=True, is_delete=True)) is ConflictError
    assert OTHER.change.retry is Retry.SETTLE_FIRST


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7.0), ("0", 0.0), ("1e9", 3600.0), ("-1", None), ("soon", None), ("", None), ("nan", None)],
)
def test_when_to_come_again(value: str, seconds: float | None) -> None:
    assert refusal("list", 429, {"retry-after": value}, b"", is_change=False).retry_after == seconds


# -- the reference page ------------------------------------------------------------------------------------------------


def test_the_page_has_the_table() -> None:
    rows = [f"| {title(row)} | `{row.change.slug}` | `{row.read.slug}` | {row.words} |" for row in TABLE]
    assert "\n".join(rows) in PAGE


def test_the_page_has_every_option_with_its_default() -> None:
    documented = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE, re.MULTILINE))
    names = {key.field: name for name, key in keys_of(Options).items()}
    for field in fields(Options):
        assert _shown(field.default) in documented[names[field.name]], names[field.name]


def _shown(default: Any) -> str:
    if default is None or default == "":
        return "none"
    if isinstance(default, timedelta):
        return f"{default.total_seconds():g}s"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, int):
        return str(default)
    return str(default.value) if isinstance(default, Ownership | Idempotency | ProviderIdBy) else "required"
