"""Failures of the library requests, on which many a cloud's own library stands."""

from __future__ import annotations

import ssl
from typing import Final

import requests
from urllib3.exceptions import ConnectTimeoutError, HTTPError, MaxRetryError, NewConnectionError, ProxyError

from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, UnavailableError

__all__ = ["error_of_request"]

# Nothing was sent yet. Another trouble with TLS may come at any time.
_BEFORE: Final = (NewConnectionError, ConnectTimeoutError, ProxyError, ssl.SSLCertVerificationError)
_TLS: Final = "; look at its certificate, and at the option that names the CA"


def error_of_request(error: requests.RequestException, what: str, *, is_change: bool) -> CloudgraftError:
    """What to raise for a request that got no answer.

    A change whose request was sent, or may have been, has an unknown outcome; whatever else failed did nothing.
    """
    cause = _cause(error)
    why = f"{what}: {type(cause).__name__}: {cause}"
    if isinstance(cause, _BEFORE):
        hint = _TLS if isinstance(cause, ssl.SSLCertVerificationError) else ""
        return UnavailableError(f"{why}{hint}. Nothing was done")
    if is_change:
        return DeadlineError(f"{why}; whether it was done is not known")
    return UnavailableError(why)


def _cause(error: requests.RequestException) -> BaseException:
    """What urllib3 said, in the place of what was wrapped around it."""
    cause: BaseException = error
    while True:
        inner = cause.reason if isinstance(cause, MaxRetryError) else next(iter(cause.args), None)
        if not isinstance(inner, (HTTPError, OSError)):
            return cause
        cause = inner
