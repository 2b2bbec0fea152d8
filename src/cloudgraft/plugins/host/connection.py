"""Opens a mutually authenticated gRPC channel to a plugin from its handshake."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import tempfile
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from cloudgraft.plugins.handshake import Handshake
from cloudgraft.plugins.throwaway_tls import HOSTNAME, HostTls, KeyPair

# -- TLS relay ---------------------------------------------------------------------------------------------------------
# go-plugin makes its certificates on the curve P-521, which BoringSSL, and so grpcio, refuses to verify. For such a
# plugin Python's ``ssl`` (OpenSSL) does the TLS, and grpcio connects to it through a socket in the plugin's private
# directory. Plain text leaves this process only through that socket, which only its own user can open.


log = logging.getLogger("cloudgraft.plugins")

_CONNECT_TIMEOUT = 5.0
_CHUNK = 64 * 1024


def grpc_can_verify(certificate: bytes) -> bool:
    """Returns False for a certificate (PEM) whose key type gRPC's TLS library does not support."""
    key = x509.load_pem_x509_certificate(certificate).public_key()
    if isinstance(key, ec.EllipticCurvePublicKey):
        return isinstance(key.curve, (ec.SECP256R1, ec.SECP384R1))
    return isinstance(key, rsa.RSAPublicKey)


class TlsRelay:
    """Listens on a private socket and relays each connection over TLS to the plugin."""

    def __init__(self, plugin: Handshake, *, trusted: bytes, client: KeyPair, directory: Path) -> None:
        self._plugin = plugin
        self._context = _context(trusted, client, directory)
        self._path = directory / "relay"
        self._server: asyncio.Server | None = None
        self._relays: set[asyncio.Task[None]] = set()

    @property
    def target(self) -> str:
        """The relay's address for grpcio."""
        return f"unix:{self._path}"

    async def start(self) -> None:
        """Begins to listen."""
        self._server = await asyncio.start_unix_server(self._accept, self._path)

    async def close(self) -> None:
        """Ends every connection."""
        if self._server is not None:
            self._server.close()
        for task in self._relays:
            task.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Our own tasks: those that asyncio makes log an error when they are cancelled.
        task = asyncio.create_task(self._relay(reader, writer))
        self._relays.add(task)
        task.add_done_callback(self._relays.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT):
                plugin_reader, plugin_writer = await self._connect()
        except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
            # grpcio only sees that its connection breaks; the log says why.
            log.warning("no TLS connection to a plugin: %s", error, extra={"address": self._plugin.address})
            writer.transport.abort()
            return
        try:
            await _both_ways(reader, writer, plugin_reader, plugin_writer)
        finally:
            plugin_writer.transport.abort()
            writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._plugin.network == "unix":
            return await asyncio.open_unix_connection(self._plugin.address, ssl=self._context, server_hostname=HOSTNAME)
        host, _, port = self._plugin.address.rpartition(":")
        return await asyncio.open_connection(host.strip("[]"), int(port), ssl=self._context, server_hostname=HOSTNAME)


async def _both_ways(
    left_reader: asyncio.StreamReader,
    left_writer: asyncio.StreamWriter,
    right_reader: asyncio.StreamReader,
    right_writer: asyncio.StreamWriter,
) -> None:
    """Copies until one side ends. HTTP/2 needs both directions, so the other ends too."""
    copies = {
        asyncio.create_task(_copy(left_reader, right_writer)),
        asyncio.create_task(_copy(right_reader, left_writer)),
    }
    try:
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for copy in copies:
            copy.cancel()
        await asyncio.gather(*copies, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()


def _context(trusted: bytes, client: KeyPair, directory: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=trusted.decode("ascii"))
    context.set_alpn_protocols(["h2"])
    # OpenSSL loads a key only from a file; this one is deleted as soon as it is read.
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        file.write(client.certificate + client.key)
        file.flush()
        context.load_cert_chain(file.name)
    return context


# -- The connection ----------------------------------------------------------------------------------------------------


LARGEST_MESSAGE: Final = 16 * 1024 * 1024  # bytes, as for a dock: it is decoded at once, and a long list has pages
_OPTIONS: Final = (
    ("grpc.ssl_target_name_override", HOSTNAME),
    ("grpc.default_authority", HOSTNAME),
    ("grpc.enable_http_proxy", 0),  # a proxy from the environment must not be used on loopback
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    ("grpc.max_send_message_length", 64 * 1024 * 1024),
)
_MOMENT: Final = 1.0  # seconds


class Connection:
    """A channel to one run of a plugin. Each run has a new one."""

    def __init__(self, channel: grpc.aio.Channel, relay: TlsRelay | None = None) -> None:
        self.channel = channel
        self._relay = relay

    async def close(self) -> None:
        """Ends the calls in flight, and the connection."""
        # Calls to a plugin that has ended fail by themselves; the wait lets their callers get the error.
        await self.channel.close(grace=_MOMENT)
        if self._relay is not None:
            await self._relay.close()


async def connect(handshake: Handshake, tls: HostTls, directory: Path) -> Connection:
    """Returns a channel to the plugin with mutual TLS; the first call opens the connection.

    The plugin must present the certificate of its handshake line, or else the one made for it. There is no third way,
    so a plugin without TLS is never called.
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
