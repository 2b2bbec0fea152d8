"""Manages one connection to a host for all threads: libvirt allows them to share it.

It opens at first use, and again after it broke. A separate thread opens it, so that a host that does not answer delays
no caller for longer than ``connect_timeout``. Both sides send keepalives: without them a call to a dead host would
never end.

It is never closed explicitly, only released: it ends with the last call that uses it. If it were closed during a call,
libvirt would read freed memory and crash the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import libvirt

from cloudgraft.drivers.common.secrets import SecretFile
from cloudgraft.drivers.libvirt.errors import error_of
from cloudgraft.drivers.libvirt.options import LibvirtOptions
from cloudgraft.sdk.errors import CloudgraftError, InternalError, UnavailableError

_SILENT: Final = 3  # keepalives that may be missing
_MOST: Final = 3  # attempts at a time: a daemon that accepts and does not answer blocks each one as long as it runs
_FORGOTTEN: Final = 600.0  # seconds after which an attempt no longer counts: its host may be gone
_PATIENCE: Final = 3  # times connect_timeout after which an attempt is given up for another
_events = threading.Lock()
_has_events = False


@contextmanager
def mapped_errors(what: str, *, is_change: bool = False) -> Iterator[None]:
    """Converts libvirt's errors in the block to ours; ``what`` names the action."""
    try:
        yield
    except libvirt.libvirtError as error:
        raise error_of(code_of(error), _message(error), what, is_change=is_change) from None
    except SystemError as error:  # libvirt's message is not UTF-8: its binding fails on it, and loses the code
        said = error.__cause__
        message = said.object.decode(errors="replace") if isinstance(said, UnicodeDecodeError) else str(error)
        raise error_of(0, " ".join(message.split()), what, is_change=is_change) from None


def code_of(error: libvirt.libvirtError) -> int:
    """Returns its code; 0 when it has none."""
    return int(error.get_error_code() or 0)


def _message(error: libvirt.libvirtError) -> str:
    return " ".join(str(error.get_error_message() or error).split())


class _Attempt:
    """One attempt to open it, in its own thread."""

    def __init__(self, options: LibvirtOptions, password: SecretFile | None) -> None:
        self.ended = threading.Event()
        self.began = time.monotonic()
        self.is_given_up = False
        self.connection: Any = None
        self.error: CloudgraftError | None = None
        self._options = options
        self._password = password
        threading.Thread(target=self._run, name="libvirt-open", daemon=True).start()

    def _run(self) -> None:
        try:
            with mapped_errors(f"connecting to {self._options.uri}"):
                self.connection = self._opened()
        except CloudgraftError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 - the waiting caller must get any error
            self.error = InternalError(f"connecting to {self._options.uri}: {type(error).__name__}: {error}")
        finally:
            self.ended.set()
            if self.is_given_up:
                self.connection = None

    def _opened(self) -> Any:
        _start_events()
        if self._password is None:
            connection = libvirt.open(self._options.address)
        else:
            kinds = [libvirt.VIR_CRED_USERNAME, libvirt.VIR_CRED_AUTHNAME, libvirt.VIR_CRED_PASSPHRASE]
            connection = libvirt.openAuth(self._options.address, [kinds, self._answer, self._password.read()], 0)
        connection.setKeepAlive(int(self._options.keepalive.total_seconds()), _SILENT)
        return connection

    def _answer(self, asked: list[list[Any]], password: str) -> int:
        """Fills in the credentials that the host asks for."""
        for one in asked:
            one[4] = password if one[0] == libvirt.VIR_CRED_PASSPHRASE else self._options.username
        return 0


class Connection:
    """Provides an open connection. Thread-safe."""

    def __init__(self, options: LibvirtOptions) -> None:
        self._options = options
        file = options.password_file
        self._password = SecretFile(path=file, option="passwordFile") if file is not None else None
        self._lock = threading.Lock()
        self._attempt: _Attempt | None = None
        self._given_up: list[_Attempt] = []  # each occupies a thread and a socket until it ends
        self._open: Any = None
        self._is_closed = False

    def get(self) -> Any:
        """Returns a connection that seems open; raises when none can be opened: nothing was done."""
        with self._lock:
            if self._is_closed:
                raise UnavailableError("this driver is closed")
            if self._open is not None and _is_alive(self._open):
                return self._open
            attempt = self._current()
        seconds = self._options.connect_timeout.total_seconds()
        if not attempt.ended.wait(seconds):
            raise UnavailableError(
                f"connecting to {self._options.uri}: no answer within {seconds:g} s. Nothing was done"
            )
        return self._settled(attempt)

    def _current(self) -> _Attempt:
        """Returns the current attempt, or a new one: with a host that is off, the old one never ends."""
        longest = _PATIENCE * self._options.connect_timeout.total_seconds()
        attempt = self._attempt
        now = time.monotonic()
        if attempt is not None and not attempt.ended.is_set() and now - attempt.began > longest:
            self._given_up = [one for one in self._given_up if not one.ended.is_set() and now - one.began < _FORGOTTEN]
            if len(self._given_up) < _MOST - 1:
                self._given_up.append(attempt)
                attempt.is_given_up, attempt = True, None
        if attempt is None:
            self._open = None
            attempt = self._attempt = _Attempt(self._options, self._password)
        return attempt

    def _settled(self, attempt: _Attempt) -> Any:
        with self._lock:
            if self._attempt is attempt:  # the first of several waiting callers
                self._attempt, self._open = None, attempt.connection
                if self._is_closed:
                    self._open = None
        if attempt.error is not None:
            raise type(attempt.error)(attempt.error.message, retry_after=attempt.error.retry_after)
        return attempt.connection

    def open(self) -> None:
        """Allows its use from now on, also after close()."""
        with self._lock:
            self._is_closed = False

    def close(self) -> None:
        """Releases it. Calls in flight still end by themselves."""
        with self._lock:
            self._is_closed = True
            self._open = None


def _is_alive(connection: Any) -> bool:
    """Returns whether it seems open; one that cannot be asked is not."""
    try:
        return bool(connection.isAlive())
    except libvirt.libvirtError:
        return False


def _start_events() -> None:
    """Starts libvirt's event loop, which sends keepalives: once per process, before the first connection."""
    global _has_events  # noqa: PLW0603 - libvirt has one such loop per process
    with _events:
        if _has_events:
            return
        libvirt.registerErrorHandler(_be_quiet, None)  # the default writes every error to stderr
        libvirt.virEventRegisterDefaultImpl()
        threading.Thread(target=_run_events, name="libvirt-events", daemon=True).start()
        _has_events = True


def _be_quiet(_context: object, _error: object) -> None:
    """Ignores the message: errors are raised."""


def _run_events() -> None:
    while True:
        with suppress(libvirt.libvirtError):
            libvirt.virEventRunDefaultImpl()
