"""Manages one connection to a host for all threads: libvirt allows them to share it.

It is opened when it is first needed, and again when it broke. Opening is done by a thread of its own, so that a host
that does not answer keeps nobody waiting for longer than ``connect_timeout``. Both sides send each other signs of life:
without them a call to a host that has died would never end.

It is never closed by a word of ours, only let go: it ends with the last call that uses it. Closed under a call, libvirt
reads memory that was given back, and takes the process with it.
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

__all__ = ["Connection", "code_of", "told"]

_SILENT: Final = 3  # signs of life that may be missing
_MOST: Final = 3  # attempts at a time: a daemon that accepts and does not answer holds each for as long as it runs
_FORGOTTEN: Final = 600.0  # seconds after which one counts no more: its host may have gone without a word
_PATIENCE: Final = 3  # times connect_timeout after which an attempt is given up, and another is made
_events = threading.Lock()
_has_events = False


@contextmanager
def told(what: str, *, is_change: bool = False) -> Iterator[None]:
    """What libvirt raises in the block, in our words; ``what`` is being done there."""
    try:
        yield
    except libvirt.libvirtError as error:
        raise error_of(code_of(error), _message(error), what, is_change=is_change) from None
    except SystemError as error:  # libvirt's words are no UTF-8: its binding stumbles over them, and loses the number
        said = error.__cause__
        message = said.object.decode(errors="replace") if isinstance(said, UnicodeDecodeError) else str(error)
        raise error_of(0, " ".join(message.split()), what, is_change=is_change) from None


def code_of(error: libvirt.libvirtError) -> int:
    """Its number; 0 when it has none."""
    return int(error.get_error_code() or 0)


def _message(error: libvirt.libvirtError) -> str:
    return " ".join(str(error.get_error_message() or error).split())


class _Attempt:
    """One try to open it, in a thread of its own."""

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
            with told(f"connecting to {self._options.uri}"):
                self.connection = self._opened()
        except CloudgraftError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 - whoever waits must be told, whatever it is
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
        """Fills in what the host asks for."""
        for one in asked:
            one[4] = password if one[0] == libvirt.VIR_CRED_PASSPHRASE else self._options.username
        return 0


class Connection:
    """Gives out an open connection. Its methods may be called by several threads."""

    def __init__(self, options: LibvirtOptions) -> None:
        self._options = options
        file = options.password_file
        self._password = SecretFile(path=file, option="passwordFile") if file is not None else None
        self._lock = threading.Lock()
        self._attempt: _Attempt | None = None
        self._given_up: list[_Attempt] = []  # each holds a thread and a socket until it ends
        self._open: Any = None
        self._is_closed = False

    def get(self) -> Any:
        """A connection that is open as far as one can tell; raises when there is none to be had: nothing was done."""
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
        """The attempt that is under way, or a new one: a host that was switched off never ends the old one."""
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
            if self._attempt is attempt:  # the first of those who waited
                self._attempt, self._open = None, attempt.connection
                if self._is_closed:
                    self._open = None
        if attempt.error is not None:
            raise type(attempt.error)(attempt.error.message, retry_after=attempt.error.retry_after)
        return attempt.connection

    def open(self) -> None:
        """It may be used from now on, also after it was closed."""
        with self._lock:
            self._is_closed = False

    def close(self) -> None:
        """Lets it go. Calls that are under way still end by themselves."""
        with self._lock:
            self._is_closed = True
            self._open = None


def _is_alive(connection: Any) -> bool:
    """As far as one can tell; one that cannot even be asked is not."""
    try:
        return bool(connection.isAlive())
    except libvirt.libvirtError:
        return False


def _start_events() -> None:
    """Once per process, before the first connection: signs of life are sent by libvirt's own loop of events."""
    global _has_events  # noqa: PLW0603 - libvirt has one such loop per process
    with _events:
        if _has_events:
            return
        libvirt.registerErrorHandler(_be_quiet, None)  # it would write every error to stderr
        libvirt.virEventRegisterDefaultImpl()
        threading.Thread(target=_run_events, name="libvirt-events", daemon=True).start()
        _has_events = True


def _be_quiet(_context: object, _error: object) -> None:
    """What is wrong is raised."""


def _run_events() -> None:
    while True:
        with suppress(libvirt.libvirtError):
            libvirt.virEventRunDefaultImpl()
