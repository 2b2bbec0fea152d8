"""Implements the handshake between a plugin and its host: environment variables in, one line on stdout out.

It is the handshake of hashicorp/go-plugin, so plugins written with that library work here. One addition serves
languages that cannot make a certificate (``CLOUDGRAFT_PLUGIN_TLS_DIR``). For authors,
docs/how-to/write-a-plugin-in-any-language.md explains it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography import x509

from cloudgraft.sdk.errors import UnavailableError
from cloudgraft.sdk.hosts import is_loopback_host
from cloudgraft.wire.driver import encode_settings

CORE_VERSION: Final = 1  # of go-plugin's own protocol
APP_VERSION: Final = 1  # of ours: the services a plugin offers
COOKIE_KEY: Final = "CLOUDGRAFT_PLUGIN"
# Not a secret: it only shows a plugin that a host started it, and not a person.
COOKIE_VALUE: Final = "76265af6ecbb94f2a08114d0ad471a228a4711d448b2710e6d51175572e86bcc"
VERSIONS: Final = "PLUGIN_PROTOCOL_VERSIONS"
CLIENT_CERT: Final = "PLUGIN_CLIENT_CERT"
SOCKET_DIR: Final = "PLUGIN_UNIX_SOCKET_DIR"
MIN_PORT: Final = "PLUGIN_MIN_PORT"
MAX_PORT: Final = "PLUGIN_MAX_PORT"
TLS_DIR: Final = "CLOUDGRAFT_PLUGIN_TLS_DIR"
OPTIONS: Final = "CLOUDGRAFT_PLUGIN_OPTIONS"
# Variables that a host above us may have set for us, and that would mislead a plugin below us.
_NOT_INHERITED: Final = (
    *(COOKIE_KEY, VERSIONS, CLIENT_CERT, SOCKET_DIR, MIN_PORT, MAX_PORT, TLS_DIR, OPTIONS),
    *("PLUGIN_UNIX_SOCKET_GROUP", "PLUGIN_MULTIPLEX_GRPC"),
)
_SHAPE: Final = "1|1|unix|/path/to/socket|grpc|certificate"


class PluginError(UnavailableError):
    """The plugin is not running. cloudgraft restarts it by itself."""


class HandshakeError(PluginError):
    """The program was started, but did not print a valid handshake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handshake:
    """A plugin's handshake line: its address and its certificate."""

    network: str  # "unix" or "tcp"
    address: str
    certificate: bytes | None = field(default=None, repr=False)  # DER; None: it uses the one that the host made for it

    @property
    def target(self) -> str:
        """The address in gRPC's syntax."""
        return f"unix:{self.address}" if self.network == "unix" else self.address


def environment(
    inherited: Mapping[str, str], *, client_certificate: bytes, directory: Path, options: Mapping[str, object]
) -> dict[str, str]:
    """Returns the environment variables of a plugin."""
    clean = {name: value for name, value in inherited.items() if name not in _NOT_INHERITED}
    return clean | {
        COOKIE_KEY: COOKIE_VALUE,
        VERSIONS: str(APP_VERSION),
        CLIENT_CERT: client_certificate.decode("ascii"),
        SOCKET_DIR: str(directory),
        TLS_DIR: str(tls_directory(directory)),
        OPTIONS: encode_settings(options),
    }


def tls_directory(directory: Path) -> Path:
    """Returns the directory of the files of :class:`~cloudgraft.plugins.throwaway_tls.HostTls`."""
    return directory / "tls"


def format_line(handshake: Handshake) -> str:
    """Formats the line that a plugin prints, without its newline."""
    certificate = base64.b64encode(handshake.certificate or b"").decode("ascii").rstrip("=")
    return f"{CORE_VERSION}|{APP_VERSION}|{handshake.network}|{handshake.address}|grpc|{certificate}"


def is_plugin_line(line: str) -> bool:
    """Returns True for a line that is meant as a handshake, valid or not; False for a stray print()."""
    first, bar, _ = line.strip().partition("|")
    return bool(bar) and first.isdecimal()


def parse_line(line: str) -> Handshake:
    """Parses a plugin's line. Raises :class:`HandshakeError` that says what is wrong with it."""
    core, *fields = line.strip().split("|")
    if core != str(CORE_VERSION):
        raise HandshakeError(f"its line begins with {core!r}: only core protocol version {CORE_VERSION} is known")
    if len(fields) == 3:
        raise HandshakeError("it speaks Go's net/rpc: serve gRPC (with go-plugin, set GRPCServer in ServeConfig)")
    if len(fields) < 4:
        raise HandshakeError(f"its line has {len(fields) + 1} fields instead of six, as in {_SHAPE}")
    version, network, address, protocol, *rest = fields
    if version != str(APP_VERSION):
        raise HandshakeError(f"it speaks version {version!r} of cloudgraft's plugin protocol, we speak {APP_VERSION}")
    if protocol != "grpc":
        raise HandshakeError(f"it offers the protocol {protocol!r}: only 'grpc' is known")
    certificate = _certificate(rest[0]) if rest and rest[0] else None
    return Handshake(network=network, address=_address(network, address), certificate=certificate)


def _address(network: str, address: str) -> str:
    if network == "unix":
        if not address.startswith("/"):
            raise HandshakeError(f"its socket {address!r} is not an absolute path")
        return address
    if network != "tcp":
        raise HandshakeError(f"it listens on the network {network!r}: only 'unix' and 'tcp' are known")
    host, _, port = address.rpartition(":")
    if not (port.isdecimal() and 0 < int(port) < 65536):
        raise HandshakeError(f"its address {address!r} has no port: write it as 127.0.0.1:PORT")
    if not is_loopback_host(host):
        raise HandshakeError(f"it listens on {host!r}: a plugin must listen on loopback (127.0.0.1) only")
    return address


def _certificate(text: str) -> bytes:
    try:
        der = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        x509.load_der_x509_certificate(der)
    except (binascii.Error, ValueError) as error:
        raise HandshakeError(
            "the sixth field of its line is no certificate (DER in base64): leave it empty when "
            f"the plugin uses the files in {TLS_DIR}"
        ) from error
    return der
