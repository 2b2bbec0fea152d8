"""Images with user data, in a directory that a web server of the user's publishes to the controllers.

They hold secrets. So nobody but the owner and the group of the directory may read them here, and their names cannot be
guessed by whoever reaches the web server. An image is removed when its machine is told to switch off.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import Final

from cloudgraft.drivers.common.seed_iso import seed_iso
from cloudgraft.sdk.errors import InvalidArgumentError, PreconditionError

__all__ = ["Seeds"]

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")
_TOKEN: Final = 16  # bytes of chance in a name
_MODE: Final = 0o640  # its web server reads it by the group, which a directory with setgid hands on


class Seeds:
    """The directory. Its methods block."""

    def __init__(self, directory: Path, url: str) -> None:
        self._directory = directory
        self._url = url.rstrip("/")

    def check(self) -> None:
        """Raises PreconditionError when nothing can be put there."""
        if not self._directory.is_dir() or not os.access(self._directory, os.W_OK | os.X_OK):
            raise PreconditionError(f"seedDirectory: {self._directory} is no directory that can be written")

    def expect_name(self, name: str) -> None:
        """Raises InvalidArgumentError when no image can be named after the machine."""
        if not _NAME.fullmatch(name):
            raise InvalidArgumentError(f"the name {name!r} cannot be the name of a file")

    def put(self, name: str, user_data: str) -> str:
        """Writes the image for one machine, in the place of an older one, and tells where controllers find it."""
        self.expect_name(name)
        self.remove(name)
        file = self._directory / f"{name}.{secrets.token_hex(_TOKEN)}.iso"
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(seed_iso(name=name, user_data=user_data))
                os.fchmod(descriptor, _MODE)
        except OSError as error:
            raise PreconditionError(f"seedDirectory: cannot write to {self._directory}: {error.strerror}") from None
        return f"{self._url}/{file.name}"

    def remove(self, name: str) -> None:
        """Removes all images of one machine; there may be none."""
        if not _NAME.fullmatch(name):
            return  # it never had one
        pattern = f"{name}.{'[0-9a-f]' * (2 * _TOKEN)}.iso"
        try:
            for file in self._directory.glob(pattern):
                file.unlink(missing_ok=True)
        except OSError as error:
            raise PreconditionError(f"seedDirectory: cannot remove from {self._directory}: {error.strerror}") from None
