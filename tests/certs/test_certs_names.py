"""Names are compared as the Go client compares them. The tables were checked against Go's own functions."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from cloudgraft.certs.names import go_accepts, join_host_port, parse_host, parse_hosts, server_name
from cloudgraft.sdk.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("cloudgraft:8086", "cloudgraft"),
        ("fe80::1%eth0:8086", None),
        ("host%zone:8086", "host%zone"),
        ("[::1]:8086", "::1"),
        ("[fe80::1%eth0]:8086", "fe80::1%eth0"),
        ("[host]:8086", "host"),
        ("unix:/run/x.sock", "unix"),
        ("host:", "host"),
        (":8086", None),
        ("host", None),
        ("::1:8086", None),
        ("[::1]", None),
        ("[::1]8086", None),
        ("[[::1]]:8086", None),
        ("", None),
    ],
)
def test_the_server_name_is_the_host_of_the_address(address: str, name: str | None) -> None:
    """R9: ``address`` must pass net.SplitHostPort, and its host is the name."""
    if name is None:
        with pytest.raises(InvalidArgumentError):
            server_name(address)
    else:
        assert server_name(address) == name


@pytest.mark.parametrize(
    ("name", "sans", "accepted"),
    [
        ("foo", ["foo"], True),
        ("FOO.", ["foo"], True),
        ("foo", ["FOO"], True),
        ("foo", ["foo."], False),
        ("a.svc", ["*.svc"], True),
        ("a.b.svc", ["*.svc"], False),
        ("svc", ["*"], False),
        ("a.svc", ["a*.svc"], False),
        ("127.0.0.1", ["127.0.0.1"], True),
        ("::ffff:127.0.0.1", ["127.0.0.1"], True),
        ("[::1]", ["::1"], True),
        ("127.0.0.1", ["localhost"], False),
        ("fe80::1%eth0", ["fe80::1"], False),
        ("", [""], False),
    ],
)
def test_a_name_is_accepted_as_go_accepts_it(name: str, sans: list[str], accepted: bool) -> None:
    addresses = [ip_address(san) for san in sans if san[:1].isdigit() or ":" in san]
    names = [san for san in sans if not (san[:1].isdigit() or ":" in san)]
    assert go_accepts(name, names, addresses) is accepted


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("Cloudgraft.Example.", "cloudgraft.example"),
        ("*.example.org", "*.example.org"),
        ("a_b-c.d", "a_b-c.d"),
        ("192.0.2.1", ip_address("192.0.2.1")),
        ("[2001:db8::1]", ip_address("2001:db8::1")),
    ],
)
def test_hosts_are_names_or_addresses(text: str, parsed: object) -> None:
    assert parse_host(text) == parsed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("host:8086", "without scheme and port"),
        ("https://host", "without scheme and port"),
        ("192.0.2.300", "looks like an IP address"),
        ("fe80::1%eth0", "neither a host name nor an IP address"),
        ("bücher.example", "xn--"),
        ("", "neither"),
        ("a..b", "neither"),
        ("*", "neither"),
        ("a.*.b", "neither"),
        ("a b", "neither"),
        ("x" * 64, "neither"),
        (".".join(["abc"] * 70), "neither"),
    ],
)
def test_what_cannot_be_a_host_is_refused_with_a_reason(text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        parse_host(text)


def test_each_host_goes_in_once_and_one_is_needed() -> None:
    assert parse_hosts(["a", "A.", "::1", "0:0::1"]) == ("a", ip_address("::1"))
    with pytest.raises(InvalidArgumentError, match="at least one"):
        parse_hosts([])


def test_an_ipv6_host_gets_brackets() -> None:
    assert join_host_port("::1", 8086) == "[::1]:8086"
    assert join_host_port("localhost", 8086) == "localhost:8086"
