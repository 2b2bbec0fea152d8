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

from cloudgraft.certs.pem import TlsMaterial, load_tls, stamp
from cloudgraft.sdk.errors import CloudgraftError

__all__ = ["ReloadingCredentials", "TlsFiles"]

log = logging.getLogger("cloudgraft.server")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Where the server's certificate, its key and the authority of its clients are found (PEM)."""

    cert: Path
    key: Path
    client_ca: Path


class ReloadingCredentials:
    """mTLS credentials for a gRPC server, kept in step with their files."""

    def __init__(self, files: TlsFiles) -> None:
        """Reads the files; raises an error that names the file when they cannot be used."""
        self._paths = (files.cert, files.key, files.client_ca)
        self._lock = threading.Lock()
        self._seen = stamp(*self._paths)
        self._loaded = load_tls(*self._paths)
        self._given = self._loaded  # what gRPC was last given

    @property
    def expires(self) -> float:
        """When the certificate ends that the next connection gets, in seconds since the epoch."""
        self.reload()
        return self._loaded.expires

    @property
    def material(self) -> TlsMaterial:
        """What was read last."""
        return self._loaded

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
            now = stamp(*self._paths)
            if now == self._seen:
                return False
            self._seen = now  # also when they cannot be used: that is told once, not at every connection
            try:
                self._loaded = load_tls(*self._paths)
            except CloudgraftError as error:
                log.warning("new TLS files cannot be used, the old ones stay", extra={"error": str(error)})
                return False
            log.info("TLS files read again", extra={"cert": str(self._paths[0])})
            return True

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        # Called by gRPC in a thread of its own, before each handshake. An exception here would refuse the client.
        self.reload()
        loaded = self._loaded
        if loaded is self._given:
            return None
        self._given = loaded
        return _configuration(loaded)


def _configuration(loaded: TlsMaterial) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(loaded.key, loaded.cert)], root_certificates=loaded.ca)
