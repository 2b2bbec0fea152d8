"""Failures of the library urllib3, on which those of many a cloud stand: whether anything was sent before one."""

from __future__ import annotations

import ssl
from typing import Final

from urllib3.exceptions import ConnectTimeoutError, HTTPError, MaxRetryError, NewConnectionError, ProxyError

__all__ = ["root_cause", "was_never_sent"]

# Another trouble with TLS may come at any time. So may a ProxyError: urllib3 calls every connection that broke so, when
# it led through a proxy, even after the request was sent. What is behind it tells.
_BEFORE: Final = (NewConnectionError, ConnectTimeoutError, ssl.SSLCertVerificationError)
_NO_TUNNEL: Final = "Tunnel connection failed"  # how http.client begins, when a proxy refuses to CONNECT


def root_cause(error: BaseException) -> BaseException:
    """What happened, in the place of what was wrapped around it."""
    cause = error
    while True:
        inner = _inner(cause)
        if not isinstance(inner, (HTTPError, OSError)):
            return cause
        cause = inner


def was_never_sent(cause: BaseException) -> bool:
    """Whether it is certain that nothing of the request left this machine. ``cause`` is of :func:`root_cause`."""
    return isinstance(cause, _BEFORE) or (isinstance(cause, OSError) and str(cause).startswith(_NO_TUNNEL))


def _inner(cause: BaseException) -> object:
    if isinstance(cause, MaxRetryError):
        return cause.reason
    if isinstance(cause, ProxyError):
        return cause.original_error
    return next(iter(cause.args), None)
