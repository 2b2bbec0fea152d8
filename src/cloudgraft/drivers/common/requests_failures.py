"""Failures of the library requests, on which many a cloud's own library stands."""

from __future__ import annotations

import ssl
from typing import Final

import requests

from cloudgraft.drivers.common.urllib3_failures import root_cause, was_never_sent
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, UnavailableError

__all__ = ["error_of_request"]

_TLS: Final = "; look at its certificate, and at the option that names the CA"
_PROXY: Final = "; it went through a proxy: see HTTPS_PROXY and NO_PROXY of the environment"


def error_of_request(error: requests.RequestException, what: str, *, is_change: bool) -> CloudgraftError:
    """What to raise for a request that got no answer.

    A change whose request was sent, or may have been, has an unknown outcome; whatever else failed did nothing.
    """
    cause = root_cause(error)
    hint = _TLS if isinstance(cause, ssl.SSLCertVerificationError) else ""
    hint += _PROXY if isinstance(error, requests.exceptions.ProxyError) else ""
    why = f"{what}: {type(cause).__name__}: {cause}{hint}"
    if was_never_sent(cause):
        return UnavailableError(f"{why}. Nothing was done")
    if is_change:
        return DeadlineError(f"{why}; whether it was done is not known")
    return UnavailableError(why)
