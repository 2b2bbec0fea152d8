"""Decides which addresses a foreign kubeconfig may lead to.

Its author chooses the address that we connect to from within our own network. By default everything may be an API
server but this host, its links, multicast, and the addresses at which clouds give out credentials. Private networks are
allowed by default: most API servers are in one. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from cloudgraft.sdk.errors import InvalidArgumentError

_Address = IPv4Address | IPv6Address
_Network = IPv4Network | IPv6Network
_NAT64: Final = IPv6Network("64:ff9b::/96")
_SPECIAL: Final[tuple[_Network, ...]] = tuple(
    map(
        ip_network,
        (
            *("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4"),
            *("::/96", "fe80::/10", "ff00::/8", "64:ff9b:1::/48"),
            # The metadata services of clouds, with credentials, that are not at link-local addresses.
            *("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"),
        ),
    )
)


@dataclass(frozen=True, slots=True)
class AllowedNetworks:
    """Networks that foreign endpoints may be in; without any, all addresses but special ones.

    A special address needs a network that is special itself: 0.0.0.0/0 allows no loopback, 127.0.0.0/8 does.
    """

    networks: tuple[_Network, ...] = ()

    @classmethod
    def of(cls, texts: Sequence[str]) -> AllowedNetworks:
        """From CIDRs; raises InvalidArgumentError that names the invalid one."""
        found: list[_Network] = []
        for text in texts:
            try:
                found.append(ip_network(text))
            except ValueError as error:
                raise InvalidArgumentError(f"{text!r} is no network: {error}; write it like 10.0.0.0/8") from None
        return cls(tuple(found))

    def allows(self, text: str) -> bool:
        """Whether an address may be connected to. An IPv6 address that embeds an IPv4 one is treated as that."""
        try:
            address = _real(ip_address(text.partition("%")[0]))
        except ValueError:
            return False
        holding = [network for network in self.networks if address in network]
        if any(address in special for special in _SPECIAL):
            return any(_is_special(network) for network in holding)
        return bool(holding) or not self.networks

    def refusal(self, text: str) -> str:
        """Why an address is not allowed, and what to do."""
        return f"{text} is not in an allowed network; if it is right, list its network in allowedNetworks"


def _real(address: _Address) -> _Address:
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None) or address


def _is_special(network: _Network) -> bool:
    return any(
        network.version == special.version
        and int(network.network_address) >= int(special.network_address)
        and int(network.broadcast_address) <= int(special.broadcast_address)
        for special in _SPECIAL
    )
