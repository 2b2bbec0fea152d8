"""Addresses are taken and refused as Go's net.SplitHostPort does (R9)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudgraft.client.cloud_config import Address, split_host_port
from cloudgraft.sdk.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("text", "host", "port", "target"),
    [
        ("provider.kube-system.svc:8086", "provider.kube-system.svc", "8086", "dns:///provider.kube-system.svc:8086"),
        ("127.0.0.1:8086", "127.0.0.1", "8086", "dns:///127.0.0.1:8086"),
        ("host%zone:8086", "host%zone", "8086", "dns:///host%25zone:8086"),
        ("[::1]:8086", "::1", "8086", "ipv6:[::1]:8086"),
        ("[host]:8086", "host", "8086", "dns:///host:8086"),
        ("[fe80::1%eth0]:8086", "fe80::1%eth0", "8086", "ipv6:[fe80::1%25eth0]:8086"),
        ("unix:/run/provider.sock", "unix", "/run/provider.sock", "unix:/run/provider.sock"),
        ("unix:///run/provider.sock", "unix", "///run/provider.sock", "unix:///run/provider.sock"),
        ("unix-abstract:name", "unix-abstract", "name", "unix-abstract:name"),
        (":8086", "localhost", "8086", "dns:///localhost:8086"),
        ("host:https", "host", "443", "dns:///host:443"),
        ("host:08086", "host", "8086", "dns:///host:8086"),
        ("dns:53", "dns", "53", "dns:///dns:53"),  # a host of that name, not a scheme
    ],
)
def test_an_address_that_go_accepts_is_split_into_server_name_port_and_target(
    text: str, host: str, port: str, target: str
) -> None:
    address = Address.parse(text)
    assert (address.host, address.port, address.target, str(address)) == (host, port, target, text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the address is missing"),
        ("host", "the port is missing"),
        ("[::1]", "the port is missing"),
        ("[::1]8086", "the port is missing"),
        ("::1", "too many colons"),
        ("::1:8086", "too many colons"),
        ("host:80:86", "too many colons"),
        ("[::1]:80:86", "too many colons"),
        ("[::1:8086", "the ']' is missing"),
        ("ho[st:8086", "a '[' where none belongs"),
        ("ho]st:8086", "a ']' where none belongs"),
        ("[a[b]:8086", "a '[' where none belongs"),
        ("[a]b]:8086", "the port is missing"),
        ("host:", "the port is empty"),
        ("host:65536", "above 65535"),
        ("host:99999999999999999999", "above 65535"),
        ("host:-1", "neither a number nor the name of a service"),
        ("host:no-such-service", "neither a number nor the name of a service"),
        ("host:٨٠", "neither a number nor the name of a service"),
        ("https://host:8086", "it is a URL"),
        ("unix:", "the path of the socket is missing"),
    ],
)
def test_an_address_that_go_cannot_use_is_refused_with_reason_and_advice(text: str, reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match="write it as host:port") as refused:
        Address.parse(text)
    assert reason in refused.value.message


@pytest.mark.parametrize(
    ("text", "loopback"),
    [
        ("localhost:1", True),
        ("127.8.9.1:1", True),
        ("[::1]:1", True),
        ("unix:/x", True),
        (":1", True),
        ("10.0.0.1:1", False),
        ("host:1", False),
    ],
)
def test_an_address_tells_whether_it_is_on_this_machine(text: str, loopback: bool) -> None:
    assert Address.parse(text).is_loopback is loopback


@given(host=st.text(st.characters(exclude_characters="[]", codec="utf-8")), port=st.text("0123456789", max_size=6))
def test_what_is_joined_with_brackets_splits_into_the_same_parts(host: str, port: str) -> None:
    assert split_host_port(f"[{host}]:{port}") == (host, port)


@given(st.text())
def test_any_text_is_either_an_address_or_an_invalid_argument(text: str) -> None:
    try:
        address = Address.parse(text)
    except InvalidArgumentError:
        return
    assert address.host
    assert address.port
