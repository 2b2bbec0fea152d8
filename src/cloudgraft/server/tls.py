"""Reloads server certificates when their files change, without dropping a connection.

gRPC fetches the certificate for each new connection; existing connections keep theirs. Files that do not match, for
example during a rotation, are not used: the old certificate stays until they do.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from pathlib import Path

import grpc

from cloudgraft.certs.pem import TlsMaterial, load_tls, stamp
from cloudgraft.sdk.errors import CloudgraftError

log = logging.getLogger("cloudgraft.server")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFiles:
    """The paths of the server's certificate, its key and the CA of its clients (PEM)."""

    cert: Path
    key: Path
    client_ca: Path | None = None  # None: clients authenticate by token alone


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles(ServerFiles):
    """The same for mTLS: each client has a certificate."""

    client_ca: Path


class ReloadingCredentials:
    """Credentials for a gRPC server that follow their files."""

    def __init__(self, files: ServerFiles) -> None:
        """Reads the files; raises an error that names the file when they cannot be used."""
        self._files = files
        self._paths = [path for path in (files.cert, files.key, files.client_ca) if path is not None]
        self._lock = threading.Lock()
        self._seen = stamp(*self._paths)
        self._loaded = self._load()
        self._given = self._loaded  # what gRPC got last

    @property
    def expires(self) -> float:
        """When the certificate of the next connection expires, in seconds since the epoch."""
        self.reload()
        return self._loaded.expires

    @property
    def material(self) -> TlsMaterial:
        """The certificate, key and CA that were read last."""
        return self._loaded

    def server_credentials(self) -> grpc.ServerCredentials:
        """The credentials for a gRPC listener. With a CA, the handshake fails for a client without its certificate."""
        return grpc.dynamic_ssl_server_credentials(
            _configuration(self._loaded),
            self._fetch,  # type: ignore[arg-type]  # None is "no change", which the stubs do not know
            require_client_authentication=self._files.client_ca is not None,
        )

    def reload(self) -> bool:
        """Reads the files again if they have changed; returns whether there is a new certificate."""
        with self._lock:
            now = stamp(*self._paths)
            if now == self._seen:
                return False
            self._seen = now  # also when they cannot be used: that is logged once, not at every connection
            try:
                self._loaded = self._load()
            except CloudgraftError as error:
                log.warning("new TLS files cannot be used, the old ones stay", extra={"error": str(error)})
                return False
            log.info("TLS files read again", extra={"cert": str(self._paths[0])})
            return True

    def _load(self) -> TlsMaterial:
        return load_tls(self._files.cert, self._files.key, self._files.client_ca)

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        # gRPC calls this in its own thread, before each handshake. An exception here would refuse the client.
        self.reload()
        loaded = self._loaded
        if loaded is self._given:
            return None
        self._given = loaded
        return _configuration(loaded)


def _configuration(loaded: TlsMaterial) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(loaded.key, loaded.cert)], root_certificates=loaded.ca)
