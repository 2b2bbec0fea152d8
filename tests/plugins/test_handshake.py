from __future__ import annotations

import base64
from pathlib import Path

import pytest

from cloudgraft.plugins.handshake import (
    Handshake,
    HandshakeError,
    environment,
    format_line,
    is_plugin_line,
    parse_line,
)
from cloudgraft.plugins.throwaway_tls import make_key_pair

CERTIFICATE = make_key_pair().der


@pytest.mark.parametrize("certificate", [CERTIFICATE, None], ids=["known", "unknown"])
@pytest.mark.parametrize(
    ("network", "address", "target"),
    [
        ("unix", "/run/x/plugin", "unix:/run/x/plugin"),
        ("tcp", "127.0.0.1:1234", "127.0.0.1:1234"),
        ("tcp", "[::1]:1234", "[::1]:1234"),
        ("tcp", "localhost:1234", "localhost:1234"),
    ],
)
def test_a_line_says_where_a_plugin_is_and_by_what_it_is_known(
    network: str, address: str, target: str, certificate: bytes | None
) -> None:
    handshake = Handshake(network=network, address=address, certificate=certificate)
    line = format_line(handshake)
    assert is_plugin_line(line)
    assert parse_line(f"  {line}\r\n") == handshake
    assert handshake.target == target


def test_a_certificate_may_be_padded_or_not_and_further_fields_are_ignored() -> None:
    """go-plugin leaves the padding out, and newer releases of it add a seventh field."""
    padded = base64.b64encode(CERTIFICATE).decode()
    for certificate in (padded, padded.rstrip("=")):
        assert parse_line(f"1|1|unix|/s|grpc|{certificate}|true").certificate == CERTIFICATE


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("2|1|unix|/s|grpc|", "core protocol version"),
        ("1|7|unix|/s|grpc|", "version '7' of cloudgraft's plugin protocol"),
        ("1|one|unix|/s|grpc|", "version 'one'"),
        ("1|1|unix|/s", "net/rpc"),
        ("1|1|unix|/s|netrpc|", "protocol 'netrpc'"),
        ("1|1", "2 fields instead of six"),
        ("1|1|pipe|/s|grpc|", "network 'pipe'"),
        ("1|1|unix|relative|grpc|", "not an absolute path"),
        ("1|1|unix||grpc|", "not an absolute path"),
        ("1|1|tcp|127.0.0.1|grpc|", "no port"),
        ("1|1|tcp|127.0.0.1:0|grpc|", "no port"),
        ("1|1|tcp|127.0.0.1:70000|grpc|", "no port"),
        ("1|1|tcp|0.0.0.0:1234|grpc|", "loopback"),
        ("1|1|tcp|192.0.2.1:1234|grpc|", "loopback"),
        ("1|1|tcp|example.org:1234|grpc|", "loopback"),
        ("1|1|unix|/s|grpc|!!!", "no certificate"),
        ("1|1|unix|/s|grpc|aGVsbG8", "no certificate"),
    ],
)
def test_a_line_that_is_wrong_is_refused_with_the_reason(line: str, complaint: str) -> None:
    assert is_plugin_line(line)
    with pytest.raises(HandshakeError) as caught:
        parse_line(line)
    assert complaint in caught.value.message


@pytest.mark.parametrize("line", ["", "hello", "Listening on port 80 | ok", "|1|unix", "1,1,unix", "x1|1|unix|/s|grpc"])
def test_a_stray_print_is_not_taken_for_a_handshake(line: str) -> None:
    assert not is_plugin_line(line)


def test_a_plugin_inherits_our_environment_without_our_hosts_variables() -> None:
    above = {"PATH": "/bin", "PLUGIN_MULTIPLEX_GRPC": "true", "PLUGIN_MIN_PORT": "1", "CLOUDGRAFT_PLUGIN": "old"}
    inside = environment(
        above, client_certificate=b"-----BEGIN", directory=Path("/run/x"), options={"a": 1, "b": ["c"]}
    )
    assert inside["PATH"] == "/bin"
    assert "PLUGIN_MULTIPLEX_GRPC" not in inside
    assert "PLUGIN_MIN_PORT" not in inside
    assert len(inside["CLOUDGRAFT_PLUGIN"]) == 64
    assert inside["PLUGIN_PROTOCOL_VERSIONS"] == "1"
    assert inside["PLUGIN_CLIENT_CERT"] == "-----BEGIN"
    assert inside["PLUGIN_UNIX_SOCKET_DIR"] == "/run/x"
    assert inside["CLOUDGRAFT_PLUGIN_TLS_DIR"] == "/run/x/tls"
    assert inside["CLOUDGRAFT_PLUGIN_OPTIONS"] == '{"a":1,"b":["c"]}'
