"""Manages one session with a vCenter for all threads, and maps its failures to our errors."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from typing import Final, TypeVar
from xml.parsers.expat import ExpatError

from cloudgraft.drivers.common.error_table import error_of_status
from cloudgraft.drivers.common.secrets import SecretFile
from cloudgraft.drivers.vsphere.errors import error_of_fault
from cloudgraft.drivers.vsphere.options import VsphereOptions
from cloudgraft.drivers.vsphere.pyvmomi import Data, NotConnectedError, Transport, tls_context, vim, vmodl
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, UnavailableError

T = TypeVar("T")
_STATUS: Final = re.compile(r"(\d{3}) ")


class Session:
    """Calls to a vCenter. It logs in when it is first needed, and again when the vCenter has ended the session.

    A call gets the service's content, and makes exactly one request: it is made a second time when there was no
    session, since then nothing was done, and a call that only reads also when its connection broke.
    """

    def __init__(self, options: VsphereOptions) -> None:
        self._options = options
        self._password = SecretFile(path=options.password_file, option="passwordFile")
        self._lock = threading.Lock()
        self._transport: Transport | None = None
        self._content: Data = None
        self._logins = 0  # counted, so that of several threads that lost the session one logs in

    def read(self, what: str, call: Callable[[Data], T]) -> T:
        """Asks something."""
        try:
            return self._attempt(what, call, is_change=False)
        except _BrokenError as error:
            return self._again(error, what, call)

    def change(self, what: str, call: Callable[[Data], T]) -> T:
        """Changes something. DeadlineError when the outcome is unknown."""
        try:
            return self._attempt(what, call, is_change=True)
        except _BrokenError as error:
            raise DeadlineError(f"{error}; whether it was done is not known") from error

    def close(self) -> None:
        """Ends the session."""
        with self._lock:
            content, transport, self._content, self._transport = self._content, self._transport, None, None
        if content is not None:
            with suppress(Exception):  # only good manners: a vCenter ends idle sessions by itself
                content.sessionManager.Logout()
        if transport is not None:
            transport.close()

    # -- one request ---------------------------------------------------------------------------------------------------

    def _again(self, error: _BrokenError, what: str, call: Callable[[Data], T]) -> T:
        if error.is_timeout:
            raise UnavailableError(str(error)) from error
        try:
            return self._attempt(what, call, is_change=False)
        except _BrokenError as second:
            raise UnavailableError(str(second)) from second

    def _attempt(self, what: str, call: Callable[[Data], T], *, is_change: bool) -> T:
        content, logins = self._logged_in()
        try:
            return self._request(what, lambda: call(content), is_change=is_change)
        except _NoSessionError:
            content, _ = self._logged_in(lost=logins)
        try:
            return self._request(what, lambda: call(content), is_change=is_change)
        except _NoSessionError as error:
            raise UnavailableError(f"{what}: vCenter ended a session that has just begun") from error

    def _request(self, what: str, call: Callable[[], T], *, is_change: bool) -> T:
        try:
            return call()
        except vim.fault.NotAuthenticated as fault:
            raise _NoSessionError from fault
        except vmodl.MethodFault as fault:
            raise error_of_fault(fault, what, is_change=is_change) from fault
        except NotConnectedError as error:
            raise UnavailableError(f"{what}: cannot connect to {self._options.server}: {error}") from error
        except HTTPException as error:
            raise self._of_answer(error, what, is_change=is_change) from error
        except (OSError, ExpatError, TypeError, ValueError, LookupError, AttributeError) as error:
            raise self._broken(error, what) from error  # also an answer that pyVmomi cannot read

    def _of_answer(self, error: HTTPException, what: str, *, is_change: bool) -> CloudgraftError | _BrokenError:
        """The transport tells an answer that is no SOAP by its status line alone."""
        status = _STATUS.match(str(error))
        if status is None:
            return self._broken(error, what)
        return error_of_status(int(status[1]), f"{what}: {self._options.server} says {error}", is_change=is_change)

    def _broken(self, error: Exception, what: str) -> _BrokenError:
        name = type(error).__name__
        said = f"{name}: {error}" if str(error) else name
        return _BrokenError(f"{what}: no answer of {self._options.server}: {said}", isinstance(error, TimeoutError))

    # -- the session ---------------------------------------------------------------------------------------------------

    def _logged_in(self, lost: int = 0) -> tuple[Data, int]:
        """The service's content; after a login, unless another thread was quicker than the one that lost it."""
        if self._content is not None and self._logins > lost:
            return self._content, self._logins
        with self._lock:
            if self._content is None or self._logins <= lost:
                self._login()
            return self._content, self._logins

    def _login(self) -> None:
        what = "login"
        if self._transport is None:
            self._transport = Transport(self._options, tls_context(self._options))
        transport = self._transport
        transport.forget_session()
        password = self._password.read()
        service = vim.ServiceInstance("ServiceInstance", transport)
        try:
            content = self._request(what, service.RetrieveContent, is_change=False)
            manager = content.sessionManager
            self._request(what, lambda: manager.Login(self._options.user, password, None), is_change=False)
        except (_BrokenError, _NoSessionError) as error:
            raise UnavailableError(str(error) or "login: vCenter gives no session") from error
        self._content = content
        self._logins += 1


class _NoSessionError(Exception):
    """vCenter knows no session of ours: nothing was done."""


class _BrokenError(Exception):
    """A request was sent, and no answer came."""

    def __init__(self, message: str, is_timeout: bool) -> None:  # noqa: FBT001 - raised in one place
        super().__init__(message)
        self.is_timeout = is_timeout
