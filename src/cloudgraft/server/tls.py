"""Server certificates that are read again when their files change, without dropping a connection.

gRPC asks for the certificate at each new connection; connections that exist keep the one they began with. A pair of
files that does not fit together (a rotation that is half done, say) is not used: the old one stays until it does.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from cloudgraft.sdk.errors import InvalidArgumentError

log = logging.getLogger("cloudgraft.server")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Where the server's certificate, its key and the authority of its clients are found (PEM)."""

    cert: Path
    key: Path
    client_ca: Path


@dataclass(frozen=True, slots=True)
class _Loaded:
    stamp: tuple[tuple[int, int, int], ...]
    cert: bytes
    key: bytes
    client_ca: bytes
    expires: float  # seconds since the epoch


class ReloadingCredentials:
    """mTLS credentials for a gRPC server, kept in step with their files."""

    def __init__(self, files: TlsFiles) -> None:
        """Reads the files; raises InvalidArgumentError when they cannot be used."""
        self._files = files
        self._lock = threading.Lock()
        self._loaded = _load(files)
        self._refused: tuple[tuple[int, int, int], ...] | None = None

    @property
    def expires(self) -> float:
        """When the certificate in use ends, in seconds since the epoch."""
        return self._loaded.expires

    def server_credentials(self) -> grpc.ServerCredentials:
        """What a gRPC listener takes; a client without a certificate of the authority fails in the handshake."""
        return grpc.dynamic_ssl_server_credentials(
            _configuration(self._loaded),
            self._fetch,  # type: ignore[arg-type]  # None is "no change", which the stubs do not know
            require_client_authentication=True,
        )

    def reload(self) -> bool:
        """Reads the files again if they have changed; True when there is a new certificate now."""
        with self._lock:
            try:
                stamp = _stamp(self._files)
                if stamp in (self._loaded.stamp, self._refused):
                    return False
                self._loaded = _load(self._files)
            except (OSError, InvalidArgumentError) as error:
                self._refused = _stamp_or_none(self._files)
                log.warning("new TLS files cannot be used, the old ones stay", extra={"error": str(error)})
                return False
            log.info("TLS files read again", extra={"cert": str(self._files.cert)})
            return True

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        # Called by gRPC in a thread of its own, before each handshake. An exception here would refuse the client.
        return _configuration(self._loaded) if self.reload() else None


def _configuration(loaded: _Loaded) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(loaded.key, loaded.cert)], root_certificates=loaded.client_ca)


def _load(files: TlsFiles) -> _Loaded:
    try:
        stamp = _stamp(files)
        cert, key, client_ca = files.cert.read_bytes(), files.key.read_bytes(), files.client_ca.read_bytes()
    except OSError as error:
        raise InvalidArgumentError(f"cannot read the TLS file {error.filename}: {error.strerror}") from error
    leaf = _parse(files.cert, cert)
    _parse(files.client_ca, client_ca)
    try:
        private = load_pem_private_key(key, password=None)
    except (ValueError, TypeError) as error:
        # The library's own message may quote the file; it holds a key.
        raise InvalidArgumentError(f"{files.key} is not an unencrypted private key in PEM form") from error
    if _public(leaf.public_key()) != _public(private.public_key()):
        raise InvalidArgumentError(f"the key {files.key} does not belong to the certificate {files.cert}")
    return _Loaded(stamp, cert, key, client_ca, leaf.not_valid_after_utc.timestamp())


def _parse(path: Path, pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificates(pem)[0]
    except (ValueError, IndexError) as error:
        raise InvalidArgumentError(f"{path} holds no certificate in PEM form") from error


def _public(key: object) -> bytes:
    encoded: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined]
    return encoded


def _stamp(files: TlsFiles) -> tuple[tuple[int, int, int], ...]:
    # The inode too: a rotation by rename may keep time and size. Symbolic links are followed, as Kubernetes needs it.
    stats = [path.stat() for path in (files.cert, files.key, files.client_ca)]
    return tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats)


def _stamp_or_none(files: TlsFiles) -> tuple[tuple[int, int, int], ...] | None:
    try:
        return _stamp(files)
    except OSError:
        return None
