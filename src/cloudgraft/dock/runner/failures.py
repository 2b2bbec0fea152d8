"""Why there is no connection, and what to do about it: gRPC's own words name no file and no option."""

from __future__ import annotations

from typing import Final

import grpc
import grpc.aio

__all__ = ["why"]

_ADVICE: Final = (
    ("Hostname Verification Check failed", "the hub's certificate is for another name: give server_name, or dial that"),
    ("CERTIFICATE_VERIFY_FAILED", "tls.ca is not who signed the hub's certificate, or the certificate has expired"),
    ("WRONG_VERSION_NUMBER", "what listens there does not speak TLS: leave tls out, or give the hub a certificate"),
)
_CLOSED: Final = "Socket closed"  # all that is left of a handshake that the hub has refused
_REFUSED: Final = {
    True: "the hub may have refused the certificate: give cert and key that its clientCA has signed",
    False: "the hub may speak TLS: give tls",
}
_UNKNOWN: Final = "the hub does not know this driver: see its `drivers`, and the token or certificate here"


def why(error: grpc.aio.AioRpcError, *, is_encrypted: bool) -> str:
    """What gRPC says, with advice where it is known what helps."""
    code = error.code()
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return "what listens there does not speak this version of the protocol"
    text = error.details() or "no reason was given"
    advice = next((advice for words, advice in _ADVICE if words in text), "")
    if not advice and _CLOSED in text:
        advice = _REFUSED[is_encrypted]
    if code is grpc.StatusCode.UNAUTHENTICATED:
        advice = _UNKNOWN
    return f"{code.name}: {text}{advice and f' ({advice})'}"
