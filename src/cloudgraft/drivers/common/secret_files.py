"""Secrets in files: read again when the file changes, and hidden from every log and error before they are used."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cloudgraft.sdk.errors import CloudgraftError, PreconditionError
from cloudgraft.sdk.secrecy import hide

__all__ = ["SecretFile", "Stamp", "stamp"]

log: Final = logging.getLogger("cloudgraft.drivers")

Stamp = tuple[tuple[int, int, int], ...]


def stamp(*paths: Path) -> Stamp | None:
    """Something that changes when one of the files does; None while one cannot be looked at."""
    try:
        stats = [path.stat() for path in paths]
    except OSError:
        return None
    return tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats)


@dataclass(slots=True, kw_only=True)
class SecretFile:
    """One secret; white space around it is not part of it."""

    path: Path
    option: str  # in which its path is given, for messages
    shortest: int = 1  # characters
    _seen: Stamp | None = field(default=None, init=False, repr=False)
    _value: str = field(default="", init=False, repr=False)

    def read(self) -> str:
        """The secret; raises PreconditionError that names the file, and nothing of what is in it.

        Once it could be read, what cannot is told of in the log, and the old one stays: a file that is being replaced
        must not stop a cloud.
        """
        now = stamp(self.path)
        if self._value and now == self._seen:
            return self._value
        try:
            value = self._checked(self._text())
        except CloudgraftError as error:
            if not self._value:
                raise
            log.warning("a new secret cannot be used, the old one stays", extra={"error": str(error)})
        else:
            hide(value)
            self._value = value
        self._seen = now
        return self._value

    def _text(self) -> str:
        try:
            return self.path.read_text("utf-8").strip()
        except FileNotFoundError:
            raise PreconditionError(f"{self.option}: {self.path} does not exist") from None
        except UnicodeDecodeError:
            raise PreconditionError(f"{self.option}: {self.path} is not text") from None
        except OSError as error:
            raise PreconditionError(f"{self.option}: cannot read {self.path}: {error.strerror}") from None

    def _checked(self, text: str) -> str:
        if not text.isascii() or not text.isprintable():
            raise PreconditionError(
                f"{self.option}: {self.path} must hold one line of plain text; encode what is binary, as base64 does"
            )
        if len(text) < self.shortest:
            raise PreconditionError(
                f"{self.option}: what is in {self.path} is too short: at least {self.shortest} characters are needed"
            )
        return text
