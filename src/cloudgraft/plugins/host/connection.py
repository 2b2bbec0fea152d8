"""From a plugin's handshake to a gRPC channel that nobody else can use or answer."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from cloudgraft.plugins.handshake import Handshake
from cloudgraft.plugins.host.tls_relay import TlsRelay, grpc_can_verify
from cloudgraft.plugins.throwaway_tls import HOSTNAME, HostTls
from cloudgraft.sdk.errors import DeadlineError

__all__ = ["LARGEST_MESSAGE", "Connection", "connect", "cut_calls_are_errors"]

LARGEST_MESSAGE: Final = 16 * 1024 * 1024  # bytes, as of a dock: it is decoded in one go, and a long list has pages
_OPTIONS: Final = (
    ("grpc.ssl_target_name_override", HOSTNAME),
    ("grpc.default_authority", HOSTNAME),
    ("grpc.enable_http_proxy", 0),  # a proxy from the environment has no business on loopback
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    ("grpc.max_send_message_length", 64 * 1024 * 1024),
)
_MOMENT: Final = 1.0  # seconds


class Connection:
    """A channel to one run of a plugin. The next run has another one."""

    def __init__(self, channel: grpc.aio.Channel, relay: TlsRelay | None = None) -> None:
        self.channel = channel
        self._relay = relay

    async def close(self) -> None:
        """Ends the calls that are under way, and the connection."""
        # Calls to a plugin that has ended fail by themselves; the moment is for their callers to hear of it.
        await self.channel.close(grace=_MOMENT)
        if self._relay is not None:
            await self._relay.close()


async def connect(handshake: Handshake, tls: HostTls, directory: Path) -> Connection:
    """A channel to the plugin, with TLS in both directions; the connection itself is made by the first call.

    The plugin is known by the certificate in its line, or else by the one made for it: there is no third way, so a
    plugin without TLS is never talked to.
    """
    trusted = tls.server.certificate
    if handshake.certificate is not None:
        trusted = ssl.DER_cert_to_PEM_cert(handshake.certificate).encode("ascii")
    if grpc_can_verify(trusted):
        credentials = grpc.ssl_channel_credentials(trusted, tls.client.key, tls.client.certificate)
        return Connection(grpc.aio.secure_channel(handshake.target, credentials, options=_OPTIONS))
    relay = TlsRelay(handshake, trusted=trusted, client=tls.client, directory=directory)
    await relay.start()
    local = grpc.local_channel_credentials(grpc.LocalConnectionType.UDS)
    return Connection(grpc.aio.secure_channel(relay.target, local, options=_OPTIONS[1:]), relay)


@contextlib.contextmanager
def cut_calls_are_errors() -> Iterator[None]:
    """Around a call: makes an error of what gRPC raises in the caller when the channel is closed meanwhile.

    That is CancelledError, and would end the caller's task as if somebody had cancelled it.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise DeadlineError("the connection was closed during the call; whether it was done is not known") from error
