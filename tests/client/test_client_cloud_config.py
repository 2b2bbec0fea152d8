"""The cloud-config file is read as the autoscaler reads it (R9), and the proposal's URL beside it."""

from __future__ import annotations

import contextlib
import logging
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudgraft.client.cloud_config import Address, CloudConfig
from cloudgraft.sdk.errors import InvalidArgumentError

_MTLS = "address: host:8086\nkey: k\ncert: c\ncacert: ca\n"


def config(**fields: object) -> CloudConfig:
    return CloudConfig(address=Address.parse("host:8086"), **fields)  # type: ignore[arg-type]  # short for tests


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("address: host:8086", config()),
        ('{"address": "host:8086"}', config()),
        ("address: host:8086\ngrpc_timeout: 1m2.5s", config(grpc_timeout=timedelta(seconds=62.5))),
        ("address: host:8086\ngrpc_timeout: '100ms'", config(grpc_timeout=timedelta(milliseconds=100))),
        ("address: host:8086\ngrpc_timeout: null", config()),
        ("address: host:8086\ngrpc_timeout:", config()),
        (_MTLS, config(key="k", cert="c", cacert="ca")),
        ("Address: host:8086\nGRPC_Timeout: 1s", config(grpc_timeout=timedelta(seconds=1))),
        ("ADDRESS: other:1\naddress: host:8086", config()),
        ("address: host:8086\nregion: eu\n7: x", config()),
        ("address: host:8086\n---\naddress: other:1", config()),
        ("address: other:1\naddress: host:8086", config()),
        (
            "address: host:8086\nkey: 2024-01-01\ncert: yes\ncacert: 0x10",
            config(key="2024-01-01", cert="yes", cacert="0x10"),
        ),
        ("address: host:8086\nkey: ~\ncert: null\ncacert: ''", config()),
    ],
)
def test_a_file_that_the_autoscaler_accepts_gives_the_same_values(text: str, expected: CloudConfig) -> None:
    assert CloudConfig.parse(text) == expected


def test_a_plain_value_that_yaml_would_take_for_a_number_of_minutes_stays_an_address() -> None:
    # PyYAML reads 1:30 as 90; Go's library does not.
    assert CloudConfig.parse("address: 1:30").address == Address(text="1:30", host="1", port="30")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the address is missing"),
        ("key: k", "the address is missing"),
        ("- address", "must be a mapping"),
        ("address", "must be a mapping"),
        ("address: [host]", "address must be a text"),
        ("address: host:8086\nkey: {a: b}", "key must be a text"),
        ("address: host", "the port is missing"),
        ("address: 'host:8086", "line 1, column"),
        ("a: 1\n\taddress: x", "line 2, column 1"),
        ("address: !!int x", "not valid YAML"),
        ("[" * 600, "not valid YAML"),
        ("address: host:8086\ngrpc_timeout: 5", "grpc_timeout: missing unit"),
        ("address: host:8086\ngrpc_timeout: 5 minutes", "grpc_timeout: unknown unit"),
        ("address: host:8086\ngrpc_timeout: 0s", "longer than 0s"),
        ("address: host:8086\ngrpc_timeout: -5s", "longer than 0s"),
        ("address: host:8086\ngrpc_timeout: ''", "grpc_timeout: invalid duration"),
        ("address: host:8086\ncert: c", "key is not"),
        ("address: host:8086\ncert: c\nkey: k", "cacert is not"),
        ("address: host:8086\ncert: c\ncacert: ca", "key is not"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        CloudConfig.parse(text)
    assert reason in refused.value.message


def test_tls_needs_cert_and_a_key_without_it_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """R9: the autoscaler silently talks plain text without cert, whatever key and cacert say."""
    with caplog.at_level(logging.WARNING, "cloudgraft.client"):
        parsed = CloudConfig.parse("address: host:8086\nkey: k\ncacert: ca")
    assert not parsed.is_encrypted
    assert "plain text" in caplog.text
    assert CloudConfig.parse(_MTLS).is_encrypted


def test_load_reads_a_file_and_leaves_its_paths_relative_to_the_working_directory(tmp_path: Path) -> None:
    file = tmp_path / "cloud-config.yaml"
    file.write_text(_MTLS)
    assert CloudConfig.load(file) == config(key="k", cert="c", cacert="ca")


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"address: host", "the port is missing"), (b"\xff\xfe\x00", "UTF-8"), (b"#" * (1 << 20) + b"##", "1 MiB")],
)
def test_every_error_of_a_file_names_the_file(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "cloud-config.yaml"
    file.write_bytes(content)
    with pytest.raises(InvalidArgumentError) as refused:
        CloudConfig.load(file)
    assert str(file) in refused.value.message
    assert reason in refused.value.message


def test_the_error_for_a_missing_file_names_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"no-such\.yaml: No such file or directory"):
        CloudConfig.load(tmp_path / "no-such.yaml")


@given(st.text())
def test_any_text_is_either_a_config_or_an_invalid_argument(text: str) -> None:
    with contextlib.suppress(InvalidArgumentError):
        assert CloudConfig.parse(text).address.port


@pytest.mark.parametrize(
    ("url", "address", "encrypted"),
    [
        ("https://host", "host:443", True),
        ("https://host:8443", "host:8443", True),
        ("https://host/", "host:443", True),
        ("https://[::1]:8443", "[::1]:8443", True),
        ("HTTPS://host", "host:443", True),
        ("http://host", "host:80", False),
        ("http://127.0.0.1:8086", "127.0.0.1:8086", False),
    ],
)
def test_a_url_says_host_port_and_whether_tls_is_used(url: str, address: str, encrypted: bool) -> None:
    parsed = CloudConfig.from_url(url)
    assert (str(parsed.address), parsed.is_encrypted) == (address, encrypted)


def test_a_url_takes_the_client_certificate_and_the_timeout_beside_it() -> None:
    parsed = CloudConfig.from_url("https://host", key="k", cert="c", cacert="ca", grpc_timeout=timedelta(seconds=1))
    assert parsed == CloudConfig(
        address=Address.parse("host:443"), key="k", cert="c", cacert="ca", grpc_timeout=timedelta(seconds=1), tls=True
    )


def test_the_path_of_the_proposals_url_is_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "cloudgraft.client"):
        parsed = CloudConfig.from_url("https://local.svc.io/mycloudprovider/server")
    assert str(parsed.address) == "local.svc.io:443"
    assert "the path /mycloudprovider/server of the URL is ignored" in caplog.text


@pytest.mark.parametrize(
    ("url", "options", "reason"),
    [
        ("host:8086", {}, "write it as https://host:port"),
        ("ftp://host", {}, "write it as https://host:port"),
        ("https://", {}, "write it as https://host:port"),
        ("https://host:99999", {}, "write it as https://host:port"),
        ("https://[::1", {}, "write it as https://host:port"),
        ("https://host?x=1", {}, "query"),
        ("https://host#x", {}, "fragment"),
        ("http://host", {"cacert": "ca"}, "use https://"),
        ("https://host", {"key": "k"}, "no cert"),
        ("https://host", {"cert": "c"}, "key is not"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_with_the_reason(url: str, options: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        CloudConfig.from_url(url, **options)  # type: ignore[arg-type]  # mypy takes any value for the timeout
    assert reason in refused.value.message


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidArgumentError, match="user name or password") as refused:
        CloudConfig.from_url("https://me:hunter2@host")
    assert "hunter2" not in refused.value.message
