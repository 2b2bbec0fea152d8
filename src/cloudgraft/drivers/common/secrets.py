"""Reads secrets and certificates from files, and keeps secrets and user data out of logs and messages."""

from __future__ import annotations

import base64
import json
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, TypeVar

from cloudgraft.sdk.errors import CloudgraftError, PreconditionError
from cloudgraft.sdk.secrecy import hide, redacted

# -- files that change -------------------------------------------------------------------------------------------------

log: Final = logging.getLogger("cloudgraft.drivers")

T = TypeVar("T")
Stamp = tuple[tuple[int, int, int], ...]


def stamp(*paths: Path) -> Stamp | None:
    """Returns a value that changes when one of the files does; None while one cannot be read."""
    try:
        stats = [path.stat() for path in paths]
    except OSError:
        return None
    return tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats)


class Reloaded(Generic[T]):
    """The content of files, loaded again when they change.

    After the first success, files that cannot be used are only logged, once for each change, and the old content stays:
    a file that is being replaced must not stop a cloud.
    """

    def __init__(self, load: Callable[[], T], *paths: Path, warning: str) -> None:
        self._load = load
        self._paths = paths
        self._warning = warning
        self._seen: Stamp | None = None
        self._content: T | None = None

    def current(self) -> T:
        """Returns the same object until a file changes. Raises the error of a first load that fails."""
        now = stamp(*self._paths)
        if self._content is not None and now == self._seen:
            return self._content
        try:
            self._content = self._load()
        except CloudgraftError as error:
            if self._content is None:
                raise
            log.warning(self._warning, extra={"error": str(error)})
        self._seen = now
        return self._content


def trusting(ca: Path | None) -> ssl.SSLContext:
    """Returns a TLS context that trusts this CA; None: the CAs that the system trusts. Its messages name ``caFile``."""
    try:
        return ssl.create_default_context(cafile=ca)
    except ssl.SSLError:
        raise PreconditionError(f"caFile {ca} holds no PEM certificate") from None
    except OSError as error:
        raise PreconditionError(f"caFile {ca}: {error.strerror}") from None


@dataclass(slots=True, kw_only=True)
class SecretFile:
    """One secret; white space around it is not part of it. It is hidden from every log and error before it is used."""

    path: Path
    option: str  # that holds its path, for messages
    shortest: int = 1  # characters
    _content: Reloaded[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Reads nothing yet."""
        self._content = Reloaded(self._load, self.path, warning="a new secret cannot be used, the old one stays")

    def read(self) -> str:
        """Returns the secret; raises PreconditionError that names the file, and nothing of its content."""
        return self._content.current()

    def _load(self) -> str:
        secret = self._checked(self._text())
        hide(secret)
        return secret

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


# -- user data in messages ---------------------------------------------------------------------------------------------
# User data holds secrets, and clouds quote it: its lines are removed from every message (law 9).

CUT: Final = "…"  # where a message was cut
_SHORTEST: Final = 6  # characters of a line that is hidden
_MASK: Final = "[user data]"


def cut(text: str, longest: int) -> str:
    """Shortens a text to ``longest`` characters, and marks the cut for :func:`without`.

    It redacts secrets before: half a secret would not be recognized.
    """
    text = redacted(text)
    return text if len(text) <= longest else text[: longest - len(CUT)] + CUT


def without(text: str, user_data: str) -> str:
    """Returns the text without lines of the user data: as they are, as JSON writes them, and cut ones.

    It also removes the user data in base64, as many clouds receive it.
    """
    lines = {line.strip() for line in user_data.splitlines()}
    forms = lines | {json.dumps(line, ensure_ascii=ascii_)[1:-1] for line in lines for ascii_ in (True, False)}
    forms.add(base64.b64encode(user_data.encode("utf-8", "replace")).decode())
    for line in sorted(forms, key=len, reverse=True):
        if len(line) >= _SHORTEST:
            text = _without_cut(text.replace(line, _MASK), line)
    return text


def error_without(error: CloudgraftError, user_data: str) -> CloudgraftError:
    """Returns the same error without lines of the user data in its message."""
    message = without(error.message, user_data)
    return error if message == error.message else type(error)(message, retry_after=error.retry_after)


def _without_cut(text: str, line: str) -> str:
    if CUT not in text:
        return text
    for length in range(min(len(line) - 1, len(text)), _SHORTEST - 1, -1):
        text = text.replace(line[:length] + CUT, _MASK + CUT).replace(CUT + line[-length:], CUT + _MASK)
    return text
