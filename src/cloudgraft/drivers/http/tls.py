"""Our side of TLS: the authority to trust and our own certificate, kept in step with their files."""

from __future__ import annotations

import logging
import ssl
from typing import Final

from cloudgraft.drivers.common.secret_files import Stamp, stamp
from cloudgraft.drivers.http.options import Options
from cloudgraft.sdk.errors import CloudgraftError, PreconditionError

__all__ = ["Tls"]

log: Final = logging.getLogger("cloudgraft.drivers.http")


class Tls:
    """What connections are made with. New files are used for new connections; those that are open go on."""

    def __init__(self, options: Options) -> None:
        self._options = options
        files = (options.ca_file, options.cert_file, options.key_file)
        self._paths = tuple(path for path in files if path is not None)
        self._seen: Stamp | None = None
        self._context: ssl.SSLContext | None = None

    def current(self) -> ssl.SSLContext:
        """The same object until the files change.

        Raises PreconditionError when the files cannot be used. Once they could, new ones that cannot are told of in
        the log, and the old ones stay: half a rotation must not stop a cloud.
        """
        now = stamp(*self._paths)
        if self._context is not None and now == self._seen:
            return self._context
        try:
            self._context = self._load()
        except CloudgraftError as error:
            if self._context is None:
                raise
            log.warning("new TLS files cannot be used, the old ones stay", extra={"error": str(error)})
        self._seen = now
        return self._context

    def _load(self) -> ssl.SSLContext:
        context = self._trusting()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        cert, key = self._options.cert_file, self._options.key_file
        if cert is not None and key is not None:
            try:
                context.load_cert_chain(cert, key, password=_no_passphrase)
            except ssl.SSLError:
                # Without its cause: nothing about the content of a key belongs into a message.
                raise PreconditionError(
                    f"certFile {cert} and keyFile {key} are not a PEM certificate and its key"
                ) from None
            except OSError as error:
                raise PreconditionError(f"certFile {cert} or keyFile {key}: {error.strerror}") from None
        return context

    def _trusting(self) -> ssl.SSLContext:
        ca = self._options.ca_file
        try:
            return ssl.create_default_context(cafile=ca)
        except ssl.SSLError:
            raise PreconditionError(f"caFile {ca} holds no PEM certificate") from None
        except OSError as error:
            raise PreconditionError(f"caFile {ca}: {error.strerror}") from None


def _no_passphrase() -> str:
    """Called for a key that has one. OpenSSL would ask for it on the terminal."""
    raise PreconditionError("keyFile is protected by a passphrase: store it without one, mode 0600")
