"""Authenticates callers by tokens from a file, one per line, and reads it again when it changes."""

from __future__ import annotations

import hashlib
import hmac
import logging
from pathlib import Path
from typing import Final

from cloudgraft.certs.pem import Stamp, stamp
from cloudgraft.sdk.secrecy import SHORTEST_TOKEN, hide, unhide

_LOG = logging.getLogger("cloudgraft.tokens")
_MOST_BYTES: Final = 1 << 16


def bearer_of(authorization: bytes) -> bytes:
    """The token of an ``Authorization`` header; empty when it has none."""
    scheme, _, token = authorization.partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


class TokenFile:
    """The tokens of one caller. A missing file holds none; if a file cannot be read, the old ones stay valid."""

    def __init__(self, path: Path, *, owner: str) -> None:
        """``owner`` is the caller with these tokens, for the log. Nothing is read yet."""
        self.path = path
        self._owner = owner
        self._is_read = False
        self._seen: Stamp | None = None
        self._tokens: tuple[str, ...] = ()
        self._hashes: tuple[bytes, ...] = ()

    def __repr__(self) -> str:
        return f"TokenFile({str(self.path)!r})"

    @property
    def hashes(self) -> tuple[bytes, ...]:
        """The hashes of the tokens, for an index over many files: see :func:`token_hash`."""
        return self._hashes

    def holds(self, token: bytes) -> bool:
        """Whether this is one of them."""
        hashed = token_hash(token)
        # Compares with all of them, so that the time does not reveal which was nearly right.
        return sum(hmac.compare_digest(hashed, known) for known in self._hashes) > 0

    def look(self) -> bool:
        """Reads the file if it has changed. True when a token is no longer valid."""
        now = stamp(self.path)
        if self._is_read and now == self._seen:
            return False
        self._is_read, self._seen = True, now
        tokens = self._read()
        if tokens is None:
            return False
        lost = set(self._tokens) - set(tokens)
        hide(*tokens)
        unhide(*self._tokens)
        self._tokens, self._hashes = tokens, tuple(token_hash(token.encode()) for token in tokens)
        return bool(lost)

    def forget(self) -> None:
        """Forgets the tokens: no caller may use them any more."""
        unhide(*self._tokens)
        self._tokens, self._hashes = (), ()

    def _read(self) -> tuple[str, ...] | None:
        try:
            with self.path.open("rb") as stream:
                lines = stream.read(_MOST_BYTES).split()
        except FileNotFoundError:
            lines = []
        except OSError as error:
            self._warn("the tokens of a caller cannot be read: %s", error.strerror or type(error).__name__)
            return None
        good = [line.decode() for line in lines if len(line) >= SHORTEST_TOKEN and line.isascii()]
        if not lines:
            self._warn("%s", "there is no token in the file: no caller can authenticate")
        elif len(good) < len(lines):
            self._warn("a token has fewer than %d characters, or odd ones: it is not taken", SHORTEST_TOKEN)
        return tuple(dict.fromkeys(good))

    def _warn(self, message: str, argument: object) -> None:
        _LOG.warning(message, argument, extra={"caller": self._owner, "file": str(self.path)})


def token_hash(token: bytes) -> bytes:
    """The hash of a token, which is kept and compared instead of it."""
    return hashlib.sha256(token).digest()
