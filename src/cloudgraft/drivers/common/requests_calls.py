"""Limits what requests reads, and maps its failures to our errors: see :mod:`.urllib3_calls`."""

from __future__ import annotations

import ssl
import weakref
from collections.abc import Iterator
from typing import Any, Final

import requests
from requests.adapters import HTTPAdapter

from cloudgraft.drivers.common.urllib3_calls import LARGEST_ANSWER, POOLS, root_cause, was_never_sent
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, InternalError, UnavailableError

# -- limits ------------------------------------------------------------------------------------------------------------


def limit_answers(session: requests.Session) -> None:
    """Makes the read timeout of this session apply to the whole response."""
    for prefix in ("https://", "http://"):
        session.mount(prefix, LimitedAdapter())


class LimitedAdapter(HTTPAdapter):
    """Sends requests whose read timeout applies to the whole response."""

    def init_poolmanager(self, *args: Any, **more: Any) -> None:
        """Uses connections with that timeout."""
        super().init_poolmanager(*args, **more)
        self.poolmanager.pool_classes_by_scheme = POOLS

    def build_response(self, req: requests.PreparedRequest, resp: Any) -> requests.Response:
        """Limits the decompressed size: a few bytes may expand to gigabytes."""
        read, itself = type(resp).stream, weakref.ref(resp)  # weak: its connection must close with its last user
        resp.stream = lambda *args, **more: _unpacked(read(itself(), *args, **more))
        return super().build_response(req, resp)

    def proxy_manager_for(self, *args: Any, **more: Any) -> Any:
        """Uses such connections through a proxy too."""
        manager = super().proxy_manager_for(*args, **more)
        manager.pool_classes_by_scheme = POOLS
        return manager


def _unpacked(pieces: Iterator[bytes]) -> Iterator[bytes]:
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > LARGEST_ANSWER:
            raise InternalError(f"an answer of the cloud has more than {LARGEST_ANSWER >> 20} MiB, unpacked")
        yield piece


# -- failures ----------------------------------------------------------------------------------------------------------

_TLS: Final = "; look at its certificate, and at the option that names the CA"
_PROXY: Final = "; it went through a proxy: see HTTPS_PROXY and NO_PROXY of the environment"


def error_of_request(error: requests.RequestException, what: str, *, is_change: bool) -> CloudgraftError:
    """Returns the exception for a request without a response.

    A change whose request was sent, or may have been, has an unknown outcome; any other failure did nothing.
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
