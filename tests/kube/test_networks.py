"""Which addresses a foreign kubeconfig may lead to."""

from __future__ import annotations

import pytest

from cloudgraft.kube.networks import AllowedNetworks
from cloudgraft.sdk.errors import InvalidArgumentError

SPECIAL = [
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "0.1.2.3",
    "169.254.169.254",
    "100.100.100.200",
    "168.63.129.16",
    "224.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%eth0",
    "ff02::1",
    "fd00:ec2::254",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::7f00:1",
    "2002:7f00:1::1",
]


@pytest.mark.parametrize("address", SPECIAL)
def test_special_addresses_are_refused(address: str) -> None:
    assert not AllowedNetworks().allows(address)
    assert not AllowedNetworks.of(["0.0.0.0/0", "::/0"]).allows(address)


@pytest.mark.parametrize("address", ["10.0.0.1", "192.168.1.1", "172.16.0.1", "203.0.113.9", "fd12::1", "2a00::1"])
def test_private_and_public_addresses_are_allowed(address: str) -> None:
    assert AllowedNetworks().allows(address)


def test_a_list_allows_nothing_else() -> None:
    networks = AllowedNetworks.of(["10.1.0.0/16", "fd12::/64"])
    assert networks.allows("10.1.2.3")
    assert networks.allows("fd12::5")
    assert networks.allows("::ffff:10.1.2.3")
    assert not networks.allows("10.2.0.1")
    assert not networks.allows("203.0.113.9")


def test_a_special_network_must_be_named_itself() -> None:
    assert AllowedNetworks.of(["127.0.0.0/8"]).allows("127.0.0.1")
    assert not AllowedNetworks.of(["127.0.0.0/8"]).allows("10.0.0.1")


@pytest.mark.parametrize("address", ["", "far.example", "127.1", "0x7f.1", "2130706433", "1.2.3.4.5"])
def test_no_address_is_not_allowed(address: str) -> None:
    assert not AllowedNetworks().allows(address)


def test_what_is_no_network_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'10\.0\.0\.1/8' is no network"):
        AllowedNetworks.of(["10.0.0.1/8"])
