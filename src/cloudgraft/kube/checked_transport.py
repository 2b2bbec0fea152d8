"""Connects to foreign endpoints at allowed addresses only.

A name is resolved once, its addresses are checked, and the connection is made to a checked one: a name that resolves to
another address a moment later (DNS rebinding) changes nothing. TLS still verifies the name. No proxy is used, since it
would resolve the name by itself.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import httpcore2

from cloudgraft.kube.networks import AllowedNetworks
from cloudgraft.net.stepped_http import SteppedBackend, SteppedTransport

# Not asyncio's shared threads: a name server that never answers blocks one for half a minute.
_RESOLVERS: Final = ThreadPoolExecutor(max_workers=4, thread_name_prefix="foreign-names")


class CheckedTransport(SteppedTransport):
    """Connects to checked addresses only, and reads in small steps."""

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
