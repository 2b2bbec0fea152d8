"""Manages one session with a vCenter for all threads, and maps its failures to our errors."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import Final, TypeVar
from xml.parsers.expat import ExpatError

from cloudgraft.drivers.common.error_table import error_of_status
from cloudgraft.drivers.common.secrets import SecretFile
from cloudgraft.drivers.vsphere.errors import error_of_fault
from cloudgraft.drivers.vsphere.options import VsphereOptions
from cloudgraft.drivers.vsphere.pyvmomi import Data, NotConnectedError, Reference, Transport, tls_context, vim, vmodl
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, InvalidArgumentError, UnavailableError
from cloudgraft.sdk.list_budget import bounded

T = TypeVar("T")
_STATUS: Final = re.compile(r"(\d{3}) ")


class Session:
    """Calls a vCenter. Logs in at the first call, and again when the vCenter has ended the session.

    A call gets the service's content, and makes exactly one request. It is repeated once when there was no session,
    since then nothing was done. A call that only reads is also repeated when its connection broke.
    """

    def __init__(self, options: VsphereOptions) -> None:
        self._options = options
        self._password = SecretFile(path=options.password_file, option="passwordFile")
        self._lock = threading.Lock()
        self._transport: Transport | None = None
        self._content: Data = None
        self._logins = 0  # so that of several threads that lost the session only one logs in

    def read(self, what: str, call: Callable[[Data], T]) -> T:
        """Makes a call that only reads."""
        try:
            return self._attempt(what, call, is_change=False)
        except _BrokenError as error:
            if error.is_timeout:
                raise UnavailableError(str(error)) from error
        try:
            return self._attempt(what, call, is_change=False)
        except _BrokenError as error:
            raise UnavailableError(str(error)) from error

    def change(self, what: str, call: Callable[[Data], T]) -> T:
        """Makes a call that changes something; DeadlineError when the outcome is unknown."""
        try:
            return self._attempt(what, call, is_change=True)
        except _BrokenError as error:
            raise DeadlineError(f"{error}; whether it was done is not known") from error

    def close(self) -> None:
        """Ends the session."""
        with self._lock:
            content, transport, self._content, self._transport = self._content, self._transport, None, None
        if content is not None:
            with suppress(Exception):  # a vCenter ends idle sessions by itself
                content.sessionManager.Logout()
        if transport is not None:
            transport.close()

    # -- one request ---------------------------------------------------------------------------------------------------

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
        """Returns the exception for a response without SOAP, of which the transport shows only the status line."""
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
        """Returns the service's content and the number of its login. Logs in unless another thread has done so."""
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
    """vCenter does not know our session: nothing was done."""


class _BrokenError(Exception):
    """A request was sent, and no response came."""

    def __init__(self, message: str, is_timeout: bool) -> None:  # noqa: FBT001 - raised in one place
        super().__init__(message)
        self.is_timeout = is_timeout


# -- properties of objects ---------------------------------------------------------------------------------------------
# Read in pages, through vCenter's PropertyCollector.

_COLLECTOR: Final = vmodl.query.PropertyCollector


@dataclass(frozen=True, slots=True)
class Found:
    """An object, and those of its properties that are set."""

    reference: Reference
    properties: Mapping[str, Data]


def children(session: Session, folder: Reference, kind: Data, paths: Sequence[str], page_size: int) -> list[Found]:
    """Returns the objects of this kind directly in a folder: every page, or an error."""
    step = _COLLECTOR.TraversalSpec(type=vim.Folder, path="childEntity", skip=False)
    start = _COLLECTOR.ObjectSpec(obj=folder, skip=True, selectSet=[step])
    return list(bounded(_pages(session, "list of virtual machines", [start], kind, paths, page_size)))


def properties_of_each(
    session: Session, what: str, references: Sequence[Reference], paths: Sequence[str]
) -> list[Found]:
    """Reads properties of several objects of one kind. Raises when one of them is gone."""
    if not references:
        return []
    objects = [_COLLECTOR.ObjectSpec(obj=reference, skip=False) for reference in references]
    return list(_pages(session, what, objects, type(references[0]), paths, 0))


def properties_of(session: Session, what: str, reference: Reference, paths: Sequence[str]) -> Mapping[str, Data]:
    """Reads properties of one object."""
    return properties_of_each(session, what, [reference], paths)[0].properties


def _pages(
    session: Session, what: str, objects: Sequence[Data], kind: Data, paths: Sequence[str], page_size: int
) -> Iterator[Found]:
    wanted = _COLLECTOR.PropertySpec(type=kind, pathSet=list(paths), all=False)
    spec = _COLLECTOR.FilterSpec(objectSet=list(objects), propSet=[wanted])
    options = _COLLECTOR.RetrieveOptions(maxObjects=page_size or None)
    page = session.read(
        what, lambda content: authenticated(content.propertyCollector.RetrievePropertiesEx([spec], options))
    )
    while page is not None:
        token = page.token
        try:
            yield from [_found(one, what) for one in page.objects]
            if not token:
                return
            page = _next_page(session, what, token)
        except BaseException:
            if token:
                _give_up(session, what, token)
            raise


def _next_page(session: Session, what: str, token: str) -> Data:
    try:
        return session.read(
            what, lambda content: authenticated(content.propertyCollector.ContinueRetrievePropertiesEx(token))
        )
    except InvalidArgumentError as error:  # vCenter sends each page once: a lost one cannot be read again
        raise UnavailableError(f"{what}: it broke off in the middle: {error.message}") from error


def _give_up(session: Session, what: str, token: str) -> None:
    with suppress(Exception):  # vCenter forgets the list with the session at the latest
        session.read(what, lambda content: content.propertyCollector.CancelRetrievePropertiesEx(token))


def authenticated(answer: Data) -> Data:
    """Returns the response. Without a session, vCenter may only say so for each property: that raises its fault."""
    for content in getattr(answer, "objects", answer) or ():
        for missing in content.missingSet or ():
            if isinstance(_fault(missing), vim.fault.NotAuthenticated):
                raise _fault(missing)
    return answer


def _fault(missing: Data) -> Data:
    return missing.fault.fault if hasattr(missing.fault, "fault") else missing.fault


def _found(content: Data, what: str) -> Found:
    for missing in content.missingSet or ():
        fault = _fault(missing)
        if not isinstance(fault, vmodl.fault.ManagedObjectNotFound):
            raise error_of_fault(fault, f"{what}: {missing.path}", is_change=False)
    return Found(content.obj, {prop.name: prop.val for prop in content.propSet or ()})
