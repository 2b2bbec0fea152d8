"""What it means when no answer came: whether the call was sent, and why it was not, in words that help."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Final

import httpx2

from cloudgraft.sdk.errors import AuthenticationError, CloudgraftError, DeadlineError, UnavailableError

__all__ = ["failure"]

# OpenSSL's numbers for what is wrong with the other side's certificate.
_NOT_YET, _EXPIRED, _OTHER_HOST, _OTHER_ADDRESS = 9, 10, 62, 64
_NOT_TRUSTED: Final = frozenset({18, 19, 20, 21})
# What the other side says of our certificate, in the names of OpenSSL.
_ABOUT_OURS: Final = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "DECRYPT_ERROR")


def failure(what: str, error: Exception, *, is_change: bool, was_sent: bool) -> CloudgraftError:
    """The error to raise; ``what`` says which call it was.

    Once a part of it was sent, nobody knows what the other side got.
    """
    if trouble := _tls_trouble(error, was_sent=was_sent):
        return trouble(what)
    told = str(error) or type(error).__name__
    is_late = isinstance(error, TimeoutError | httpx2.TimeoutException)
    if not was_sent:
        why = "no connection in time (connectTimeout)" if is_late else told
        return UnavailableError(f"{what}: the receiver cannot be reached: {why}")
    if is_late:
        return DeadlineError(f"{what}: no answer from the receiver in time{_open(is_change)}")
    message = f"{what}: the connection broke before there was a whole answer ({told})"
    return DeadlineError(f"{message}{_open(is_change)}") if is_change else UnavailableError(message)


def _open(is_change: bool) -> str:  # noqa: FBT001 - one word of a sentence
    return "; whether it was done is not known" if is_change else ""


class _Trouble:
    """Something about certificates, for which nothing was done."""

    def __init__(self, kind: type[CloudgraftError], words: str) -> None:
        self._kind = kind
        self._words = words

    def __call__(self, what: str) -> CloudgraftError:
        return self._kind(f"{what}: {self._words}")


def _tls_trouble(error: Exception, *, was_sent: bool) -> _Trouble | None:
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _Trouble(UnavailableError, _about_theirs(cause))
        if isinstance(cause, ssl.SSLError) and "ALERT" in (cause.reason or ""):
            return _alert(cause.reason, was_sent=was_sent)
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    here: BaseException | None = error
    while here is not None and id(here) not in seen:
        seen.add(id(here))
        yield here
        here = here.__cause__ or here.__context__


def _about_theirs(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code == _EXPIRED:
        return "the receiver's certificate has expired: renew it there"
    if error.verify_code == _NOT_YET:
        return "the receiver's certificate does not hold yet: are both clocks right?"
    if error.verify_code in (_OTHER_HOST, _OTHER_ADDRESS):
        return (
            f"the receiver's certificate is for another host ({error.verify_message}): put the name that it is for "
            "into `url`, or get a certificate for this one"
        )
    if error.verify_code in _NOT_TRUSTED:
        return (
            f"the receiver's certificate was signed by nobody that is trusted here ({error.verify_message}): give its "
            "authority as caFile"
        )
    return f"the receiver's certificate cannot be trusted: {error.verify_message}"


def _alert(reason: str, *, was_sent: bool) -> _Trouble | None:
    """The other side ended TLS, and said why. In TLS 1.3 that may come when our request is already on its way."""
    if any(word in reason for word in _ABOUT_OURS):
        words = reason.rpartition("ALERT_")[2].replace("_", " ").lower()
        return _Trouble(
            AuthenticationError,
            f"the receiver does not accept our certificate ({words}): give one that it knows as certFile and keyFile",
        )
    if was_sent:
        return None
    hint = "perhaps it asks for a certificate of ours: see certFile and keyFile"
    return _Trouble(UnavailableError, f"the receiver broke off the TLS handshake ({reason}); {hint}")
