"""Decides which addresses a foreign kubeconfig may lead to, and connects to no others."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final

import httpcore2

from cloudgraft.net.stepped_http import SteppedBackend, SteppedTransport
from cloudgraft.sdk.errors import InvalidArgumentError

__all__ = ["AllowedNetworks", "CheckedTransport"]


_Address = IPv4Address | IPv6Address
_Network = IPv4Network | IPv6Network
_NAT64: Final = IPv6Network("64:ff9b::/96")
_SPECIAL: Final[tuple[_Network, ...]] = tuple(
    map(
        ip_network,
        (
            *("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4"),
            *("::/96", "fe80::/10", "ff00::/8", "64:ff9b:1::/48"),
            # Where clouds tell machines who they are, and with what credentials, beside link-local addresses.
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
        """From CIDRs; raises InvalidArgumentError that names the one that is none."""
        found: list[_Network] = []
        for text in texts:
            try:
                found.append(ip_network(text))
            except ValueError as error:
                raise InvalidArgumentError(f"{text!r} is no network: {error}; write it like 10.0.0.0/8") from None
        return cls(tuple(found))

    def allows(self, text: str) -> bool:
        """Whether an address may be connected to. An IPv6 address that stands for an IPv4 one is judged as that."""
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


# -- Connects to foreign endpoints at allowed addresses only -----------------------------------------------------------
# A name is resolved once, its addresses are checked, and the connection is made to a checked one: a name that
# resolves to another address a moment later (DNS rebinding) changes nothing. TLS still verifies the name. No proxy is
# used, since it would resolve the name by itself.


# Not asyncio's own threads, which all share: a name server that never answers holds one for half a minute.
_RESOLVERS: Final = ThreadPoolExecutor(max_workers=4, thread_name_prefix="foreign-names")


class CheckedTransport(SteppedTransport):
    """With small reads, and with checked addresses."""

    def __init__(self, context: ssl.SSLContext, networks: AllowedNetworks) -> None:
        super().__init__(context, backend=_CheckedBackend(networks))


class _CheckedBackend(SteppedBackend):
    def __init__(self, networks: AllowedNetworks) -> None:
        self._networks = networks

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - as the base class has it
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        addresses = await self._resolved(host, port)
        allowed = [address for address in addresses if self._networks.allows(address)]
        if not allowed:
            raise httpcore2.ConnectError(self._networks.refusal(f"the address {addresses[0]} of the server"))
        for address in allowed[:-1]:
            try:
                return await super().connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await super().connect_tcp(allowed[-1], port, timeout, local_address, socket_options)

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        raise httpcore2.ConnectError("a foreign endpoint is no socket of this host")

    async def _resolved(self, host: str, port: int) -> list[str]:
        try:
            found = await asyncio.get_running_loop().run_in_executor(
                _RESOLVERS, partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
            )
        except OSError as error:
            raise httpcore2.ConnectError(f"{host} cannot be resolved: {error.strerror}") from error
        return list(dict.fromkeys(str(address[0]) for *_, address in found))
