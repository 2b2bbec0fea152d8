"""Imports pyVmomi: its untyped types, and its transport with the limits that it lacks."""

from __future__ import annotations

import http.client
import importlib
import ssl
from typing import Any, Final, TypeAlias

from cloudgraft.drivers.common.secrets import trusting
from cloudgraft.drivers.common.urllib3_calls import LimitedResponse
from cloudgraft.drivers.vsphere.options import VsphereOptions

# -- types -------------------------------------------------------------------------------------------------------------
# pyVmomi makes its types when they are first used, so no type checker can know them.

_library: Any = importlib.import_module("pyVmomi")
vim: Any = _library.vim
vmodl: Any = _library.vmodl
StubAdapter: Any = _library.SoapStubAdapter
Reference: TypeAlias = Any  # to a managed object: calling its methods calls vCenter
Data: TypeAlias = Any  # a data object of the API, or a value in one


# -- transport ---------------------------------------------------------------------------------------------------------
# pyVmomi's own transport lacks two timeouts, and an error for a request that was never sent. Threads may share the
# adapter: it has a pool of connections behind a lock, and one thread at a time uses a connection. It never retries.

_VERSION: Final = "vim.version.version12"  # the API of vSphere 6.7, which newer ones support too
_CONNECTIONS: Final = 8  # that stay open: as many as there are threads
_IDLE: Final = 20  # seconds; less than a vCenter waits before it closes an idle connection


class NotConnectedError(OSError):
    """There is no connection, so nothing was sent."""


class Transport(StubAdapter):  # type: ignore[misc]  # pyVmomi has no types for it
    """Sends requests to one vCenter."""

    def __init__(self, options: VsphereOptions, context: ssl.SSLContext) -> None:
        host, port = options.address()
        super().__init__(
            host=host,
            port=port,
            version=_VERSION,
            poolSize=_CONNECTIONS,
            connectionPoolTimeout=_IDLE,
            sslContext=context,
            httpConnectionTimeout=options.connect_timeout.total_seconds(),
        )
        self._seconds = options.timeout.total_seconds()

    def GetConnection(self) -> http.client.HTTPConnection:  # noqa: N802 - pyVmomi's name
        """Returns an open connection with the timeout for responses."""
        try:
            connection: http.client.HTTPConnection = super().GetConnection()
            if connection.sock is None:  # the previous response has closed it
                connection.connect()
        except OSError as error:
            raise NotConnectedError(_text(error)) from error
        connection.sock.settimeout(self._seconds)
        connection.response_class = LimitedResponse  # else a byte now and then would hold a thread for ever
        return connection

    def forget_session(self) -> None:
        """Makes the next request without a session."""
        self.SetSessionId(None)

    def close(self) -> None:
        """Closes idle connections."""
        self.DropConnections()


def _text(error: OSError) -> str:
    text = error.strerror or str(error) or type(error).__name__
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{text} ({error.verify_message}); name the authority that signed it in caFile"
    return text


def tls_context(options: VsphereOptions) -> ssl.SSLContext:
    """Returns the TLS context for a vCenter; raises PreconditionError when caFile cannot be used."""
    context = trusting(options.ca_file)
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
