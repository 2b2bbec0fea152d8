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
# The one place where pyVmomi is taken in: its types are made when they are first used, so nothing can check them.

_library: Any = importlib.import_module("pyVmomi")
vim: Any = _library.vim
vmodl: Any = _library.vmodl
StubAdapter: Any = _library.SoapStubAdapter
Reference: TypeAlias = Any  # to a managed object: what is asked of it is asked of vCenter
Data: TypeAlias = Any  # a data object of the API, or a value in one


# -- transport ---------------------------------------------------------------------------------------------------------
# pyVmomi's own transport with what it lacks: two timeouts, and an error of its own for what was never sent. The adapter
# is safe to share: it keeps a pool of connections behind a lock, and a request is made and read on one of them by one
# thread. It tries nothing again by itself.

_VERSION: Final = "vim.version.version12"  # the API of vSphere 6.7: whatever is newer speaks it too
_CONNECTIONS: Final = 8  # that are kept open: as many as there are threads
_IDLE: Final = 20  # seconds; a vCenter closes them after more than that, and must not do so under a request


class NotConnectedError(OSError):
    """There is no connection, so nothing was sent."""


class Transport(StubAdapter):  # type: ignore[misc]  # pyVmomi has no types for it
    """Requests to one vCenter."""

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
        """A connection that is open, with the timeout for answers."""
        try:
            connection: http.client.HTTPConnection = super().GetConnection()
            if connection.sock is None:  # the answer before this request has closed it
                connection.connect()
        except OSError as error:
            raise NotConnectedError(*_told(error)) from error
        connection.sock.settimeout(self._seconds)
        connection.response_class = LimitedResponse  # else a byte now and then would hold a thread for ever
        return connection

    def forget_session(self) -> None:
        """The next request is made without a session."""
        self.SetSessionId(None)

    def close(self) -> None:
        """Closes what is open and idle."""
        self.DropConnections()


def _told(error: OSError) -> tuple[object, ...]:
    text = error.strerror or str(error) or type(error).__name__
    hint = ""
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = f" ({error.verify_message}); name the authority that signed it in caFile"
    return (f"{text}{hint}",)


def tls_context(options: VsphereOptions) -> ssl.SSLContext:
    """Returns the TLS context for a vCenter; raises PreconditionError when caFile cannot be used."""
    context = trusting(options.ca_file)
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
